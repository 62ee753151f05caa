// SPDX-License-Identifier: MIT
/* Loads the CUDA driver library and looks up the calls that cuda_min.h names. */
#include "cuda_min.h"
#include "symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static const struct pl_symbol symbols[] = {
	/* first, so that a failure of the others can be named */
	{ "cuGetErrorName", offsetof(struct pl_cuda_min, get_error_name) },
	{ "cuInit", offsetof(struct pl_cuda_min, init) },
	{ "cuDeviceGet", offsetof(struct pl_cuda_min, device_get) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct pl_cuda_min, primary_ctx_retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct pl_cuda_min, primary_ctx_release) },
	{ "cuCtxSetCurrent", offsetof(struct pl_cuda_min, ctx_set_current) },
	{ "cuCtxSynchronize", offsetof(struct pl_cuda_min, ctx_synchronize) },
	{ "cuMemAlloc_v2", offsetof(struct pl_cuda_min, mem_alloc) },
	{ "cuMemFree_v2", offsetof(struct pl_cuda_min, mem_free) },
	{ "cuMemHostAlloc", offsetof(struct pl_cuda_min, mem_host_alloc) },
	{ "cuMemFreeHost", offsetof(struct pl_cuda_min, mem_free_host) },
	{ "cuMemsetD8_v2", offsetof(struct pl_cuda_min, memset_d8) },
	{ "cuMemcpyHtoD_v2", offsetof(struct pl_cuda_min, memcpy_htod) },
	{ "cuMemcpyDtoH_v2", offsetof(struct pl_cuda_min, memcpy_dtoh) },
	{ "cuMemcpyHtoDAsync_v2", offsetof(struct pl_cuda_min, memcpy_htod_async) },
	{ "cuMemcpyDtoHAsync_v2", offsetof(struct pl_cuda_min, memcpy_dtoh_async) },
	{ "cuStreamCreateWithPriority", offsetof(struct pl_cuda_min, stream_create) },
	{ "cuStreamDestroy_v2", offsetof(struct pl_cuda_min, stream_destroy) },
	{ "cuStreamSynchronize", offsetof(struct pl_cuda_min, stream_synchronize) },
};

static int fail(struct pl_cuda_min *cu, int err, int result, const char *why)
{
	cu->why = why;
	cu->result = result;
	return err;
}

int pl_cuda_min_open(struct pl_cuda_min *cu, int ordinal)
{
	const char *missing;
	int r;

	memset(cu, 0, sizeof(*cu));
	cu->lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!cu->lib)
		return fail(cu, -ENOENT, 0, "no CUDA driver library (libcuda.so.1)");
	missing = pl_symbols_load(cu->lib, symbols, sizeof(symbols) / sizeof(symbols[0]), cu);
	if (missing)
		return fail(cu, -ENOSYS, 0, missing);
	r = cu->init(0);
	if (r)
		return fail(cu, -ENODEV, r, "cuInit failed");
	r = cu->device_get(&cu->device, ordinal);
	if (r)
		return fail(cu, -ENODEV, r, "no such CUDA device");
	r = cu->primary_ctx_retain(&cu->context, cu->device);
	if (r) {
		cu->context = NULL;
		return fail(cu, -EIO, r, "no primary context");
	}
	r = cu->ctx_set_current(cu->context);
	if (r)
		return fail(cu, -EIO, r, "the primary context cannot be made current");
	return 0;
}

void pl_cuda_min_close(struct pl_cuda_min *cu)
{
	if (!cu || !cu->lib)
		return;
	if (cu->context)
		cu->primary_ctx_release(cu->device);
	dlclose(cu->lib);
	memset(cu, 0, sizeof(*cu));
}

int pl_cuda_min_enter(const struct pl_cuda_min *cu)
{
	return cu->ctx_set_current(cu->context);
}

const char *pl_cuda_min_name(const struct pl_cuda_min *cu, int result)
{
	const char *name = NULL;

	if (cu->get_error_name && !cu->get_error_name(result, &name) && name)
		return name;
	return result ? "unknown CUDA result" : "no CUDA result";
}
