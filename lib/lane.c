// SPDX-License-Identifier: MIT
/* Lanes: their memory, their copy queues and their io_uring. */
#include "lane.h"

#include "context.h"
#include "ring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static void note_peak(struct peerlane_stats *st)
{
	uint64_t now = __atomic_load_n(&st->pool_bytes, __ATOMIC_RELAXED);
	uint64_t peak = __atomic_load_n(&st->pool_peak, __ATOMIC_RELAXED);

	while (now > peak && !__atomic_compare_exchange_n(&st->pool_peak, &peak, now, true,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

struct pl_lane *pl_lane_create(struct peerlane *ctx, bool big)
{
	struct peerlane_stats *st = pl_ctx_stats(ctx);
	struct pl_lane *lane = calloc(1, sizeof(*lane));
	void *mem;

	if (!lane)
		return NULL;
	lane->big = big;
	lane->bytes = ctx->pool.lane_bytes[big];
	if (!ctx->gpu->ops->pin_alloc(ctx->gpu, lane->bytes, &mem)) {
		lane->pinned = true;
		lane->mem = mem;
		pl_stat_add(&st->pool_bytes, lane->bytes);
		note_peak(st);
		return lane;
	}
	pl_stat_add(&st->pool_failures, 1);
	mem = mmap(NULL, lane->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED) {
		free(lane);
		return NULL;
	}
	lane->mem = mem;
	if (!__atomic_exchange_n(&ctx->pool.refused, true, __ATOMIC_RELAXED))
		pl_log(ctx, 1, "no pinned memory left: staging through ordinary memory, slower");
	return lane;
}

static void queue_free(struct peerlane *ctx, struct pl_lane_queue *q)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;

	for (int i = 0; i < PL_RUNS; i++)
		ops->mark_destroy(ctx->gpu, q->marks[i]);
	ops->queue_destroy(ctx->gpu, q->queue);
	free(q);
}

void pl_lane_free(struct peerlane *ctx, struct pl_lane *lane)
{
	while (lane->queues) {
		struct pl_lane_queue *q = lane->queues;

		lane->queues = q->next;
		queue_free(ctx, q);
	}
	pl_ring_destroy(lane->ring);
	if (lane->pinned)
		ctx->gpu->ops->pin_free(ctx->gpu, lane->mem, lane->bytes);
	else
		munmap(lane->mem, lane->bytes);
	free(lane);
}

void pl_lane_abandon(struct pl_lane *lane)
{
	pl_ring_abandon(lane->ring);
	while (lane->queues) {
		struct pl_lane_queue *q = lane->queues;

		lane->queues = q->next;
		free(q);
	}
	free(lane);
}

bool pl_lane_recovered(struct peerlane *ctx, struct pl_lane *lane)
{
	struct pl_ring_done done[16];

	if (lane->serve &&
	    ctx->gpu->ops->serve_state(lane->serve, lane->serve_number) != PL_SERVE_GONE)
		return false;
	if (lane->convoy && !pl_convoy_passed(lane->convoy, lane->convoy_number))
		return false;
	for (struct pl_lane_queue *q = lane->queues; q; q = q->next)
		for (int i = 0; i < PL_RUNS; i++)
			if (!ctx->gpu->ops->mark_done(ctx->gpu, q->marks[i]))
				return false;
	while (lane->ring && pl_ring_in_flight(lane->ring))
		if (pl_ring_collect(lane->ring, done, 16, 0) <= 0)
			return false;
	return true;
}

int pl_lane_queue(struct peerlane *ctx, struct pl_lane *lane, void *owner,
		  struct pl_lane_queue **out)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	struct pl_lane_queue *q;
	int err;

	for (q = lane->queues; q; q = q->next) {
		if (q->owner == owner) {
			*out = q;
			return 0;
		}
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->owner = owner;
	err = ops->queue_create(ctx->gpu, owner, &q->queue);
	for (int i = 0; i < PL_RUNS && !err; i++)
		err = ops->mark_create(ctx->gpu, q->queue, &q->marks[i]);
	if (err) {
		queue_free(ctx, q);
		return err;
	}
	q->next = lane->queues;
	lane->queues = q;
	*out = q;
	return 0;
}

void pl_lane_queue_drop(struct peerlane *ctx, struct pl_lane *lane, void *owner)
{
	for (struct pl_lane_queue **p = &lane->queues; *p; p = &(*p)->next) {
		struct pl_lane_queue *q = *p;

		if (q->owner == owner) {
			*p = q->next;
			queue_free(ctx, q);
			return;
		}
	}
}

struct pl_ring *pl_lane_ring(struct peerlane *ctx, struct pl_lane *lane)
{
	if (!lane->ring && !ctx->ring_why &&
	    pl_ring_create(&lane->ring, ctx->opt.queue_depth, lane->mem, lane->bytes))
		return NULL;
	return lane->ring;
}
