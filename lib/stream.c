// SPDX-License-Identifier: MIT
/*
 * Stream-ordered I/O. Two things are queued on the caller's stream: a host function that hands
 * the request to a worker, and a wait until a word in pinned memory reaches the request's number.
 * The worker does the I/O as any caller would and then raises the word. Requests of one stream
 * run one after the other, so one word per stream is enough and its numbers only grow.
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

struct pl_stream {
	struct pl_stream *next;
	uintptr_t key[2];
	pthread_mutex_t lock; /* keeps number and order on the stream the same */
	uint32_t *word;
	uint32_t number; /* of the last request queued */
	void *chunk;	 /* the pinned memory, on the stream that must free it; else NULL */
};

struct request {
	struct pl_task task;
	struct peerlane_file *file;
	enum peerlane_op op;
	void *addr;
	const size_t *bytes;
	const off_t *offset;
	size_t bytes_now;
	off_t offset_now;
	ssize_t *result;
	unsigned int flags;
	pl_stream_work work; /* instead of all that: of pl_stream_run() */
	void *arg;
	uint32_t *word;
	uint32_t number;
};

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

static void finish(struct request *r, ssize_t result)
{
	struct peerlane_file *file = r->file;
	uint32_t *word = r->word, number = r->number;

	if (r->result)
		*r->result = result;
	free(r);
	pl_file_put(file);
	/* Whoever sees the number sees the result: the stream, and the host after it. */
	__atomic_store_n(word, number, __ATOMIC_RELEASE);
}

/* In a worker: the I/O itself. */
static void perform(struct pl_task *task)
{
	struct request *r = (struct request *)task;
	struct iovec iov = { .iov_base = r->addr };
	bool fixed = r->flags & PEERLANE_FIXED;

	if (r->work) {
		r->work(r->arg, 0);
		finish(r, 0);
		return;
	}
	iov.iov_len = fixed ? r->bytes_now : *r->bytes;
	finish(r, pl_io_vectored(r->file, r->op, &iov, 1, fixed ? r->offset_now : *r->offset,
				 r->flags & PEERLANE_DURABLE));
}

/* It cannot be done. */
static void refuse(struct request *r, int err)
{
	if (r->work)
		r->work(r->arg, err);
	finish(r, err);
}

/* On the stream: the work before is done. No GPU call is allowed here. */
static void reached(void *arg)
{
	struct request *r = arg;

	/* The context was closed without us: there are no workers any more. */
	if (__atomic_load_n(&r->file->ctx->closed, __ATOMIC_ACQUIRE)) {
		refuse(r, -ECANCELED);
		return;
	}
	r->task.run = perform;
	if (pl_task_post(r->file->ctx, &r->task))
		refuse(r, -EAGAIN);
}

/* Queues the two things; the stream's lock is held. */
static int enqueue(struct peerlane *ctx, struct pl_stream *s, struct request *r, void *stream,
		   bool *queued)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	uint32_t *word = s->word, number = s->number + 1;
	int err;

	r->word = word;
	r->number = number;
	err = ops->stream_call(ctx->gpu, stream, reached, r);
	if (err)
		return pl_fail_gpu(err, ops->result(), "the stream refused: %s",
				   ops->result_name(ctx->gpu, ops->result()));
	/* From here on the request belongs to the stream. */
	s->number = number;
	*queued = true;
	err = ops->stream_hold(ctx->gpu, stream, word, number);
	if (err)
		return pl_fail_gpu(err, ops->result(),
				   "the request is queued but the stream will not wait for it: %s",
				   ops->result_name(ctx->gpu, ops->result()));
	return 0;
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
	pthread_mutex_lock(&s->lock);
	err = enqueue(file->ctx, s, r, stream, queued);
	pthread_mutex_unlock(&s->lock);
	/* Not queued at all: nobody else will free it. */
	if (*queued)
		return err;
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

int pl_stream_run(struct peerlane_file *file, enum peerlane_op op, void *stream,
		  pl_stream_work work, void *arg, bool *queued)
{
	struct request r = { .file = file, .op = op, .work = work, .arg = arg };

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

bool pl_streams_fini(struct peerlane *ctx)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t deadline = pl_now_ns() + ctx->opt.timeout_ms * 1000000ull;
	struct pl_stream *s;

	for (s = ctx->streams; s; s = s->next) {
		while ((int32_t)(__atomic_load_n(s->word, __ATOMIC_ACQUIRE) - s->number) < 0) {
			if (pl_now_ns() > deadline)
				return false;
			nanosleep(&nap, NULL);
		}
	}
	while (ctx->streams) {
		s = ctx->streams;
		ctx->streams = s->next;
		if (s->chunk)
			ctx->gpu->ops->pin_free(ctx->gpu, s->chunk, WORDS_PER_CHUNK * WORD_BYTES);
		pthread_mutex_destroy(&s->lock);
		free(s);
	}
	return true;
}
