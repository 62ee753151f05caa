/* SPDX-License-Identifier: MIT */
/* One read or write, for the calling thread or for a stream. */
#ifndef PL_CF_IO_H
#define PL_CF_IO_H

#include "handle.h"

/* A count, a negative errno of the engine, or a negative CUfileOpError. */
ssize_t pl_cf_io(struct peerlane *ctx, struct pl_cf_file *f, enum peerlane_op op, void *base,
		 size_t size, off_t file_offset, off_t buf_offset);

#endif
