// SPDX-License-Identifier: MIT
/*
 * Stream-ordered I/O. What is queued on the caller's stream is a kernel of ours where it can be. It
 * tells that the stream got there, does the copies, and by its end lets the stream go on, so that
 * from submission on nothing calls the driver. It must not: while a stream waits, a call of anybody
 * else, such as loading a kernel, may wait for the stream and keep the driver's lock.
 *
 * Where no kernel can serve (another GPU's memory, kernels not wanted, no such back end) it is a
 * host function that hands the request to a worker, and then a wait until a word in pinned memory
 * reaches the request's number; the worker does the I/O as any caller would. Requests of one stream
 * run one after the other, so one word or mailbox per stream is enough and its numbers only grow.
 */
#include "stream.h"

#include "context.h"
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS_PER_CHUNK 64u
#define WORD_BYTES 64u /* one cache line each */
/* How long a worker looks for a kernel to begin before it goes to see about others. */
#define LOOK_NS 50000u
#define NAP_NS 20000

struct pl_stream {
	struct pl_task task; /* first: workers are given it */
	struct pl_stream *next;
	uintptr_t key[2];
	pthread_mutex_t lock; /* keeps number and order on the stream the same; guards all below */
	uint32_t *word;
	uint32_t number; /* of the last request queued */
	uint32_t served; /* of the last one with a kernel */
	void *chunk;	 /* the pinned memory, on the stream that must free it; else NULL */
	struct pl_serve *serve;
	bool no_serve;		    /* it was refused once */
	struct pl_lane_queue queue; /* of @serve, for jobs */
	struct peerlane *ctx;
	pthread_mutex_t list_lock;     /* guards the rest */
	struct request *first, **last; /* served ones, in their order */
	bool active;		       /* a worker has the stream, or will have */
	bool looked; /* for the kernel of the first, for LOOK_NS; only that worker's */
};

struct request {
	struct pl_task task;
	unsigned int users; /* the one who submits it, and the stream; atomic */
	struct peerlane_file *file;
	enum peerlane_op op;
	void *addr;
	const size_t *bytes;
	const off_t *offset;
	size_t bytes_now;
	off_t offset_now;
	ssize_t *result;
	unsigned int flags;
	pl_stream_work work; /* of pl_stream_run(), instead of the five above */
	void *arg;
	uint32_t number;
	struct pl_stream *stream;
	/* Served by a kernel: */
	bool served;
	struct pl_span span;
	uint32_t before; /* request whose kernel used the mailbox last */
	struct request *next;
};

static void serve(struct pl_task *task);
static void drop_served(struct pl_task *task);

/* A word nobody has yet; streams_lock held. Lines of a chunk go to the streams after its owner. */
static int new_word(struct peerlane *ctx, struct pl_stream *s)
{
	struct pl_stream *last = ctx->streams;
	unsigned int used = 0;
	void *chunk;
	int err;

	for (struct pl_stream *p = last; p; p = p->next)
		used++;
	if (used % WORDS_PER_CHUNK) {
		s->word = last->word + WORD_BYTES / sizeof(uint32_t);
		return 0;
	}
	err = ctx->gpu->ops->pin_alloc(ctx->gpu, WORDS_PER_CHUNK * WORD_BYTES, &chunk);
	if (err)
		return pl_fail_gpu(err, ctx->gpu->ops->result(), "no pinned memory for a stream");
	memset(chunk, 0, WORDS_PER_CHUNK * WORD_BYTES);
	s->chunk = chunk;
	s->word = chunk;
	return 0;
}

/* streams_lock held. */
static int new_stream(struct peerlane *ctx, const uintptr_t key[2], struct pl_stream **out)
{
	struct pl_stream *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return pl_fail(-ENOMEM, "no memory for a stream");
	err = new_word(ctx, s);
	if (err) {
		free(s);
		return err;
	}
	memcpy(s->key, key, sizeof(s->key));
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->list_lock, NULL);
	s->task.run = serve;
	s->task.drop = drop_served;
	s->last = &s->first;
	s->ctx = ctx;
	s->next = ctx->streams;
	ctx->streams = s;
	*out = s;
	return 0;
}

static int find_stream(struct peerlane *ctx, void *stream, struct pl_stream **out)
{
	struct pl_stream *s;
	uintptr_t key[2];
	int err = ctx->gpu->ops->stream_key(ctx->gpu, stream, key);

	if (err)
		return pl_fail_gpu(err, ctx->gpu->ops->result(), "the stream is not usable");
	pthread_mutex_lock(&ctx->streams_lock);
	for (s = ctx->streams; s; s = s->next)
		if (s->key[0] == key[0] && s->key[1] == key[1])
			break;
	if (!s)
		err = new_stream(ctx, key, &s);
	pthread_mutex_unlock(&ctx->streams_lock);
	*out = s;
	return err;
}

static void request_put(struct request *r)
{
	if (!__atomic_sub_fetch(&r->users, 1, __ATOMIC_ACQ_REL))
		free(r);
}

/* The one way out: the result is stored, and then the stream goes on. */
static void finish(struct request *r, ssize_t result)
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
	request_put(r);
	__atomic_fetch_sub(&ctx->stream_requests, 1, __ATOMIC_ACQ_REL);
}

static void drop(struct pl_task *task)
{
	finish((struct request *)task, -ECANCELED);
}

/* The I/O itself: without a call of the driver where a kernel serves, else as any caller would. */
static ssize_t move(struct request *r, size_t shift, size_t bytes, off_t offset)
{
	unsigned int flags = r->flags & PEERLANE_DURABLE;
	struct iovec iov = { .iov_base = (char *)r->addr + shift, .iov_len = bytes };
	struct pl_span span = r->span;

	if (!r->served)
		return pl_io_vectored(r->file, r->op, &iov, 1, offset, flags);
	if (!span.err && shift > span.room)
		span.err = span.past;
	span.addr += shift;
	span.room -= shift;
	return pl_io_served(r->file, r->op, &span, bytes, offset, flags, &r->stream->queue);
}

ssize_t pl_stream_io(struct pl_stream_io *io, size_t shift, size_t bytes, off_t offset)
{
	return move((struct request *)io, shift, bytes, offset);
}

/* In a worker: what the request is for. */
static ssize_t perform(struct request *r)
{
	bool fixed = r->flags & PEERLANE_FIXED;

	if (r->work) {
		r->work(r->arg, 0, (struct pl_stream_io *)r);
		r->work = NULL;
		return 0;
	}
	return move(r, 0, fixed ? r->bytes_now : *r->bytes, fixed ? r->offset_now : *r->offset);
}

static void perform_held(struct pl_task *task)
{
	struct request *r = (struct request *)task;

	finish(r, perform(r));
}

/* ------------------------------------------------------------------ served */

static struct request *list_first(struct pl_stream *s)
{
	struct request *r;

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
	if (!more)
		s->last = &s->first;
	s->active = more;
	s->looked = false;
	pthread_mutex_unlock(&s->list_lock);
	return more;
}

/* Adds a request; returns whether the stream has to be given to a worker. */
static bool list_push(struct pl_stream *s, struct request *r)
{
	bool idle;

	pthread_mutex_lock(&s->list_lock);
	r->next = NULL;
	*s->last = r;
	s->last = &r->next;
	idle = !s->active;
	s->active = true;
	pthread_mutex_unlock(&s->list_lock);
	return idle;
}

/* The context is going away, or there is no thread to be had. */
static void drop_served(struct pl_task *task)
{
	struct pl_stream *s = (struct pl_stream *)task;
	struct request *r;
	bool more;

	do {
		r = list_first(s);
		more = list_pop(s);
		finish(r, -ECANCELED);
	} while (more);
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

static ssize_t serve_one(struct pl_stream *s, struct request *r)
{
	const struct pl_gpu_ops *ops = s->ctx->gpu->ops;

	/* Two streams by one name: one was destroyed with work left. */
	if (ops->serve_state(s->serve, r->before) != PL_SERVE_GONE)
		return -EBUSY;
	s->queue.number = r->number;
	ops->serve_begin(s->serve, r->number);
	return perform(r);
}

/* In a worker for streams: serves a stream as long as the kernels of its requests come. */
static void serve(struct pl_task *task)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	struct pl_stream *s = (struct pl_stream *)task;
	struct request *r;
	ssize_t n;
	bool more;

	do {
		r = list_first(s);
		if (!kernel_here(s, r->number)) {
			s->looked = true;
			if (pl_task_post(&s->ctx->stream_workers, &s->task))
				drop_served(&s->task);
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
static void reached(void *arg)
{
	struct request *r = arg;
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

/* The most bytes that have to be copied; 0: the CPU reaches the memory, or there is none. */
static size_t bytes_to_copy(struct peerlane *ctx, const struct request *r)
{
	if (r->span.err || pl_io_host(ctx, &r->span.mem, r->addr))
		return 0;
	if ((r->flags & PEERLANE_FIXED) && r->bytes_now < r->span.room)
		return r->bytes_now;
	return r->span.room;
}

/* The mailbox of the stream, made when first needed; its lock is held. */
static bool get_serve(struct peerlane *ctx, struct pl_stream *s, void *stream)
{
	int err;

	if (s->serve || s->no_serve)
		return s->serve;
	err = ctx->gpu->ops->serve_create(ctx->gpu, stream, &s->serve);
	if (err) {
		s->no_serve = err != -ENOMEM;
		pl_log(ctx, 2, "a stream is held, not served by a kernel (%d)", err);
		return false;
	}
	s->queue.owner = s->serve->owner;
	s->queue.queue = s->serve->queue;
	s->queue.serve = s->serve;
	_Static_assert(PL_RUNS == PL_SERVE_MARKS, "a mark for each run");
	memcpy(s->queue.marks, s->serve->marks, sizeof(s->queue.marks));
	return true;
}

/* Has a lane and its queue made before the stream is first held; then they could wait for it. */
static void prepare_held(struct peerlane *ctx, const struct request *r, size_t bytes)
{
	struct pl_lane_queue *q;
	struct pl_lane *lane;

	if (!bytes || pl_lane_acquire(ctx, bytes, 1, &lane))
		return;
	pl_lane_queue(ctx, lane, r->span.mem.owner, &q);
	pl_lane_release(ctx, lane);
}

/* Decides how the stream is made to wait and makes ready what that needs; its lock is held. */
static void prepare(struct peerlane *ctx, struct pl_stream *s, struct request *r, void *stream)
{
	size_t bytes;
	int err = 0;

	if (!ctx->gpu->ops->serve_create)
		return;
	pl_span_get(ctx, r->addr, r->flags & PEERLANE_FIXED ? r->bytes_now : SIZE_MAX, &r->span);
	bytes = bytes_to_copy(ctx, r);
	if (!ctx->gpu->no_kernels && get_serve(ctx, s, stream) &&
	    (!bytes || r->span.mem.owner == s->serve->owner)) {
		if (bytes) {
			pthread_mutex_lock(&ctx->streams_lock);
			err = pl_pool_reserve(ctx, bytes);
			pthread_mutex_unlock(&ctx->streams_lock);
		}
		r->served = !err;
	}
	if (r->served)
		return;
	if (!s->number)
		prepare_held(ctx, r, bytes);
	pl_span_put(&r->span);
}

static int refused(struct peerlane *ctx, int err, const char *what)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;

	return pl_fail_gpu(err, ops->result(), "%s: %s", what,
			   ops->result_name(ctx->gpu, ops->result()));
}

/* Queues the kernel; the stream's lock is held. */
static int enqueue_served(struct peerlane *ctx, struct pl_stream *s, struct request *r,
			  void *stream)
{
	int err = ctx->gpu->ops->serve_launch(ctx->gpu, stream, s->serve, r->number,
					      bytes_to_copy(ctx, r));

	if (err)
		return refused(ctx, err, "the stream refused");
	s->number = s->served = r->number;
	if (list_push(s, r) && pl_task_post(&ctx->stream_workers, &s->task))
		drop_served(&s->task);
	return 0;
}

/* Queues the host function and the wait; the stream's lock is held. */
static int enqueue_held(struct peerlane *ctx, struct pl_stream *s, struct request *r, void *stream)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	uint32_t number = r->number;
	int err = ops->stream_call(ctx->gpu, stream, reached, r);

	if (err)
		return refused(ctx, err, "the stream refused");
	/* From here on the request belongs to the stream. */
	s->number = number;
	err = ops->stream_hold(ctx->gpu, stream, s->word, number);
	if (err)
		return refused(ctx, err,
			       "the request is queued but the stream will not wait for it");
	return 0;
}

static int enqueue(struct peerlane *ctx, struct pl_stream *s, struct request *r, void *stream)
{
	uint32_t number = s->number + 1;
	int err;

	r->number = number;
	r->before = s->served;
	__atomic_fetch_add(&ctx->stream_requests, 1, __ATOMIC_ACQ_REL);
	err = r->served ? enqueue_served(ctx, s, r, stream) : enqueue_held(ctx, s, r, stream);
	if (s->number != number)
		__atomic_fetch_sub(&ctx->stream_requests, 1, __ATOMIC_ACQ_REL);
	return err;
}

/* Queues a copy of @what; *@queued as in pl_stream_run(). */
static int queue(const struct request *what, void *stream, bool *queued)
{
	struct peerlane_file *file = what->file;
	struct pl_stream *s = NULL;
	struct request *r;
	int err;

	*queued = false;
	err = pl_file_get(file, what->op);
	if (err)
		return err;
	err = find_stream(file->ctx, stream, &s);
	if (err || !s)
		goto err_put;
	r = malloc(sizeof(*r));
	if (!r) {
		err = pl_fail(-ENOMEM, "no memory for the request");
		goto err_put;
	}
	*r = *what;
	r->users = 2;
	r->stream = s;
	pthread_mutex_lock(&s->lock);
	prepare(file->ctx, s, r, stream);
	err = enqueue(file->ctx, s, r, stream);
	*queued = s->number == r->number;
	pthread_mutex_unlock(&s->lock);
	if (*queued) {
		request_put(r);
		return err;
	}
	/* Nobody else will free it. */
	pl_span_put(&r->span);
	free(r);
err_put:
	pl_file_put(file);
	return err;
}

static int submit(struct peerlane_file *file, enum peerlane_op op, void *addr, const size_t *bytes,
		  const off_t *offset, ssize_t *result, void *stream, unsigned int flags)
{
	struct request r = { .file = file,
			     .op = op,
			     .addr = addr,
			     .bytes = bytes,
			     .offset = offset,
			     .result = result,
			     .flags = flags };
	bool queued;

	if (!addr || !bytes || !offset || !result)
		return pl_fail(-EINVAL, "the %s pointer is NULL",
			       !addr	 ? "memory"
			       : !bytes	 ? "length"
			       : !offset ? "offset"
					 : "result");
	if (flags & PEERLANE_FIXED) {
		r.bytes_now = *bytes;
		r.offset_now = *offset;
	}
	return queue(&r, stream, &queued);
}

int pl_stream_run(struct peerlane_file *file, enum peerlane_op op, void *addr, void *stream,
		  pl_stream_work work, void *arg, bool *queued)
{
	struct request r = { .file = file, .op = op, .addr = addr, .work = work, .arg = arg };

	return queue(&r, stream, queued);
}

int peerlane_read_async(struct peerlane_file *file, void *addr, const size_t *bytes,
			const off_t *offset, ssize_t *result, void *stream, unsigned int flags)
{
	PL_KEEP_ERRNO;
	if (flags & ~PEERLANE_FIXED)
		return pl_fail(-EINVAL, "unknown flags %#x", flags & ~PEERLANE_FIXED);
	return submit(file, PEERLANE_READ, addr, bytes, offset, result, stream, flags);
}

int peerlane_write_async(struct peerlane_file *file, const void *addr, const size_t *bytes,
			 const off_t *offset, ssize_t *result, void *stream, unsigned int flags)
{
	PL_KEEP_ERRNO;
	if (flags & ~(PEERLANE_FIXED | PEERLANE_DURABLE))
		return pl_fail(-EINVAL, "unknown flags %#x",
			       flags & ~(PEERLANE_FIXED | PEERLANE_DURABLE));
	return submit(file, PEERLANE_WRITE, (void *)(uintptr_t)addr, bytes, offset, result, stream,
		      flags);
}

/* Whether the requests of all streams are done. */
static bool all_done(struct peerlane *ctx)
{
	if (__atomic_load_n(&ctx->stream_requests, __ATOMIC_ACQUIRE))
		return false;
	/* The kernels as well: the mailboxes will be freed. */
	for (struct pl_stream *s = ctx->streams; s; s = s->next)
		if (s->serve && ctx->gpu->ops->serve_state(s->serve, s->served) != PL_SERVE_GONE)
			return false;
	return true;
}

bool pl_streams_fini(struct peerlane *ctx)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t deadline = pl_deadline_ns(ctx);
	struct pl_stream *s;

	while (!all_done(ctx)) {
		if (pl_now_ns() > deadline)
			return false;
		nanosleep(&nap, NULL);
	}
	/* Lanes may be waiting for kernels that are gone now. */
	pl_pool_reclaim(ctx);
	while (ctx->streams) {
		s = ctx->streams;
		ctx->streams = s->next;
		if (s->serve)
			ctx->gpu->ops->serve_destroy(ctx->gpu, s->serve);
		if (s->chunk)
			ctx->gpu->ops->pin_free(ctx->gpu, s->chunk, WORDS_PER_CHUNK * WORD_BYTES);
		pthread_mutex_destroy(&s->lock);
		free(s);
	}
	return true;
}
