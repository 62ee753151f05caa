/* SPDX-License-Identifier: MIT */
/* The few CUDA driver calls the measuring programs need, found at run time: nothing links CUDA. */
#ifndef PEERLANE_BENCH_CUDA_MIN_H
#define PEERLANE_BENCH_CUDA_MIN_H

#include <stddef.h>
#include <stdint.h>

/* Flags and results of the driver API, by the numbers of its ABI. */
#define PL_CUDA_MIN_HOST_PORTABLE 1u
#define PL_CUDA_MIN_STREAM_NON_BLOCKING 1u

/**
 * struct pl_cuda_min - the driver API as loaded, and the primary context of one device
 * @why: a sentence on what failed, valid after pl_cuda_min_open() failed
 * @result: the CUDA result behind @why, 0 when no CUDA call was reached
 *
 * The members that are functions carry the driver's names without the prefix "cu" and return a
 * CUDA result. Device addresses are plain 64-bit numbers, streams and contexts plain pointers.
 */
struct pl_cuda_min {
	const char *why;
	int result;

	/* private: */
	void *lib;
	int device;
	void *context;

	/* public: */
	int (*init)(unsigned int flags);
	int (*get_error_name)(int result, const char **name);
	int (*device_get)(int *device, int ordinal);
	int (*primary_ctx_retain)(void **context, int device);
	int (*primary_ctx_release)(int device);
	int (*ctx_set_current)(void *context);
	int (*ctx_synchronize)(void);
	int (*mem_alloc)(uint64_t *address, size_t bytes);
	int (*mem_free)(uint64_t address);
	int (*mem_host_alloc)(void **memory, size_t bytes, unsigned int flags);
	int (*mem_free_host)(void *memory);
	int (*memset_d8)(uint64_t address, unsigned char value, size_t bytes);
	int (*memcpy_htod)(uint64_t to, const void *from, size_t bytes);
	int (*memcpy_dtoh)(void *to, uint64_t from, size_t bytes);
	int (*memcpy_htod_async)(uint64_t to, const void *from, size_t bytes, void *stream);
	int (*memcpy_dtoh_async)(void *to, uint64_t from, size_t bytes, void *stream);
	int (*stream_create)(void **stream, unsigned int flags, int priority);
	int (*stream_destroy)(void *stream);
	int (*stream_synchronize)(void *stream);
};

/**
 * pl_cuda_min_open - load the driver library and make a device's primary context current
 * @cu: filled in; need not be initialised
 * @ordinal: number of the device, from 0
 *
 * Return: 0; -ENOENT without the driver library, -ENOSYS when it lacks a call, -ENODEV without
 * such a device, -EIO when the context cannot be had. @cu->why and @cu->result tell more.
 * Context: the calling thread gets the context; others call pl_cuda_min_enter().
 */
int pl_cuda_min_open(struct pl_cuda_min *cu, int ordinal);

/**
 * pl_cuda_min_close - release the context and unload the library
 * @cu: opened, half opened, or NULL
 */
void pl_cuda_min_close(struct pl_cuda_min *cu);

/**
 * pl_cuda_min_enter - make the context current in the calling thread
 * @cu: opened
 *
 * Return: a CUDA result, 0 on success.
 */
int pl_cuda_min_enter(const struct pl_cuda_min *cu);

/**
 * pl_cuda_min_name - the name of a CUDA result
 * @cu: opened or half opened
 * @result: what a call returned
 *
 * Return: a string that stays valid, never NULL.
 */
const char *pl_cuda_min_name(const struct pl_cuda_min *cu, int result);

#endif
