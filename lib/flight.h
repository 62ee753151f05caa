/* SPDX-License-Identifier: MIT */
/*
 * A read on a stream whose data was read ahead, done in steps that wait for nothing, so that a worker can see to
 * several streams at a time. What such a read cannot do, such as a read of what nobody asked for, is done the
 * ordinary way, by a worker that waits.
 */
#ifndef PL_FLIGHT_H
#define PL_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pl_piece;
struct pl_stream;
struct pl_stream_request;

/* Of a stream, for its first request; only the worker's that has the stream. */
struct pl_flight {
	struct pl_piece *piece; /* claimed; NULL: there is none */
	bool copying;		/* out of it; else it is being filled */
	uint64_t began, deadline;
};

enum pl_flight_step {
	PL_FLIGHT_NONE, /* the request is for the ordinary way */
	PL_FLIGHT_UNDER_WAY,
	PL_FLIGHT_LANDED, /* *@result is that of the request */
};

/* Begins or goes on with request @r, the stream's first, whose kernel has begun. */
enum pl_flight_step pl_flight_step(struct pl_stream *s, struct pl_stream_request *r,
				   ssize_t *result);

static inline bool pl_flight_under_way(const struct pl_flight *f)
{
	return f->piece;
}

#endif
