/* SPDX-License-Identifier: MIT */
/*
 * The mailbox between the CPU and the kernel that serves a stream (serve.cu): copies are posted in
 * a ring in pinned memory and done by the kernel, so that neither side calls the driver. One
 * mailbox a stream; the requests of a stream follow each other, each with a kernel of its own and
 * a number that only grows.
 *
 * A kernel that has begun says so ("here"), which is how the CPU learns that the stream got to the
 * request. The CPU resets what it writes and answers ("begun"); from then on chunks are posted and
 * done. The first block looks at the CPU's words for all the others, which look at GPU memory: every
 * look across the bus is in the way of the copies. The last block of the kernel resets what is in GPU memory before it ends.
 */
#ifndef PL_SERVE_H
#define PL_SERVE_H

#include <stdint.h>

#define PL_SERVE_RING 512u
#define PL_SERVE_MARKS 4u
#define PL_SERVE_CHUNK (64u * 1024)
#define PL_SERVE_LINE 128u

/* One piece of a copy, done by one block. One side is pinned memory, the other GPU memory. */
struct pl_serve_chunk {
	uint64_t dst, src;
	uint32_t bytes;
	uint32_t mark;
	uint32_t target;  /* chunks of this mark in this request once its run is complete */
	uint32_t to_host; /* @dst is the pinned side */
};

/* In pinned memory. Each side has lines of its own to write. */
struct pl_serve_host {
	/* By the CPU: chunks posted in this request, and the last request that must end. After
	 * "quit" no chunk is begun, also if it was posted before. */
	uint32_t posted, quit;
	uint32_t begun; /* the last request whose chunks "posted" counts */
	uint32_t pad1[PL_SERVE_LINE / 4 - 3];
	/* By the GPU: the last request whose kernel has begun, and has ended; for each mark the
	 * target of its last run that is complete. */
	uint32_t here, gone;
	uint32_t mark[PL_SERVE_MARKS];
	uint32_t pad2[PL_SERVE_LINE / 4 - 2 - PL_SERVE_MARKS];
	struct pl_serve_chunk ring[PL_SERVE_RING];
};

/* In GPU memory; all zero between requests. */
struct pl_serve_gpu {
	uint32_t taken;	 /* chunks some block has taken or waits for */
	uint32_t exited; /* blocks that have ended */
	uint32_t posted; /* what the first block last saw of the CPU's */
	uint32_t quit;	 /* 1: end */
	uint32_t finished[PL_SERVE_MARKS];
	uint32_t pad[PL_SERVE_LINE / 4 - 4 - PL_SERVE_MARKS];
};

#endif
