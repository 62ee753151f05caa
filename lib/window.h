/* SPDX-License-Identifier: MIT */
/*
 * Reading the page cache in place: a window of the file is mapped, pinned for the GPU where it
 * is, and the copy engine reads it there. It costs a fifth of the CPU time of copying; its speed
 * is bounded by how fast the driver pins pages, one window at a time. So it is taken when the
 * caller asks to save CPU time, or where measuring showed that copying is slower still, as with
 * few CPUs.
 */
#ifndef PL_WINDOW_H
#define PL_WINDOW_H

#include "job.h"

/* What large reads have shown so far, in bytes per microsecond; 0: not measured. */
struct pl_rates {
	uint32_t copy, in_place; /* atomic */
	uint64_t placed;	 /* bytes in place since copying was last measured; atomic */
	int refused; /* errno with which the driver or kernel refused, 0: never; atomic */
};

/*
 * Reads as much as it can of @seg this way, from its start. Returns the bytes in place, 0 when
 * the ordinary way is better or the only one; the rest is for the ordinary way, unless *@err is
 * set: after a time-out the GPU may still be writing there.
 */
size_t pl_window_read(struct peerlane *ctx, const struct pl_seg *seg, int *err);

/* Whether a read could go in place, and would; @why receives the reason if not. */
bool pl_window_wanted(struct peerlane *ctx, const struct pl_seg *seg, char *why, size_t why_bytes);

/* A large read was done by copying from the page cache: its rate. What a device gave says nothing here. */
void pl_window_note_copy(struct peerlane *ctx, size_t bytes, uint64_t ns);

#endif
