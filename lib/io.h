/* SPDX-License-Identifier: MIT */
/* From the caller's arguments to a job: what io.c, batch.c, stream.c and explain.c share. */
#ifndef PL_IO_H
#define PL_IO_H

#include "buffer.h"
#include "job.h"

/* Checks offset and length. */
int pl_io_range(size_t bytes, off_t offset);
/* Checks offset and length and takes a reference to the file (pl_file_put() undoes it). */
int pl_io_check(struct peerlane_file *file, enum peerlane_op op, size_t bytes, off_t offset);
/* Fills @seg for memory at @addr; @buf gets a reference if it is registered. */
int pl_io_segment(struct peerlane *ctx, struct pl_seg *seg, struct pl_op *op, const void *addr,
		  size_t bytes, off_t offset, struct pl_buffer **buf);
/* How many of @bytes at @offset lie before the end of the file. */
size_t pl_io_until_end(const struct peerlane_file *file, size_t bytes, off_t offset);
/* Records for peerlane_error() why @op failed with @err. */
void pl_io_explain(struct peerlane *ctx, const struct pl_op *op, int err);
/* The whole of a synchronous request on a file the caller has a reference to. */
ssize_t pl_io_vectored(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		       int nr_iov, off_t offset, unsigned int flags);

#endif
