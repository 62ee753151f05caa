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
/* How long it stays with one that is under way while others wait. */
#define TURN_NS 4000u
/* Under way for so long it may take longer still: something else is wrong, or the CPU has other work. */
#define LONG_NS 2000000u

/* Workers at least: one of them is left for requests that are done in steps. */
#define MIN_THREADS 3u

static const struct timespec nap = { .tv_nsec = NAP_NS };

unsigned int pl_stream_threads(void)
{
	unsigned int nr = pl_nr_cpus() / 5;

	if (nr < MIN_THREADS)
		return MIN_THREADS;
	return nr < PL_STREAM_THREADS ? nr : PL_STREAM_THREADS;
}

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
		r->work->end(r->arg, result, r->p2p);
	else
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

bool pl_stream_request_ask(struct pl_stream_request *r)
{
	bool fixed = r->flags & PEERLANE_FIXED;

	if (!r->asked && r->work)
		r->refused = r->work->begin(r->arg, &r->what);
	else if (!r->asked)
		r->what = (struct pl_stream_what){
			.bytes = fixed ? r->bytes_now : *r->bytes,
			.offset = fixed ? r->offset_now : *r->offset,
		};
	r->asked = true;
	return !r->refused;
}

/* In a worker: what the request is for. Without a call of the driver where a kernel serves, else as any caller would. */
static ssize_t perform(struct pl_stream_request *r)
{
	unsigned int flags = r->flags & (PEERLANE_DURABLE | PL_IO_NO_P2P);
	const struct pl_stream_what *what = &r->what;
	struct pl_span span = r->span;
	struct iovec iov;

	if (!pl_stream_request_ask(r))
		return r->refused;
	/* The caller of an ordinary request is told of zero bytes at a place that is none. */
	if (r->work && !what->bytes)
		return 0;
	iov = (struct iovec){ .iov_base = (char *)r->addr + what->shift, .iov_len = what->bytes };
	if (!r->served)
		return pl_io_vectored(r->file, r->op, &iov, 1, what->offset,
				      flags | PL_IO_IN_STREAM, &r->p2p);
	if (!span.err && what->shift > span.room)
		span.err = span.past;
	span.addr += what->shift;
	span.room -= what->shift;
	return pl_io_served(r->file, r->op, &span, what->bytes, what->offset, flags,
			    &r->stream->queue, &r->p2p);
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
	s->look_until = 0;
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

/* Gives the stream back, to be seen to after all others that wait; it may be gone at once. @patient: nobody need
 * hurry for it. */
static void put_back(struct pl_stream *s, bool patient)
{
	s->task.patient = patient;
	if (pl_task_post(&s->ctx->stream_workers, &s->task))
		pl_stream_serve_drop(&s->task);
}

void pl_stream_serve_add(struct pl_stream *s, struct pl_stream_request *r)
{
	if (list_push(s, r))
		put_back(s, false);
}

/* The context is going away, or there is no thread to be had. A read in steps, under way only in the former case,
 * is left as it is: what it uses stays for ever, see leave_behind(). */
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

/* As far as the stream's share goes. */
void pl_stream_hint_next(struct pl_lane_queue *queue)
{
	struct pl_stream *s =
		(struct pl_stream *)((char *)queue - offsetof(struct pl_stream, queue));
	unsigned int active = __atomic_load_n(&s->ctx->streams_active, __ATOMIC_RELAXED);
	unsigned int share = PL_AHEAD_PIECES / (active ? active : 1);

	hint(s, true, share > 2 ? share - 1 : 1);
}

/* Whether a worker that came to a stream at @since has been with it for long enough: others wait. */
static bool turn_over(struct pl_stream *s, uint64_t since)
{
	uint64_t now = pl_now_ns();

	return (now > since + TURN_NS && pl_tasks_waiting(&s->ctx->stream_workers, false)) ||
	       (now > since + LOOK_NS && pl_tasks_waiting(&s->ctx->stream_workers, true));
}

/*
 * Whether the kernel of a request has begun. If not, others come first: the GPU runs so many
 * kernels at a time and no more, and those that run must find a worker and a lane to end. It may
 * take as long as other work of the program keeps the GPU.
 */
static bool kernel_here(struct pl_stream *s, uint32_t number)
{
	uint64_t since = pl_now_ns();

	if (!s->look_until)
		s->look_until = since + LOOK_NS;
	do {
		if (s->ctx->gpu->ops->serve_state(s->serve, number) != PL_SERVE_COMING)
			return true;
		pl_cpu_relax();
	} while (pl_now_ns() < s->look_until && !turn_over(s, since));
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
	s->queue.hint = is_known(s) ? pl_stream_hint_next : NULL;
	ops->serve_begin(s->serve, r->number);
	return perform(r);
}

/* Does the first request in steps, until it is done or another stream waits for a worker. */
static enum pl_flight_step fly(struct pl_stream *s, struct pl_stream_request *r, ssize_t *n)
{
	uint64_t since = pl_now_ns();
	enum pl_flight_step step;

	while ((step = pl_flight_step(s, r, n)) == PL_FLIGHT_UNDER_WAY && !turn_over(s, since)) {
		if (pl_now_ns() - s->flight.began > LONG_NS)
			nanosleep(&nap, NULL);
		pl_cpu_relax();
	}
	return step;
}

/* The kernel of the first request has still to come. */
static void wait_behind(struct pl_stream *s)
{
	bool late = pl_now_ns() >= s->look_until;
	struct peerlane *ctx = s->ctx;

	hint(s, false, 1);
	put_back(s, late);
	if (late && !pl_tasks_waiting(&ctx->stream_workers, false))
		nanosleep(&nap, NULL);
}

/*
 * Does the first request as any other, and waits for it. False: not now. A worker must be left for requests that are
 * done in steps: they are soon done, and others may wait for disks.
 */
static bool wait_for(struct pl_stream *s, struct pl_stream_request *r, ssize_t *n)
{
	struct peerlane *ctx = s->ctx;
	bool may = __atomic_add_fetch(&ctx->streams_blocked, 1, __ATOMIC_RELAXED) <
			   ctx->stream_workers.max ||
		   !__atomic_load_n(&ctx->streams_flying, __ATOMIC_RELAXED);

	if (may)
		*n = serve_one(s, r);
	__atomic_fetch_sub(&ctx->streams_blocked, 1, __ATOMIC_RELAXED);
	return may;
}

/* In a worker for streams: serves a stream as long as the kernels of its requests come, and nobody else waits. */
void pl_stream_serve(struct pl_task *task)
{
	struct pl_stream *s = (struct pl_stream *)task;
	struct pl_stream_request *r;
	enum pl_flight_step step;
	bool more = true;
	ssize_t n;

	while (more) {
		r = list_first(s);
		if (!pl_flight_under_way(&s->flight) && !kernel_here(s, r->number)) {
			wait_behind(s);
			return;
		}
		step = fly(s, r, &n);
		if (step == PL_FLIGHT_UNDER_WAY ||
		    (step == PL_FLIGHT_NONE && !wait_for(s, r, &n))) {
			put_back(s, false);
			return;
		}
		more = list_pop(s);
		finish(r, n);
	}
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
