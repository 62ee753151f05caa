/* SPDX-License-Identifier: MIT */
/*
 * Lanes: what one request needs to stage data. A lane is a run of pinned memory, copy queues for
 * the GPUs it has served, and an io_uring.
 */
#ifndef PL_LANE_H
#define PL_LANE_H

#include "gpu.h"

#include <stdbool.h>
#include <stdint.h>

struct peerlane;
struct pl_convoy;
struct pl_ring;

/* Copy lists a queue may have in flight. */
#define PL_RUNS 4

struct pl_lane_queue {
	struct pl_lane_queue *next;
	void *owner;
	struct pl_queue *queue;
	struct pl_mark *marks[PL_RUNS];
	/* Of a stream that is served, no lane's own: */
	struct pl_serve *serve;
	uint32_t number; /* of the request */
	/* Has what the stream reads next read ahead; NULL: that is not known. */
	void (*hint)(struct pl_lane_queue *queue);
};

struct pl_lane {
	struct pl_lane *next;
	char *mem;
	size_t bytes;
	bool big;
	bool pinned;   /* false: the system refused pinned memory and this is ordinary memory */
	bool lost;     /* a copy or read into it may still be running: not to be used again */
	bool reserved; /* for requests of streams */
	struct pl_serve *serve; /* lost to request @serve_number of it */
	uint32_t serve_number;
	struct pl_convoy *convoy; /* lost to list @convoy_number of it */
	uint32_t convoy_number;
	struct pl_lane_queue *queues;
	struct pl_ring *ring; /* NULL until first used */
};

/* A new lane, small or big. Without pinned memory ordinary memory serves, more slowly. NULL: there is neither. */
struct pl_lane *pl_lane_create(struct peerlane *ctx, bool big);
void pl_lane_free(struct peerlane *ctx, struct pl_lane *lane);
/* In a forked child: frees the record, calls no driver. */
void pl_lane_abandon(struct pl_lane *lane);
/* Whether nothing runs any more into a lane that was given up. */
bool pl_lane_recovered(struct peerlane *ctx, struct pl_lane *lane);

/* The lane's queue for a GPU context, made when first asked for. */
int pl_lane_queue(struct peerlane *ctx, struct pl_lane *lane, void *owner,
		  struct pl_lane_queue **out);
/* Forgets a queue after a driver error: its context may be gone. */
void pl_lane_queue_drop(struct peerlane *ctx, struct pl_lane *lane, void *owner);
/* The lane's io_uring, or NULL where there is none. */
struct pl_ring *pl_lane_ring(struct peerlane *ctx, struct pl_lane *lane);

#endif
