/* SPDX-License-Identifier: MIT */
/* Registered memory. */
#ifndef PL_CF_BUFFER_H
#define PL_CF_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peerlane;

/* What is registered at an address, as it was found. All zero: nothing was looked for yet. */
struct pl_cf_range {
	const void *base;
	size_t bytes; /* SIZE_MAX: it is no registered base */
};

/* 0; -ERANGE when @base is registered and [@offset, @offset + @bytes) passes its end. Does not look
 * again for a base that was looked for with the same @last before. */
int pl_cf_buffer_check(struct pl_cf_range *last, const void *base, size_t bytes, off_t offset);
/* Bytes registered on GPU @gpu. */
size_t pl_cf_buffer_bytes(int gpu);
/* Ordinal of the GPU that has @addr, -1 for host memory and where it is not known. */
int pl_cf_buffer_gpu(struct peerlane *ctx, const void *addr);

void pl_cf_buffers_clear(void);
void pl_cf_buffers_forget(void);

#endif
