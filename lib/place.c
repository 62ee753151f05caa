// SPDX-License-Identifier: MIT
/* Copies of what was read ahead. */
#include "place.h"

#include "ahead.h"
#include "context.h"

#include <errno.h>

bool pl_place_begin(struct pl_place *w)
{
	const struct pl_seg *seg = w->seg;
	unsigned int i = (w->first + w->nr) % PL_PLACE_COPIES;
	struct pl_lane_queue *q = seg->op->queue;
	struct pl_piece *p;
	struct pl_copy copy;
	int err = 0;

	if (w->stop || w->at == seg->bytes || w->nr == PL_PLACE_COPIES)
		return false;
	p = pl_ahead_take(seg->op->file, seg->offset + (off_t)w->at, seg->bytes - w->at, q,
			  &w->stop);
	if (!p)
		return false;
	copy = (struct pl_copy){ .dst = seg->addr + w->at, .src = p->lane->mem, .bytes = p->bytes };
	if (!q)
		err = pl_lane_queue(w->ctx, p->lane, seg->owner, &q);
	if (!err)
		err = w->ctx->gpu->ops->copy(w->ctx->gpu, q->queue, PL_TO_GPU, &copy, 1,
					     q->marks[i]);
	w->copies[i].piece = p;
	w->copies[i].queue = q;
	w->copies[i].err = err;
	w->at += p->bytes;
	w->nr++;
	return true;
}

/* Waits until the copy out of @lane has ended. */
static int copied(struct peerlane *ctx, struct pl_lane *lane, struct pl_mark *mark)
{
	uint64_t deadline = pl_deadline_ns(ctx);
	int done;

	while (!(done = ctx->gpu->ops->mark_done(ctx->gpu, mark))) {
		if (pl_now_ns() > deadline) {
			lane->lost = true;
			return -ETIMEDOUT;
		}
		pl_cpu_relax();
	}
	return done < 0 ? done : 0;
}

void pl_place_end(struct pl_place *w)
{
	unsigned int i = w->first;
	struct pl_piece *p = w->copies[i].piece;
	struct pl_lane_queue *q = w->copies[i].queue, *stream = w->seg->op->queue;
	/* Also after an error: some of it may be on its way. */
	int err = q ? copied(w->ctx, p->lane, q->marks[i]) : 0;

	if (err == -ETIMEDOUT) {
		w->err = err;
		/* A kernel may still read the lane. */
		p->lane->serve = stream ? stream->serve : NULL;
		p->lane->serve_number = stream ? stream->number : 0;
	}
	err = w->copies[i].err ? w->copies[i].err : err;
	if (err && err != -ETIMEDOUT && q && !stream)
		pl_lane_queue_drop(w->ctx, p->lane, w->seg->owner);
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
