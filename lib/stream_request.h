/* SPDX-License-Identifier: MIT */
/* What the files of stream-ordered I/O share: a stream of the caller, and a request on it. */
#ifndef PL_STREAM_REQUEST_H
#define PL_STREAM_REQUEST_H

#include "context.h"
#include "flight.h"
#include "stream.h"

struct pl_stream {
	struct pl_task task; /* first: workers are given it */
	struct pl_stream *next;
	uintptr_t key[2];
	pthread_mutex_t lock; /* keeps number and order on the stream the same; guards all below */
	uint32_t *word;
	uint32_t number; /* of the last request queued */
	uint32_t served; /* of the last one with a kernel */
	void *chunk;	 /* the pinned memory, on the stream that must free it; else NULL */
	struct pl_serve *serve;
	bool no_serve;		    /* it was refused once */
	struct pl_lane_queue queue; /* of @serve, for jobs */
	struct peerlane *ctx;
	pthread_mutex_t list_lock;		 /* guards the rest */
	struct pl_stream_request *first, **last; /* served ones, in their order */
	bool active;				 /* a worker has the stream, or will have */
	uint64_t look_until; /* for the kernel of the first; 0: nobody has; only that worker's */
	struct pl_flight flight;
};

struct pl_stream_request {
	struct pl_task task;
	unsigned int users; /* the one who submits it, and the stream; atomic */
	struct peerlane_file *file;
	enum peerlane_op op;
	void *addr;
	const size_t *bytes;
	const off_t *offset;
	size_t bytes_now; /* PEERLANE_FIXED: what counts; else a guess, or 0 */
	off_t offset_now;
	ssize_t *result;
	unsigned int flags;
	const struct pl_stream_work *work; /* of pl_stream_run(), instead of pointers and result */
	void *arg;
	bool asked; /* what counts now: */
	struct pl_stream_what what;
	int refused;
	size_t p2p;
	uint32_t number;
	struct pl_stream *stream;
	/* Served by a kernel: */
	bool served;
	struct pl_span span;
	bool hinted;	 /* pl_ahead_hint() was told of it; only the stream's worker's */
	uint32_t before; /* request whose kernel used the mailbox last */
	struct pl_stream_request *next;
};

/* --- stream_table.c --- */

/* The state of @stream, made when first seen. A negative errno. */
int pl_stream_find(struct peerlane *ctx, void *stream, struct pl_stream **out);

/* --- stream_work.c: the side of the workers --- */

/* Of the two who know of it, one less. */
void pl_stream_request_put(struct pl_stream_request *r);
/* The stream got there: finds out what is to be moved, once. False: nothing is, @refused says why. */
bool pl_stream_request_ask(struct pl_stream_request *r);
/* Adds a served request, whose kernel is queued, to those of its stream. */
void pl_stream_serve_add(struct pl_stream *s, struct pl_stream_request *r);
/* Tasks of a stream: serve its requests, or cancel them. */
void pl_stream_serve(struct pl_task *task);
void pl_stream_serve_drop(struct pl_task *task);
/* While the first request of the stream of @queue is copied: has those after it read ahead. */
void pl_stream_hint_next(struct pl_lane_queue *queue);
/* On the stream, for a request that holds it: the work before is done. */
void pl_stream_reached(void *request);

#endif
