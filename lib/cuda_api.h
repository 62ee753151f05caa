/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA driver API that Peerlane calls, found with dlopen() at run time. Types are
 * our own; only the binary interface is NVIDIA's.
 */
#ifndef PL_CUDA_API_H
#define PL_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t pl_cu_ptr; /* CUdeviceptr */

enum {
	PL_CU_OK = 0,
	PL_CU_INVALID_VALUE = 1,
	PL_CU_OUT_OF_MEMORY = 2,
	PL_CU_NOT_INITIALIZED = 3,
	PL_CU_DEINITIALIZED = 4,
	PL_CU_NO_DEVICE = 100,
	PL_CU_INVALID_CONTEXT = 201,
	PL_CU_ALREADY_REGISTERED = 712,
	PL_CU_NOT_READY = 600,
	PL_CU_ILLEGAL_ADDRESS = 700,
	PL_CU_CONTEXT_IS_DESTROYED = 709,
	PL_CU_NOT_PERMITTED = 800,
	PL_CU_NOT_SUPPORTED = 801,
};

/* cuPointerGetAttributes() */
enum {
	PL_CU_PTR_CONTEXT = 1,
	PL_CU_PTR_MEMORY_TYPE = 2,
	PL_CU_PTR_SYNC_MEMOPS = 6,
	PL_CU_PTR_IS_MANAGED = 8,
	PL_CU_PTR_DEVICE_ORDINAL = 9,
	PL_CU_PTR_RANGE_START = 11,
	PL_CU_PTR_RANGE_SIZE = 12,
	PL_CU_PTR_POOL = 17,
};

/* cuDeviceGetAttribute(): how writes of other devices are ordered, and the least that keeps the
 * GPU that has the memory from seeing them late. */
enum {
	PL_CU_DEVICE_WRITES_ORDERING = 118,
	PL_CU_WRITES_ORDERED_FOR_OWNER = 100,
};

enum {
	PL_CU_MEM_HOST = 1,
	PL_CU_MEM_DEVICE = 2,
};

#define PL_CU_HOST_ALLOC_PORTABLE 0x1u
#define PL_CU_HOST_ALLOC_DEVICEMAP 0x2u
#define PL_CU_REGISTER_PORTABLE 0x1u
#define PL_CU_REGISTER_DEVICEMAP 0x2u
#define PL_CU_REGISTER_IO_MEMORY 0x4u
#define PL_CU_REGISTER_READ_ONLY 0x8u
#define PL_CU_STREAM_NON_BLOCKING 0x1u
#define PL_CU_EVENT_NO_TIMING 0x2u
#define PL_CU_WAIT_GEQ 0x0u

/* The two streams that are not objects. */
#define PL_CUDA_LEGACY_STREAM ((void *)0x1)
#define PL_CUDA_PER_THREAD_STREAM ((void *)0x2)

/* How copies of a list are made; CUDA 13. */
struct pl_cu_copy_how {
	int order; /* of the accesses to the source: */
	int src_type, src_id, dst_type, dst_id;
	unsigned int flags;
};
#define PL_CU_ORDER_STREAM 0x1

/*
 * X(member, symbol, arguments, required). Names are those of the binary interface since CUDA 12.
 */
#define PL_CUDA_FUNCTIONS(X)                                                                       \
	X(init, "cuInit", (unsigned int), 1)                                                       \
	X(driver_version, "cuDriverGetVersion", (int *), 1)                                        \
	X(error_name, "cuGetErrorName", (int, const char **), 1)                                   \
	X(device_count, "cuDeviceGetCount", (int *), 1)                                            \
	X(device_get, "cuDeviceGet", (int *, int), 1)                                              \
	X(device_attribute, "cuDeviceGetAttribute", (int *, int, int), 0)                          \
	X(device_name, "cuDeviceGetName", (char *, int, int), 1)                                   \
	X(device_pci, "cuDeviceGetPCIBusId", (char *, int, int), 1)                                \
	X(device_memory, "cuDeviceTotalMem_v2", (size_t *, int), 1)                                \
	X(primary_retain, "cuDevicePrimaryCtxRetain", (void **, int), 1)                           \
	X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int), 1)                               \
	X(ctx_create, "cuCtxCreate_v2", (void **, unsigned int, int), 1)                           \
	X(ctx_destroy, "cuCtxDestroy_v2", (void *), 1)                                             \
	X(ctx_id, "cuCtxGetId", (void *, unsigned long long *), 1)                                 \
	X(ctx_push, "cuCtxPushCurrent_v2", (void *), 1)                                            \
	X(ctx_pop, "cuCtxPopCurrent_v2", (void **), 1)                                             \
	X(ctx_current, "cuCtxGetCurrent", (void **), 1)                                            \
	X(ctx_priorities, "cuCtxGetStreamPriorityRange", (int *, int *), 1)                        \
	X(pointer_attributes, "cuPointerGetAttributes",                                            \
	  (unsigned int, const int *, void **, pl_cu_ptr), 1)                                      \
	X(pointer_set, "cuPointerSetAttribute", (const void *, int, pl_cu_ptr), 0)                 \
	X(mem_alloc, "cuMemAlloc_v2", (pl_cu_ptr *, size_t), 1)                                    \
	X(mem_free, "cuMemFree_v2", (pl_cu_ptr), 1)                                                \
	X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned int), 1)                        \
	X(host_free, "cuMemFreeHost", (void *), 1)                                                 \
	X(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned int), 1)                \
	X(host_unregister, "cuMemHostUnregister", (void *), 1)                                     \
	X(host_device_pointer, "cuMemHostGetDevicePointer_v2",                                     \
	  (pl_cu_ptr *, void *, unsigned int), 1)                                                  \
	X(copy_to, "cuMemcpyHtoDAsync_v2", (pl_cu_ptr, const void *, size_t, void *), 1)           \
	X(copy_from, "cuMemcpyDtoHAsync_v2", (void *, pl_cu_ptr, size_t, void *), 1)               \
	X(copy_any, "cuMemcpyAsync", (pl_cu_ptr, pl_cu_ptr, size_t, void *), 1)                    \
	X(copy_list, "cuMemcpyBatchAsync_v2",                                                      \
	  (pl_cu_ptr *, pl_cu_ptr *, size_t *, size_t, struct pl_cu_copy_how *, size_t *, size_t,  \
	   void *),                                                                                \
	  0)                                                                                       \
	X(set_async, "cuMemsetD8Async", (pl_cu_ptr, unsigned char, size_t, void *), 1)             \
	X(stream_create, "cuStreamCreateWithPriority", (void **, unsigned int, int), 1)            \
	X(stream_destroy, "cuStreamDestroy_v2", (void *), 1)                                       \
	X(stream_sync, "cuStreamSynchronize", (void *), 1)                                         \
	X(stream_ctx, "cuStreamGetCtx", (void *, void **), 1)                                      \
	X(stream_call, "cuLaunchHostFunc", (void *, void (*)(void *), void *), 1)                  \
	X(stream_wait_value, "cuStreamWaitValue32_v2",                                             \
	  (void *, pl_cu_ptr, uint32_t, unsigned int), 0)                                          \
	X(stream_write_value, "cuStreamWriteValue32_v2",                                           \
	  (void *, pl_cu_ptr, uint32_t, unsigned int), 0)                                          \
	X(stream_wait_event, "cuStreamWaitEvent", (void *, void *, unsigned int), 0)               \
	X(stream_capturing, "cuStreamIsCapturing", (void *, int *), 0)                             \
	X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *), 0)                           \
	X(stream_query, "cuStreamQuery", (void *), 1)                                              \
	X(event_create, "cuEventCreate", (void **, unsigned int), 1)                               \
	X(event_destroy, "cuEventDestroy_v2", (void *), 1)                                         \
	X(event_record, "cuEventRecord", (void *, void *), 1)                                      \
	X(event_query, "cuEventQuery", (void *), 1)                                                \
	X(module_load, "cuModuleLoadData", (void **, const void *), 1)                             \
	X(module_unload, "cuModuleUnload", (void *), 1)                                            \
	X(module_function, "cuModuleGetFunction", (void **, void *, const char *), 1)              \
	X(launch, "cuLaunchKernel",                                                                \
	  (void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,           \
	   unsigned int, unsigned int, void *, void **, void **),                                  \
	  1)

struct pl_cuda_api {
#define X(member, symbol, args, required) int(*member) args;
	PL_CUDA_FUNCTIONS(X)
#undef X
	void *library;
};

/* Loads libcuda (PEERLANE_LIBCUDA names another file). @why receives a sentence on failure. */
int pl_cuda_api_load(struct pl_cuda_api *api, char *why, size_t why_bytes);
void pl_cuda_api_unload(struct pl_cuda_api *api);

#endif
