// SPDX-License-Identifier: MIT
/* Batches of reads and writes, several files, GPUs and host memory, on several threads. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define NR 96
#define EACH (128 * KIB)

/* Where request @i finds its memory: two GPUs and the host in turn. */
struct memory {
	char *gpu[2];
	char *host;
};

static void memory_open(struct memory *m, struct peerlane *ctx)
{
	for (int i = 0; i < 2; i++) {
		void *p = NULL;

		assert_int_equal(peerlane_gpu_alloc(ctx, i, NR * EACH, &p), 0);
		m->gpu[i] = p;
	}
	m->host = aligned_alloc(4096, NR * EACH);
	assert_non_null(m->host);
}

static void memory_close(struct memory *m, struct peerlane *ctx)
{
	assert_int_equal(peerlane_gpu_free(ctx, m->gpu[0]), 0);
	assert_int_equal(peerlane_gpu_free(ctx, m->gpu[1]), 0);
	free(m->host);
}

static char *memory_at(const struct memory *m, size_t i)
{
	return (i % 3 == 2 ? m->host : m->gpu[i % 3]) + i * EACH;
}

/* Requests over @files: even ones read file i % nr, odd ones write to the output. */
static void plan(struct peerlane_io *io, const struct memory *m, struct peerlane_file *const *in,
		 struct peerlane_file *out, bool small)
{
	for (uintptr_t i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){
			.file = i % 2 ? out : in[i / 2 % 3],
			.addr = memory_at(m, i) + i % 7,
			.bytes = small ? i * 37 % 5000 : i * 2741 % (EACH - 8),
			.offset = (off_t)(i * EACH + i % 11),
			.op = i % 2 ? PEERLANE_WRITE : PEERLANE_READ,
			.flags = i % 16 == 1 ? PEERLANE_DURABLE : 0,
			.cookie = (void *)i,
		};
}

static void mixed(const char *env, int file_flags, bool small)
{
	struct peerlane_file *in[3], *out;
	struct peerlane_event events[NR];
	struct peerlane_batch *batch;
	struct peerlane_io io[NR];
	struct peerlane *ctx;
	struct memory m;
	char name[8];

	sim_env(env);
	ctx = sim_open(0);
	memory_open(&m, ctx);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "in%u", i);
		in[i] = sim_file(ctx, sim_make_file(name, NR * EACH, i), O_RDONLY | file_flags);
	}
	out = sim_file(ctx, sim_make_file("out", 0, 0), O_RDWR | file_flags);
	assert_int_equal(peerlane_batch_create(ctx, NR, &batch), 0);
	plan(io, &m, in, out, small);
	for (size_t i = 1; i < NR; i += 2)
		sim_gpu_pattern(ctx, io[i].addr, io[i].bytes, io[i].offset, 9);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	assert_int_equal(peerlane_batch_wait(batch, NR, events, NR, NULL), NR);
	for (int k = 0; k < NR; k++) {
		uintptr_t i = (uintptr_t)events[k].cookie;

		assert_int_equal(events[k].result, io[i].bytes);
		if (i % 2)
			sim_assert_file(sim_path("out"), io[i].offset, io[i].bytes, 9);
		else
			sim_assert_gpu(ctx, io[i].addr, io[i].bytes, io[i].offset,
				       (unsigned int)(i / 2 % 3));
	}
	peerlane_batch_destroy(batch);
	memory_close(&m, ctx);
	peerlane_close(ctx);
}

static void mixed_modes(void **state)
{
	(void)state;
	for (int small = 0; small < 2; small++) {
		mixed("SIM_GPUS=2", 0, small);
		mixed("SIM_GPUS=2 SIM_ASYNC=200", 0, small);
		mixed("SIM_GPUS=2 POOL_BYTES=1M THREADS=4", 0, small);
		mixed("SIM_GPUS=2 SIM_BAR=1", 0, small);
		mixed("SIM_GPUS=2", O_DIRECT, small);
		mixed("SIM_GPUS=2 FLAGS=no-io-uring", O_DIRECT, small);
	}
}

/* --- a batch of its own for each thread, and one for all --- */

struct crowd {
	struct peerlane *ctx;
	struct peerlane_file *file;
	struct peerlane_batch *common;
	unsigned int collected, submitted;
	unsigned int seen[8 * NR];
};

struct member {
	pthread_t thread;
	struct crowd *c;
	unsigned int id;
	bool bad;
};

static void *own_batch(void *arg)
{
	struct member *m = arg;
	struct peerlane_batch *batch = NULL;
	struct peerlane_event events[NR];
	struct peerlane_io io[NR];
	void *gpu = NULL;

	m->bad |= peerlane_gpu_alloc(m->c->ctx, 0, NR * 8 * KIB, &gpu) != 0;
	m->bad |= peerlane_batch_create(m->c->ctx, NR, &batch) != 0;
	for (int round = 0; round < 20 && !m->bad; round++) {
		unsigned char seen[NR] = { 0 };
		int got = 0, n;

		for (uintptr_t i = 0; i < NR; i++)
			io[i] = (struct peerlane_io){ .file = m->c->file,
						      .addr = (char *)gpu + i * 8 * KIB,
						      .bytes = 8 * KIB,
						      .offset = (off_t)((i + m->id) % NR * 8 * KIB),
						      .cookie = (void *)i };
		m->bad |= peerlane_batch_submit(batch, io, NR) != 0;
		while (got < NR && !m->bad) {
			n = peerlane_batch_wait(batch, 1, events, NR, NULL);
			m->bad |= n < 1;
			for (int i = 0; i < n; i++)
				m->bad |= events[i].result != 8 * KIB ||
					  seen[(uintptr_t)events[i].cookie]++;
			got += n;
		}
		for (uintptr_t i = 0; i < NR; i++)
			m->bad |= sim_gpu_differs(m->c->ctx, io[i].addr, 8 * KIB, io[i].offset,
						  1) != 8 * KIB;
	}
	peerlane_batch_destroy(batch);
	peerlane_gpu_free(m->c->ctx, gpu);
	return NULL;
}

/* All submit to one batch and all collect from it: each cookie comes out once, somewhere. */
static void *common_batch(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->c;
	struct peerlane_event events[16];
	char host[NR * 64];
	int n;

	for (unsigned int i = 0; i < NR; i += 16) {
		struct peerlane_io io[16];

		for (unsigned int k = 0; k < 16; k++)
			io[k] = (struct peerlane_io){ .file = c->file,
						      .addr = host + (i + k) * 64,
						      .bytes = 64,
						      .cookie = (void *)(uintptr_t)(m->id * NR + i +
										    k) };
		m->bad |= peerlane_batch_submit(c->common, io, 16) != 0;
		while (__atomic_load_n(&c->collected, __ATOMIC_ACQUIRE) < 8 * NR) {
			n = peerlane_batch_wait(c->common, 0, events, 16, NULL);
			for (int k = 0; k < n; k++) {
				m->bad |= events[k].result != 64;
				__atomic_fetch_add(&c->seen[(uintptr_t)events[k].cookie], 1,
						   __ATOMIC_RELAXED);
				__atomic_fetch_add(&c->collected, 1, __ATOMIC_RELEASE);
			}
			if (!n)
				break;
		}
	}
	while (__atomic_load_n(&c->collected, __ATOMIC_ACQUIRE) < 8 * NR) {
		const struct timespec moment = { .tv_nsec = 1000000 };

		n = peerlane_batch_wait(c->common, 1, events, 16, &moment);
		m->bad |= n < 0;
		for (int k = 0; k < n; k++) {
			m->bad |= events[k].result != 64;
			__atomic_fetch_add(&c->seen[(uintptr_t)events[k].cookie], 1,
					   __ATOMIC_RELAXED);
			__atomic_fetch_add(&c->collected, 1, __ATOMIC_RELEASE);
		}
	}
	return NULL;
}

static void crowd_run(void *(*fn)(void *), const char *env)
{
	struct crowd c = { .collected = 0 };
	struct member members[8];

	sim_alarm(50);
	sim_env(env);
	c.ctx = sim_open(0);
	c.file = sim_file(c.ctx, sim_make_file("crowd", NR * 8 * KIB, 1), O_RDONLY);
	assert_int_equal(peerlane_batch_create(c.ctx, 8 * NR, &c.common), 0);
	for (unsigned int i = 0; i < 8; i++) {
		members[i] = (struct member){ .c = &c, .id = i };
		assert_int_equal(pthread_create(&members[i].thread, NULL, fn, &members[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(members[i].thread, NULL), 0);
		assert_false(members[i].bad);
	}
	for (unsigned int i = 0; fn == common_batch && i < 8 * NR; i++)
		assert_int_equal(c.seen[i], 1);
	assert_int_equal(sim_stats(c.ctx).in_flight, 0);
	peerlane_batch_destroy(c.common);
	peerlane_close(c.ctx);
	alarm(0);
}

static void own_batches(void **state)
{
	(void)state;
	crowd_run(own_batch, "");
	crowd_run(own_batch, "SIM_ASYNC=50 POOL_BYTES=1M THREADS=4");
}

static void one_batch(void **state)
{
	(void)state;
	crowd_run(common_batch, "");
	crowd_run(common_batch, "THREADS=4");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(mixed_modes),
		sim_test(own_batches),
		sim_test(one_batch),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
