// SPDX-License-Identifier: MIT
/*
 * The CUDA back end: calls of the program that CUDA documents as synchronous and that return before
 * the GPU has done them: copies of pageable memory, copies inside the GPU, memsets. Our own streams
 * do not wait for them, so I/O right after would see the memory as it was before.
 */
#include "context.h"
#include "gpu_cuda.h"

#include <errno.h>
#include <time.h>

#define CAPTURE_RELAXED 2

static void *const default_streams[] = { PL_CUDA_LEGACY_STREAM, PL_CUDA_PER_THREAD_STREAM };

bool pl_cuda_sync_calls(struct pl_cuda *c, void *owner, const void *addr, bool *refused)
{
	const unsigned int yes = 1;
	int mode = CAPTURE_RELAXED, result;

	/* Memory of one kind takes it or does not: asking once is enough. */
	if (!c->api.pointer_set || __atomic_load_n(refused, __ATOMIC_RELAXED) ||
	    pl_cuda_enter(c, owner))
		return false;
	/* May wait, which is forbidden to all threads while one of them captures a stream. */
	if (c->api.capture_mode)
		c->api.capture_mode(&mode);
	result = c->api.pointer_set(&yes, PL_CU_PTR_SYNC_MEMOPS, (pl_cu_ptr)(uintptr_t)addr);
	if (c->api.capture_mode)
		c->api.capture_mode(&mode);
	pl_cuda_leave(c);
	if (result == PL_CU_NOT_SUPPORTED || result == PL_CU_INVALID_VALUE)
		__atomic_store_n(refused, true, __ATOMIC_RELAXED);
	return !result;
}

/* Whether @stream has work to wait for; its context is current. While a blocking stream is captured
 * the legacy stream has nothing new, and any other question would end the capture. */
static bool has_work(struct pl_cuda *c, void *stream)
{
	int status = 0;

	if (c->api.stream_capturing && (c->api.stream_capturing(stream, &status) || status))
		return false;
	return c->api.stream_query(stream) == PL_CU_NOT_READY;
}

/* An event behind the work that @stream has now; NULL if there is none. The context is current. */
static void *event_behind(struct pl_cuda *c, void *stream)
{
	void *event;

	if (!has_work(c, stream) || c->api.event_create(&event, PL_CU_EVENT_NO_TIMING))
		return NULL;
	if (!c->api.event_record(event, stream))
		return event;
	c->api.event_destroy(event);
	return NULL;
}

/* Errors of the context are left to the copy that follows. */
static int wait_event(struct pl_cuda *c, void *event, uint64_t deadline)
{
	const struct timespec nap = { .tv_nsec = 10000 };

	while (c->api.event_query(event) == PL_CU_NOT_READY) {
		if (pl_now_ns() > deadline)
			return -ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	return 0;
}

int pl_cuda_wait_default(struct pl_gpu *gpu, void *owner, uint64_t deadline)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int mode = CAPTURE_RELAXED, err = pl_cuda_enter(c, owner);

	if (err)
		return err;
	if (c->api.capture_mode)
		c->api.capture_mode(&mode);
	for (unsigned int i = 0; i < 2 && !err; i++) {
		void *event = event_behind(c, default_streams[i]);

		if (!event)
			continue;
		err = wait_event(c, event, deadline);
		c->api.event_destroy(event);
	}
	if (c->api.capture_mode)
		c->api.capture_mode(&mode);
	pl_cuda_leave(c);
	return err;
}

int pl_cuda_stream_behind_default(struct pl_gpu *gpu, void *stream, void *owner)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err;

	if (!stream || stream == PL_CUDA_LEGACY_STREAM || !c->api.stream_wait_event)
		return 0;
	err = pl_cuda_enter(c, owner);
	if (err)
		return err;
	for (unsigned int i = 0; i < 2 && !err; i++) {
		void *event = default_streams[i] == stream ? NULL
							   : event_behind(c, default_streams[i]);

		if (!event)
			continue;
		err = pl_cuda_check(c->api.stream_wait_event(stream, event, 0));
		c->api.event_destroy(event);
	}
	pl_cuda_leave(c);
	return err;
}
