/* SPDX-License-Identifier: MIT */
/*
 * Copies whose destination does not stay in the CPU's caches. A copy engine that reads a line
 * still dirty in a core's cache gets it at half speed; a slot filled this way it reads as fast
 * as memory.
 */
#ifndef PL_NT_COPY_H
#define PL_NT_COPY_H

#include <stddef.h>

void pl_nt_copy(void *dst, const void *src, size_t bytes);
/* After the last of several copies, before the data is given to a device. */
void pl_nt_fence(void);

#endif
