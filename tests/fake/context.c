// SPDX-License-Identifier: MIT
/* Contexts of the fake libcuda, and each thread's stack of them. */
#include "fake.h"

#include <stdlib.h>

#define MAX_STACK 32

struct entry {
	struct fake_context *ctx;
	bool pushed; /* by cuCtxPushCurrent(), so it must be popped */
};

static __thread struct entry stack[MAX_STACK];
static __thread unsigned int depth;

static struct fake_context primaries[FAKE_MAX_GPUS];
static struct fake_context *created;
static unsigned long long last_id;
static int nr_pushed;
static int nr_dropped; /* objects that lived when their context was destroyed */

struct fake_context *fake_current(void)
{
	return depth ? stack[depth - 1].ctx : NULL;
}

static bool alive(const struct fake_context *ctx)
{
	const struct fake_context *c;

	for (int i = 0; i < fake_nr_gpus(); i++)
		if (ctx == &primaries[i])
			return ctx->refs > 0;
	for (c = created; c && c != ctx; c = c->next)
		;
	return c && c->refs;
}

/* Ends all work of a context and frees what it holds; lock held. */
static void destroy(struct fake_context *ctx)
{
	nr_dropped += (int)fake_streams_drop(ctx);
	nr_dropped += (int)fake_events_drop(ctx);
	nr_dropped += (int)fake_modules_drop(ctx);
	nr_dropped += (int)fake_ranges_drop(ctx);
	ctx->error = 0;
}

int cuDevicePrimaryCtxRetain(void **ctx, int dev)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (dev < 0 || dev >= fake_nr_gpus())
		return fake_end(CU_INVALID_DEVICE);
	primaries[dev].dev = dev;
	primaries[dev].primary = true;
	if (!primaries[dev].refs++)
		primaries[dev].id = ++last_id;
	*ctx = &primaries[dev];
	return fake_end(CU_OK);
}

int cuDevicePrimaryCtxRelease_v2(int dev)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (dev < 0 || dev >= fake_nr_gpus())
		return fake_end(CU_INVALID_DEVICE);
	if (!primaries[dev].refs)
		return fake_end(CU_INVALID_CONTEXT);
	if (!--primaries[dev].refs)
		destroy(&primaries[dev]);
	return fake_end(CU_OK);
}

/* Lock held. */
static int push(struct fake_context *ctx, bool pushed)
{
	if (depth == MAX_STACK) {
		fake_violation("a thread pushed %d contexts", MAX_STACK);
		return CU_INVALID_VALUE;
	}
	stack[depth++] = (struct entry){ ctx, pushed };
	nr_pushed += pushed;
	return CU_OK;
}

static void pop(void)
{
	nr_pushed -= stack[--depth].pushed;
}

/* A handle that was destroyed comes back first, as with memory. */
static struct fake_context *make(void)
{
	struct fake_context *c;

	for (c = created; c && c->refs; c = c->next)
		;
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (c) {
		c->next = created;
		created = c;
	}
	return c;
}

int cuCtxCreate_v2(void **ctx, unsigned int flags, int dev)
{
	struct fake_context *c;
	int result = fake_begin(__func__, NULL);

	(void)flags;
	if (result)
		return result;
	if (dev < 0 || dev >= fake_nr_gpus())
		return fake_end(CU_INVALID_DEVICE);
	c = make();
	if (!c)
		return fake_end(CU_OUT_OF_MEMORY);
	c->dev = dev;
	c->refs = 1;
	c->id = ++last_id;
	*ctx = c;
	return fake_end(push(c, false));
}

int cuCtxDestroy_v2(void *ctx)
{
	struct fake_context *c = ctx;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (!alive(c) || c->primary)
		return fake_end(CU_INVALID_CONTEXT);
	if (fake_current() == c)
		pop();
	destroy(c);
	c->refs = 0;
	return fake_end(CU_OK);
}

int cuCtxPushCurrent_v2(void *ctx)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (!alive(ctx)) {
		fake_violation("pushed a context that is not there");
		return fake_end(CU_INVALID_CONTEXT);
	}
	return fake_end(push(ctx, true));
}

int cuCtxPopCurrent_v2(void **ctx)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (!depth) {
		fake_violation("popped a context where none was current");
		return fake_end(CU_INVALID_CONTEXT);
	}
	if (ctx)
		*ctx = fake_current();
	pop();
	return fake_end(CU_OK);
}

int cuCtxSetCurrent(void *ctx)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (ctx && !alive(ctx))
		return fake_end(CU_INVALID_CONTEXT);
	if (depth)
		pop();
	return fake_end(ctx ? push(ctx, false) : CU_OK);
}

int cuCtxGetCurrent(void **ctx)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	*ctx = fake_current();
	return fake_end(CU_OK);
}

int cuCtxGetId(void *ctx, unsigned long long *id)
{
	struct fake_context *c = ctx;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (!c)
		c = fake_current();
	if (!c || !alive(c))
		return fake_end(CU_INVALID_CONTEXT);
	*id = c->id;
	return fake_end(CU_OK);
}

int cuCtxSynchronize(void)
{
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	fake_wait(ctx, NULL, fake_last_ticket());
	return fake_end(ctx->error);
}

int cuCtxGetStreamPriorityRange(int *lowest, int *highest)
{
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	*lowest = 0;
	*highest = -5;
	return fake_end(CU_OK);
}

void fake_contexts_report(struct fake_report *report)
{
	int nr = 0;

	for (int i = 0; i < FAKE_MAX_GPUS; i++)
		nr += (int)primaries[i].refs;
	fake_report_add(report, nr, "retained primary contexts");
	nr = 0;
	for (struct fake_context *c = created; c; c = c->next)
		nr += (int)c->refs;
	fake_report_add(report, nr, "created contexts");
	fake_report_add(report, nr_pushed, "pushed contexts");
	fake_report_add(report, nr_dropped, "objects left to a context that was destroyed");
	nr_dropped = 0;
}
