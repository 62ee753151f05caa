// SPDX-License-Identifier: MIT
/* What a load or a save has done: the counters of the context, before and after. */
#include "tally.h"

#include <string.h>

static void paths(struct peerlane *ctx, enum peerlane_op op, uint64_t out[PEERLANE_PATH_NR])
{
	struct peerlane_stats stats = { .size = sizeof(stats) };

	memset(out, 0, PEERLANE_PATH_NR * sizeof(*out));
	if (!peerlane_stats_get(ctx, &stats))
		memcpy(out, op == PEERLANE_READ ? stats.read.path_bytes : stats.write.path_bytes,
		       PEERLANE_PATH_NR * sizeof(*out));
}

void pl_tally_begin(struct pl_tally *t, struct peerlane *ctx, enum peerlane_op op)
{
	t->ctx = ctx;
	t->op = op;
	paths(ctx, op, t->path_bytes);
	clock_gettime(CLOCK_MONOTONIC, &t->began);
}

void pl_tally_end(const struct pl_tally *t, uint64_t bytes, uint64_t file_bytes,
		  uint64_t nr_requests, struct peerlane_model_stats *out)
{
	struct timespec now;

	if (!out)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	*out = (struct peerlane_model_stats){ .size = sizeof(*out),
					      .bytes = bytes,
					      .file_bytes = file_bytes,
					      .nr_requests = nr_requests };
	out->ns = (uint64_t)(now.tv_sec - t->began.tv_sec) * 1000000000u + (uint64_t)now.tv_nsec -
		  (uint64_t)t->began.tv_nsec;
	paths(t->ctx, t->op, out->path_bytes);
	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		out->path_bytes[i] -= t->path_bytes[i];
}
