/* SPDX-License-Identifier: MIT */
/* One read or write, for the calling thread or for a stream. */
#ifndef PL_CF_IO_H
#define PL_CF_IO_H

#include "handle.h"

struct pl_cf_io {
	struct pl_cf_file *file;
	enum peerlane_op op;
	void *base;
	size_t size;
	off_t file_offset, buf_offset;
	uint64_t start; /* for the statistics, if there are any */
};

/* 0, or a negative errno or CUfileOpError: it cannot be done. */
int pl_cf_io_begin(struct pl_cf_io *io, bool on_stream);
/* It was done with the result @n of the engine, or not, with that of pl_cf_io_begin(). @gpu: pl_cf_stats_gpu(). */
void pl_cf_io_end(const struct pl_cf_io *io, int gpu, ssize_t n, size_t p2p);

#endif
