// SPDX-License-Identifier: MIT
/* The test of a drive and a GPU: does what is read arrive there? */
#include "context.h"
#include "p2p.h"

#include <stdlib.h>
#include <string.h>

/* Places where the test looks for data. */
#define PLACES 8

struct trial {
	const struct pl_p2p_trial *t;
	struct pl_gpu *gpu;
	struct pl_p2p_pin pin;
	void *memory;
	char *before, *after, *seen;
	size_t bytes;
};

const char *pl_p2p_trial_word(int result)
{
	return result > 0 ? "passed" : result < 0 ? "not possible with what it holds" : "failed";
}

static bool all_zero(const char *data, size_t bytes)
{
	return !data[0] && !memcmp(data, data + 1, bytes - 1);
}

static bool read_host(const struct trial *r, void *to, off_t offset)
{
	return r->t->read_host(r->t->arg, to, r->bytes, offset) > 0;
}

/* 1: the drive wrote what it holds, 0: something else, -1: this place tells nothing. */
static int try_place(const struct trial *r, off_t offset)
{
	const struct pl_gpu_ops *ops = r->gpu->ops;
	int came;

	if (!read_host(r, r->before, offset) ||
	    (!r->t->zeros_tell && all_zero(r->before, r->bytes)))
		return -1;
	for (size_t i = 0; i < r->bytes; i++)
		r->seen[i] = (char)~r->before[i];
	if (ops->copy_sync(r->gpu, r->memory, r->seen, r->bytes))
		return -1;
	came = r->t->read_gpu(r->t->arg, &r->pin, r->bytes, offset);
	if (came < 0 || !read_host(r, r->after, offset) ||
	    memcmp(r->before, r->after, r->bytes) != 0)
		return -1;
	if (!came || ops->copy_sync(r->gpu, r->seen, r->memory, r->bytes))
		return 0;
	return !memcmp(r->seen, r->before, r->bytes);
}

static int try_places(const struct trial *r)
{
	size_t step = (size_t)r->t->size / PLACES & ~(size_t)(PL_P2P_TEST_BYTES - 1);
	int result = -1;

	for (unsigned int i = 0; i < PLACES && result < 0 && (!i || step); i++)
		result = try_place(r, (off_t)(i * step));
	return result;
}

/* With memory of its own: a drive that writes elsewhere must not spoil the caller's. */
int pl_p2p_trial_run(struct peerlane *ctx, const struct pl_p2p_trial *t, int ordinal)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	struct trial r = { .t = t, .gpu = ctx->gpu, .bytes = PL_P2P_TEST_BYTES };
	int result = -1;
	char *host;

	if (t->size > 0 && t->size < PL_P2P_TEST_BYTES)
		r.bytes = (size_t)t->size & ~(t->align - 1);
	if (t->size <= 0 || !r.bytes)
		return -1;
	host = aligned_alloc(4096, 3ul * PL_P2P_TEST_BYTES);
	if (!host)
		return -1;
	r.before = host;
	r.after = host + PL_P2P_TEST_BYTES;
	r.seen = host + 2ul * PL_P2P_TEST_BYTES;
	if (ops->alloc(ctx->gpu, ordinal, PL_P2P_TEST_BYTES, &r.memory))
		goto out_free;
	r.pin.addr = (uintptr_t)r.memory;
	r.pin.bytes = PL_P2P_TEST_BYTES;
	if (!pl_p2p_pin_make(&ctx->p2p, &r.pin, 0)) {
		result = try_places(&r);
		pl_p2p_pin_undo(&ctx->p2p, &r.pin);
	}
	ops->free(ctx->gpu, r.memory);
out_free:
	free(host);
	return result;
}
