/* SPDX-License-Identifier: MIT */
/*
 * The few calls of the CUDA runtime that fio's libcufile engine makes, over peerlane/gpu.h: so it
 * can be built without CUDA and run on a GPU or on the simulator.
 */
#ifndef TESTS_GPU_CUDART_CUDA_RUNTIME_H
#define TESTS_GPU_CUDART_CUDA_RUNTIME_H

#include <stddef.h>

typedef enum cudaError {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorUnknown = 999,
} cudaError_t;

enum cudaMemcpyKind {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault,
};

cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void **addr, size_t bytes);
cudaError_t cudaFree(void *addr);
cudaError_t cudaMemset(void *addr, int byte, size_t bytes);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

#endif
