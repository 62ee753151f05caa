// SPDX-License-Identifier: MIT
/* Copies and fills of the fake libcuda. */
#include "fake.h"

#include <stdlib.h>

/* What the driver thinks of one side of a copy. */
enum side {
	SIDE_ANY,  /* any memory */
	SIDE_GPU,  /* memory the driver knows */
	SIDE_HOST, /* memory the CPU can touch */
};

/* Copies of plain memory up to this size do not wait until the data is where it goes. */
#define STAGED_BYTES ((size_t)64 << 10)

static int run_copy(struct fake_op *op, bool live)
{
	uint64_t done = 0;

	while (live && done < op->bytes) {
		size_t bytes = op->bytes - done;
		char *dst = fake_range_host(op->dst + done, op->dst_known, &bytes);
		const char *src = op->owned
					  ? (char *)op->owned + done
					  : fake_range_host(op->src + done, op->src_known, &bytes);

		if (!dst || !src)
			return CU_ILLEGAL_ADDRESS;
		pthread_mutex_unlock(&fake_lock);
		memmove(dst, src, bytes);
		pthread_mutex_lock(&fake_lock);
		done += bytes;
	}
	return CU_OK;
}

/* Whether memory is what a call takes there; *@known tells if the driver knows it. */
static bool accepts(uint64_t addr, size_t bytes, enum side side, bool *known)
{
	struct fake_range *r = fake_range_find(addr);

	*known = r;
	if (!r)
		return side != SIDE_GPU && !fake_range_dead(addr);
	if (side == SIDE_HOST && r->host != (char *)r->addr)
		return false;
	if (fake_range_covers(addr, bytes))
		return true;
	/* Host memory of which a part is pinned is treated like plain memory. */
	*known = false;
	return side != SIDE_GPU && r->host == (char *)r->addr;
}

/* The driver takes plain memory before the call returns, and has filled it by then. */
static int copy(struct fake_context *ctx, struct fake_op *op, enum side dst, enum side src,
		void *stream, bool wait)
{
	struct fake_stream *s = fake_stream_find(stream, ctx);
	struct fake_range *to = fake_range_find(op->dst);
	uint64_t ticket;
	int result;

	if (!s)
		return CU_INVALID_HANDLE;
	if (!op->bytes)
		return CU_OK;
	if (!accepts(op->dst, op->bytes, dst, &op->dst_known) ||
	    !accepts(op->src, op->bytes, src, &op->src_known))
		return CU_INVALID_VALUE;
	if (to && to->kind == FAKE_REGISTERED && to->flags & CU_REGISTER_READ_ONLY) {
		fake_violation("a copy into memory registered read-only");
		return CU_INVALID_VALUE;
	}
	if (!op->src_known) {
		op->owned = malloc(op->bytes);
		if (!op->owned)
			return CU_OUT_OF_MEMORY;
		memcpy(op->owned, (void *)(uintptr_t)op->src, op->bytes);
	}
	result = fake_queue(s, op, &ticket);
	if (result || (!wait && op->dst_known))
		return result;
	fake_wait(NULL, s, ticket);
	return ctx->error;
}

/* Whether a synchronous call on memory at @addr may return before its work is done. */
static bool may_lag(uint64_t addr)
{
	const struct fake_range *r = fake_range_find(addr);

	return r && !r->sync && r->kind != FAKE_MANAGED && r->host != (char *)r->addr;
}

/* Like the driver it returns as soon as plain memory was taken. */
static int copy_in(const char *symbol, uint64_t dst, const void *src, size_t bytes, void *stream)
{
	struct fake_op op = { .run = run_copy, .dst = dst, .src = (uintptr_t)src, .bytes = bytes };
	struct fake_context *ctx;
	int result = fake_begin(symbol, &ctx);

	if (result)
		return result;
	op.lazy = may_lag(dst) && bytes <= STAGED_BYTES && !fake_range_find(op.src);
	return fake_end(copy(ctx, &op, SIDE_GPU, SIDE_HOST, stream, !op.lazy));
}

int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes)
{
	return copy_in(__func__, dst, src, bytes, CU_STREAM_LEGACY);
}

int cuMemcpyHtoD_v2_ptds(uint64_t dst, const void *src, size_t bytes)
{
	return copy_in(__func__, dst, src, bytes, CU_STREAM_PER_THREAD);
}

int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, size_t bytes)
{
	struct fake_op op = { .run = run_copy, .dst = dst, .src = src, .bytes = bytes };
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	op.lazy = may_lag(dst);
	return fake_end(copy(ctx, &op, SIDE_GPU, SIDE_GPU, CU_STREAM_LEGACY, !op.lazy));
}

int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes)
{
	struct fake_op op = { .run = run_copy, .dst = (uintptr_t)dst, .src = src, .bytes = bytes };
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	return result ? result : fake_end(copy(ctx, &op, SIDE_HOST, SIDE_GPU, NULL, true));
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream)
{
	struct fake_op op = { .run = run_copy, .dst = dst, .src = (uintptr_t)src, .bytes = bytes };
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	return result ? result : fake_end(copy(ctx, &op, SIDE_GPU, SIDE_HOST, stream, false));
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream)
{
	struct fake_op op = { .run = run_copy, .dst = (uintptr_t)dst, .src = src, .bytes = bytes };
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	return result ? result : fake_end(copy(ctx, &op, SIDE_HOST, SIDE_GPU, stream, false));
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
	struct fake_op op = { .run = run_copy, .dst = dst, .src = src, .bytes = bytes };
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	return result ? result : fake_end(copy(ctx, &op, SIDE_ANY, SIDE_ANY, stream, false));
}

/* No order is kept among them. Memory that was freed the driver takes for the program's own and touches it, which may be
 * the program's end: such a list must not come to it. */
static int copy_list(struct fake_context *ctx, const uint64_t *dst, const uint64_t *src,
		     const size_t *bytes, size_t nr, void *stream)
{
	int result = CU_OK;
	bool known;

	for (size_t i = 0; i < nr; i++) {
		if (accepts(dst[i], bytes[i], SIDE_ANY, &known) &&
		    accepts(src[i], bytes[i], SIDE_ANY, &known))
			continue;
		fake_violation("a list of copies with memory that was freed");
		return CU_INVALID_VALUE;
	}
	for (size_t i = nr; i-- && !result;) {
		struct fake_op op = {
			.run = run_copy, .dst = dst[i], .src = src[i], .bytes = bytes[i]
		};

		result = copy(ctx, &op, SIDE_ANY, SIDE_ANY, stream, false);
	}
	return result;
}

int cuMemcpyBatchAsync_v2(uint64_t *dst, uint64_t *src, size_t *bytes, size_t nr,
			  struct cu_copy_how *how, size_t *first, size_t nr_how, void *stream)
{
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	/* One way for all, from the first on; and not for the NULL stream. */
	if (!stream || !nr || nr_how != 1 || *first || how->order < 1 || how->order > 3 ||
	    how->flags > 1)
		return fake_end(CU_INVALID_VALUE);
	return fake_end(copy_list(ctx, dst, src, bytes, nr, stream));
}

static int run_fill(struct fake_op *op, bool live)
{
	uint64_t done = 0;

	while (live && done < op->bytes) {
		size_t bytes = op->bytes - done;
		char *dst = fake_range_host(op->dst + done, true, &bytes);

		if (!dst)
			return CU_ILLEGAL_ADDRESS;
		pthread_mutex_unlock(&fake_lock);
		memset(dst, (int)op->value, bytes);
		pthread_mutex_lock(&fake_lock);
		done += bytes;
	}
	return CU_OK;
}

static int fill(struct fake_context *ctx, const struct fake_op *op, void *stream, bool wait)
{
	struct fake_stream *s = fake_stream_find(stream, ctx);
	uint64_t ticket;
	int result;

	if (!fake_range_covers(op->dst, op->bytes))
		return CU_INVALID_VALUE;
	result = s ? fake_queue(s, op, &ticket) : CU_INVALID_HANDLE;
	if (result || !wait)
		return result;
	fake_wait(NULL, s, ticket);
	return ctx->error;
}

/* Like the driver it does not wait for the fill of device memory, unless the memory asks for it. */
static int fill_sync(const char *symbol, uint64_t dst, unsigned char value, size_t bytes,
		     void *stream)
{
	struct fake_op op = { .run = run_fill, .dst = dst, .bytes = bytes, .value = value };
	struct fake_context *ctx;
	int result = fake_begin(symbol, &ctx);

	if (result)
		return result;
	op.lazy = may_lag(dst);
	return fake_end(fill(ctx, &op, stream, !op.lazy));
}

int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes)
{
	return fill_sync(__func__, dst, value, bytes, CU_STREAM_LEGACY);
}

int cuMemsetD8_v2_ptds(uint64_t dst, unsigned char value, size_t bytes)
{
	return fill_sync(__func__, dst, value, bytes, CU_STREAM_PER_THREAD);
}

int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t bytes, void *stream)
{
	struct fake_op op = { .run = run_fill, .dst = dst, .bytes = bytes, .value = value };
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	return result ? result : fake_end(fill(ctx, &op, stream, false));
}
