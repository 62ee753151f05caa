// SPDX-License-Identifier: MIT
/* Stream-ordered I/O in the workers: the requests of a stream when it gets there, see stream.c. */
#include "io.h"
#include "stream_request.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* How long a worker looks for a kernel to begin before it goes to see about others. */
#define LOOK_NS 50000u
#define NAP_NS 20000

void pl_stream_request_put(struct pl_stream_request *r)
{
	if (!__atomic_sub_fetch(&r->users, 1, __ATOMIC_ACQ_REL))
		free(r);
}

/* The one way out: the result is stored, and then the stream goes on. */
static void finish(struct pl_stream_request *r, ssize_t result)
{
	struct peerlane *ctx = r->file->ctx;
	struct pl_stream *s = r->stream;

	if (r->work)
		r->work(r->arg, (int)result, NULL);
	else if (r->result)
		*r->result = result;
	pl_span_put(&r->span);
	pl_file_put(r->file);
	/* Whoever sees the number sees the result: the stream, and the host after it. */
	if (r->served)
		ctx->gpu->ops->serve_quit(s->serve, r->number);
	else
		__atomic_store_n(s->word, r->number, __ATOMIC_RELEASE);
	pl_stream_request_put(r);
	__atomic_fetch_sub(&ctx->stream_requests, 1, __ATOMIC_ACQ_REL);
}

static void drop(struct pl_task *task)
{
	finish((struct pl_stream_request *)task, -ECANCELED);
}

/* The I/O itself: without a call of the driver where a kernel serves, else as any caller would. */
static ssize_t move(struct pl_stream_request *r, size_t shift, size_t bytes, off_t offset,
		    size_t *p2p)
{
	unsigned int flags = r->flags & (PEERLANE_DURABLE | PL_IO_NO_P2P);
	struct iovec iov = { .iov_base = (char *)r->addr + shift, .iov_len = bytes };
	struct pl_span span = r->span;

	if (!r->served)
		return pl_io_vectored(r->file, r->op, &iov, 1, offset, flags, p2p);
	if (!span.err && shift > span.room)
		span.err = span.past;
	span.addr += shift;
	span.room -= shift;
	return pl_io_served(r->file, r->op, &span, bytes, offset, flags, &r->stream->queue, p2p);
}

ssize_t pl_stream_io(struct pl_stream_io *io, size_t shift, size_t bytes, off_t offset, size_t *p2p)
{
	return move((struct pl_stream_request *)io, shift, bytes, offset, p2p);
}

/* In a worker: what the request is for. */
static ssize_t perform(struct pl_stream_request *r)
{
	bool fixed = r->flags & PEERLANE_FIXED;
	size_t p2p;

	if (r->work) {
		r->work(r->arg, 0, (struct pl_stream_io *)r);
		r->work = NULL;
		return 0;
	}
	return move(r, 0, fixed ? r->bytes_now : *r->bytes, fixed ? r->offset_now : *r->offset,
		    &p2p);
}

static void perform_held(struct pl_task *task)
{
	struct pl_stream_request *r = (struct pl_stream_request *)task;

	finish(r, perform(r));
}

/* ------------------------------------------------------------------ served */

static struct pl_stream_request *list_first(struct pl_stream *s)
{
	struct pl_stream_request *r;

	pthread_mutex_lock(&s->list_lock);
	r = s->first;
	pthread_mutex_unlock(&s->list_lock);
	return r;
}

/* Takes the first one off, before it is finished: with the last request the stream may go. Returns
 * whether there are more. */
static bool list_pop(struct pl_stream *s)
{
	bool more;

	pthread_mutex_lock(&s->list_lock);
	s->first = s->first->next;
	more = s->first;
	if (!more) {
		s->last = &s->first;
		__atomic_fetch_sub(&s->ctx->streams_active, 1, __ATOMIC_RELAXED);
	}
	s->active = more;
	s->looked = false;
	pthread_mutex_unlock(&s->list_lock);
	return more;
}

/* Adds a request; returns whether the stream has to be given to a worker. */
static bool list_push(struct pl_stream *s, struct pl_stream_request *r)
{
	bool idle;

	pthread_mutex_lock(&s->list_lock);
	r->next = NULL;
	*s->last = r;
	s->last = &r->next;
	idle = !s->active;
	s->active = true;
	if (idle)
		__atomic_fetch_add(&s->ctx->streams_active, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&s->list_lock);
	return idle;
}

void pl_stream_serve_add(struct pl_stream *s, struct pl_stream_request *r)
{
	if (list_push(s, r) && pl_task_post(&s->ctx->stream_workers, &s->task))
		pl_stream_serve_drop(&s->task);
}

/* The context is going away, or there is no thread to be had. */
void pl_stream_serve_drop(struct pl_task *task)
{
	struct pl_stream *s = (struct pl_stream *)task;
	struct pl_stream_request *r;
	bool more;

	do {
		r = list_first(s);
		more = list_pop(s);
		finish(r, -ECANCELED);
	} while (more);
}

/* Whether it can be said now what it will read, and that that goes through a lane. */
static bool predictable(const struct pl_stream_request *r)
{
	return r->op == PEERLANE_READ && r->bytes_now && !r->span.err && !r->span.way.pin &&
	       !pl_io_host(r->file->ctx, &r->span.mem, r->addr);
}

/*
 * Has @nr requests read ahead that were not yet, from the first on or from the one after it. Requests stay until the
 * stream's worker, who calls this, takes them off; only the last one may be changed.
 */
static void hint(struct pl_stream *s, bool after_first, unsigned int nr)
{
	struct pl_stream_request *list[PL_AHEAD_PIECES], *r;
	unsigned int found = 0;

	pthread_mutex_lock(&s->list_lock);
	r = after_first ? s->first->next : s->first;
	for (; r && nr; r = r->next, nr--)
		if (!r->hinted && predictable(r))
			list[found++] = r;
	pthread_mutex_unlock(&s->list_lock);
	for (unsigned int i = 0; i < found; i++) {
		if (pl_ahead_hint(list[i]->file, list[i]->offset_now, list[i]->bytes_now))
			return;
		list[i]->hinted = true;
	}
}

/* While the first request is copied: those after it, as far as the stream's share goes. */
static void hint_next(struct pl_lane_queue *queue)
{
	struct pl_stream *s =
		(struct pl_stream *)((char *)queue - offsetof(struct pl_stream, queue));
	unsigned int active = __atomic_load_n(&s->ctx->streams_active, __ATOMIC_RELAXED);
	unsigned int share = PL_AHEAD_PIECES / (active ? active : 1);

	hint(s, true, share > 2 ? share - 1 : 1);
}

/*
 * Whether the kernel of a request has begun. If not, others come first: the GPU runs so many
 * kernels at a time and no more, and those that run must find a worker and a lane to end. It may
 * take as long as other work of the program keeps the GPU.
 */
static bool kernel_here(struct pl_stream *s, uint32_t number)
{
	uint64_t until = s->looked ? 0 : pl_now_ns() + LOOK_NS;

	do {
		if (s->ctx->gpu->ops->serve_state(s->serve, number) != PL_SERVE_COMING)
			return true;
		pl_cpu_relax();
	} while (pl_now_ns() < until);
	return false;
}

/* Whether what comes after the first request is known, or what comes after one that was. */
static bool is_known(struct pl_stream *s)
{
	bool known;

	pthread_mutex_lock(&s->list_lock);
	known = s->first->hinted || s->first->next;
	pthread_mutex_unlock(&s->list_lock);
	return known;
}

static ssize_t serve_one(struct pl_stream *s, struct pl_stream_request *r)
{
	const struct pl_gpu_ops *ops = s->ctx->gpu->ops;

	/* Two streams by one name: one was destroyed with work left. */
	if (ops->serve_state(s->serve, r->before) != PL_SERVE_GONE)
		return -EBUSY;
	s->queue.number = r->number;
	s->queue.hint = is_known(s) ? hint_next : NULL;
	ops->serve_begin(s->serve, r->number);
	return perform(r);
}

/* In a worker for streams: serves a stream as long as the kernels of its requests come. */
void pl_stream_serve(struct pl_task *task)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	struct pl_stream *s = (struct pl_stream *)task;
	struct pl_stream_request *r;
	ssize_t n;
	bool more;

	do {
		r = list_first(s);
		if (!kernel_here(s, r->number)) {
			s->looked = true;
			hint(s, false, 1);
			if (pl_task_post(&s->ctx->stream_workers, &s->task))
				pl_stream_serve_drop(&s->task);
			else
				nanosleep(&nap, NULL);
			return;
		}
		n = serve_one(s, r);
		more = list_pop(s);
		finish(r, n);
	} while (more);
}

/* ------------------------------------------------------------------ held */

/* On the stream: the work before is done. No GPU call is allowed here. */
void pl_stream_reached(void *request)
{
	struct pl_stream_request *r = request;
	struct peerlane *ctx = r->file->ctx;
	int err;

	/* The context was closed without us: there are no workers any more. */
	if (__atomic_load_n(&ctx->closed, __ATOMIC_ACQUIRE)) {
		finish(r, -ECANCELED);
		return;
	}
	r->task.drop = drop;
	r->task.run = perform_held;
	err = pl_task_post(&ctx->workers, &r->task);
	if (err)
		finish(r, err);
}
