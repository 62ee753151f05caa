// SPDX-License-Identifier: MIT
/*
 * Streams of the VM lab's test GPU: threads that do what is queued, in order, as those of the
 * simulated GPU. It runs no kernels of programs. The kernel that serves requests is played: it
 * holds the stream, and the copies given to its queue are done by whoever gives them, at once.
 */
#include "gpu_sim.h"
#include "gpu_simgpu.h"

#include <errno.h>
#include <stdlib.h>

#define POLL_US 20u

struct stream {
	struct pl_sim_object object;
	struct pl_sim_fifo fifo;
};

struct serve {
	struct pl_serve serve;
	struct pl_queue queue;
	struct pl_mark marks[PL_SERVE_MARKS];
	/* The last request that has begun, may end, has ended; atomic. */
	uint32_t here, quit, gone;
};

/* One thing to do in a stream. */
struct op {
	struct pl_sim_task task;
	pl_stream_fn fn;
	void *arg;
	const uint32_t *flag;
	uint32_t value;
	struct serve *serve;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the default stream */
static struct stream *default_stream;

static int create(struct stream **out)
{
	struct stream *s = pl_sim_object_create(PL_SIM_STREAM, pl_simgpu_owner, sizeof(*s));
	int err;

	*out = NULL;
	if (!s)
		return pl_simgpu_refuse(-ENOMEM);
	err = pl_sim_fifo_start(&s->fifo);
	if (err) {
		pl_sim_object_destroy(s);
		return pl_simgpu_refuse(err);
	}
	*out = s;
	return 0;
}

static void destroy(struct stream *s)
{
	pl_sim_fifo_stop(&s->fifo);
	pl_sim_object_destroy(s);
}

/* The stream behind a handle; NULL is the default stream. */
static int resolve(void *stream, struct stream **out)
{
	int err = 0;

	*out = NULL;
	if (stream) {
		if (!pl_sim_object_exists(PL_SIM_STREAM, stream))
			return pl_simgpu_refuse(-EINVAL);
		*out = stream;
		return 0;
	}
	pthread_mutex_lock(&lock);
	if (!default_stream)
		err = create(&default_stream);
	*out = default_stream;
	pthread_mutex_unlock(&lock);
	return err;
}

int pl_simgpu_stream_create(struct pl_gpu *gpu, int ordinal, void **out)
{
	struct stream *s;
	int err;

	(void)gpu;
	(void)ordinal;
	err = create(&s);
	if (!err)
		*out = s;
	return err;
}

void pl_simgpu_stream_destroy(struct pl_gpu *gpu, void *stream)
{
	struct stream *s;

	(void)gpu;
	if (stream && !resolve(stream, &s))
		destroy(s);
}

void pl_simgpu_streams_fini(void)
{
	struct stream *s;

	pthread_mutex_lock(&lock);
	s = default_stream;
	default_stream = NULL;
	pthread_mutex_unlock(&lock);
	if (s)
		destroy(s);
}

int pl_simgpu_stream_sync(struct pl_gpu *gpu, void *stream)
{
	struct stream *s;
	int err = resolve(stream, &s);

	(void)gpu;
	if (err || !s)
		return err;
	if (pthread_equal(s->fifo.thread, pthread_self()))
		return -EDEADLK;
	pl_sim_fifo_sync(&s->fifo);
	return 0;
}

int pl_simgpu_stream_key(struct pl_gpu *gpu, void *stream, uintptr_t key[2])
{
	struct stream *s;
	int err = resolve(stream, &s);

	(void)gpu;
	if (err)
		return err;
	key[0] = (uintptr_t)s;
	key[1] = 0;
	return 0;
}

/* Queues a copy of @what. */
static int push(void *stream, void (*run)(struct pl_sim_fifo *, struct pl_sim_task *),
		const struct op *what)
{
	struct stream *s;
	struct op *op;
	int err = resolve(stream, &s);

	if (err || !s)
		return err;
	op = pl_sim_object_create(PL_SIM_TASK, NULL, sizeof(*op));
	if (!op)
		return pl_simgpu_refuse(-ENOMEM);
	op->fn = what->fn;
	op->arg = what->arg;
	op->flag = what->flag;
	op->value = what->value;
	op->serve = what->serve;
	op->task.run = run;
	pl_sim_fifo_push(&s->fifo, &op->task);
	return 0;
}

static void run_call(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;

	(void)fifo;
	op->fn(op->arg);
}

int pl_simgpu_stream_call(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg)
{
	(void)gpu;
	return push(stream, run_call, &(struct op){ .fn = fn, .arg = arg });
}

/* Until the number at @flag has come. Pairs with the release store of whoever sets it. */
static void wait_for(const uint32_t *flag, uint32_t value)
{
	while ((int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - value) < 0)
		pl_sim_fifo_sleep(POLL_US);
}

static void run_hold(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;

	(void)fifo;
	wait_for(op->flag, op->value);
}

int pl_simgpu_stream_hold(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value)
{
	(void)gpu;
	return push(stream, run_hold, &(struct op){ .flag = flag, .value = value });
}

/* ------------------------------------------------------------------ serving */

static struct serve *serve_of(const struct pl_serve *serve)
{
	return (struct serve *)(uintptr_t)serve;
}

int pl_simgpu_serve_create(struct pl_gpu *gpu, void *stream, struct pl_serve **out)
{
	struct serve *s = calloc(1, sizeof(*s));

	(void)gpu;
	(void)stream;
	if (!s)
		return pl_simgpu_refuse(-ENOMEM);
	s->queue.owner = s->serve.owner = pl_simgpu_owner;
	s->serve.queue = &s->queue;
	for (unsigned int i = 0; i < PL_SERVE_MARKS; i++)
		s->serve.marks[i] = &s->marks[i];
	*out = &s->serve;
	return 0;
}

void pl_simgpu_serve_destroy(struct pl_gpu *gpu, struct pl_serve *serve)
{
	(void)gpu;
	if (serve)
		free(serve_of(serve));
}

static void run_serve(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct op *op = (struct op *)task;

	(void)fifo;
	__atomic_store_n(&op->serve->here, op->value, __ATOMIC_RELEASE);
	wait_for(&op->serve->quit, op->value);
	__atomic_store_n(&op->serve->gone, op->value, __ATOMIC_RELEASE);
}

int pl_simgpu_serve_launch(struct pl_gpu *gpu, void *stream, struct pl_serve *serve,
			   uint32_t number, size_t bytes)
{
	(void)gpu;
	(void)bytes;
	return push(stream, run_serve, &(struct op){ .serve = serve_of(serve), .value = number });
}

void pl_simgpu_serve_begin(struct pl_serve *serve, uint32_t number)
{
	(void)serve;
	(void)number;
}

enum pl_serve_state pl_simgpu_serve_state(const struct pl_serve *serve, uint32_t number)
{
	const struct serve *s = serve_of(serve);

	if ((int32_t)(__atomic_load_n(&s->gone, __ATOMIC_ACQUIRE) - number) >= 0)
		return PL_SERVE_GONE;
	if ((int32_t)(__atomic_load_n(&s->here, __ATOMIC_ACQUIRE) - number) >= 0)
		return PL_SERVE_HERE;
	return PL_SERVE_COMING;
}

/* Requests of a stream end in their order, so the number only grows. */
void pl_simgpu_serve_quit(struct pl_serve *serve, uint32_t number)
{
	__atomic_store_n(&serve_of(serve)->quit, number, __ATOMIC_RELEASE);
}
