/* SPDX-License-Identifier: MIT */
/* From the caller's arguments to a job: what io.c, batch.c, stream.c and explain.c share. */
#ifndef PL_IO_H
#define PL_IO_H

#include "buffer.h"
#include "job.h"

/* With the flags of the public API, for those who must not pin memory or test a drive now. */
#define PL_IO_NO_P2P (1u << 31)
/* A request that a stream waits for: it must not wait for other streams in turn. */
#define PL_IO_IN_STREAM (1u << 30)

/* Checks offset and length. */
int pl_io_range(size_t bytes, off_t offset);
/* Checks offset and length and takes a reference to the file (pl_file_put() undoes it). */
int pl_io_check(struct peerlane_file *file, enum peerlane_op op, size_t bytes, off_t offset);
/* Fills @seg for memory at @addr; @buf gets a reference if it is registered, or pinned. */
int pl_io_segment(struct peerlane *ctx, struct pl_seg *seg, enum peerlane_op dir, struct pl_op *op,
		  const void *addr, size_t bytes, off_t offset, struct pl_buffer **buf);
/* How many of @bytes at @offset lie before the end of the file. */
size_t pl_io_until_end(const struct peerlane_file *file, size_t bytes, off_t offset);
/* The same where the file's size is known. */
size_t pl_io_cut(int64_t size, size_t bytes, off_t offset);
/* Records for peerlane_error() why @op failed with @err. */
void pl_io_explain(struct peerlane *ctx, const struct pl_op *op, int err);
/* The part [from, to) of a request, in order, until some of it comes short. As pl_op_result(). */
ssize_t pl_io_parts(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op,
		    const struct pl_seg *segs, unsigned int nr, size_t from, size_t to);

/* --- io_direct.c: writes to files opened with O_DIRECT --- */
/* Whether writes to @file go by pl_io_write_direct(). */
bool pl_io_writes_direct(const struct peerlane_file *file);
/* Whether O_DIRECT cannot write all of it: then it is for pl_io_write_direct() alone, and not for
 * a job with others. */
bool pl_io_odd_write(const struct peerlane_file *file, size_t bytes, off_t offset);
/* Such a write, or any other to such a file, in the calling thread. As pl_op_result(). */
ssize_t pl_io_write_direct(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			   unsigned int nr);
/* The lock of a job that writes whole blocks to @file, as a bit; 0: none. It keeps buffered writes
 * of the same file away. */
uint32_t pl_io_direct_lock_of(const struct peerlane_file *file);
void pl_io_direct_lock(uint32_t mask);
void pl_io_direct_unlock(uint32_t mask);
/* How many bytes of a write of @seg alone go through the page cache. */
size_t pl_io_odd_bytes(const struct peerlane_file *file, const struct pl_seg *seg);

/* --- io.c --- */
/* The whole of a synchronous request; of its bytes *@p2p went between drive and GPU memory. */
ssize_t pl_io_request(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		      int nr_iov, off_t offset, unsigned int flags, size_t *p2p);
/* The same on a file the caller has a reference to. */
ssize_t pl_io_vectored(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		       int nr_iov, off_t offset, unsigned int flags, size_t *p2p);
/* The same for memory that is known already. Copies go through @queue, and nothing calls the
 * driver. */
ssize_t pl_io_served(struct peerlane_file *file, enum peerlane_op dir, const struct pl_span *span,
		     size_t bytes, off_t offset, unsigned int flags, struct pl_lane_queue *queue,
		     size_t *p2p);
/* peerlane_batch_wait(), which also tells of each request how much went that way; @p2p may be NULL. */
int pl_batch_wait(struct peerlane_batch *batch, unsigned int min_nr, struct peerlane_event *events,
		  size_t *p2p, unsigned int max_nr, const struct timespec *timeout);
/* Where the CPU may reach memory at @addr, which is @mem; NULL if it must not. */
char *pl_io_host(const struct peerlane *ctx, const struct pl_mem *mem, void *addr);

#endif
