/* SPDX-License-Identifier: MIT */
/*
 * The binary interface of libcuda as far as the fake has it and tests call it, with plain types:
 * results are CUresult, contexts, streams, events and modules are opaque pointers.
 */
#ifndef TESTS_FAKE_CUDA_ABI_H
#define TESTS_FAKE_CUDA_ABI_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	CU_OK = 0,
	CU_INVALID_VALUE = 1,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_INITIALIZED = 3,
	CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101,
	CU_INVALID_CONTEXT = 201,
	CU_INVALID_PTX = 218,
	CU_INVALID_HANDLE = 400,
	CU_NOT_FOUND = 500,
	CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700,
	CU_ALREADY_REGISTERED = 712,
	CU_NOT_REGISTERED = 713,
	CU_NOT_PERMITTED = 800,
	CU_NOT_SUPPORTED = 801,
	CU_CAPTURE_INVALIDATED = 901,
	CU_CAPTURE_IMPLICIT = 906,
};

enum {
	CU_PTR_CONTEXT = 1,
	CU_PTR_MEMORY_TYPE = 2,
	CU_PTR_DEVICE_POINTER = 3,
	CU_PTR_HOST_POINTER = 4,
	CU_PTR_SYNC_MEMOPS = 6,
	CU_PTR_IS_MANAGED = 8,
	CU_PTR_DEVICE_ORDINAL = 9,
	CU_PTR_RANGE_START = 11,
	CU_PTR_RANGE_SIZE = 12,
	CU_PTR_POOL = 17,
};

#define CU_MEMORY_HOST 1u
#define CU_MEMORY_DEVICE 2u
#define CU_MEM_ATTACH_GLOBAL 0x1u
#define CU_REGISTER_READ_ONLY 0x8u
#define CU_STREAM_DEFAULT 0x0u
#define CU_STREAM_NON_BLOCKING 0x1u
#define CU_STREAM_LEGACY ((void *)0x1)
#define CU_STREAM_PER_THREAD ((void *)0x2)

struct cu_location {
	int type; /* 1: device */
	int id;
};

struct cu_alloc_prop {
	int type; /* 1: pinned */
	int handle_types;
	struct cu_location location;
	void *win32;
	unsigned char flags[8];
};

struct cu_access {
	struct cu_location location;
	int flags; /* 3: read and write */
};

/* How copies of a list are made; the order is that of the stream or any of two others. */
struct cu_copy_how {
	int order, src_type, src_id, dst_type, dst_id;
	unsigned int flags;
};

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuGetErrorName(int result, const char **name);
int cuDeviceGetCount(int *nr);
int cuDeviceGet(int *dev, int ordinal);
int cuDeviceGetName(char *name, int bytes, int dev);
int cuDeviceGetPCIBusId(char *id, int bytes, int dev);
int cuDeviceTotalMem_v2(size_t *bytes, int dev);
int cuDeviceGetAttribute(int *value, int attribute, int dev);

int cuDevicePrimaryCtxRetain(void **ctx, int dev);
int cuDevicePrimaryCtxRelease_v2(int dev);
int cuCtxCreate_v2(void **ctx, unsigned int flags, int dev);
int cuCtxDestroy_v2(void *ctx);
int cuCtxPushCurrent_v2(void *ctx);
int cuCtxPopCurrent_v2(void **ctx);
int cuCtxSetCurrent(void *ctx);
int cuCtxGetCurrent(void **ctx);
int cuCtxGetId(void *ctx, unsigned long long *id);
int cuCtxSynchronize(void);
int cuCtxGetStreamPriorityRange(int *lowest, int *highest);

int cuPointerGetAttributes(unsigned int nr, const int *what, void **where, uint64_t addr);
int cuPointerSetAttribute(const void *value, int what, uint64_t addr);
int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int cuMemFree_v2(uint64_t addr);
int cuMemAllocManaged(uint64_t *addr, size_t bytes, unsigned int flags);
int cuMemHostAlloc(void **addr, size_t bytes, unsigned int flags);
int cuMemFreeHost(void *addr);
int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned int flags);
int cuMemHostUnregister(void *addr);
int cuMemHostGetDevicePointer_v2(uint64_t *out, void *addr, unsigned int flags);
int cuMemAllocAsync(uint64_t *addr, size_t bytes, void *stream);
int cuMemFreeAsync(uint64_t addr, void *stream);

int cuMemAddressReserve(uint64_t *addr, size_t bytes, size_t align, uint64_t wish, uint64_t flags);
int cuMemAddressFree(uint64_t addr, size_t bytes);
int cuMemCreate(uint64_t *handle, size_t bytes, const struct cu_alloc_prop *prop, uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, uint64_t flags);
int cuMemUnmap(uint64_t addr, size_t bytes);
int cuMemSetAccess(uint64_t addr, size_t bytes, const struct cu_access *list, size_t nr);
int cuMemGetAllocationGranularity(size_t *bytes, const struct cu_alloc_prop *prop, int option);

int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes);
int cuMemcpyHtoD_v2_ptds(uint64_t dst, const void *src, size_t bytes);
int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, size_t bytes);
int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, void *stream);
int cuMemcpyBatchAsync_v2(uint64_t *dst, uint64_t *src, size_t *bytes, size_t nr,
			  struct cu_copy_how *how, size_t *first, size_t nr_how, void *stream);
int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes);
int cuMemsetD8_v2_ptds(uint64_t dst, unsigned char value, size_t bytes);
int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t bytes, void *stream);

int cuStreamCreate(void **stream, unsigned int flags);
int cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamQuery(void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned int flags);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuStreamIsCapturing(void *stream, int *status);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuStreamGetCtx(void *stream, void **ctx);
int cuStreamWriteValue32_v2(void *stream, uint64_t addr, uint32_t value, unsigned int flags);
int cuStreamWaitValue32_v2(void *stream, uint64_t addr, uint32_t value, unsigned int flags);
int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg);

int cuEventCreate(void **event, unsigned int flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);

int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		   unsigned int block_x, unsigned int block_y, unsigned int block_z,
		   unsigned int shared_bytes, void *stream, void **args, void **extra);

/* The fake only. Each returns a number and writes a line for each thing found into @text. */

/* Live allocations, streams, events, modules and pushed contexts, and what still lived when its
 * context was destroyed. */
int fake_cuda_leaks(char *text, size_t bytes);
/* Rules broken so far: calls from host functions, after fork, with stale handles; forgets them. */
int fake_cuda_violations(char *text, size_t bytes);
/* Sets the failures to inject, as FAKE_CUDA_FAIL does; NULL clears them. 0 or -EINVAL. */
int fake_cuda_fail(const char *spec);

/* How strict the fake is beyond the rules, for calls while streams are waiting: */
#define FAKE_STRICT_CALLS 1u /* threads of Peerlane make none while a stream is served */
#define FAKE_STRICT_LOCK 2u  /* some wait for all streams and keep all other calls out meanwhile */
#define FAKE_STALL 4u	     /* kernels that serve a stream copy nothing */
#define FAKE_LATE 8u	     /* they do so only a while after they are told to end, and then end */
/* Sets these and returns what was set before. */
unsigned int fake_cuda_strict(unsigned int flags);

/* What tests call, for cuda_abi_load(). */
#define CUDA_ABI(X)                                                                                \
	X(cuInit)                                                                                  \
	X(cuDeviceGetCount)                                                                        \
	X(cuDeviceGet)                                                                             \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuDevicePrimaryCtxRelease_v2)                                                            \
	X(cuCtxCreate_v2)                                                                          \
	X(cuCtxDestroy_v2)                                                                         \
	X(cuCtxPushCurrent_v2)                                                                     \
	X(cuCtxPopCurrent_v2)                                                                      \
	X(cuCtxSetCurrent)                                                                         \
	X(cuCtxGetCurrent)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemFree_v2)                                                                            \
	X(cuMemAllocManaged)                                                                       \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemFreeHost)                                                                           \
	X(cuMemHostRegister_v2)                                                                    \
	X(cuMemHostUnregister)                                                                     \
	X(cuMemAllocAsync)                                                                         \
	X(cuMemFreeAsync)                                                                          \
	X(cuMemAddressReserve)                                                                     \
	X(cuMemAddressFree)                                                                        \
	X(cuMemCreate)                                                                             \
	X(cuMemRelease)                                                                            \
	X(cuMemMap)                                                                                \
	X(cuMemUnmap)                                                                              \
	X(cuMemSetAccess)                                                                          \
	X(cuMemGetAllocationGranularity)                                                           \
	X(cuMemcpyHtoD_v2)                                                                         \
	X(cuMemcpyHtoD_v2_ptds)                                                                    \
	X(cuMemcpyDtoD_v2)                                                                         \
	X(cuMemcpyDtoH_v2)                                                                         \
	X(cuMemsetD8_v2)                                                                           \
	X(cuMemsetD8_v2_ptds)                                                                      \
	X(cuMemsetD8Async)                                                                         \
	X(cuStreamCreate)                                                                          \
	X(cuStreamDestroy_v2)                                                                      \
	X(cuStreamBeginCapture_v2)                                                                 \
	X(cuStreamEndCapture)                                                                      \
	X(cuStreamSynchronize)                                                                     \
	X(cuLaunchHostFunc)                                                                        \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleUnload)

struct cuda_abi {
#define X(symbol) __typeof__(symbol) *symbol;
	CUDA_ABI(X)
#undef X
};

/* Finds the functions in a library; returns the name of the first one missing, or NULL. */
static inline const char *cuda_abi_load(struct cuda_abi *abi, void *library)
{
	void *sym;

#define X(symbol)                                                                                  \
	sym = dlsym(library, #symbol);                                                             \
	if (!sym)                                                                                  \
		return #symbol;                                                                    \
	memcpy(&abi->symbol, &sym, sizeof(sym));
	CUDA_ABI(X)
#undef X
	return NULL;
}

#endif
