// SPDX-License-Identifier: MIT
/* The streams of a context: a word of pinned memory for each, and its requests. */
#include "stream_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS_PER_CHUNK 64u
#define WORD_BYTES 64u /* one cache line each */

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
	s->task.run = pl_stream_serve;
	s->task.drop = pl_stream_serve_drop;
	s->last = &s->first;
	s->ctx = ctx;
	s->next = ctx->streams;
	ctx->streams = s;
	*out = s;
	return 0;
}

int pl_stream_find(struct peerlane *ctx, void *stream, struct pl_stream **out)
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
