// SPDX-License-Identifier: MIT
/* Many threads share a small pool: no deadlock, no refusal, never more memory than allowed. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define FILE_BYTES (8 * MIB + 99)
#define NR_THREADS 32

struct shared {
	struct peerlane *ctx;
	struct peerlane_file *in, *out;
	size_t max_bytes;
	unsigned int rounds;
	unsigned int nr_failed;
	ssize_t first_error;
};

struct worker {
	pthread_t thread;
	struct shared *s;
	unsigned int id;
};

static void note(struct shared *s, ssize_t n)
{
	if (!__atomic_fetch_add(&s->nr_failed, 1, __ATOMIC_RELAXED))
		s->first_error = n;
}

/* Each thread has a place in the output file of its own. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct shared *s = w->s;
	unsigned int seed = w->id * 7919 + 1;
	void *gpu = NULL;
	ssize_t n;

	if (peerlane_gpu_alloc(s->ctx, 0, s->max_bytes, &gpu)) {
		note(s, -ENOMEM);
		return NULL;
	}
	for (unsigned int i = 0; i < s->rounds; i++) {
		size_t bytes = (size_t)rand_r(&seed) % s->max_bytes + 1;
		off_t offset = (off_t)((size_t)rand_r(&seed) % (FILE_BYTES - bytes));

		n = peerlane_read(s->in, gpu, bytes, offset);
		if (n != (ssize_t)bytes || sim_gpu_differs(s->ctx, gpu, bytes, offset, 1) != bytes)
			note(s, n);
		n = peerlane_write(s->out, gpu, bytes, (off_t)(w->id * 8 * MIB) + offset, 0);
		if (n != (ssize_t)bytes)
			note(s, n);
	}
	peerlane_gpu_free(s->ctx, gpu);
	return NULL;
}

static void crowd(struct peerlane_options *opt, const char *env, size_t max_bytes)
{
	struct worker workers[NR_THREADS];
	struct shared s = { .max_bytes = max_bytes, .rounds = sim_slow() ? 4 : 12 };
	struct peerlane_stats st;

	sim_alarm(50);
	sim_env(env);
	s.ctx = sim_open_with(opt);
	sim_chill(sim_path("in"));
	s.in = sim_file(s.ctx, sim_path("in"), O_RDONLY);
	s.out = sim_file(s.ctx, sim_make_file("out", 0, 0), O_RDWR);
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		workers[i].s = &s;
		workers[i].id = i;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	st = sim_stats(s.ctx);
	if (s.nr_failed)
		fail_msg("%u failed, one with %zd", s.nr_failed, s.first_error);
	assert_in_range(st.pool_bytes, 1, st.pool_limit);
	assert_in_range(st.pool_peak, st.pool_bytes, st.pool_limit);
	assert_int_equal(st.in_flight, 0);
	assert_int_equal(st.read.ok, NR_THREADS * s.rounds);
	assert_int_equal(st.write.ok, NR_THREADS * s.rounds);
	assert_int_equal(peerlane_file_close(s.in), 0);
	sim_close(s.ctx, s.out, NULL);
	alarm(0);
}

static int group_setup(void **state)
{
	if (sim_group_setup(state))
		return -1;
	sim_make_file("in", FILE_BYTES, 1);
	return 0;
}

static void smallest(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB };

	(void)state;
	crowd(&opt, "", MIB);
}

static void smallest_slow_copies(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB, .nr_threads = 4 };

	(void)state;
	crowd(&opt, "SIM_ASYNC=100", 256 * KIB);
}

static void smallest_no_ring(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB, .flags = PEERLANE_NO_IO_URING };

	(void)state;
	crowd(&opt, "", 256 * KIB);
}

/* Small requests only: as many as there are lanes of either size. */
static void small_requests(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB };

	(void)state;
	crowd(&opt, "", 8 * KIB);
}

/* Slots as large as half the pool are allowed, so a request must find one: also beside others. */
static void large_slots(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB, .slot_bytes = 512 * KIB };

	(void)state;
	crowd(&opt, "", 4 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(smallest),	    sim_test(smallest_slow_copies),
		sim_test(smallest_no_ring), sim_test(small_requests),
		sim_test(large_slots),
	};

	return cmocka_run_group_tests(tests, group_setup, sim_group_teardown) ? 1 : 0;
}
