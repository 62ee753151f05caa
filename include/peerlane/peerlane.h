/* SPDX-License-Identifier: MIT */
/*
 * Peerlane: move data between files and GPU memory by the shortest way the machine allows.
 *
 * A context owns a GPU back end, a bounded pool of pinned memory and some worker threads.
 * Files are opened through it; memory is named by its address, whatever allocated it (CUDA
 * driver or runtime API, torch, VMM, pools, managed, pinned or plain host memory, or the
 * simulated GPU). Every call returns 0, a byte count, or a negative errno; nothing sets errno.
 */
#ifndef PEERLANE_PEERLANE_H
#define PEERLANE_PEERLANE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEERLANE_VERSION_MAJOR 0
#define PEERLANE_VERSION_MINOR 1
#define PEERLANE_VERSION_PATCH 0

struct peerlane;
struct peerlane_file;
struct peerlane_batch;

/* ------------------------------------------------------------------ context */

/* Flags of struct peerlane_options. */
#define PEERLANE_NO_IO_URING 0x1u /* use threads even where io_uring works */
#define PEERLANE_NO_IN_PLACE 0x2u /* never pin the page cache in place: always copy */
#define PEERLANE_NO_DIRECT 0x4u	  /* never read or write with O_DIRECT */
#define PEERLANE_NO_MAPPED 0x8u	  /* never do file I/O straight into mapped GPU memory */
#define PEERLANE_SAVE_CPU 0x10u	  /* pin the page cache in place where possible, even if slower */
#define PEERLANE_NO_KERNELS 0x20u /* never launch GPU kernels of our own for small copies */
#define PEERLANE_NO_AHEAD 0x80u	  /* never read ahead of a sequence of reads, or of a stream */
#define PEERLANE_NO_P2P 0x100u	  /* no transfers between drive and GPU by the kernel module */
#define PEERLANE_NO_MAPPED_WRITE 0x40u	/* never write a file through a mapping of it */
#define PEERLANE_WAIT_DEFAULT 0x200u	/* wait for the work on CUDA's default streams before I/O */
#define PEERLANE_NO_WAIT_DEFAULT 0x400u /* not even on memory that refuses SYNC_MEMOPS */

/**
 * typedef peerlane_log_fn - receives one line of log text
 * @arg: the log_arg of the options
 * @level: 0 error, 1 warning, 2 information, 3 debug
 * @text: one line, no newline; valid during the call only
 *
 * Context: any thread, the library's own included; must not call back into the context.
 */
typedef void (*peerlane_log_fn)(void *arg, int level, const char *text);

/**
 * struct peerlane_options - how a context is opened; all zero means defaults
 * @size: sizeof(struct peerlane_options)
 * @flags: PEERLANE_NO_*, PEERLANE_SAVE_CPU and PEERLANE_WAIT_DEFAULT bits
 * @backend: "auto" (or NULL): CUDA if it works, else the simulator; "cuda"; "sim"
 * @pool_bytes: most pinned host memory the context may hold (default 128 MiB, at least 1 MiB)
 * @slot_bytes: size of one staging slot (default 512 KiB; a power of two, 64 KiB to 16 MiB)
 * @nr_threads: worker threads (default: from the number of CPUs this process may use)
 * @queue_depth: most file requests in flight per thread (default 32)
 * @timeout_ms: bound of every wait for a device or a copy (default 60000); a file system that blocks
 *              inside a system call, as FUSE can, is waited for all the same
 * @log_level: highest level passed to @log (default 1: errors and warnings)
 * @log: log hook; NULL logs nothing
 * @log_arg: first argument of @log
 *
 * Environment variables PEERLANE_BACKEND, PEERLANE_POOL_BYTES, PEERLANE_SLOT_BYTES,
 * PEERLANE_THREADS, PEERLANE_QUEUE_DEPTH, PEERLANE_TIMEOUT_MS and PEERLANE_FLAGS (words such as
 * "no-io-uring,no-in-place") fill what the options leave at zero.
 */
struct peerlane_options {
	size_t size;
	unsigned int flags;
	const char *backend;
	size_t pool_bytes;
	size_t slot_bytes;
	unsigned int nr_threads;
	unsigned int queue_depth;
	unsigned int timeout_ms;
	int log_level;
	peerlane_log_fn log;
	void *log_arg;
};

/**
 * peerlane_open() - open a context
 * @out: receives the context
 * @opt: options, or NULL for defaults
 *
 * Contexts are independent of each other; a process may have several. Worker threads, pinned
 * memory and CUDA contexts are made when first needed.
 *
 * Context: any thread. The context may be used by all threads of this process, not by a forked
 * child: there every call returns -EOWNERDEAD and peerlane_close() only frees host memory.
 *
 * Return: 0; -EINVAL a bad option (peerlane_error() says which); -ENODEV the back end asked for
 * by name is not there; -ENOMEM.
 */
int peerlane_open(struct peerlane **out, const struct peerlane_options *opt);

/**
 * peerlane_close() - close a context and free everything it holds
 * @ctx: context, or NULL
 *
 * Waits for I/O in flight. Files still open are closed, registered buffers are released. Batches
 * must have been destroyed.
 *
 * Context: no other call on @ctx may be running or follow.
 */
void peerlane_close(struct peerlane *ctx);

/**
 * peerlane_backend() - name of the GPU back end in use
 * @ctx: context
 *
 * Return: "cuda", "sim" or "simgpu" (the test GPU of the VM lab); never NULL.
 */
const char *peerlane_backend(const struct peerlane *ctx);

/* ------------------------------------------------------------------ errors */

/**
 * struct peerlane_error_info - what is known about the last failure of the calling thread
 * @size: sizeof(struct peerlane_error_info), set by the caller
 * @err: negative errno of that call
 * @cuda: CUresult where a CUDA call failed, else 0
 * @text: a sentence naming what was wrong
 */
struct peerlane_error_info {
	size_t size;
	int err;
	int cuda;
	char text[256];
};

/**
 * peerlane_error() - details of the last failed call of this thread
 * @info: @size set by the caller, the rest filled; err 0 and an empty text if none failed yet
 *
 * Return: 0; -EINVAL if @info is NULL or its size is not a known one.
 */
int peerlane_error(struct peerlane_error_info *info);

/**
 * peerlane_strerror() - what a return value means, for a person
 * @err: a negative (or positive) errno returned by this library
 *
 * Return: a constant sentence in the terms of this library; never NULL.
 */
const char *peerlane_strerror(int err);

/* ------------------------------------------------------------------ buffers */

/**
 * peerlane_buffer_register() - announce memory that will be used often
 * @ctx: context
 * @addr: start of the memory
 * @bytes: its length; it must lie inside one allocation
 * @flags: must be 0
 *
 * Optional: I/O works on any memory. A registered buffer is looked up instead of asked from the
 * driver at each call, and its bounds are enforced: I/O that starts inside it must end inside
 * it. Registrations may nest, and one base may be registered once.
 *
 * Context: any thread; may wait for work queued on the GPU, so do it before work that waits for
 * I/O is queued; the caller's current CUDA context is left as it was.
 *
 * Return: 0; -EINVAL NULL, zero length or unknown flags; -EFAULT not memory of this process or
 * @bytes pass the end of the allocation; -EOVERFLOW; -EEXIST @addr is registered already.
 */
int peerlane_buffer_register(struct peerlane *ctx, void *addr, size_t bytes, unsigned int flags);

/**
 * peerlane_buffer_release() - undo peerlane_buffer_register()
 * @ctx: context
 * @addr: the address it was registered with
 *
 * I/O in flight on the buffer is waited for, as long as the context's time-out.
 *
 * Return: 0; -ENOENT @addr is not registered; -EBUSY I/O was still in flight when the time was
 * up, and the buffer stays registered.
 */
int peerlane_buffer_release(struct peerlane *ctx, void *addr);

/* ------------------------------------------------------------------ files */

/**
 * peerlane_file_open() - open a file by path
 * @ctx: context
 * @path: path
 * @flags: as for open(2); O_CLOEXEC is implied, O_DIRECT makes transfers bypass the page cache
 * @mode: as for open(2) when @flags has O_CREAT
 * @out: receives the file
 *
 * "nvme:SERIAL/NSID" and "nvme:ADDRESS/NSID" are namespaces of NVMe controllers, read and written by the
 * driver of <peerlane/nvme.h> without the kernel; see peerlane_file(3).
 *
 * Return: 0; -EISDIR a directory; -ESPIPE a pipe, socket or terminal; -EINVAL; an errno of
 * open(2), or of peerlane_nvme_open() and peerlane_nvme_ns_open().
 */
int peerlane_file_open(struct peerlane *ctx, const char *path, int flags, mode_t mode,
		       struct peerlane_file **out);

/**
 * peerlane_file_from_fd() - use a descriptor the caller has
 * @ctx: context
 * @fd: open descriptor of a regular file or block device; duplicated, so the caller may close it
 * @out: receives the file
 *
 * The descriptor's file offset is never used or moved, its flags are never changed.
 *
 * Locks of the caller: closing the file, and now and then this call itself, closes a descriptor of
 * it, and with that the kernel drops the POSIX record locks (fcntl(2), F_SETLK) the process has on
 * the file. Locks of the open file description (F_OFD_SETLK, flock(2)) stay, until the file and
 * the caller's descriptor are both closed.
 *
 * Return: 0; -EBADF not an open descriptor; -EISDIR; -ESPIPE; -ENOMEM; -EMFILE.
 */
int peerlane_file_from_fd(struct peerlane *ctx, int fd, struct peerlane_file **out);

/**
 * struct peerlane_file_ops - functions that read and write a file of the program's own
 * @size: sizeof(struct peerlane_file_ops)
 * @read: like pread(2), but gives back a negative errno; NULL: the file cannot be read
 * @write: like pwrite(2), the same way; NULL: it cannot be written
 * @sync: like fdatasync(2): 0 or a negative errno; may be NULL
 * @release: called once, when the file has been closed; may be NULL
 *
 * The memory they get is host memory. Several threads may call them at the same time.
 */
struct peerlane_file_ops {
	size_t size;
	ssize_t (*read)(void *arg, void *mem, size_t bytes, off_t offset);
	ssize_t (*write)(void *arg, const void *mem, size_t bytes, off_t offset);
	int (*sync)(void *arg);
	void (*release)(void *arg);
};

/**
 * peerlane_file_from_ops() - a file that functions of the program read and write
 * @ctx: context
 * @ops: the functions; copied
 * @arg: their first argument
 * @out: receives the file
 *
 * For file systems that live in the process. The data passes through pinned memory; everything
 * else is as with other files.
 *
 * Return: 0; -EINVAL NULL, of an unknown size, or with neither @read nor @write; -ENOMEM.
 */
int peerlane_file_from_ops(struct peerlane *ctx, const struct peerlane_file_ops *ops, void *arg,
			   struct peerlane_file **out);

/**
 * peerlane_file_close() - close a file
 * @file: file, or NULL
 *
 * I/O in flight on it is waited for, as long as the context's time-out.
 *
 * Return: 0; -EBADF it was closed already; -EBUSY I/O was still in flight when the time was up,
 * and the file stays open.
 */
int peerlane_file_close(struct peerlane_file *file);

/**
 * peerlane_file_sync() - make written data durable
 * @file: file
 *
 * Return: 0; -EBADF; an errno of fdatasync(2), also one of an earlier write-back.
 */
int peerlane_file_sync(struct peerlane_file *file);

/* ------------------------------------------------------------------ read and write */

/* Flags of peerlane_write() and struct peerlane_io. */
#define PEERLANE_DURABLE 0x1u /* a write that returned is on stable storage, as with O_DSYNC */

/**
 * peerlane_read() - read from a file into memory
 * @file: file open for reading
 * @addr: destination: GPU or host memory, any alignment
 * @bytes: how many, any number
 * @offset: position in the file, any alignment
 *
 * When the call returns the data is in place for every later access, GPU or CPU. Synchronous
 * CUDA calls made before it (cudaMemcpy(), cudaMemset()) have taken effect when it begins. Kernels
 * and asynchronous copies may not have: synchronise first, use peerlane_read_async(), or open the
 * context with PEERLANE_WAIT_DEFAULT. Like pread(2): fewer bytes than asked for at the end of the
 * file, 0 at or after it, zeros for holes. After an error in the middle the count of bytes in place
 * before it is returned, and the error by the next call that meets it.
 *
 * Context: any thread; blocks; the caller's current CUDA context is left as it was. EINTR is
 * never returned.
 *
 * Return: bytes read; -EBADF closed or not open for reading; -EINVAL NULL memory or negative
 * offset; -EFAULT @addr is no memory of this process or the range passes the end of its
 * allocation; -ERANGE it passes the end of a registered buffer; -EOVERFLOW; -EIO or another
 * errno of the file system; -ENXIO the drive of a block device is gone; -EREMOTEIO the GPU failed (see peerlane_error()); -ETIMEDOUT;
 * -ENOMEM.
 */
ssize_t peerlane_read(struct peerlane_file *file, void *addr, size_t bytes, off_t offset);

/**
 * peerlane_write() - write from memory to a file
 * @file: file open for writing
 * @addr: source: GPU or host memory, any alignment
 * @bytes: how many
 * @offset: position in the file; ignored when the file was opened with O_APPEND
 * @flags: 0 or PEERLANE_DURABLE
 *
 * Like pwrite(2). The source may be reused when the call returns.
 *
 * Bytes that lie inside the file and in the page cache may be written through a mapping of the
 * file, which stays until the file is closed. The file's times move as with pwrite(2), but watchers
 * (inotify, fanotify) are not told. PEERLANE_NO_MAPPED_WRITE in the options switches it off.
 *
 * Context: as peerlane_read().
 *
 * Return: bytes written, fewer than asked for when an error came in the middle (the count is a
 * prefix truly in the file); otherwise as peerlane_read(), and -ENOSPC, -EFBIG, -EDQUOT.
 */
ssize_t peerlane_write(struct peerlane_file *file, const void *addr, size_t bytes, off_t offset,
		       unsigned int flags);

/**
 * peerlane_readv() - read consecutive bytes of a file into several pieces of memory
 * @file: file open for reading
 * @iov: pieces, filled in order; each may be other memory (GPU or host)
 * @nr_iov: how many, 1 to IOV_MAX
 * @offset: position in the file
 *
 * Return: as peerlane_read(); -EINVAL also for a bad @nr_iov.
 */
ssize_t peerlane_readv(struct peerlane_file *file, const struct iovec *iov, int nr_iov,
		       off_t offset);

/**
 * peerlane_writev() - write several pieces of memory to consecutive bytes of a file
 * @file: file open for writing
 * @iov: pieces, written in order
 * @nr_iov: how many, 1 to IOV_MAX
 * @offset: position in the file
 * @flags: 0 or PEERLANE_DURABLE
 *
 * Return: as peerlane_write(); -EINVAL also for a bad @nr_iov.
 */
ssize_t peerlane_writev(struct peerlane_file *file, const struct iovec *iov, int nr_iov,
			off_t offset, unsigned int flags);

/* ------------------------------------------------------------------ batches */

enum peerlane_op {
	PEERLANE_READ = 0,
	PEERLANE_WRITE = 1,
};

/**
 * struct peerlane_io - one request of a batch
 * @file: file
 * @addr: memory
 * @bytes: length
 * @offset: position in the file
 * @op: PEERLANE_READ or PEERLANE_WRITE
 * @flags: 0 or PEERLANE_DURABLE
 * @cookie: given back in the event
 */
struct peerlane_io {
	struct peerlane_file *file;
	void *addr;
	size_t bytes;
	off_t offset;
	enum peerlane_op op;
	unsigned int flags;
	void *cookie;
};

/**
 * struct peerlane_event - one finished request of a batch
 * @cookie: of the request
 * @result: what peerlane_read() or peerlane_write() would have returned; -ECANCELED if cancelled
 * @cuda: CUresult where a CUDA call failed, else 0
 */
struct peerlane_event {
	void *cookie;
	ssize_t result;
	int cuda;
};

/**
 * peerlane_batch_create() - make room for requests in flight
 * @ctx: context
 * @capacity: most requests in flight or not yet collected, 1 to 65536
 * @out: receives the batch
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
int peerlane_batch_create(struct peerlane *ctx, unsigned int capacity, struct peerlane_batch **out);

/**
 * peerlane_batch_destroy() - free a batch
 * @batch: batch, or NULL
 *
 * Cancels what has not started and waits for the rest; uncollected events are dropped.
 */
void peerlane_batch_destroy(struct peerlane_batch *batch);

/**
 * peerlane_batch_submit() - start requests
 * @batch: batch
 * @io: requests; read during the call only
 * @nr: how many
 *
 * All or nothing: when one request is malformed none is started. Requests run in any order.
 *
 * Return: 0; -EINVAL (peerlane_error() names the request); -EAGAIN not enough room left in the
 * batch; -ENOMEM; or the code peerlane_read() gives for a bad file or memory range.
 */
int peerlane_batch_submit(struct peerlane_batch *batch, const struct peerlane_io *io,
			  unsigned int nr);

/**
 * peerlane_batch_wait() - collect finished requests
 * @batch: batch
 * @min_nr: wait until this many are there (0: do not wait)
 * @events: receives them, in the order they finished
 * @max_nr: room in @events
 * @timeout: how long to wait, NULL for ever
 *
 * Waits for fewer than @min_nr when fewer are in flight. The waiting thread helps with the work.
 *
 * Return: number of events (fewer than @min_nr after a time-out); -EINVAL.
 */
int peerlane_batch_wait(struct peerlane_batch *batch, unsigned int min_nr,
			struct peerlane_event *events, unsigned int max_nr,
			const struct timespec *timeout);

/**
 * peerlane_batch_cancel() - stop requests that have not started
 * @batch: batch
 *
 * Every request still gives its event: -ECANCELED, the count of the part that was done, or its
 * ordinary result.
 *
 * Return: number of requests of which at least a part was cancelled; -EINVAL.
 */
int peerlane_batch_cancel(struct peerlane_batch *batch);

/* ------------------------------------------------------------------ streams */

/* Flags of peerlane_read_async() and peerlane_write_async(). */
#define PEERLANE_FIXED 0x2u /* take *bytes and *offset now, not when the stream gets there */

/**
 * peerlane_read_async() - read in the order of a stream
 * @file: file open for reading
 * @addr: destination
 * @bytes: points to the length
 * @offset: points to the position in the file
 * @result: receives what peerlane_read() would have returned, in stream order
 * @stream: CUstream (NULL: the default stream of the current context), or a simulated stream
 * @flags: 0 or PEERLANE_FIXED
 *
 * The read starts when the work queued on @stream before is done; work queued after waits for
 * it. The call itself does not wait. Without PEERLANE_FIXED, *@bytes and *@offset are read when
 * the stream gets there and must stay valid until then; @result until the read is done. An error
 * is only in *@result: the stream goes on.
 *
 * On a CUDA stream a small kernel holds the stream and does the copies, and nothing calls the
 * driver once the read is queued, so the program may make any CUDA calls meanwhile. Where that
 * cannot be (GPU memory of another CUDA context than the stream's, PEERLANE_NO_KERNELS, a driver
 * that does not take the kernel) the stream waits for a memory word and the driver is called for
 * the copies: then, until the read is done, the program must not make CUDA calls that wait for
 * all work, such as loading a module, creating a stream or freeing memory. GPU memory must not be
 * freed before the read is done in either case.
 *
 * Context: any thread with the stream's context current. Not during stream capture.
 *
 * Return: 0 when queued; -EINVAL; -EBADF; -EREMOTEIO the stream refused (see peerlane_error());
 * -ENOMEM.
 */
int peerlane_read_async(struct peerlane_file *file, void *addr, const size_t *bytes,
			const off_t *offset, ssize_t *result, void *stream, unsigned int flags);

/**
 * peerlane_write_async() - write in the order of a stream
 * @file: file open for writing
 * @addr: source
 * @bytes: points to the length
 * @offset: points to the position in the file
 * @result: receives what peerlane_write() would have returned, in stream order
 * @stream: as peerlane_read_async()
 * @flags: 0, or PEERLANE_FIXED and PEERLANE_DURABLE
 *
 * Return: as peerlane_read_async().
 */
int peerlane_write_async(struct peerlane_file *file, const void *addr, const size_t *bytes,
			 const off_t *offset, ssize_t *result, void *stream, unsigned int flags);

/* ------------------------------------------------------------------ paths and their reasons */

/* The ways data can take, best first. */
enum peerlane_path {
	PEERLANE_PATH_P2P = 0,	    /* device writes GPU memory by DMA, through the kernel module */
	PEERLANE_PATH_MAPPED = 1,   /* file I/O straight into memory the CPU can address */
	PEERLANE_PATH_IN_PLACE = 2, /* page cache pinned where it is, read by the copy engine */
	PEERLANE_PATH_COPY = 3,	    /* page cache copied into pinned slots, then copy engine */
	PEERLANE_PATH_DIRECT = 4,   /* O_DIRECT into pinned slots, then copy engine */
	PEERLANE_PATH_NR = 5,
};

/**
 * peerlane_path_name() - short name of a path
 * @path: path
 *
 * Return: a constant word such as "in-place"; "unknown" for other values.
 */
const char *peerlane_path_name(enum peerlane_path path);

/**
 * struct peerlane_verdict - why a path is or is not taken
 * @path: the path
 * @usable: 1 if the engine may take it for (a part of) such a request
 * @reason: why, or why not
 * @fix: what the user can do about it; empty where there is nothing to do
 */
struct peerlane_verdict {
	enum peerlane_path path;
	int usable;
	char reason[192];
	char fix[192];
};

/**
 * struct peerlane_explanation - which path a request would take and why not a better one
 * @size: sizeof(struct peerlane_explanation), set by the caller
 * @chosen: path most of the bytes would take now
 * @io_engine: "io_uring" or "threads"
 * @io_reason: why not io_uring; empty when it is used
 * @ahead_reason: why a sequence of such reads would not be read ahead now; empty if it would
 * @fs: file system type, such as "ext4"
 * @device: block device name, such as "nvme0n1"; empty where there is none
 * @dio_align: alignment O_DIRECT needs; 0 if the file cannot do it
 * @file_bytes: size of the file
 * @cached_bytes: how much of the range is in the page cache; -1 if the kernel does not tell
 * @memory: kind of memory: "device", "managed", "pinned", "host"
 * @gpu: ordinal of the GPU, -1 for host memory
 * @nr_verdicts: entries used in @verdicts
 * @verdicts: one per path, best first
 */
struct peerlane_explanation {
	size_t size;
	enum peerlane_path chosen;
	char io_engine[16];
	char io_reason[192];
	char ahead_reason[192];
	char fs[32];
	char device[64];
	uint32_t dio_align;
	int64_t file_bytes;
	int64_t cached_bytes;
	char memory[16];
	int gpu;
	unsigned int nr_verdicts;
	struct peerlane_verdict verdicts[PEERLANE_PATH_NR];
};

/**
 * peerlane_explain() - say which path a request would take, and for every better one why not
 * @file: file
 * @op: PEERLANE_READ or PEERLANE_WRITE
 * @addr: memory
 * @bytes: length
 * @offset: position in the file
 * @out: @size set by the caller, the rest filled
 *
 * Touches no memory of the caller. Where the path p2p would be new to a drive and a GPU, a little of the
 * file is read to test them.
 *
 * Return: 0; or the code such a read or write would give.
 */
int peerlane_explain(struct peerlane_file *file, enum peerlane_op op, const void *addr,
		     size_t bytes, off_t offset, struct peerlane_explanation *out);

/* ------------------------------------------------------------------ statistics */

#define PEERLANE_HIST 64

/**
 * struct peerlane_op_stats - counters of one direction
 * @ok: requests that returned a count
 * @failed: requests that returned an error
 * @bytes: bytes in place
 * @path_bytes: bytes moved, by path
 * @ns_sum: time spent in requests, added up over threads
 * @size_hist: requests by size: entry i counts 2^i to 2^(i+1)-1 bytes (0 and 1 in entry 0)
 * @lat_hist: requests by time: entry i counts 2^i to 2^(i+1)-1 ns
 */
struct peerlane_op_stats {
	uint64_t ok;
	uint64_t failed;
	uint64_t bytes;
	uint64_t path_bytes[PEERLANE_PATH_NR];
	uint64_t ns_sum;
	uint64_t size_hist[PEERLANE_HIST];
	uint64_t lat_hist[PEERLANE_HIST];
};

/**
 * struct peerlane_stats - counters of a context since it was opened
 * @size: sizeof(struct peerlane_stats), set by the caller
 * @read: reads
 * @write: writes
 * @pool_limit: most pinned bytes allowed
 * @pool_bytes: pinned bytes held now
 * @pool_peak: most pinned bytes ever held
 * @pool_waits: how often a request had to wait for pinned memory
 * @pool_failures: how often the system refused pinned memory
 * @files: files open now
 * @buffers: buffers registered now
 * @batches: batches alive now
 * @in_flight: requests running now
 * @threads: worker threads running now
 * @in_place_failures: how often pinning the page cache in place was refused
 * @cancelled: requests cancelled
 * @ahead_bytes: bytes of reads that had been read ahead when they were asked for
 * @mapped_write_bytes: bytes written through a mapping of their file
 */
struct peerlane_stats {
	size_t size;
	struct peerlane_op_stats read;
	struct peerlane_op_stats write;
	uint64_t pool_limit;
	uint64_t pool_bytes;
	uint64_t pool_peak;
	uint64_t pool_waits;
	uint64_t pool_failures;
	uint64_t files;
	uint64_t buffers;
	uint64_t batches;
	uint64_t in_flight;
	uint64_t threads;
	uint64_t in_place_failures;
	uint64_t cancelled;
	uint64_t ahead_bytes;
	uint64_t mapped_write_bytes;
};

/**
 * peerlane_stats_get() - read the counters
 * @ctx: context
 * @out: @size set by the caller, the rest filled
 *
 * The same counters can be read from outside the process with "peerlane stat".
 *
 * Return: 0; -EINVAL.
 */
int peerlane_stats_get(struct peerlane *ctx, struct peerlane_stats *out);

#ifdef __cplusplus
}
#endif

#endif
