/* SPDX-License-Identifier: MIT */
/*
 * The simulated GPU: opening it, its settings from the environment, and its operations table.
 *
 * PEERLANE_SIM_GPUS     how many, 1 to 8 (default 1)
 * PEERLANE_SIM_MEMORY   bytes of each (default 16 GiB); K, M and G may follow a number of bytes
 * PEERLANE_SIM_PINNED   most bytes of pinned memory (default no limit)
 * PEERLANE_SIM_ASYNC    1: queues copy in threads of their own; more: and wait as many
 *                       microseconds before each list
 * PEERLANE_SIM_BAR      1: GPU memory can be addressed by the CPU, as with a mapped BAR
 * PEERLANE_SIM_IN_PLACE 1: memory of others can be pinned
 * PEERLANE_SIM_CHECK    1: describe faults in GPU memory on stderr
 * PEERLANE_SIM_FAIL     faults, such as "copy:3:1,pin:0:99" (see peerlane_sim_inject())
 */
#include "gpu_sim.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int last_result;

void pl_sim_result_set(enum pl_sim_result result)
{
	last_result = (int)result;
}

static int sim_result(void)
{
	return last_result;
}

static const char *sim_result_name(struct pl_gpu *gpu, int result)
{
	(void)gpu;
	switch (result) {
	case PL_SIM_OK:
		return "no error";
	case PL_SIM_INVALID_VALUE:
		return "invalid value";
	case PL_SIM_OUT_OF_MEMORY:
		return "out of memory";
	case PL_SIM_INVALID_DEVICE:
		return "invalid device";
	case PL_SIM_OPERATING_SYSTEM:
		return "operating system call failed";
	case PL_SIM_INVALID_HANDLE:
		return "invalid handle";
	case PL_SIM_ALREADY_REGISTERED:
		return "host memory already registered";
	case PL_SIM_LAUNCH_FAILED:
		return "launch failed";
	case PL_SIM_NOT_SUPPORTED:
		return "not supported";
	}
	return "unknown error";
}

/* ------------------------------------------------------------------ fork */

/* Reading is enough to keep writers out, and unlike writing the child may end it. */
static void fork_prepare(void)
{
	pl_sim_object_lock();
	pl_sim_table_read();
}

static void fork_parent(void)
{
	pl_sim_table_unlock();
	pl_sim_object_unlock();
}

/* The child has neither the GPU memory nor the threads of its parent. */
static void fork_child(void)
{
	pl_sim_mem_forget();
	pl_sim_object_unlock();
	pl_sim_object_forget(NULL);
}

static int fork_result;

static void fork_register(void)
{
	fork_result = -pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* ------------------------------------------------------------------ settings */

struct setting {
	const char *name;
	uint64_t value; /* default, then what was set */
	uint64_t min, max;
};

enum {
	SET_GPUS,
	SET_MEMORY,
	SET_PINNED,
	SET_ASYNC,
	SET_BAR,
	SET_IN_PLACE,
	SET_CHECK,
	NR_SETTINGS,
};

static int parse_setting(struct setting *s, const char *text)
{
	static const char units[] = "KMG";
	unsigned long long v;
	const char *unit;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (*end && (unit = strchr(units, *end))) {
		unsigned int shift = 10 * (unsigned int)(unit - units + 1);

		if (v > UINT64_MAX >> shift)
			return -EINVAL;
		v <<= shift;
		end++;
	}
	if (*end || v < s->min || v > s->max)
		return -EINVAL;
	s->value = v;
	return 0;
}

static int read_settings(struct setting *set, char *why, size_t why_bytes)
{
	for (unsigned int i = 0; i < NR_SETTINGS; i++) {
		const char *text = getenv(set[i].name);

		if (text && *text && parse_setting(&set[i], text)) {
			snprintf(why, why_bytes, "%s=\"%s\" is not a number from %llu to %llu",
				 set[i].name, text, (unsigned long long)set[i].min,
				 (unsigned long long)set[i].max);
			return -EINVAL;
		}
	}
	return 0;
}

static int configure(struct pl_sim_gpu *sim, char *why, size_t why_bytes)
{
	struct setting set[NR_SETTINGS] = {
		[SET_GPUS] = { "PEERLANE_SIM_GPUS", 1, 1, PL_SIM_MAX_GPUS },
		[SET_MEMORY] = { "PEERLANE_SIM_MEMORY", 16ull << 30, 0, PL_SIM_MAX_BYTES },
		[SET_PINNED] = { "PEERLANE_SIM_PINNED", UINT64_MAX, 0, UINT64_MAX },
		[SET_ASYNC] = { "PEERLANE_SIM_ASYNC", 0, 0, 10000000 },
		[SET_BAR] = { "PEERLANE_SIM_BAR", 0, 0, 1 },
		[SET_IN_PLACE] = { "PEERLANE_SIM_IN_PLACE", 0, 0, 1 },
		[SET_CHECK] = { "PEERLANE_SIM_CHECK", 0, 0, 1 },
	};
	const char *fail = getenv("PEERLANE_SIM_FAIL");
	int err;

	err = read_settings(set, why, why_bytes);
	if (err)
		return err;
	sim->nr_gpus = (int)set[SET_GPUS].value;
	sim->memory_bytes = set[SET_MEMORY].value;
	sim->pinned_limit = set[SET_PINNED].value;
	sim->async = set[SET_ASYNC].value != 0;
	sim->delay_us = set[SET_ASYNC].value > 1 ? (unsigned int)set[SET_ASYNC].value : 0;
	sim->bar = set[SET_BAR].value != 0;
	sim->in_place = set[SET_IN_PLACE].value != 0;
	if (fail)
		err = pl_sim_fault_parse(sim, fail, why, why_bytes);
	if (!err && set[SET_CHECK].value) {
		err = pl_sim_check_install();
		if (err)
			snprintf(why, why_bytes, "cannot handle SIGSEGV: %s", strerror(-err));
	}
	return err;
}

/* ------------------------------------------------------------------ operations */

static int sim_open(struct pl_gpu **out, char *why, size_t why_bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pl_sim_gpu *sim;
	int err;

	pthread_once(&once, fork_register);
	sim = fork_result ? NULL : calloc(1, sizeof(*sim));
	if (!sim) {
		snprintf(why, why_bytes, "out of memory");
		return -ENOMEM;
	}
	sim->gpu.ops = &pl_gpu_sim;
	atomic_store(&sim->hang, 1);
	err = configure(sim, why, why_bytes);
	if (err)
		goto err_free;
	pthread_mutex_init(&sim->lock, NULL);
	*out = &sim->gpu;
	return 0;

err_free:
	free(sim);
	return err;
}

static void sim_close(struct pl_gpu *gpu)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	struct pl_queue *queue;

	if (!gpu)
		return;
	while ((queue = pl_sim_object_first(PL_SIM_QUEUE, sim)))
		pl_sim_queue_destroy(gpu, queue);
	pl_sim_stream_destroy(gpu, sim->stream);
	pl_sim_object_forget(sim);
	pthread_mutex_destroy(&sim->lock);
	free(sim);
}

static void sim_abandon(struct pl_gpu *gpu)
{
	if (!gpu)
		return;
	pl_sim_object_forget(gpu);
	free(gpu);
}

static int sim_count(struct pl_gpu *gpu)
{
	return pl_sim_of(gpu)->nr_gpus;
}

static int sim_info(struct pl_gpu *gpu, int ordinal, struct peerlane_gpu_info *out)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	struct peerlane_gpu_info info = {
		.size = out->size,
		.name = "Peerlane simulated GPU",
		.memory_bytes = sim->memory_bytes,
		.driver = "sim",
		.numa_node = -1,
		.copy_lists = 1,
	};

	if (ordinal < 0 || ordinal >= sim->nr_gpus)
		return pl_sim_refuse(-ENODEV, PL_SIM_INVALID_DEVICE);
	*out = info;
	return 0;
}

static int sim_inject(struct pl_gpu *gpu, const char *what, unsigned int after, unsigned int count)
{
	return pl_sim_fault_set(pl_sim_of(gpu), what, after, count);
}

const struct pl_gpu_ops pl_gpu_sim = {
	.name = "sim",
	.open = sim_open,
	.close = sim_close,
	.abandon = sim_abandon,
	.result = sim_result,
	.result_name = sim_result_name,
	.query = pl_sim_mem_query,
	.pin_alloc = pl_sim_pin_alloc,
	.pin_free = pl_sim_pin_free,
	.pin_register = pl_sim_pin_register,
	.pin_unregister = pl_sim_pin_unregister,
	.queue_create = pl_sim_queue_create,
	.queue_destroy = pl_sim_queue_destroy,
	.mark_create = pl_sim_mark_create,
	.mark_destroy = pl_sim_mark_destroy,
	.copy = pl_sim_queue_copy,
	.mark_done = pl_sim_mark_done,
	.stream_key = pl_sim_stream_key,
	.stream_call = pl_sim_stream_call,
	.stream_hold = pl_sim_stream_hold,
	.count = sim_count,
	.info = sim_info,
	.alloc = pl_sim_mem_alloc,
	.free = pl_sim_mem_free,
	.copy_sync = pl_sim_stream_copy,
	.stream_create = pl_sim_stream_create,
	.stream_destroy = pl_sim_stream_destroy,
	.stream_sync = pl_sim_stream_sync,
	.launch = pl_sim_stream_launch,
	.inject = sim_inject,
};
