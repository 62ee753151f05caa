/* SPDX-License-Identifier: MIT */
/*
 * The cuFile interface as programs for GPUDirect Storage use it: the functions, values and layouts
 * of version 1.15, and those later ones that only add to it. libcufile.so.0 of this project
 * implements it on Peerlane; see peerlane-cufile(7).
 */
#ifndef CUFILE_H
#define CUFILE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#endif
#ifndef CUDA_VERSION
/* The two types of cuda.h that are used here, for machines without it. */
typedef int CUresult;
typedef struct CUstream_st *CUstream;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ errors */

#define CUFILEOP_BASE_ERR 5000

/* Every code with its meaning: one list for the values and the words. */
#define CUFILEOP_STATUS_ENTRIES                                                                    \
	CUFILE_OP(0, CU_FILE_SUCCESS, "success")                                                   \
	CUFILE_OP(5001, CU_FILE_DRIVER_NOT_INITIALIZED, "the driver is not open")                  \
	CUFILE_OP(5002, CU_FILE_DRIVER_INVALID_PROPS, "invalid property")                          \
	CUFILE_OP(5003, CU_FILE_DRIVER_UNSUPPORTED_LIMIT, "value outside its limits")              \
	CUFILE_OP(5004, CU_FILE_DRIVER_VERSION_MISMATCH, "versions do not match")                  \
	CUFILE_OP(5005, CU_FILE_DRIVER_VERSION_READ_ERROR, "version could not be read")            \
	CUFILE_OP(5006, CU_FILE_DRIVER_CLOSING, "the driver is closed or closing")                 \
	CUFILE_OP(5007, CU_FILE_PLATFORM_NOT_SUPPORTED, "not supported on this platform")          \
	CUFILE_OP(5008, CU_FILE_IO_NOT_SUPPORTED, "this kind of I/O is not supported")             \
	CUFILE_OP(5009, CU_FILE_DEVICE_NOT_SUPPORTED, "this GPU is not supported")                 \
	CUFILE_OP(5010, CU_FILE_NVFS_DRIVER_ERROR, "kernel driver error")                          \
	CUFILE_OP(5011, CU_FILE_CUDA_DRIVER_ERROR, "CUDA driver error")                            \
	CUFILE_OP(5012, CU_FILE_CUDA_POINTER_INVALID, "invalid GPU address")                       \
	CUFILE_OP(5013, CU_FILE_CUDA_MEMORY_TYPE_INVALID, "unsuitable kind of memory")             \
	CUFILE_OP(5014, CU_FILE_CUDA_POINTER_RANGE_ERROR, "range passes its allocation")           \
	CUFILE_OP(5015, CU_FILE_CUDA_CONTEXT_MISMATCH, "another CUDA context")                     \
	CUFILE_OP(5016, CU_FILE_INVALID_MAPPING_SIZE, "range too large for the buffer")            \
	CUFILE_OP(5017, CU_FILE_INVALID_MAPPING_RANGE, "range passes the registered buffer")       \
	CUFILE_OP(5018, CU_FILE_INVALID_FILE_TYPE, "neither a file nor a block device")            \
	CUFILE_OP(5019, CU_FILE_INVALID_FILE_OPEN_FLAG, "file opened with unsuitable flags")       \
	CUFILE_OP(5020, CU_FILE_DIO_NOT_SET, "file opened without O_DIRECT")                       \
	CUFILE_OP(5022, CU_FILE_INVALID_VALUE, "invalid argument")                                 \
	CUFILE_OP(5023, CU_FILE_MEMORY_ALREADY_REGISTERED, "memory is registered already")         \
	CUFILE_OP(5024, CU_FILE_MEMORY_NOT_REGISTERED, "memory is not registered")                 \
	CUFILE_OP(5025, CU_FILE_PERMISSION_DENIED, "permission denied")                            \
	CUFILE_OP(5026, CU_FILE_DRIVER_ALREADY_OPEN, "the driver is open already")                 \
	CUFILE_OP(5027, CU_FILE_HANDLE_NOT_REGISTERED, "file handle is not registered")            \
	CUFILE_OP(5028, CU_FILE_HANDLE_ALREADY_REGISTERED, "file is registered already")           \
	CUFILE_OP(5029, CU_FILE_DEVICE_NOT_FOUND, "device not found")                              \
	CUFILE_OP(5030, CU_FILE_INTERNAL_ERROR, "internal error")                                  \
	CUFILE_OP(5031, CU_FILE_GETNEWFD_FAILED, "no new descriptor could be had")                 \
	CUFILE_OP(5033, CU_FILE_NVFS_SETUP_ERROR, "kernel driver could not be set up")             \
	CUFILE_OP(5034, CU_FILE_IO_DISABLED, "I/O is switched off for this file")                  \
	CUFILE_OP(5035, CU_FILE_BATCH_SUBMIT_FAILED, "batch could not be submitted")               \
	CUFILE_OP(5036, CU_FILE_GPU_MEMORY_PINNING_FAILED, "GPU memory could not be pinned")       \
	CUFILE_OP(5037, CU_FILE_BATCH_FULL, "batch is full")                                       \
	CUFILE_OP(5038, CU_FILE_ASYNC_NOT_SUPPORTED, "stream I/O is not supported")                \
	CUFILE_OP(5039, CU_FILE_INTERNAL_BATCH_SETUP_ERROR, "batch could not be set up")           \
	CUFILE_OP(5040, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR, "error in submitting a batch")        \
	CUFILE_OP(5041, CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR, "error in a batch's status")       \
	CUFILE_OP(5042, CU_FILE_INTERNAL_BATCH_CANCEL_ERROR, "error in cancelling a batch")        \
	CUFILE_OP(5043, CU_FILE_NOMEM_ERROR, "out of memory")                                      \
	CUFILE_OP(5044, CU_FILE_IO_ERROR, "input/output error")                                    \
	CUFILE_OP(5045, CU_FILE_INTERNAL_BUF_REGISTER_ERROR, "buffer could not be registered")     \
	CUFILE_OP(5046, CU_FILE_HASH_OPR_ERROR, "lookup failed")                                   \
	CUFILE_OP(5047, CU_FILE_INVALID_CONTEXT_ERROR, "invalid CUDA context")                     \
	CUFILE_OP(5048, CU_FILE_NVFS_INTERNAL_DRIVER_ERROR, "internal error of the kernel driver") \
	CUFILE_OP(5049, CU_FILE_BATCH_NOCOMPAT_ERROR, "batch needs compatibility mode")            \
	CUFILE_OP(5050, CU_FILE_IO_MAX_ERROR, "largest code")

typedef enum CUfileOpError {
#define CUFILE_OP(value, name, words) name = value,
	CUFILEOP_STATUS_ENTRIES
#undef CUFILE_OP
} CUfileOpError;

static inline const char *cufileop_status_error(CUfileOpError status)
{
	switch (status) {
#define CUFILE_OP(value, name, words)                                                              \
	case name:                                                                                 \
		return words;
		CUFILEOP_STATUS_ENTRIES
#undef CUFILE_OP
	default:
		return "unknown cufile error";
	}
}

/* cu_err means something only where err is CU_FILE_CUDA_DRIVER_ERROR. */
typedef struct CUfileError {
	CUfileOpError err;
	CUresult cu_err;
} CUfileError_t;

#define IS_CUFILE_ERR(err) (abs((int)(err)) > CUFILEOP_BASE_ERR)
#define CUFILE_ERRSTR(err) cufileop_status_error((CUfileOpError)abs((int)(err)))
#define IS_CUDA_ERR(status) ((status).err == CU_FILE_CUDA_DRIVER_ERROR)
#define CU_FILE_CUDA_ERR(status) ((status).cu_err)

/* ------------------------------------------------------------------ driver */

typedef enum CUfileDriverStatusFlags {
	CU_FILE_LUSTRE_SUPPORTED = 0,
	CU_FILE_WEKAFS_SUPPORTED = 1,
	CU_FILE_NFS_SUPPORTED = 2,
	CU_FILE_GPFS_SUPPORTED = 3,
	CU_FILE_NVME_SUPPORTED = 4,
	CU_FILE_NVMEOF_SUPPORTED = 5,
	CU_FILE_SCSI_SUPPORTED = 6,
	CU_FILE_SCALEFLUX_CSD_SUPPORTED = 7,
	CU_FILE_NVMESH_SUPPORTED = 8,
	CU_FILE_BEEGFS_SUPPORTED = 9,
	CU_FILE_NVME_P2P_SUPPORTED = 11,
	CU_FILE_SCATEFS_SUPPORTED = 12,
	CU_FILE_VIRTIOFS_SUPPORTED = 13,
	CU_FILE_MAX_TARGET_TYPES = 14,
} CUfileDriverStatusFlags_t;

typedef enum CUfileDriverControlFlags {
	CU_FILE_USE_POLL_MODE = 0,
	CU_FILE_ALLOW_COMPAT_MODE = 1,
	CU_FILE_POSIX_IO_MODE = 2,
	CU_FILE_FALLBACK_IO_MODE = 4,
} CUfileDriverControlFlags_t;

typedef enum CUfileFeatureFlags {
	CU_FILE_DYN_ROUTING_SUPPORTED = 0,
	CU_FILE_BATCH_IO_SUPPORTED = 1,
	CU_FILE_STREAMS_SUPPORTED = 2,
	CU_FILE_PARALLEL_IO_SUPPORTED = 3,
	CU_FILE_P2P_SUPPORTED = 4,
} CUfileFeatureFlags_t;

typedef enum CUfileP2PFlags {
	CUFILE_P2PDMA = 0,
	CUFILE_NVFS = 1,
	CUFILE_DMABUF = 2,
	CUFILE_C2C = 3,
	CUFILE_NVIDIA_PEERMEM = 4,
} CUfileP2PFlags_t;

typedef struct CUfileDrvProps {
	struct {
		unsigned int major_version;
		unsigned int minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned int dstatusflags;
		unsigned int dcontrolflags;
	} nvfs;
	unsigned int fflags;
	unsigned int max_device_cache_size;
	unsigned int per_buffer_cache_size;
	unsigned int max_device_pinned_mem_size;
	unsigned int max_batch_io_size;
	unsigned int max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose(void);
CUfileError_t cuFileDriverClose_v2(void);
#define cuFileDriverClose cuFileDriverClose_v2
long cuFileUseCount(void);
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props);
CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size);
CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size);
CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size);
CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size);
CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t flags);
CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t *flags);
CUfileError_t cuFileGetVersion(int *version);
CUfileError_t cuFileGetBARSizeInKB(int gpu_index, size_t *bar_size);
CUfileError_t cuFileExportPCIeTopology(const char *path);

/* ------------------------------------------------------------------ files */

typedef struct sockaddr sockaddr_t;

typedef struct cufileRDMAInfo {
	int version;
	int desc_len;
	const char *desc_str;
} cufileRDMAInfo_t;

#define CU_FILE_RDMA_REGISTER 1
#define CU_FILE_RDMA_RELAXED_ORDERING (1 << 1)

/* A file system that lives in the process. */
typedef struct CUfileFSOps {
	const char *(*fs_type)(const void *handle);
	int (*getRDMADeviceList)(const void *handle, sockaddr_t **hostaddrs);
	int (*getRDMADevicePriority)(const void *handle, char *, size_t, loff_t,
				     const sockaddr_t *hostaddr);
	ssize_t (*read)(const void *handle, char *, size_t, loff_t, const cufileRDMAInfo_t *);
	ssize_t (*write)(const void *handle, const char *, size_t, loff_t,
			 const cufileRDMAInfo_t *);
} CUfileFSOps_t;

typedef enum CUfileFileHandleType {
	CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1,
	CU_FILE_HANDLE_TYPE_OPAQUE_WIN32 = 2,
	CU_FILE_HANDLE_TYPE_USERSPACE_FS = 3,
} CUfileFileHandleType;

typedef struct CUfileDescr {
	CUfileFileHandleType type;
	union {
		int fd;
		void *handle;
	} handle;
	const CUfileFSOps_t *fs_ops;
} CUfileDescr_t;

typedef void *CUfileHandle_t;

CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr);
void cuFileHandleDeregister(CUfileHandle_t fh);

/* ------------------------------------------------------------------ buffers */

CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags);
CUfileError_t cuFileBufDeregister(const void *base);

/* ------------------------------------------------------------------ read and write */

/* A byte count; or -1, with the reason in errno: a code of the system or a CUfileOpError. */
ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset);
ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset,
		    off_t buf_offset);

typedef struct CUfileIOVec {
	void *base;
	size_t len;
} CUfileIOVec_t;

ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset,
		    unsigned int flags);
ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset,
		     unsigned int flags);

/* ------------------------------------------------------------------ batches */

typedef enum CUfileOpcode {
	CUFILE_READ = 0,
	CUFILE_WRITE = 1,
} CUfileOpcode_t;

typedef enum CUFILEStatus_enum {
	CUFILE_WAITING = 0x01,
	CUFILE_PENDING = 0x02,
	CUFILE_INVALID = 0x04,
	CUFILE_CANCELED = 0x08,
	CUFILE_COMPLETE = 0x10,
	CUFILE_TIMEOUT = 0x20,
	CUFILE_FAILED = 0x40,
} CUfileStatus_t;

typedef enum cufileBatchMode {
	CUFILE_BATCH = 1,
} CUfileBatchMode_t;

typedef struct CUfileIOParams {
	CUfileBatchMode_t mode;
	union {
		struct {
			void *devPtr_base;
			off_t file_offset;
			off_t devPtr_offset;
			size_t size;
		} batch;
	} u;
	CUfileHandle_t fh;
	CUfileOpcode_t opcode;
	void *cookie;
} CUfileIOParams_t;

typedef struct CUfileIOEvents {
	void *cookie;
	CUfileStatus_t status;
	size_t ret; /* a negative errno where it failed */
} CUfileIOEvents_t;

typedef void *CUfileBatchHandle_t;

CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned int nr);
CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned int nr,
				  CUfileIOParams_t *params, unsigned int flags);
CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch, unsigned int min_nr,
				     unsigned int *nr, CUfileIOEvents_t *events,
				     struct timespec *timeout);
CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch);
void cuFileBatchIODestroy(CUfileBatchHandle_t batch);

/* ------------------------------------------------------------------ streams */

#define CU_FILE_STREAM_FIXED_BUF_OFFSET 1
#define CU_FILE_STREAM_FIXED_FILE_OFFSET 2
#define CU_FILE_STREAM_FIXED_FILE_SIZE 4
#define CU_FILE_STREAM_PAGE_ALIGNED_INPUTS 8

CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_offset,
			      off_t *buf_offset, ssize_t *bytes_read, CUstream stream);
CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_offset,
			       off_t *buf_offset, ssize_t *bytes_written, CUstream stream);
CUfileError_t cuFileStreamRegister(CUstream stream, unsigned int flags);
CUfileError_t cuFileStreamDeregister(CUstream stream);

/* ------------------------------------------------------------------ parameters */

typedef enum CUFileSizeTConfigParameter_t {
	CUFILE_PARAM_PROFILE_STATS = 0,
	CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH = 1,
	CUFILE_PARAM_EXECUTION_MAX_IO_THREADS = 2,
	CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB = 3,
	CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM = 4,
	CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB = 5,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB = 6,
	CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB = 7,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB = 8,
	CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE = 9,
	CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB = 10,
	CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS = 11,
} CUFileSizeTConfigParameter_t;

typedef enum CUFileBoolConfigParameter_t {
	CUFILE_PARAM_PROPERTIES_USE_POLL_MODE = 0,
	CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE = 1,
	CUFILE_PARAM_FORCE_COMPAT_MODE = 2,
	CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE = 3,
	CUFILE_PARAM_EXECUTION_PARALLEL_IO = 4,
	CUFILE_PARAM_PROFILE_NVTX = 5,
	CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY = 6,
	CUFILE_PARAM_USE_PCIP2PDMA = 7,
	CUFILE_PARAM_PREFER_IO_URING = 8,
	CUFILE_PARAM_FORCE_ODIRECT_MODE = 9,
	CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION = 10,
	CUFILE_PARAM_STREAM_MEMOPS_BYPASS = 11,
} CUFileBoolConfigParameter_t;

typedef enum CUFileStringConfigParameter_t {
	CUFILE_PARAM_LOGGING_LEVEL = 0,
	CUFILE_PARAM_ENV_LOGFILE_PATH = 1,
	CUFILE_PARAM_LOG_DIR = 2,
} CUFileStringConfigParameter_t;

typedef enum CUFileArrayConfigParameter_t {
	CUFILE_PARAM_POSIX_POOL_SLAB_SIZE_KB = 0,
	CUFILE_PARAM_POSIX_POOL_SLAB_COUNT = 1,
	CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_SIZE_KB = 2,
	CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_COUNT = 3,
} CUFileArrayConfigParameter_t;

CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value);
CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value);
CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value);
CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value);
CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *text, int len);
CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *text);
CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value,
					    size_t *max_value);
CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values,
						   const size_t *count_values, int len);
CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values, size_t *count_values,
						   int len);
CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values,
							 const size_t *count_values, int len);
CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values, size_t *count_values,
							 int len);

/* ------------------------------------------------------------------ statistics */

#define CUFILE_GPU_UUID_LEN 16

typedef struct CUfileOpCounter {
	uint64_t ok;
	uint64_t err;
} CUfileOpCounter_t;

typedef struct CUfileStatsLevel1 {
	CUfileOpCounter_t read_ops;
	CUfileOpCounter_t write_ops;
	CUfileOpCounter_t hdl_register_ops;
	CUfileOpCounter_t hdl_deregister_ops;
	CUfileOpCounter_t buf_register_ops;
	CUfileOpCounter_t buf_deregister_ops;
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t read_bw_bytes_per_sec;
	uint64_t write_bw_bytes_per_sec;
	uint64_t read_lat_avg_us;
	uint64_t write_lat_avg_us;
	uint64_t read_ops_per_sec;
	uint64_t write_ops_per_sec;
	uint64_t read_lat_sum_us;
	uint64_t write_lat_sum_us;
	CUfileOpCounter_t batch_submit_ops;
	CUfileOpCounter_t batch_complete_ops;
	CUfileOpCounter_t batch_setup_ops;
	CUfileOpCounter_t batch_cancel_ops;
	CUfileOpCounter_t batch_destroy_ops;
	CUfileOpCounter_t batch_enqueued_ops;
	CUfileOpCounter_t batch_posix_enqueued_ops;
	CUfileOpCounter_t batch_processed_ops;
	CUfileOpCounter_t batch_posix_processed_ops;
	CUfileOpCounter_t batch_nvfs_submit_ops;
	CUfileOpCounter_t batch_p2p_submit_ops;
	CUfileOpCounter_t batch_aio_submit_ops;
	CUfileOpCounter_t batch_iouring_submit_ops;
	CUfileOpCounter_t batch_mixed_io_submit_ops;
	CUfileOpCounter_t batch_total_submit_ops;
	uint64_t batch_read_bytes;
	uint64_t batch_write_bytes;
	uint64_t batch_read_bw_bytes;
	uint64_t batch_write_bw_bytes;
	uint64_t batch_submit_lat_avg_us;
	uint64_t batch_completion_lat_avg_us;
	uint64_t batch_submit_ops_per_sec;
	uint64_t batch_complete_ops_per_sec;
	uint64_t batch_submit_lat_sum_us;
	uint64_t batch_completion_lat_sum_us;
	uint64_t last_batch_read_bytes;
	uint64_t last_batch_write_bytes;
} CUfileStatsLevel1_t;

typedef struct CUfileStatsLevel2 {
	CUfileStatsLevel1_t basic;
	uint64_t read_size_kb_hist[32];
	uint64_t write_size_kb_hist[32];
} CUfileStatsLevel2_t;

typedef struct CUfilePerGpuStats {
	char uuid[CUFILE_GPU_UUID_LEN];
	uint64_t read_bytes;
	uint64_t read_bw_bytes_per_sec;
	uint64_t read_utilization;
	uint64_t read_duration_us;
	uint64_t n_total_reads;
	uint64_t n_p2p_reads;
	uint64_t n_nvfs_reads;
	uint64_t n_posix_reads;
	uint64_t n_unaligned_reads;
	uint64_t n_dr_reads;
	uint64_t n_sparse_regions;
	uint64_t n_inline_regions;
	uint64_t n_reads_err;
	uint64_t writes_bytes;
	uint64_t write_bw_bytes_per_sec;
	uint64_t write_utilization;
	uint64_t write_duration_us;
	uint64_t n_total_writes;
	uint64_t n_p2p_writes;
	uint64_t n_nvfs_writes;
	uint64_t n_posix_writes;
	uint64_t n_unaligned_writes;
	uint64_t n_dr_writes;
	uint64_t n_writes_err;
	uint64_t n_mmap;
	uint64_t n_mmap_ok;
	uint64_t n_mmap_err;
	uint64_t n_mmap_free;
	uint64_t reg_bytes;
} CUfilePerGpuStats_t;

typedef struct CUfileStatsLevel3 {
	CUfileStatsLevel2_t detailed;
	uint32_t num_gpus;
	CUfilePerGpuStats_t per_gpu_stats[16];
} CUfileStatsLevel3_t;

CUfileError_t cuFileSetStatsLevel(int level);
CUfileError_t cuFileGetStatsLevel(int *level);
CUfileError_t cuFileStatsStart(void);
CUfileError_t cuFileStatsStop(void);
CUfileError_t cuFileStatsReset(void);
CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats);
CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats);
CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats);

#ifdef __cplusplus
}
#endif

#endif
