/* SPDX-License-Identifier: MIT */
/* Which paths the bytes of a context took between two readings of its counters. */
#ifndef PL_ROUTE_H
#define PL_ROUTE_H

#include <peerlane/peerlane.h>

struct pl_route {
	uint64_t bytes[PEERLANE_PATH_NR];
};

/* Bytes by path so far, for one direction. */
struct pl_route pl_route_now(struct peerlane *ctx, enum peerlane_op op);
struct pl_route pl_route_since(struct peerlane *ctx, enum peerlane_op op, struct pl_route start);

/* The path most bytes took; a + is added when others took a twentieth or more; "-" for none. */
struct pl_route_text {
	char text[24];
};
struct pl_route_text pl_route_name(const struct pl_route *r);

#endif
