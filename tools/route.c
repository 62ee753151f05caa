/* SPDX-License-Identifier: MIT */
/* Which paths the bytes of a context took between two readings of its counters. */
#include "route.h"

#include <stdio.h>
#include <string.h>

struct pl_route pl_route_now(struct peerlane *ctx, enum peerlane_op op)
{
	struct peerlane_stats stats = { .size = sizeof(stats) };
	struct pl_route r = { 0 };

	if (!peerlane_stats_get(ctx, &stats))
		memcpy(r.bytes,
		       op == PEERLANE_READ ? stats.read.path_bytes : stats.write.path_bytes,
		       sizeof(r.bytes));
	return r;
}

struct pl_route pl_route_since(struct peerlane *ctx, enum peerlane_op op, struct pl_route start)
{
	struct pl_route r = pl_route_now(ctx, op);

	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		r.bytes[i] -= start.bytes[i];
	return r;
}

struct pl_route_text pl_route_name(const struct pl_route *r)
{
	struct pl_route_text t = { "-" };
	uint64_t sum = 0, most = 0;
	int best = 0;

	for (int i = 0; i < PEERLANE_PATH_NR; i++) {
		sum += r->bytes[i];
		if (r->bytes[i] > most) {
			most = r->bytes[i];
			best = i;
		}
	}
	if (sum)
		snprintf(t.text, sizeof(t.text), "%s%s",
			 peerlane_path_name((enum peerlane_path)best),
			 (double)(sum - most) >= 0.05 * (double)sum ? "+" : "");
	return t;
}
