/* SPDX-License-Identifier: MIT */
/* The context: what peerlane_open() makes and every other object belongs to. */
#ifndef PL_CONTEXT_H
#define PL_CONTEXT_H

#include "buffer.h"
#include "convoy.h"
#include "error.h"
#include "gpu.h"
#include "p2p.h"
#include "pool.h"
#include "stats.h"
#include "watch.h"
#include "window.h"
#include "worker.h"

#include <peerlane/peerlane.h>
#include <pthread.h>

struct pl_stream; /* stream.c */

struct peerlane {
	struct peerlane_options opt; /* with all defaults filled in */
	struct pl_gpu *gpu;
	char gpu_why[160]; /* why a better back end was passed over; empty if none was */
	uint32_t *alive;   /* 1; the kernel zeroes the page in a forked child */
	struct pl_stats stats;
	struct pl_buffers buffers;
	struct pl_p2p p2p;
	struct pl_pool pool;
	struct pl_convoys convoys;
	struct pl_workers workers;
	/* For requests of streams that are served: others may be kept by the driver for as long as
	 * a stream waits. */
	struct pl_workers stream_workers;
	const char *ring_why; /* why io_uring is not used; NULL when it is */
	struct pl_rates rates;
	struct pl_watcher watcher;
	unsigned int jobs; /* being run now; atomic */

	pthread_mutex_t files_lock; /* guards the two lists */
	struct peerlane_file *files;
	struct peerlane_file *dead; /* closed, kept so that a stale handle is noticed */
	unsigned int nr_dead;

	bool closed; /* closed with requests left on a stream: see peerlane_close(); atomic */
	struct peerlane *next; /* of such contexts */

	pthread_mutex_t streams_lock; /* guards streams, and is held to reserve lanes for them */
	struct pl_stream *streams;
	unsigned int stream_requests; /* queued on a stream and not done; atomic */
	unsigned int streams_active;  /* served ones with requests; atomic */
	unsigned int streams_flying;  /* of those, that take steps: flight.c; atomic */
	unsigned int streams_blocked; /* of those, whose worker waits; atomic */
};

/* -EOWNERDEAD in a forked child, -EINVAL for NULL, else 0. */
int pl_context_check(const struct peerlane *ctx);

/* One line to the log hook, if @level is wanted. */
void pl_log(struct peerlane *ctx, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static inline struct peerlane_stats *pl_ctx_stats(struct peerlane *ctx)
{
	return &ctx->stats.page->stats;
}

uint64_t pl_now_ns(void);

/* When a wait that begins now has taken too long. */
static inline uint64_t pl_deadline_ns(const struct peerlane *ctx)
{
	return pl_now_ns() + ctx->opt.timeout_ms * 1000000ull;
}

#endif
