// SPDX-License-Identifier: MIT
/*
 * Streams of the fake libcuda: a queue and a thread each. The default stream does not wait for
 * other streams. Work of a call that returned before it was done is done as late as possible:
 * when somebody waits for it, or after a while.
 */
#include "fake.h"

#include <stdlib.h>
#include <time.h>

#define LAZY_NS 300000000u

static struct fake_stream *streams;
static uint64_t last_ticket;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t fake_last_ticket(void)
{
	return last_ticket;
}

static void unlink_stream(struct fake_stream *s)
{
	struct fake_stream **at = &streams;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
}

/* Whether lazy work is left for later; if so, some of that time has passed. */
static bool put_off(struct fake_stream *s, const struct fake_op *op)
{
	const struct timespec due = { .tv_sec = (time_t)(op->due_ns / 1000000000u),
				      .tv_nsec = (long)(op->due_ns % 1000000000u) };

	if (!op->lazy || s->closing || op->ticket <= s->hurry || now_ns() >= op->due_ns)
		return false;
	pthread_cond_timedwait(&s->wake, &fake_lock, &due);
	return true;
}

/* Does the work of a stream until it is destroyed and nothing is left. */
static void *work(void *arg)
{
	struct fake_stream *s = arg;

	pthread_mutex_lock(&fake_lock);
	while (s->head || !s->closing) {
		struct fake_op *op = s->head;
		int result;

		if (!op) {
			pthread_cond_wait(&s->wake, &fake_lock);
			continue;
		}
		if (put_off(s, op))
			continue;
		result = s->ctx->error ? 0 : fake_injected("execute");
		if (result)
			s->ctx->error = result;
		result = op->run(op, !s->ctx->error);
		if (result && !s->ctx->error)
			s->ctx->error = result;
		s->head = op->next;
		if (!s->head)
			s->tail = &s->head;
		free(op->owned);
		free(op);
		pthread_cond_broadcast(&fake_progress);
	}
	unlink_stream(s);
	pthread_cond_broadcast(&fake_progress);
	pthread_mutex_unlock(&fake_lock);
	pthread_cond_destroy(&s->wake);
	free(s);
	return NULL;
}

/* Lock held. */
static int create(struct fake_context *ctx, void *implicit, bool blocking, struct fake_stream **out)
{
	struct fake_stream *s = calloc(1, sizeof(*s));
	pthread_t thread;

	if (!s)
		return CU_OUT_OF_MEMORY;
	s->ctx = ctx;
	s->implicit = implicit;
	s->blocking = blocking;
	s->thread = pthread_self();
	s->tail = &s->head;
	pthread_cond_init(&s->wake, NULL);
	s->next = streams;
	streams = s;
	if (pthread_create(&thread, NULL, work, s)) {
		unlink_stream(s);
		pthread_cond_destroy(&s->wake);
		free(s);
		return CU_OUT_OF_MEMORY;
	}
	pthread_detach(thread);
	*out = s;
	return CU_OK;
}

static bool matches(const struct fake_stream *s, void *handle, const struct fake_context *ctx)
{
	if (s->closing || (ctx && s->ctx != ctx))
		return false;
	if (handle == CU_STREAM_PER_THREAD)
		return s->implicit == handle && pthread_equal(s->thread, pthread_self());
	if (handle == CU_STREAM_LEGACY)
		return s->implicit == handle;
	return s == handle && !s->implicit;
}

struct fake_stream *fake_stream_find(void *handle, struct fake_context *ctx)
{
	struct fake_stream *s;

	if (!handle)
		handle = CU_STREAM_LEGACY;
	for (s = streams; s; s = s->next)
		if (matches(s, handle, ctx))
			return s;
	if ((handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) &&
	    !create(ctx, handle, true, &s))
		return s;
	fake_violation("a stream that is not of the current context, or destroyed");
	return NULL;
}

int fake_queue(struct fake_stream *stream, const struct fake_op *work_in, uint64_t *ticket)
{
	int result = fake_stream_usable(stream);
	struct fake_op *op = result ? NULL : malloc(sizeof(*op));

	if (!op) {
		free(work_in->owned);
		return result ? result : CU_OUT_OF_MEMORY;
	}
	*op = *work_in;
	op->next = NULL;
	op->ticket = ++last_ticket;
	op->due_ns = op->lazy ? now_ns() + LAZY_NS : 0;
	*stream->tail = op;
	stream->tail = &op->next;
	pthread_cond_signal(&stream->wake);
	if (ticket)
		*ticket = op->ticket;
	return CU_OK;
}

static bool busy(const struct fake_context *ctx, const struct fake_stream *stream, uint64_t ticket)
{
	for (const struct fake_stream *s = streams; s; s = s->next)
		if ((!stream || s == stream) && (!ctx || s->ctx == ctx) && s->head &&
		    s->head->ticket <= ticket)
			return true;
	return false;
}

static void hurry(struct fake_stream *s, uint64_t ticket)
{
	if (s->hurry < ticket)
		s->hurry = ticket;
	pthread_cond_signal(&s->wake);
}

void fake_hurry(uint64_t ticket)
{
	for (struct fake_stream *s = streams; s; s = s->next)
		for (const struct fake_op *op = s->head; op; op = op->next)
			if (op->ticket == ticket)
				hurry(s, ticket);
}

struct fake_stream *fake_stream_captured(const struct fake_context *ctx)
{
	struct fake_stream *s;

	for (s = streams; s; s = s->next)
		if (s->ctx == ctx && s->blocking && s->capture == FAKE_CAPTURE_ACTIVE)
			break;
	return s;
}

/* The stream may go away meanwhile; should another get its address, its tickets are higher. */
void fake_wait(const struct fake_context *ctx, const struct fake_stream *stream, uint64_t ticket)
{
	for (struct fake_stream *s = streams; s; s = s->next)
		if ((!stream || s == stream) && (!ctx || s->ctx == ctx))
			hurry(s, ticket);
	while (busy(ctx, stream, ticket))
		pthread_cond_wait(&fake_progress, &fake_lock);
}

void fake_wait_alone(const struct fake_context *ctx)
{
	bool alone = fake_alone_begin();

	fake_wait(ctx, NULL, last_ticket);
	if (alone)
		fake_alone_end();
}

void fake_wait_channel(const struct fake_context *ctx)
{
	if (!fake_alone_begin())
		return;
	fake_wait(ctx, NULL, last_ticket);
	fake_alone_end();
}

static bool touches(const struct fake_op *op, uint64_t addr, size_t bytes)
{
	return (op->dst < addr + bytes && addr < op->dst + op->bytes) ||
	       (op->src < addr + bytes && addr < op->src + op->bytes);
}

static bool memory_busy(uint64_t addr, size_t bytes, uint64_t ticket, bool lazy)
{
	for (struct fake_stream *s = streams; s; s = s->next)
		for (const struct fake_op *op = s->head; op; op = op->next)
			if (op->ticket <= ticket && touches(op, addr, bytes) &&
			    (op->lazy || !lazy)) {
				hurry(s, op->ticket);
				return true;
			}
	return false;
}

void fake_wait_memory(uint64_t addr, size_t bytes, bool lazy)
{
	uint64_t ticket = last_ticket;

	while (memory_busy(addr, bytes, ticket, lazy))
		pthread_cond_wait(&fake_progress, &fake_lock);
}

static void close_stream(struct fake_stream *s)
{
	s->closing = true;
	pthread_cond_signal(&s->wake);
}

static bool any_of(const struct fake_context *ctx)
{
	const struct fake_stream *s;

	for (s = streams; s && s->ctx != ctx; s = s->next)
		;
	return s;
}

unsigned int fake_streams_drop(struct fake_context *ctx)
{
	unsigned int nr = 0;

	for (struct fake_stream *s = streams; s; s = s->next) {
		if (s->ctx != ctx)
			continue;
		nr += !s->implicit && !s->closing;
		close_stream(s);
	}
	while (any_of(ctx))
		pthread_cond_wait(&fake_progress, &fake_lock);
	return nr;
}

void fake_streams_report(struct fake_report *report)
{
	int nr = 0;

	for (struct fake_stream *s = streams; s; s = s->next)
		nr += !s->implicit && !s->closing;
	fake_report_add(report, nr, "streams");
}

int cuStreamCreate(void **stream, unsigned int flags)
{
	struct fake_stream *s = NULL;
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	fake_wait_channel(ctx);
	result = create(ctx, NULL, !(flags & CU_STREAM_NON_BLOCKING), &s);
	if (!result)
		*stream = s;
	return fake_end(result);
}

int cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
	struct fake_stream *s = NULL;
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	(void)priority;
	if (result)
		return result;
	fake_wait_channel(ctx);
	result = create(ctx, NULL, !(flags & CU_STREAM_NON_BLOCKING), &s);
	if (!result)
		*stream = s;
	return fake_end(result);
}

/* Returns at once; the work queued before is still done. */
int cuStreamDestroy_v2(void *stream)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin_undo(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, NULL);
	if (!s || s->implicit)
		return fake_end(CU_INVALID_HANDLE);
	close_stream(s);
	return fake_end(CU_OK);
}

int cuStreamSynchronize(void *stream)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	result = s ? fake_stream_usable(s) : CU_INVALID_HANDLE;
	if (result)
		return fake_end(result);
	fake_wait(ctx, s, last_ticket);
	return fake_end(ctx->error);
}

int cuStreamQuery(void *stream)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	result = s ? fake_stream_usable(s) : CU_INVALID_HANDLE;
	if (result)
		return fake_end(result);
	hurry(s, last_ticket);
	return fake_end(s->head ? CU_NOT_READY : CU_OK);
}

/* Needs a current context for the default streams only. */
int cuStreamGetCtx(void *stream, void **ctx)
{
	bool implicit = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
	struct fake_context *current;
	struct fake_stream *s;
	int result = fake_begin(__func__, implicit ? &current : NULL);

	if (result)
		return result;
	if (implicit) {
		*ctx = current;
		return fake_end(CU_OK);
	}
	s = fake_stream_find(stream, NULL);
	if (s)
		*ctx = s->ctx;
	return fake_end(s ? CU_OK : CU_INVALID_HANDLE);
}

static int run_host_fn(struct fake_op *op, bool live)
{
	if (!live)
		return CU_OK;
	pthread_mutex_unlock(&fake_lock);
	fake_in_host_fn = true;
	op->fn(op->arg);
	fake_in_host_fn = false;
	pthread_mutex_lock(&fake_lock);
	return CU_OK;
}

int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg)
{
	struct fake_op op = { .run = run_host_fn, .fn = fn, .arg = arg };
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	if (!fn)
		return fake_end(CU_INVALID_VALUE);
	return fake_end(s ? fake_queue(s, &op, NULL) : CU_INVALID_HANDLE);
}

static int run_wait_value(struct fake_op *op, bool live)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	size_t bytes = sizeof(op->value);

	while (live) {
		uint32_t *word = (uint32_t *)fake_range_host(op->dst, true, &bytes);

		if (!word)
			return CU_ILLEGAL_ADDRESS;
		if ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - op->value) >= 0)
			return CU_OK;
		pthread_mutex_unlock(&fake_lock);
		nanosleep(&nap, NULL);
		pthread_mutex_lock(&fake_lock);
	}
	return CU_OK;
}

/* Queues an operation on a word of memory, called by @name. */
static int queue_value(const char *name, void *stream, struct fake_op op, unsigned int flags)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(name, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	if (flags || op.dst % sizeof(op.value) || !fake_range_covers(op.dst, sizeof(op.value)))
		return fake_end(CU_INVALID_VALUE);
	return fake_end(s ? fake_queue(s, &op, NULL) : CU_INVALID_HANDLE);
}

/* Of the comparisons only "greater or equal" is here. */
int cuStreamWaitValue32_v2(void *stream, uint64_t addr, uint32_t value, unsigned int flags)
{
	const struct fake_op op = {
		.run = run_wait_value, .dst = addr, .bytes = 4, .value = value
	};

	return queue_value(__func__, stream, op, flags);
}

static int run_write_value(struct fake_op *op, bool live)
{
	size_t bytes = sizeof(op->value);
	uint32_t *word = live ? (uint32_t *)fake_range_host(op->dst, true, &bytes) : NULL;

	if (!word)
		return live ? CU_ILLEGAL_ADDRESS : CU_OK;
	__atomic_store_n(word, op->value, __ATOMIC_RELEASE);
	return CU_OK;
}

int cuStreamWriteValue32_v2(void *stream, uint64_t addr, uint32_t value, unsigned int flags)
{
	const struct fake_op op = {
		.run = run_write_value, .dst = addr, .bytes = 4, .value = value
	};

	return queue_value(__func__, stream, op, flags);
}
