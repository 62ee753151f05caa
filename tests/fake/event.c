// SPDX-License-Identifier: MIT
/* Events of the fake libcuda. */
#include "fake.h"

#include <stdlib.h>

struct event {
	struct event *next;
	struct fake_context *ctx;
	uint64_t recorded; /* ticket of the last record */
	uint64_t passed;   /* ticket of the last record that was reached */
	unsigned int pending;
	bool destroyed;
};

static struct event *events;

static struct event *find(void *handle)
{
	struct event *e;

	for (e = events; e && e != handle; e = e->next)
		;
	if (e && !e->destroyed)
		return e;
	fake_violation("an event that is not there");
	return NULL;
}

/* Frees an event that was destroyed, once no stream will reach it any more. */
static void put(struct event *e)
{
	struct event **at = &events;

	if (!e->destroyed || e->pending)
		return;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	free(e);
}

int cuEventCreate(void **event, unsigned int flags)
{
	struct fake_context *ctx;
	struct event *e;
	int result = fake_begin(__func__, &ctx);

	(void)flags;
	if (result)
		return result;
	e = calloc(1, sizeof(*e));
	if (!e)
		return fake_end(CU_OUT_OF_MEMORY);
	e->ctx = ctx;
	e->next = events;
	events = e;
	*event = e;
	return fake_end(CU_OK);
}

int cuEventDestroy_v2(void *event)
{
	struct fake_context *ctx;
	struct event *e;
	int result = fake_begin_undo(__func__, &ctx);

	if (result)
		return result;
	e = find(event);
	if (!e)
		return fake_end(CU_INVALID_HANDLE);
	e->destroyed = true;
	put(e);
	return fake_end(CU_OK);
}

static int run_record(struct fake_op *op, bool live)
{
	struct event *e = op->arg;

	(void)live;
	if (op->ticket > e->passed)
		e->passed = op->ticket;
	e->pending--;
	put(e);
	return CU_OK;
}

int cuEventRecord(void *event, void *stream)
{
	struct fake_op op = { .run = run_record, .arg = event };
	struct fake_context *ctx;
	struct fake_stream *s;
	struct event *e;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	e = find(event);
	s = fake_stream_find(stream, ctx);
	if (!e || !s || e->ctx != ctx)
		return fake_end(CU_INVALID_HANDLE);
	result = fake_queue(s, &op, &e->recorded);
	if (!result)
		e->pending++;
	return fake_end(result);
}

int cuEventQuery(void *event)
{
	struct fake_context *ctx;
	struct event *e;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	e = find(event);
	if (!e)
		return fake_end(CU_INVALID_HANDLE);
	if (e->ctx->error)
		return fake_end(e->ctx->error);
	fake_hurry(e->recorded);
	return fake_end(e->passed < e->recorded ? CU_NOT_READY : CU_OK);
}

/* Until the record before the call is reached. The event may be destroyed meanwhile. */
static int run_wait(struct fake_op *op, bool live)
{
	struct event *e = op->arg;

	while (live && e->passed < op->src) {
		fake_hurry(op->src);
		pthread_cond_wait(&fake_progress, &fake_lock);
	}
	e->pending--;
	put(e);
	return CU_OK;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	struct fake_op op = { .run = run_wait, .arg = event };
	struct fake_context *ctx;
	struct fake_stream *s;
	struct event *e;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	e = find(event);
	s = fake_stream_find(stream, NULL);
	if (!e || !s || flags)
		return fake_end(flags ? CU_INVALID_VALUE : CU_INVALID_HANDLE);
	op.src = e->recorded;
	result = fake_queue(s, &op, NULL);
	if (!result)
		e->pending++;
	return fake_end(result);
}

/* The streams of the context are gone, so nothing is pending. */
unsigned int fake_events_drop(struct fake_context *ctx)
{
	struct event *e = events, *next;
	unsigned int nr = 0;

	for (; e; e = next) {
		next = e->next;
		if (e->ctx != ctx)
			continue;
		nr += !e->destroyed;
		e->destroyed = true;
		put(e);
	}
	return nr;
}

void fake_events_report(struct fake_report *report)
{
	int nr = 0;

	for (struct event *e = events; e; e = e->next)
		nr += !e->destroyed;
	fake_report_add(report, nr, "events");
}
