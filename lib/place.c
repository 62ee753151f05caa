// SPDX-License-Identifier: MIT
/* Copies of what was read ahead. */
#include "place.h"

#include "ahead.h"
#include "context.h"

#include <errno.h>
#include <sched.h>

/* Looks at a copy that goes with others before seeing to them. */
#define LOOKS 8u

/* Has the copy made by itself, on the stream's queue or on the lane's. */
static void begin_alone(struct pl_place *w, struct pl_place_copy *c, unsigned int i)
{
	struct pl_lane_queue *q = w->seg->op->queue;

	c->convoy = NULL;
	c->err = q ? 0 : pl_lane_queue(w->ctx, c->piece->lane, w->seg->owner, &q);
	c->queue = q;
	if (c->err)
		return;
	c->mark = q->marks[i % (PL_RUNS - 1)];
	c->err =
		w->ctx->gpu->ops->copy(w->ctx->gpu, q->queue, PL_TO_GPU, &c->ride.copy, 1, c->mark);
}

bool pl_place_begin(struct pl_place *w)
{
	const struct pl_seg *seg = w->seg;
	unsigned int i = (w->first + w->nr) % PL_PLACE_COPIES;
	struct pl_lane_queue *q = seg->op->queue;
	struct pl_place_copy *c = &w->copies[i];
	struct pl_piece *p;

	if (w->stop || w->at == seg->bytes || w->nr == (q ? PL_RUNS - 1 : PL_PLACE_COPIES))
		return false;
	p = pl_ahead_take(seg->op->file, seg->offset + (off_t)w->at, seg->bytes - w->at, q,
			  &w->stop);
	if (!p)
		return false;
	c->piece = p;
	c->queue = NULL;
	c->err = 0;
	c->ride.copy = (struct pl_copy){ .dst = seg->addr + w->at,
					 .src = p->lane->mem,
					 .bytes = p->bytes };
	c->convoy = q ? NULL : pl_convoy_get(w->ctx, seg->owner);
	if (c->convoy)
		pl_convoy_join(c->convoy, &c->ride);
	else
		begin_alone(w, c, i);
	w->at += p->bytes;
	w->nr++;
	return true;
}

/* Until when to wait for a copy: no longer, once one of them did not end in time. */
static uint64_t deadline(const struct pl_place *w)
{
	return w->err ? 0 : pl_deadline_ns(w->ctx);
}

/* Nobody waits for it any more. */
static int leave(struct pl_place *w, struct pl_place_copy *c)
{
	struct pl_lane *lane = c->piece->lane;

	lane->lost = pl_convoy_leave(c->convoy, &c->ride);
	/* It ended in this moment, or will never begin. */
	if (!lane->lost)
		return c->ride.state == PL_RIDE_OVER ? c->ride.err : -ECANCELED;
	lane->convoy = c->convoy;
	lane->convoy_number = c->ride.number;
	if (!w->err)
		pl_log(w->ctx, 1,
		       "copies do not end: those of several threads do not go together any more");
	return -ETIMEDOUT;
}

/* Waits for a copy with others. Returns its outcome; -ETIMEDOUT: it may still be under way. */
static int convoyed(struct pl_place *w, struct pl_place_copy *c)
{
	uint64_t until = deadline(w);

	while (!pl_convoy_over(c->convoy, &c->ride)) {
		if (pl_now_ns() > until)
			return leave(w, c);
		/* Whoever has no CPU may be the one all wait for. */
		sched_yield();
		for (unsigned int i = 0; i < LOOKS; i++)
			pl_cpu_relax();
	}
	return c->ride.err;
}

/* Waits until the copy out of @lane has ended. */
static int copied(struct pl_place *w, struct pl_lane *lane, struct pl_mark *mark)
{
	uint64_t until = deadline(w);
	int done;

	while (!(done = w->ctx->gpu->ops->mark_done(w->ctx->gpu, mark))) {
		if (pl_now_ns() > until) {
			lane->lost = true;
			return -ETIMEDOUT;
		}
		pl_cpu_relax();
	}
	return done < 0 ? done : 0;
}

static int end_alone(struct pl_place *w, struct pl_place_copy *c)
{
	struct pl_lane_queue *stream = w->seg->op->queue;
	struct pl_lane *lane = c->piece->lane;
	/* Also after an error: some of it may be on its way. */
	int err = c->queue ? copied(w, lane, c->mark) : 0;

	if (err == -ETIMEDOUT) {
		/* A kernel may still read the lane. */
		lane->serve = stream ? stream->serve : NULL;
		lane->serve_number = stream ? stream->number : 0;
		return err;
	}
	err = c->err ? c->err : err;
	if (err && c->queue && !stream)
		pl_lane_queue_drop(w->ctx, lane, w->seg->owner);
	return err;
}

void pl_place_end(struct pl_place *w)
{
	struct pl_place_copy *c = &w->copies[w->first];
	struct pl_piece *p = c->piece;
	int err = c->convoy ? convoyed(w, c) : end_alone(w, c);

	if (err == -ETIMEDOUT)
		w->err = err;
	/* What comes after it was begun, but will not count. */
	if (err) {
		w->stop = true;
		w->at = w->placed;
	}
	if (w->placed < w->at) {
		w->placed += p->bytes;
		w->by_device += p->cached ? 0 : p->bytes;
	}
	pl_piece_drop(p, w->ctx);
	w->first = (w->first + 1) % PL_PLACE_COPIES;
	w->nr--;
}
