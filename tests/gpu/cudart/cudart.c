// SPDX-License-Identifier: MIT
/* See cuda_runtime.h beside it. */
#include "cuda_runtime.h"

#include <peerlane/gpu.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct peerlane *ctx;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_gpu(void)
{
	if (peerlane_open(&ctx, NULL))
		abort();
}

static struct peerlane *gpu(void)
{
	pthread_once(&once, open_gpu);
	return ctx;
}

static cudaError_t outcome(int err)
{
	return err ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	return device == 0 && gpu() ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMalloc(void **addr, size_t bytes)
{
	return peerlane_gpu_alloc(gpu(), 0, bytes, addr) ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void *addr)
{
	return outcome(peerlane_gpu_free(gpu(), addr));
}

cudaError_t cudaMemset(void *addr, int byte, size_t bytes)
{
	char *mem = malloc(bytes);
	int err = mem ? 0 : -1;

	if (!err) {
		memset(mem, byte, bytes);
		err = peerlane_gpu_copy(gpu(), addr, mem, bytes);
	}
	free(mem);
	return outcome(err);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	(void)kind;
	return outcome(peerlane_gpu_copy(gpu(), dst, src, bytes));
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error ? "an error" : "no error";
}

const char *cudaGetErrorString(cudaError_t error)
{
	return cudaGetErrorName(error);
}
