/* SPDX-License-Identifier: MIT */
/* Registered memory. */
#ifndef PL_CF_BUFFER_H
#define PL_CF_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peerlane;

/* 0; -ERANGE when @base is registered and [@offset, @offset + @bytes) passes its end. */
int pl_cf_buffer_check(const void *base, size_t bytes, off_t offset);
/* Bytes registered on GPU @gpu. */
size_t pl_cf_buffer_bytes(int gpu);
/* Ordinal of the GPU that has @addr, -1 for host memory and where it is not known. */
int pl_cf_buffer_gpu(struct peerlane *ctx, const void *addr);

void pl_cf_buffers_clear(void);
void pl_cf_buffers_forget(void);

#endif
