/* SPDX-License-Identifier: MIT */
/*
 * The pool of lanes. It is bounded; lanes are made when first needed and kept until the context
 * closes. A request takes one lane and waits for no second one, so requests that wait for a lane
 * wait only for requests that can finish: no deadlock.
 */
#ifndef PL_POOL_H
#define PL_POOL_H

#include "lane.h"

#include <pthread.h>

/* Threads for requests of streams, at most, beside those who help them. */
#define PL_STREAM_THREADS 8u

/* The largest power of two that is not above @v, which is not 0. */
static inline size_t pl_power_of_two_below(size_t v)
{
	return 1ul << (63 - __builtin_clzl(v));
}

struct pl_pool {
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t freed;
	struct pl_lane
		*idle[2]; /* [big]: last used first, its memory is still in the CPU's caches */
	struct pl_lane *reserved; /* idle, for requests of streams only */
	bool has_reserved;
	unsigned int nr[2], max[2];
	size_t lane_bytes[2];
	struct pl_lane *lost;
	unsigned int spared; /* lanes that pl_lane_spare() gave out */
	bool refused;	     /* pinned memory was refused once; said in the log */
};

int pl_pool_init(struct pl_pool *pool, size_t pool_bytes, size_t slot_bytes);
void pl_pool_fini(struct peerlane *ctx);
/* In a forked child: frees the records, calls no driver. */
void pl_pool_abandon(struct pl_pool *pool);

/* A lane of at least @least bytes for a request of @bytes; waits, at most the context's time-out,
 * while all are taken. */
int pl_lane_acquire(struct peerlane *ctx, size_t bytes, size_t least, struct pl_lane **out);
/* The same for a request that must not call the driver: only lanes that are there, of pinned
 * memory. */
int pl_lane_acquire_made(struct peerlane *ctx, size_t bytes, size_t least, struct pl_lane **out);
void pl_lane_release(struct peerlane *ctx, struct pl_lane *lane);

/* A small lane for work nobody waits for, if there are plenty; else NULL. For pl_lane_give_back().
 * @made: as pl_lane_acquire_made(). */
struct pl_lane *pl_lane_spare(struct peerlane *ctx, bool made);
void pl_lane_give_back(struct peerlane *ctx, struct pl_lane *lane);

/* Makes lanes for a request of up to @bytes that will use pl_lane_acquire_made(): enough for
 * those that are served at a time, and once a small one that nobody else takes, so that there is
 * always one that comes back however long others are kept by the driver. One caller at a time. */
int pl_pool_reserve(struct peerlane *ctx, size_t bytes);
/* Takes lanes that were given up back into use, if nothing runs into them any more. */
void pl_pool_reclaim(struct peerlane *ctx);

#endif
