// SPDX-License-Identifier: MIT
/* Several threads read one cached file from front to back in turns, and their copies go together: each gets what is
 * its own, also when copies fail, when memory of one was freed, and when the GPU hangs. */
#include "sim/ahead_rig.h"

#include <pthread.h>

#define ENV "THREADS=6"
#define NR_THREADS 4u
#define NR_CALLS ((unsigned int)(BYTES / CALL))
#define ROUNDS 4u

struct reader {
	pthread_t thread;
	struct rig *rig;
	char *gpu;
	unsigned int *next; /* call, of all rounds; atomic */
	int expect;	    /* errno of those that fail; 0: none does */
	int err;	    /* the first that was not expected */
	bool wrong;
	uint64_t failed;
	off_t late; /* the call that was given up; -1: none was */
};

static void *read_in_turn(void *arg)
{
	struct reader *me = arg;
	struct peerlane *ctx = me->rig->ctx;
	char *back = malloc(CALL), *model = malloc(CALL);
	unsigned int i;

	while (back && model &&
	       (i = __atomic_fetch_add(me->next, 1, __ATOMIC_RELAXED)) < ROUNDS * NR_CALLS) {
		off_t at = (off_t)(i % NR_CALLS * CALL);
		ssize_t n = peerlane_read(me->rig->file, me->gpu, CALL, at);

		me->failed += n != (ssize_t)CALL;
		if (n < 0 && -n != me->expect)
			me->err = (int)-n;
		/* After a time-out the GPU may still write there. */
		if (n == -ETIMEDOUT) {
			me->late = at;
			break;
		}
		if (n < 0)
			continue;
		/* A fault that was put in may hit this copy, too. */
		if (peerlane_gpu_copy(ctx, back, me->gpu, CALL)) {
			me->failed++;
			continue;
		}
		/* What is said to be there is there. */
		sim_pattern(model, CALL, at, 1);
		me->wrong |= memcmp(back, model, (size_t)n) != 0;
	}
	free(back);
	free(model);
	return NULL;
}

static void readers_start(struct reader *all, struct rig *r, unsigned int *next, unsigned int first,
			  int expect)
{
	*next = first;
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		all[i] = (struct reader){ .rig = r, .next = next, .expect = expect, .late = -1 };
		all[i].gpu = sim_alloc(r->ctx, CALL);
	}
	for (unsigned int i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_create(&all[i].thread, NULL, read_in_turn, &all[i]), 0);
}

static void readers_end(struct reader *all, struct rig *r)
{
	for (unsigned int i = 0; i < NR_THREADS; i++)
		pthread_join(all[i].thread, NULL);
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		assert_int_equal(all[i].err, 0);
		assert_false(all[i].wrong);
		assert_int_equal(peerlane_gpu_free(r->ctx, all[i].gpu), 0);
	}
}

static void in_turns(void **state)
{
	static const char *const envs[] = { ENV, ENV " SIM_ASYNC=300", ENV " POOL_BYTES=8M" };
	struct reader readers[NR_THREADS];
	unsigned int next;
	struct rig r;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		start(&r, true, envs[i]);
		readers_start(readers, &r, &next, 0, 0);
		readers_end(readers, &r);
		assert_in_range(ahead(&r), BYTES / 2, ROUNDS * BYTES + BYTES);
		rig_close(&r);
	}
}

/* A copy that fails with others is made again the ordinary way. Only there it is the reader's: at most one of them. */
static void failing_copies(void **state)
{
	static const char *const envs[] = { ENV, ENV " SIM_ASYNC=200" };
	struct reader readers[NR_THREADS];
	unsigned int next;
	struct rig r;

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		uint64_t failed = 0;

		start(&r, true, envs[i]);
		assert_int_equal(peerlane_sim_inject(r.ctx, "copy", 10, 1), 0);
		readers_start(readers, &r, &next, 0, EREMOTEIO);
		readers_end(readers, &r);
		for (unsigned int k = 0; k < NR_THREADS; k++)
			failed += readers[k].failed;
		assert_in_range(failed, 0, 1);
		rig_close(&r);
	}
}

/* One thread's memory goes away under it: it alone is told. */
static void freed_memory(void **state)
{
	static const char *const envs[] = { ENV, ENV " SIM_ASYNC=200" };
	struct reader good[NR_THREADS], bad;
	unsigned int next;
	struct rig r;
	void *gone;

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		start(&r, true, envs[i]);
		gone = sim_alloc(r.ctx, CALL);
		assert_int_equal(peerlane_buffer_register(r.ctx, gone, CALL, 0), 0);
		assert_int_equal(peerlane_gpu_free(r.ctx, gone), 0);
		bad = (struct reader){ .rig = &r, .gpu = gone, .next = &next, .expect = EFAULT };
		readers_start(good, &r, &next, 0, 0);
		assert_int_equal(pthread_create(&bad.thread, NULL, read_in_turn, &bad), 0);
		readers_end(good, &r);
		pthread_join(bad.thread, NULL);
		assert_int_equal(bad.err, 0);
		for (unsigned int k = 0; k < NR_THREADS; k++)
			assert_int_equal(good[k].failed, 0);
		peerlane_buffer_release(r.ctx, gone);
		rig_close(&r);
	}
}

/*
 * A list that hangs: its readers are told in time, the others go on without it. What the GPU might still read is kept
 * from others: when the copies come at last, they are what they should have been.
 */
static void hanging_list(const char *env)
{
	struct peerlane_options opt = { .timeout_ms = sim_slow() ? 4000 : 1000 };
	struct reader readers[NR_THREADS], others[NR_THREADS];
	unsigned int next, late = 0;
	struct rig r;

	rig_open_with(&r, true, env, &opt);
	read_calls(&r, 0, 8);
	if (!ahead(&r)) {
		rig_close(&r);
		skip();
	}
	assert_int_equal(peerlane_sim_inject(r.ctx, "hang", 0, 1), 0);
	readers_start(readers, &r, &next, 8, ETIMEDOUT);
	for (unsigned int i = 0; i < NR_THREADS; i++)
		pthread_join(readers[i].thread, NULL);
	readers_start(others, &r, &next, 0, 0);
	readers_end(others, &r);
	assert_int_equal(peerlane_sim_inject(r.ctx, "hang", 0, 0), 0);
	/* Long enough for all of them: nobody is told when they have come. */
	sim_nap_ms(sim_slow() ? 2000 : 400);
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		assert_int_equal(readers[i].err, 0);
		assert_false(readers[i].wrong);
		late += readers[i].late >= 0;
		/* At least the first piece of it. */
		if (readers[i].late >= 0)
			sim_assert_gpu(r.ctx, readers[i].gpu, 128 * KIB, readers[i].late, 1);
		assert_int_equal(peerlane_gpu_free(r.ctx, readers[i].gpu), 0);
	}
	assert_in_range(late, 1, NR_THREADS);
	read_calls(&r, 0, NR_CALLS);
	rig_close(&r);
}

static void hanging(void **state)
{
	(void)state;
	hanging_list(ENV " SIM_ASYNC=200");
	/* So few lanes that those given up are wanted back. */
	hanging_list(ENV " SIM_ASYNC=200 POOL_BYTES=1M");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(in_turns),
		sim_test(failing_copies),
		sim_test(freed_memory),
		sim_test(hanging),
	};

	sim_alarm(200);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
