// SPDX-License-Identifier: MIT
/*
 * Stream-ordered I/O. What is queued on the caller's stream is a kernel of ours where it can be. It
 * tells that the stream got there, does the copies, and by its end lets the stream go on, so that
 * from submission on nothing calls the driver. It must not: while a stream waits, a call of anybody
 * else, such as loading a kernel, may wait for the stream and keep the driver's lock.
 *
 * Where no kernel can serve (another GPU's memory, kernels not wanted, no such back end) it is a
 * host function that hands the request to a worker, and then a wait until a word in pinned memory
 * reaches the request's number; the worker does the I/O as any caller would. Requests of one stream
 * run one after the other, so one word or mailbox per stream is enough and its numbers only grow.
 */
#include "io.h"
#include "stream_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The most bytes that have to be copied; 0: the CPU reaches the memory, or there is none. */
static size_t bytes_to_copy(struct peerlane *ctx, const struct pl_stream_request *r)
{
	if (r->span.err || pl_io_host(ctx, &r->span.mem, r->addr))
		return 0;
	if ((r->flags & PEERLANE_FIXED) && r->bytes_now < r->span.room)
		return r->bytes_now;
	return r->span.room;
}

/* The mailbox of the stream, made when first needed; its lock is held. */
static bool get_serve(struct peerlane *ctx, struct pl_stream *s, void *stream)
{
	int err;

	if (s->serve || s->no_serve)
		return s->serve;
	err = ctx->gpu->ops->serve_create(ctx->gpu, stream, &s->serve);
	if (err) {
		s->no_serve = err != -ENOMEM;
		pl_log(ctx, 2, "a stream is held, not served by a kernel (%d)", err);
		return false;
	}
	s->queue.owner = s->serve->owner;
	s->queue.queue = s->serve->queue;
	s->queue.serve = s->serve;
	_Static_assert(PL_RUNS == PL_SERVE_MARKS, "a mark for each run");
	memcpy(s->queue.marks, s->serve->marks, sizeof(s->queue.marks));
	return true;
}

/* Has a lane and its queue made before the stream is first held; then they could wait for it. */
static void prepare_held(struct peerlane *ctx, const struct pl_stream_request *r, size_t bytes)
{
	struct pl_lane_queue *q;
	struct pl_lane *lane;

	if (!bytes || pl_lane_acquire(ctx, bytes, 1, &lane))
		return;
	pl_lane_queue(ctx, lane, r->span.mem.owner, &q);
	pl_lane_release(ctx, lane);
}

/*
 * What drives may reach is found out now: it takes calls of the driver. A kernel that is queued
 * behind the request must see what a drive wrote, though the CPU launches nothing in between.
 */
static void prepare_p2p(struct peerlane *ctx, struct pl_stream_request *r, size_t bytes)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;

	if (bytes && __atomic_load_n(&ctx->p2p.state, __ATOMIC_ACQUIRE) != PL_P2P_NONE &&
	    ops->orders_devices && ops->orders_devices(ctx->gpu, r->span.mem.gpu))
		pl_p2p_hold(ctx, r->file, r->op, &r->span.mem, &r->span.buf, &r->span.way);
	if (!r->span.way.pin)
		r->flags |= PL_IO_NO_P2P;
}

/* Decides how the stream is made to wait and makes ready what that needs; its lock is held. */
static void prepare(struct peerlane *ctx, struct pl_stream *s, struct pl_stream_request *r,
		    void *stream)
{
	size_t bytes;
	int err = 0;

	if (!ctx->gpu->ops->serve_create)
		return;
	pl_span_get(ctx, r->addr, r->flags & PEERLANE_FIXED ? r->bytes_now : SIZE_MAX, &r->span);
	/* A stream that cannot be made to wait refuses the request as well. */
	if (!r->span.err)
		pl_buffer_wait_in(ctx, &r->span.mem, stream);
	bytes = bytes_to_copy(ctx, r);
	prepare_p2p(ctx, r, bytes);
	if (!ctx->gpu->no_kernels && get_serve(ctx, s, stream) &&
	    (!bytes || r->span.mem.owner == s->serve->owner)) {
		if (bytes) {
			pthread_mutex_lock(&ctx->streams_lock);
			err = pl_pool_reserve(ctx, bytes);
			pthread_mutex_unlock(&ctx->streams_lock);
		}
		r->served = !err;
	}
	if (r->served)
		return;
	if (!s->number)
		prepare_held(ctx, r, bytes);
	pl_span_put(&r->span);
}

static int refused(struct peerlane *ctx, int err, const char *what)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;

	return pl_fail_gpu(err, ops->result(), "%s: %s", what,
			   ops->result_name(ctx->gpu, ops->result()));
}

/* Queues the kernel; the stream's lock is held. */
static int enqueue_served(struct peerlane *ctx, struct pl_stream *s, struct pl_stream_request *r,
			  void *stream)
{
	int err = ctx->gpu->ops->serve_launch(ctx->gpu, stream, s->serve, r->number,
					      bytes_to_copy(ctx, r));

	if (err)
		return refused(ctx, err, "the stream refused");
	s->number = s->served = r->number;
	pl_stream_serve_add(s, r);
	return 0;
}

/* Queues the host function and the wait; the stream's lock is held. */
static int enqueue_held(struct peerlane *ctx, struct pl_stream *s, struct pl_stream_request *r,
			void *stream)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	uint32_t number = r->number;
	int err = ops->stream_call(ctx->gpu, stream, pl_stream_reached, r);

	if (err)
		return refused(ctx, err, "the stream refused");
	/* From here on the request belongs to the stream. */
	s->number = number;
	err = ops->stream_hold(ctx->gpu, stream, s->word, number);
	if (err)
		return refused(ctx, err,
			       "the request is queued but the stream will not wait for it");
	return 0;
}

static int enqueue(struct peerlane *ctx, struct pl_stream *s, struct pl_stream_request *r,
		   void *stream)
{
	uint32_t number = s->number + 1;
	int err;

	r->number = number;
	r->before = s->served;
	__atomic_fetch_add(&ctx->stream_requests, 1, __ATOMIC_ACQ_REL);
	err = r->served ? enqueue_served(ctx, s, r, stream) : enqueue_held(ctx, s, r, stream);
	if (s->number != number)
		__atomic_fetch_sub(&ctx->stream_requests, 1, __ATOMIC_ACQ_REL);
	return err;
}

/* Queues a copy of @what; *@queued as in pl_stream_run(). */
static int queue(const struct pl_stream_request *what, void *stream, bool *queued)
{
	struct peerlane_file *file = what->file;
	struct pl_stream *s = NULL;
	struct pl_stream_request *r;
	int err;

	*queued = false;
	err = pl_file_get(file, what->op);
	if (err)
		return err;
	err = pl_stream_find(file->ctx, stream, &s);
	if (err || !s)
		goto err_put;
	r = malloc(sizeof(*r));
	if (!r) {
		err = pl_fail(-ENOMEM, "no memory for the request");
		goto err_put;
	}
	*r = *what;
	r->users = 2;
	r->stream = s;
	pthread_mutex_lock(&s->lock);
	prepare(file->ctx, s, r, stream);
	err = enqueue(file->ctx, s, r, stream);
	*queued = s->number == r->number;
	pthread_mutex_unlock(&s->lock);
	if (*queued) {
		pl_stream_request_put(r);
		return err;
	}
	/* Nobody else will free it. */
	pl_span_put(&r->span);
	free(r);
err_put:
	pl_file_put(file);
	return err;
}

static int submit(struct peerlane_file *file, enum peerlane_op op, void *addr, const size_t *bytes,
		  const off_t *offset, ssize_t *result, void *stream, unsigned int flags)
{
	struct pl_stream_request r = { .file = file,
				       .op = op,
				       .addr = addr,
				       .bytes = bytes,
				       .offset = offset,
				       .result = result,
				       .flags = flags };
	bool queued;

	if (!addr || !bytes || !offset || !result)
		return pl_fail(-EINVAL, "the %s pointer is NULL",
			       !addr	 ? "memory"
			       : !bytes	 ? "length"
			       : !offset ? "offset"
					 : "result");
	if (flags & PEERLANE_FIXED) {
		r.bytes_now = *bytes;
		r.offset_now = *offset;
	}
	return queue(&r, stream, &queued);
}

int pl_stream_run(struct peerlane_file *file, enum peerlane_op op, void *addr, size_t bytes,
		  off_t offset, void *stream, const struct pl_stream_work *work, void *arg,
		  bool *queued)
{
	struct pl_stream_request r = { .file = file,
				       .op = op,
				       .addr = addr,
				       .bytes_now = bytes,
				       .offset_now = offset,
				       .work = work,
				       .arg = arg };

	return queue(&r, stream, queued);
}

int peerlane_read_async(struct peerlane_file *file, void *addr, const size_t *bytes,
			const off_t *offset, ssize_t *result, void *stream, unsigned int flags)
{
	PL_KEEP_ERRNO;
	if (flags & ~PEERLANE_FIXED)
		return pl_fail(-EINVAL, "unknown flags %#x", flags & ~PEERLANE_FIXED);
	return submit(file, PEERLANE_READ, addr, bytes, offset, result, stream, flags);
}

int peerlane_write_async(struct peerlane_file *file, const void *addr, const size_t *bytes,
			 const off_t *offset, ssize_t *result, void *stream, unsigned int flags)
{
	PL_KEEP_ERRNO;
	if (flags & ~(PEERLANE_FIXED | PEERLANE_DURABLE))
		return pl_fail(-EINVAL, "unknown flags %#x",
			       flags & ~(PEERLANE_FIXED | PEERLANE_DURABLE));
	return submit(file, PEERLANE_WRITE, (void *)(uintptr_t)addr, bytes, offset, result, stream,
		      flags);
}
