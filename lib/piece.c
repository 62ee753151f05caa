// SPDX-License-Identifier: MIT
/* Pieces of files that are read ahead of time. */
#include "piece.h"

#include "context.h"
#include "job.h"
#include "ring.h"

#include <sched.h>
#include <time.h>

/* Rounds of looking at a piece that is being filled before the looking gets slower. */
#define LOOKS 20000u

static void set(struct pl_piece *p, enum pl_piece_state state)
{
	__atomic_store_n(&p->state, (uint8_t)state, __ATOMIC_RELEASE);
}

static bool change(struct pl_piece *p, enum pl_piece_state from, enum pl_piece_state to)
{
	uint8_t was = (uint8_t)from;

	return __atomic_compare_exchange_n(&p->state, &was, (uint8_t)to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

void pl_piece_reserve(struct pl_piece *p)
{
	p->lane = NULL;
	set(p, PL_PIECE_ASKING);
}

bool pl_piece_ask(struct pl_piece *p, struct peerlane_file *f)
{
	size_t mask = f->align - 1, bytes = (p->bytes + mask) & ~mask;
	struct pl_ring *ring = pl_lane_ring(f->ctx, p->lane);
	struct pl_ring_done done;

	if (!ring || pl_ring_push(ring, 0, f->fd_direct, p->lane->mem, bytes, p->offset, 0))
		return false;
	p->cached = false;
	set(p, PL_PIECE_ASKED);
	return pl_ring_collect(ring, &done, 0, 0) >= 0;
}

void pl_piece_queue(struct pl_piece *p)
{
	p->cached = true;
	set(p, PL_PIECE_QUEUED);
}

/* The lane's memory goes back, and the piece can be had again. */
static void end(struct pl_piece *p, struct peerlane *ctx)
{
	struct pl_lane *lane = p->lane;

	if (lane && lane->ring && pl_ring_in_flight(lane->ring))
		lane->lost = true;
	p->lane = NULL;
	set(p, PL_PIECE_NONE);
	if (lane)
		pl_lane_give_back(ctx, lane);
}

void pl_piece_fill(struct pl_piece *p, struct peerlane_file *f)
{
	bool whole;

	if (!change(p, PL_PIECE_QUEUED, PL_PIECE_FILLING))
		return;
	whole = pl_fill_ahead(f, p->lane->mem, p->bytes, p->offset);
	if (!change(p, PL_PIECE_FILLING, whole ? PL_PIECE_FULL : PL_PIECE_BAD))
		end(p, f->ctx);
}

static bool device_arrived(struct pl_piece *p, struct peerlane *ctx)
{
	uint64_t deadline = pl_deadline_ns(ctx);
	struct pl_ring_done done;
	int n;

	do {
		n = pl_ring_collect(p->lane->ring, &done, 1, 10000);
	} while (!n && pl_now_ns() < deadline);
	return n == 1 && done.result >= 0 && (size_t)done.result >= p->bytes;
}

bool pl_piece_arrived(struct pl_piece *p, struct peerlane_file *f)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	uint64_t deadline = 0;

	if (pl_piece_state(p) == PL_PIECE_ASKED)
		return device_arrived(p, f->ctx);
	pl_piece_fill(p, f);
	for (unsigned int i = 0; pl_piece_state(p) == PL_PIECE_FILLING; i++) {
		if (i < LOOKS) {
			/* Who fills it may have no CPU. */
			if (i % 64 == 63)
				sched_yield();
			pl_cpu_relax();
			continue;
		}
		deadline = deadline ? deadline : pl_deadline_ns(f->ctx);
		if (pl_now_ns() > deadline)
			return false;
		nanosleep(&nap, NULL);
	}
	return pl_piece_state(p) == PL_PIECE_FULL;
}

void pl_piece_drop(struct pl_piece *p, struct peerlane *ctx)
{
	/* Nobody begins to fill it any more; who has begun, lets it go. */
	if (change(p, PL_PIECE_QUEUED, PL_PIECE_BAD) || !change(p, PL_PIECE_FILLING, PL_PIECE_LEFT))
		end(p, ctx);
}
