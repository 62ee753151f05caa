/* SPDX-License-Identifier: MIT */
/* The driver calls that sync_cost measures, found at run time, and what its files share. */
#ifndef PEERLANE_BENCH_SYNC_CUDA_H
#define PEERLANE_BENCH_SYNC_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRIES 200
#define LARGE ((size_t)1 << 20)
#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)
#define PTR_SYNC_MEMOPS 6
#define PTR_BUFFER_ID 7
#define NOT_READY 600

struct location {
	int type, id;
};

struct prop {
	int type, handle_types;
	struct location location;
	void *win32;
	unsigned char flags[8];
};

struct access {
	struct location location;
	int flags;
};

struct ipc {
	char reserved[64];
};

#define CALLS(X)                                                                                   \
	X(cuInit, (unsigned int))                                                                  \
	X(cuDriverGetVersion, (int *))                                                             \
	X(cuDeviceGetName, (char *, int, int))                                                     \
	X(cuDevicePrimaryCtxRetain, (void **, int))                                                \
	X(cuCtxCreate_v2, (void **, unsigned int, int))                                            \
	X(cuCtxSetCurrent, (void *))                                                               \
	X(cuCtxPushCurrent_v2, (void *))                                                           \
	X(cuCtxPopCurrent_v2, (void **))                                                           \
	X(cuCtxGetId, (void *, unsigned long long *))                                              \
	X(cuCtxSynchronize, (void))                                                                \
	X(cuMemAlloc_v2, (uint64_t *, size_t))                                                     \
	X(cuMemFree_v2, (uint64_t))                                                                \
	X(cuMemAllocAsync, (uint64_t *, size_t, void *))                                           \
	X(cuMemAllocManaged, (uint64_t *, size_t, unsigned int))                                   \
	X(cuMemHostAlloc, (void **, size_t, unsigned int))                                         \
	X(cuMemGetAllocationGranularity, (size_t *, const struct prop *, int))                     \
	X(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, uint64_t))                   \
	X(cuMemCreate, (uint64_t *, size_t, const struct prop *, uint64_t))                        \
	X(cuMemMap, (uint64_t, size_t, size_t, uint64_t, uint64_t))                                \
	X(cuMemSetAccess, (uint64_t, size_t, const struct access *, size_t))                       \
	X(cuIpcGetMemHandle, (struct ipc *, uint64_t))                                             \
	X(cuIpcOpenMemHandle_v2, (uint64_t *, struct ipc, unsigned int))                           \
	X(cuPointerGetAttribute, (void *, int, uint64_t))                                          \
	X(cuPointerGetAttributes, (unsigned int, int *, void **, uint64_t))                        \
	X(cuPointerSetAttribute, (const void *, int, uint64_t))                                    \
	X(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                       \
	X(cuMemcpyHtoD_v2_ptds, (uint64_t, const void *, size_t))                                  \
	X(cuMemcpyDtoD_v2, (uint64_t, uint64_t, size_t))                                           \
	X(cuMemsetD8_v2, (uint64_t, unsigned char, size_t))                                        \
	X(cuMemsetD8_v2_ptds, (uint64_t, unsigned char, size_t))                                   \
	X(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *))                          \
	X(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *))                                \
	X(cuStreamCreateWithPriority, (void **, unsigned int, int))                                \
	X(cuStreamDestroy_v2, (void *))                                                            \
	X(cuStreamSynchronize, (void *))                                                           \
	X(cuStreamQuery, (void *))                                                                 \
	X(cuStreamWaitEvent, (void *, void *, unsigned int))                                       \
	X(cuStreamBeginCapture_v2, (void *, int))                                                  \
	X(cuStreamEndCapture, (void *, void **))                                                   \
	X(cuStreamIsCapturing, (void *, int *))                                                    \
	X(cuThreadExchangeStreamCaptureMode, (int *))                                              \
	X(cuEventCreate, (void **, unsigned int))                                                  \
	X(cuEventRecord, (void *, void *))                                                         \
	X(cuEventQuery, (void *))                                                                  \
	X(cuModuleLoadData, (void **, const void *))                                               \
	X(cuModuleGetFunction, (void **, void *, const char *))                                    \
	X(cuLaunchKernel, (void *, unsigned int, unsigned int, unsigned int, unsigned int,         \
			   unsigned int, unsigned int, unsigned int, void *, void **, void **))

#define X(symbol, args) extern int(*symbol) args;
CALLS(X)
#undef X

extern void *primary, *second; /* contexts */
extern void *ours;	       /* the stream that reads; not blocking, of the highest priority */
extern void *blocking, *apart; /* streams of the program */
extern void *event;
extern unsigned char *pinned, *pageable;

/* Ends the program where @result is an error. */
void need(int result, const char *what);
#define NEED(call) need(call, #call)

/* Looks the calls up; false without a driver. */
bool load_cuda(void);
/* Makes what the externs above name. */
void start_cuda(void);
/* A kernel that spins for @ns and then fills @bytes at @dst with @value. */
int spin(void *stream, uint64_t dst, size_t bytes, unsigned char value, uint64_t ns);
int set_sync(uint64_t addr);
/* sync_stale.c: how many of TRIES reads are stale, by what came before and what was waited for. */
void print_stale(const char *name, uint64_t addr, bool busy);
/* sync_capture.c: results of calls on memory at @addr while @stream is captured. */
void print_capture(void *stream, const char *name, int mode, uint64_t addr);

#endif
