// SPDX-License-Identifier: MIT
/* What stream capture makes of the calls that wait for the default stream, and they of it. */
#include "sync_cuda.h"

#include <pthread.h>
#include <stdio.h>

static uint64_t some; /* an address */

static void *in_thread(void *arg)
{
	int (*call)(void) = *(int (**)(void))arg;

	cuCtxSetCurrent(primary);
	return (void *)(intptr_t)call();
}

static int k_query(void)
{
	return cuStreamQuery(LEGACY);
}

static int k_sync(void)
{
	return cuStreamSynchronize(LEGACY);
}

static int k_event(void)
{
	return cuEventRecord(event, LEGACY);
}

static int k_event_query(void)
{
	return cuEventQuery(event);
}

static int k_set(void)
{
	return set_sync(some);
}

static int k_get(void)
{
	unsigned int on;

	return cuPointerGetAttribute(&on, PTR_SYNC_MEMOPS, some);
}

static int k_copy(void)
{
	return cuMemcpyHtoDAsync_v2(some, pinned, 4096, ours);
}

static int k_query_ours(void)
{
	return cuStreamQuery(ours);
}

static int relaxed(int (*call)(void))
{
	int mode = 2, r;

	cuThreadExchangeStreamCaptureMode(&mode);
	r = call();
	cuThreadExchangeStreamCaptureMode(&mode);
	return r;
}

static int k_query_relaxed(void)
{
	return relaxed(k_query);
}

static int k_sync_relaxed(void)
{
	return relaxed(k_sync);
}

static int k_query_ours_relaxed(void)
{
	return relaxed(k_query_ours);
}

void print_capture(void *stream, const char *name, int mode, uint64_t addr)
{
	static const struct {
		const char *name;
		int (*call)(void);
	} calls[] = {
		{ "cuStreamQuery(legacy)", k_query },
		{ "  relaxed", k_query_relaxed },
		{ "cuStreamSynchronize(legacy)", k_sync },
		{ "  relaxed", k_sync_relaxed },
		{ "cuEventRecord(legacy)", k_event },
		{ "cuEventQuery", k_event_query },
		{ "cuPointerSetAttribute(sync)", k_set },
		{ "cuPointerGetAttribute(sync)", k_get },
		{ "copy on a stream apart", k_copy },
		{ "cuStreamQuery of that", k_query_ours },
		{ "  relaxed", k_query_ours_relaxed },
	};

	some = addr;
	printf("\nduring capture of %s, mode %d: result here, capture ends with; in another "
	       "thread, "
	       "capture ends with\n",
	       name, mode);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int (*call)(void) = calls[i].call;
		void *graph = NULL, *there = NULL;
		int here, end[2];
		pthread_t t;

		NEED(cuEventRecord(event, ours));
		NEED(cuCtxSynchronize());
		NEED(cuStreamBeginCapture_v2(stream, mode));
		here = call();
		end[0] = cuStreamEndCapture(stream, &graph);
		NEED(cuStreamBeginCapture_v2(stream, mode));
		pthread_create(&t, NULL, in_thread, &call);
		pthread_join(t, &there);
		end[1] = cuStreamEndCapture(stream, &graph);
		printf("%-32s %4d %4d   %4d %4d\n", calls[i].name, here, end[0],
		       (int)(intptr_t)there, end[1]);
	}
}
