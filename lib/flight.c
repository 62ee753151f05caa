// SPDX-License-Identifier: MIT
/* Reads on streams in steps. */
#include "flight.h"

#include "io.h"
#include "stream_request.h"

#include <errno.h>

/* Whether the request can be done so, with the values that count at this time. */
static bool fits(struct pl_stream_request *r)
{
	const struct pl_stream_what *what = &r->what;

	return r->hinted && r->op == PEERLANE_READ && !r->span.err && pl_stream_request_ask(r) &&
	       what->shift <= r->span.room && what->bytes <= r->span.room - what->shift;
}

static bool begin(struct pl_stream *s, struct pl_stream_request *r)
{
	const struct pl_gpu_ops *ops = s->ctx->gpu->ops;
	struct pl_flight *f = &s->flight;

	if (ops->serve_state(s->serve, r->before) != PL_SERVE_GONE || !fits(r))
		return false;
	f->piece = pl_ahead_claim(r->file, r->what.offset, r->what.bytes);
	if (!f->piece)
		return false;
	f->copying = false;
	f->began = pl_now_ns();
	f->deadline = pl_deadline_ns(s->ctx);
	pl_stat_add(&pl_ctx_stats(s->ctx)->in_flight, 1);
	__atomic_fetch_add(&s->ctx->streams_flying, 1, __ATOMIC_RELAXED);
	return true;
}

static void end(struct pl_stream *s)
{
	s->flight.piece = NULL;
	__atomic_fetch_sub(&s->ctx->streams_flying, 1, __ATOMIC_RELAXED);
	pl_stat_sub(&pl_ctx_stats(s->ctx)->in_flight, 1);
}

/* It leads to nothing; the request is as it was. */
static enum pl_flight_step give_up(struct pl_stream *s)
{
	end(s);
	return PL_FLIGHT_NONE;
}

static enum pl_flight_step land(struct pl_stream *s, struct pl_stream_request *r, ssize_t n,
				ssize_t *result)
{
	struct pl_flight *f = &s->flight;
	struct peerlane *ctx = s->ctx;
	size_t bytes = f->piece->bytes;

	pl_piece_drop(f->piece, ctx);
	end(s);
	if (n > 0) {
		pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_COPY, bytes);
		pl_stat_add(&pl_ctx_stats(ctx)->ahead_bytes, bytes);
	}
	pl_stats_request(&ctx->stats, r->op, bytes, n, pl_now_ns() - f->began);
	*result = n;
	return PL_FLIGHT_LANDED;
}

/* The piece is full, if it came at all: has it copied. */
static enum pl_flight_step copy(struct pl_stream *s, struct pl_stream_request *r)
{
	const struct pl_gpu_ops *ops = s->ctx->gpu->ops;
	struct pl_piece *p = s->flight.piece;
	struct pl_copy one = { .dst = r->span.addr + r->what.shift,
			       .src = p->lane->mem,
			       .bytes = p->bytes };

	if (pl_piece_state(p) != PL_PIECE_FULL || !pl_steady_still(r->file)) {
		pl_ahead_stale(r->file, p);
		return give_up(s);
	}
	s->queue.number = r->number;
	ops->serve_begin(s->serve, r->number);
	/* A copy that is refused has not begun. */
	if (ops->copy(s->ctx->gpu, s->queue.queue, PL_TO_GPU, &one, 1, s->queue.marks[0])) {
		pl_piece_drop(p, s->ctx);
		return give_up(s);
	}
	s->flight.copying = true;
	s->flight.deadline = pl_deadline_ns(s->ctx);
	pl_stream_hint_next(&s->queue);
	return PL_FLIGHT_UNDER_WAY;
}

/* The kernel may still read the lane. */
static void lose(struct pl_stream *s)
{
	struct pl_lane *lane = s->flight.piece->lane;

	lane->lost = true;
	lane->serve = s->serve;
	lane->serve_number = s->queue.number;
}

static enum pl_flight_step fill(struct pl_stream *s, struct pl_stream_request *r)
{
	struct pl_flight *f = &s->flight;

	/* One that nobody has begun with is done here and now: those who fill are busy. */
	pl_piece_fill(f->piece, r->file);
	if (pl_piece_state(f->piece) != PL_PIECE_FILLING)
		return copy(s, r);
	if (pl_now_ns() < f->deadline)
		return PL_FLIGHT_UNDER_WAY;
	pl_ahead_stale(r->file, f->piece);
	return give_up(s);
}

enum pl_flight_step pl_flight_step(struct pl_stream *s, struct pl_stream_request *r,
				   ssize_t *result)
{
	const struct pl_gpu_ops *ops = s->ctx->gpu->ops;
	struct pl_flight *f = &s->flight;
	int done;

	if (!f->piece && !begin(s, r))
		return PL_FLIGHT_NONE;
	if (!f->copying)
		return fill(s, r);
	done = ops->mark_done(s->ctx->gpu, s->queue.marks[0]);
	if (done > 0)
		return land(s, r, (ssize_t)f->piece->bytes, result);
	if (!done && pl_now_ns() < f->deadline)
		return PL_FLIGHT_UNDER_WAY;
	if (!done)
		lose(s);
	return land(s, r, done ? done : -ETIMEDOUT, result);
}
