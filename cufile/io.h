/* SPDX-License-Identifier: MIT */
/* One read or write, for the calling thread or for a stream. */
#ifndef PL_CF_IO_H
#define PL_CF_IO_H

#include "handle.h"

struct pl_stream_io;

/* What a request on a stream brings with it: where it is served nothing may call the driver. */
struct pl_cf_on_stream {
	struct pl_stream_io *io;
	int gpu; /* for the statistics */
};

/* A count, a negative errno of the engine, or a negative CUfileOpError. @on is NULL for a call. */
ssize_t pl_cf_io(struct peerlane *ctx, struct pl_cf_file *f, enum peerlane_op op, void *base,
		 size_t size, off_t file_offset, off_t buf_offset,
		 const struct pl_cf_on_stream *on);

#endif
