/* SPDX-License-Identifier: MIT */
/* Stands in for the header of the CUDA driver where a client includes it without using it. */
#ifndef TESTS_GPU_CUDART_CUDA_H
#define TESTS_GPU_CUDART_CUDA_H
#endif
