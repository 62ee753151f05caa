/* SPDX-License-Identifier: MIT */
/*
 * Streams of the simulated GPU: a thread each, running host calls, holds, kernels and copies in
 * the order they were queued. Streams do not wait for each other.
 */
#include "gpu_sim.h"
#include <errno.h>
#include <string.h>
#include <time.h>

#define MAX_ARGS 16u
#define MAX_ARG_BYTES 4096u /* of all arguments together */
#define ARG_ALIGN 16u
#define POLL_US 20u
#define GRACE_MS 5000 /* how long a stream being destroyed still waits for a hold */

struct pl_sim_stream {
	struct pl_sim_object object;
	struct pl_sim_fifo fifo;
};

/* One thing to do in a stream. */
struct op {
	struct pl_sim_task task;
	union {
		struct {
			pl_stream_fn fn;
			void *arg;
		} call;
		struct {
			struct pl_sim_side flag; /* held, so it outlives pin_free() */
			uint32_t value;
		} hold;
		struct {
			void *dst;
			const void *src;
			size_t bytes;
			int *err; /* of the caller, who waits */
			int *result;
		} copy;
		struct {
			peerlane_kernel_fn fn;
			unsigned int nr_blocks;
			void *args[MAX_ARGS];
		} launch;
	};
	_Alignas(ARG_ALIGN) char data[]; /* what launch.args point to */
};

typedef void (*run_fn)(struct pl_sim_fifo *fifo, struct pl_sim_task *task);

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static int create(struct pl_sim_stream **out)
{
	struct pl_sim_stream *st;
	int err;

	st = pl_sim_object_create(PL_SIM_STREAM, NULL, sizeof(*st));
	if (!st)
		return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
	err = pl_sim_fifo_start(&st->fifo);
	if (err) {
		pl_sim_object_destroy(st);
		return pl_sim_refuse(err, PL_SIM_OUT_OF_MEMORY);
	}
	*out = st;
	return 0;
}

/* The stream behind a handle; NULL is the default stream of @gpu, made here when @make. */
static int resolve(struct pl_gpu *gpu, void *stream, bool make, struct pl_sim_stream **out)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	int err = 0;

	if (stream) {
		if (!pl_sim_object_exists(PL_SIM_STREAM, stream))
			return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_HANDLE);
		*out = stream;
		return 0;
	}
	pthread_mutex_lock(&sim->lock);
	if (!sim->stream && make)
		err = create(&sim->stream);
	if (!err)
		*out = sim->stream;
	pthread_mutex_unlock(&sim->lock);
	return err;
}

int pl_sim_stream_create(struct pl_gpu *gpu, int ordinal, void **out)
{
	struct pl_sim_stream *st;
	int err;

	if (ordinal < 0 || ordinal >= pl_sim_of(gpu)->nr_gpus)
		return pl_sim_refuse(-ENODEV, PL_SIM_INVALID_DEVICE);
	err = create(&st);
	if (!err)
		*out = st;
	return err;
}

void pl_sim_stream_destroy(struct pl_gpu *gpu, void *stream)
{
	struct pl_sim_stream *st;

	if (!stream || resolve(gpu, stream, false, &st))
		return;
	pl_sim_fifo_stop(&st->fifo);
	pl_sim_object_destroy(st);
}

int pl_sim_stream_sync(struct pl_gpu *gpu, void *stream)
{
	struct pl_sim_stream *st;
	int err;

	err = resolve(gpu, stream, false, &st);
	if (err)
		return err;
	if (!st)
		return 0;
	if (pthread_equal(st->fifo.thread, pthread_self()))
		return -EDEADLK;
	pl_sim_fifo_sync(&st->fifo);
	return 0;
}

int pl_sim_stream_key(struct pl_gpu *gpu, void *stream, uintptr_t key[2])
{
	struct pl_sim_stream *st;
	int err;

	err = resolve(gpu, stream, true, &st);
	if (err)
		return err;
	key[0] = (uintptr_t)st;
	key[1] = 0;
	return 0;
}

/* Makes an operation for @stream; the caller fills it in and pushes it. */
static int prepare(struct pl_gpu *gpu, void *stream, run_fn run, size_t data_bytes,
		   struct pl_sim_stream **st, struct op **out)
{
	struct op *op;
	int err;

	err = resolve(gpu, stream, true, st);
	if (err)
		return err;
	op = pl_sim_object_create(PL_SIM_TASK, NULL, sizeof(*op) + data_bytes);
	if (!op)
		return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
	op->task.run = run;
	*out = op;
	return 0;
}

/* Calls are made even after a stream gave up: whoever queued one counts on it. */
static void run_call(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;

	(void)fifo;
	op->call.fn(op->call.arg);
}

int pl_sim_stream_call(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg)
{
	struct pl_sim_stream *st;
	struct op *op;
	int err;

	if (!fn)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	err = prepare(gpu, stream, run_call, 0, &st, &op);
	if (err)
		return err;
	op->call.fn = fn;
	op->call.arg = arg;
	pl_sim_fifo_push(&st->fifo, &op->task);
	return 0;
}

static void run_hold(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;
	const uint32_t *flag = (const uint32_t *)(const void *)op->hold.flag.host;
	int64_t end = 0;

	/* Pairs with the release store of whoever ends the hold. */
	while (!fifo->gave_up &&
	       (int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - op->hold.value) < 0) {
		if (fifo->stopping && !end)
			end = now_ms() + GRACE_MS;
		if (end && now_ms() >= end)
			fifo->gave_up = true;
		pl_sim_fifo_sleep(POLL_US);
	}
	pl_sim_mem_put(&op->hold.flag);
}

int pl_sim_stream_hold(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value)
{
	struct pl_sim_stream *st;
	struct pl_sim_side side;
	struct op *op;
	int err;

	if ((uintptr_t)flag % sizeof(*flag))
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	err = pl_sim_mem_get(flag, sizeof(*flag), PL_SIM_WANT_HOST, &side);
	if (err)
		return err;
	if (!side.pinned)
		return pl_sim_refuse(-EFAULT, PL_SIM_INVALID_VALUE);
	err = prepare(gpu, stream, run_hold, 0, &st, &op);
	if (err)
		goto err_put;
	op->hold.flag = side;
	op->hold.value = value;
	pl_sim_fifo_push(&st->fifo, &op->task);
	return 0;

err_put:
	pl_sim_mem_put(&side);
	return err;
}

static void run_launch(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;

	for (unsigned int i = 0; i < op->launch.nr_blocks && !fifo->gave_up; i++)
		op->launch.fn(i, op->launch.nr_blocks, op->launch.args);
}

static size_t arg_round(size_t bytes)
{
	return (bytes + ARG_ALIGN - 1) / ARG_ALIGN * ARG_ALIGN;
}

/* Room the arguments need; negative if they are too large. */
static ssize_t args_size(const size_t *arg_bytes, unsigned int nr_args)
{
	size_t sum = 0;

	for (unsigned int i = 0; i < nr_args; i++) {
		if (arg_bytes[i] > MAX_ARG_BYTES)
			return -EINVAL;
		sum += arg_round(arg_bytes[i]);
	}
	return sum > MAX_ARG_BYTES ? -EINVAL : (ssize_t)sum;
}

int pl_sim_stream_launch(struct pl_gpu *gpu, void *stream, const struct peerlane_kernel *kernel,
			 unsigned int nr_blocks, unsigned int nr_threads, void **args,
			 const size_t *arg_bytes, unsigned int nr_args)
{
	struct pl_sim_stream *st;
	struct op *op;
	ssize_t size = -EINVAL;
	size_t at = 0;
	int err;

	(void)nr_threads;
	if (kernel && kernel->host && nr_blocks && nr_args <= MAX_ARGS &&
	    (!nr_args || (args && arg_bytes)))
		size = args_size(arg_bytes, nr_args);
	if (size < 0)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	if (pl_sim_fault_hit(pl_sim_of(gpu), PL_SIM_FAULT_LAUNCH))
		return pl_sim_refuse(-EREMOTEIO, PL_SIM_LAUNCH_FAILED);
	err = prepare(gpu, stream, run_launch, (size_t)size, &st, &op);
	if (err)
		return err;
	op->launch.fn = kernel->host;
	op->launch.nr_blocks = nr_blocks;
	for (unsigned int i = 0; i < nr_args; i++) {
		op->launch.args[i] = &op->data[at];
		memcpy(op->launch.args[i], args[i], arg_bytes[i]);
		at += arg_round(arg_bytes[i]);
	}
	pl_sim_fifo_push(&st->fifo, &op->task);
	return 0;
}

static void run_copy(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;

	*op->copy.err = fifo->gave_up ? pl_sim_refuse(-EREMOTEIO, PL_SIM_LAUNCH_FAILED)
				      : pl_sim_mem_copy(op->copy.dst, op->copy.src, op->copy.bytes);
	*op->copy.result = pl_gpu_sim.result();
}

/* Behind the work of the default stream, if there is one: as a synchronous copy of CUDA. */
int pl_sim_stream_copy(struct pl_gpu *gpu, void *dst, const void *src, size_t bytes)
{
	struct pl_sim_stream *st;
	int err, result;
	struct op *op;

	if (!bytes)
		return 0;
	if (!dst || !src)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	err = resolve(gpu, NULL, false, &st);
	if (err)
		return err;
	if (!st || pthread_equal(st->fifo.thread, pthread_self()))
		return pl_sim_mem_copy(dst, src, bytes);
	err = prepare(gpu, NULL, run_copy, 0, &st, &op);
	if (err)
		return err;
	op->copy.dst = dst;
	op->copy.src = src;
	op->copy.bytes = bytes;
	op->copy.err = &err;
	op->copy.result = &result;
	pl_sim_fifo_wait(&st->fifo, pl_sim_fifo_push(&st->fifo, &op->task));
	return err ? pl_sim_refuse(err, (enum pl_sim_result)result) : 0;
}
