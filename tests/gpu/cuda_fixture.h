/* SPDX-License-Identifier: MIT */
/* What the tests of the CUDA back end stand on: two contexts of GPU 0, a file, and a pattern. */
#ifndef CUDA_FIXTURE_H
#define CUDA_FIXTURE_H

#include <peerlane/gpu.h>

#include "fake/cuda_abi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define BYTES (9 * MIB + 13) /* of one transfer, and of the pattern */
#define ROOM (12 * MIB)	     /* of the scratch memory */

static void *library;
static struct cuda_abi cu;
static int nr_gpus;
static bool fake;	       /* no GPU: as far as that goes */
static void *primary, *second; /* contexts: of GPU 0 and made by the program */
static struct peerlane *ctx;
static struct peerlane_file *file;
static int fd;
static unsigned char *pattern, *scratch;

static void enter(void *context)
{
	assert_int_equal(cu.cuCtxPushCurrent_v2(context), 0);
}

static void leave(void)
{
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
}

static int setup(void **state)
{
	const struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda" };
	char path[] = "/tmp/peerlane-test-XXXXXX";
	int dev;

	(void)state;
	assert_int_equal(cu.cuDeviceGet(&dev, 0), 0);
	assert_int_equal(cu.cuDevicePrimaryCtxRetain(&primary, dev), 0);
	assert_int_equal(cu.cuCtxCreate_v2(&second, 0, dev), 0);
	assert_int_equal(cu.cuCtxSetCurrent(NULL), 0);
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	pattern = malloc(BYTES);
	scratch = malloc(ROOM);
	assert_true(pattern && scratch);
	for (size_t i = 0; i < BYTES; i++)
		pattern[i] = (unsigned char)(i * 31 + i / 4093);
	return 0;
}

static int teardown(void **state)
{
	void *sym = dlsym(library, "fake_cuda_leaks");
	__typeof__(fake_cuda_leaks) *leaks = NULL;
	char text[1024];

	(void)state;
	/* The fake libcuda also tells what the library forgot, other than in contexts that the tests
	 * destroyed. */
	if (sym)
		memcpy(&leaks, &sym, sizeof(sym));
	if (leaks)
		leaks(text, sizeof(text));
	assert_int_equal(peerlane_file_close(file), 0);
	peerlane_close(ctx);
	close(fd);
	free(pattern);
	free(scratch);
	assert_int_equal(cu.cuCtxDestroy_v2(second), 0);
	assert_int_equal(cu.cuDevicePrimaryCtxRelease_v2(0), 0);
	if (leaks && leaks(text, sizeof(text)))
		fail_msg("leaked: %s", text);
	return 0;
}

/* NULL, or why there is nothing to test on. */
static const char *start_cuda(void)
{
	const char *name = getenv("PEERLANE_LIBCUDA"), *missing;

	fake = getenv("FAKE_CUDA");
	library = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);
	if (!library)
		return dlerror();
	missing = cuda_abi_load(&cu, library);
	if (missing)
		return missing;
	if (cu.cuInit(0) || cu.cuDeviceGetCount(&nr_gpus) || nr_gpus < 1)
		return "the CUDA driver does not start";
	return NULL;
}

static int skip_all(const char *why)
{
	printf("no GPU to test on: %s\n", why);
	return 77;
}

#endif
