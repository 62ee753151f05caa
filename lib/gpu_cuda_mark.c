// SPDX-License-Identifier: MIT
/*
 * The CUDA back end: when copies have ended. The stream writes a number behind them into a word of
 * pinned memory. Looking at it is a load, where asking for an event is a driver call that waits for
 * the locks of those who queue copies; a small read looks a dozen times. A copy that fails never
 * writes, so the driver is asked now and then. Where streams cannot write, events do the same.
 */
#include "context.h"
#include "gpu_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NR_WORDS 64u
#define WORD_BYTES 64u /* one cache line each */
/* No copy of ours takes as long, unless it waits for others. */
#define ASK_NS 2000000u

/* Pinned memory for some words. */
struct pl_cuda_words {
	struct pl_cuda_words *next;
	char *mem;
	uint64_t used; /* a bit each */
};

/* A word nobody has; c->lock held. */
static uint32_t *word_take(struct pl_cuda *c)
{
	struct pl_cuda_words *w;
	unsigned int i;

	for (w = c->words; w; w = w->next) {
		if (w->used == UINT64_MAX)
			continue;
		i = (unsigned int)__builtin_ctzll(~w->used);
		w->used |= 1ull << i;
		return (uint32_t *)(void *)(w->mem + i * WORD_BYTES);
	}
	return NULL;
}

/* A word for a mark; NULL: it must be an event. */
static uint32_t *word_get(struct pl_cuda *c)
{
	struct pl_cuda_words *w;
	uint32_t *word;
	void *mem;

	if (!c->api.stream_write_value || __atomic_load_n(&c->no_write, __ATOMIC_RELAXED))
		return NULL;
	pthread_mutex_lock(&c->lock);
	word = word_take(c);
	pthread_mutex_unlock(&c->lock);
	if (word)
		return word;
	w = calloc(1, sizeof(*w));
	if (!w || c->gpu.ops->pin_alloc(&c->gpu, NR_WORDS * WORD_BYTES, &mem)) {
		free(w);
		return NULL;
	}
	memset(mem, 0, NR_WORDS * WORD_BYTES);
	w->mem = mem;
	pthread_mutex_lock(&c->lock);
	w->next = c->words;
	c->words = w;
	word = word_take(c);
	pthread_mutex_unlock(&c->lock);
	return word;
}

static void word_put(struct pl_cuda *c, const uint32_t *word)
{
	pthread_mutex_lock(&c->lock);
	for (struct pl_cuda_words *w = c->words; w; w = w->next) {
		size_t at = (size_t)((const char *)word - w->mem);

		if (at < NR_WORDS * WORD_BYTES)
			w->used &= ~(1ull << at / WORD_BYTES);
	}
	pthread_mutex_unlock(&c->lock);
}

void pl_cuda_words_free(struct pl_cuda *c, bool release)
{
	while (c->words) {
		struct pl_cuda_words *w = c->words;

		c->words = w->next;
		if (release)
			c->gpu.ops->pin_free(&c->gpu, w->mem, NR_WORDS * WORD_BYTES);
		free(w);
	}
}

int pl_cuda_mark_create(struct pl_gpu *gpu, struct pl_queue *q, struct pl_mark **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	struct pl_mark *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->owner = q->owner;
	m->stream = q->stream;
	m->word = word_get(c);
	/* Where another had it before, its last number. */
	m->number = m->word ? __atomic_load_n(m->word, __ATOMIC_ACQUIRE) : 0;
	err = pl_cuda_enter(c, m->owner);
	if (err)
		goto err_free;
	err = pl_cuda_check(c->api.event_create(&m->event, PL_CU_EVENT_NO_TIMING));
	pl_cuda_leave(c);
	if (err)
		goto err_free;
	*out = m;
	return 0;

err_free:
	if (m->word)
		word_put(c, m->word);
	free(m);
	return err;
}

void pl_cuda_mark_destroy(struct pl_gpu *gpu, struct pl_mark *m)
{
	struct pl_cuda *c = pl_cuda_of(gpu);

	if (!m)
		return;
	if (!pl_cuda_enter(c, m->owner)) {
		c->api.event_destroy(m->event);
		pl_cuda_leave(c);
	}
	/* A word that may still be written is not for others. */
	if (m->word && __atomic_load_n(m->word, __ATOMIC_ACQUIRE) == m->number)
		word_put(c, m->word);
	free(m);
}

int pl_cuda_mark_set(struct pl_cuda *c, struct pl_mark *m)
{
	pl_cu_ptr addr;
	int result;

	if (m->word) {
		result = c->api.host_device_pointer(&addr, m->word, 0);
		if (!result)
			result = c->api.stream_write_value(m->stream, addr, m->number + 1, 0);
		if (!result) {
			m->number++;
			m->asked_ns = pl_now_ns();
			return 0;
		}
		if (result != PL_CU_NOT_SUPPORTED)
			return result;
		__atomic_store_n(&c->no_write, true, __ATOMIC_RELAXED);
		word_put(c, m->word);
		m->word = NULL;
	}
	return c->api.event_record(m->event, m->stream);
}

/* What the driver says: 1 ended, 0 not yet, or an error. */
static int ask(struct pl_cuda *c, struct pl_mark *m)
{
	int result;

	if (pl_cuda_enter(c, m->owner))
		return -EREMOTEIO;
	result = m->word ? c->api.stream_query(m->stream) : c->api.event_query(m->event);
	pl_cuda_leave(c);
	if (result == PL_CU_NOT_READY)
		return 0;
	return result ? pl_cuda_check(result) : 1;
}

int pl_cuda_mark_done(struct pl_gpu *gpu, struct pl_mark *m)
{
	uint64_t now;

	if (m->box)
		return pl_cuda_box_mark_done(m->box, m->index);
	if (!m->word)
		return ask(pl_cuda_of(gpu), m);
	if (__atomic_load_n(m->word, __ATOMIC_ACQUIRE) == m->number)
		return 1;
	now = pl_now_ns();
	if (now - m->asked_ns < ASK_NS)
		return 0;
	m->asked_ns = now;
	return ask(pl_cuda_of(gpu), m);
}
