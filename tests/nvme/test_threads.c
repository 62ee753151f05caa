// SPDX-License-Identifier: MIT
/*
 * Many threads on two controllers: each drives its own queue, some run admin commands and map memory, one
 * resets. Every I/O is reported once, with its data or as lost.
 */
#include "nvme_test.h"

#include <pthread.h>
#include <sched.h>

#define NR_THREADS 4u
#define NR_IO 3000u

struct worker {
	pthread_t thread;
	struct env *e;
	unsigned int index;
	unsigned int nr_ok, nr_lost, nr_wrong;
};

static unsigned int nr_running;

static void *work(void *arg)
{
	struct worker *w = arg;
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 16 + w->index };
	struct peerlane_nvme_completion done[8];
	unsigned int taken = 0, nr_done = 0;
	unsigned char *seen = calloc(NR_IO, 1);
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	int rc;
	char *mem;

	/* It may be reset just then, which loses the command. */
	while (peerlane_nvme_queue_create(w->e->nvme, &qopt, &q))
		sched_yield();
	if (peerlane_nvme_map_alloc(w->e->nvme, 64 * 4096, (void **)&mem, &map))
		abort();
	while (nr_done < NR_IO) {
		struct peerlane_nvme_io io = {
			.opcode = PL_NVME_READ,
			.ns = w->e->ns[1],
			.lba = (taken * 7 + w->index) % 256,
			.nr_blocks = 1 + taken % 3 * 20, /* some are split */
			.map = map,
			.user = taken,
		};

		rc = taken < NR_IO ? peerlane_nvme_submit(q, &io, 1) : -EAGAIN;
		if (rc == 1) {
			taken++;
			continue;
		}
		w->nr_wrong += rc != -EAGAIN;
		rc = peerlane_nvme_wait(q, done, 1, 8, -1);
		w->nr_wrong += rc < 0;
		for (int i = 0; i < rc; i++, nr_done++) {
			w->nr_wrong += seen[done[i].user]++;
			w->nr_ok += !done[i].err;
			w->nr_lost += done[i].err == -ECONNRESET;
		}
	}
	peerlane_nvme_queue_destroy(q);
	peerlane_nvme_unmap(map);
	free(seen);
	__atomic_sub_fetch(&nr_running, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void run(struct env *e, unsigned int nr_envs, bool resets)
{
	struct worker workers[2 * NR_THREADS] = { 0 };
	unsigned int nr = nr_envs * NR_THREADS, lost = 0, turns = 0;
	uint32_t value;
	int rc;

	nr_running = nr;
	for (unsigned int i = 0; i < nr; i++) {
		workers[i].e = &e[i / NR_THREADS];
		workers[i].index = i;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	while (__atomic_load_n(&nr_running, __ATOMIC_RELAXED)) {
		struct env *one = &e[turns % nr_envs];

		rc = peerlane_nvme_get_feature(one->nvme, PL_NVME_FEAT_POWER, 0, 0, &value);
		assert_int_equal(rc, 0);
		if (resets && turns < 60)
			assert_int_equal(peerlane_nvme_reset(one->nvme), 0);
		assert_true(peerlane_nvme_events(one->nvme, NULL, 0) >= 0);
		turns++;
		sched_yield();
	}
	for (unsigned int i = 0; i < nr; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].nr_wrong, 0);
		assert_int_equal(workers[i].nr_ok + workers[i].nr_lost, NR_IO);
		lost += workers[i].nr_lost;
	}
	if (!resets)
		assert_int_equal(lost, 0);
}

static void test_threads(void **state)
{
	struct env e[2] = { { .f = fake_new() }, { .f = fake_new() } };

	(void)state;
	env_open(&e[0], NULL, NULL);
	env_open(&e[1], NULL, NULL);
	run(e, 2, false);
	assert_int_equal(env_info(&e[0]).nr_bad_completions, 0);
	env_close(&e[0]);
	env_close(&e[1]);
}

static void test_resets(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, NULL, NULL);
	run(&e, 1, true);
	assert_true(env_info(&e).nr_resets > 0);
	assert_int_equal(env_info(&e).dead, 0);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_resets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
