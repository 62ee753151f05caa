// SPDX-License-Identifier: MIT
/* Copies that go together: who goes with whom, what an error does to whom, and that nobody is forgotten. The GPU is
 * played by this program. */
#include "context.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define MANY 20u
#define MOST 16u /* that go as one list */
#define NR_THREADS 8u
#define NR_RIDES 400u

struct pl_queue {
	int made;
};

struct pl_mark {
	struct pl_copy list[MOST];
	unsigned int nr, polls;
	bool set;
};

/* What the played GPU does, and what it was given. */
static struct {
	int create_err, copy_err, mark_err;
	bool stuck;	    /* no list ends */
	unsigned int polls; /* how often a list is asked about before it ends */
	unsigned int sizes[64], nr_lists, nr_copies, queues, marks;
} gpu;

static int queue_create(struct pl_gpu *g, void *owner, struct pl_queue **out)
{
	(void)g;
	(void)owner;
	if (gpu.create_err)
		return gpu.create_err;
	*out = calloc(1, sizeof(**out));
	gpu.queues++;
	return 0;
}

static void queue_destroy(struct pl_gpu *g, struct pl_queue *q)
{
	(void)g;
	free(q);
	gpu.queues--;
}

static int mark_create(struct pl_gpu *g, struct pl_queue *q, struct pl_mark **out)
{
	(void)g;
	(void)q;
	*out = calloc(1, sizeof(**out));
	gpu.marks++;
	return 0;
}

static void mark_destroy(struct pl_gpu *g, struct pl_mark *m)
{
	(void)g;
	free(m);
	gpu.marks--;
}

static int copy(struct pl_gpu *g, struct pl_queue *q, enum pl_dir dir, const struct pl_copy *list,
		unsigned int nr, struct pl_mark *m)
{
	(void)g;
	(void)q;
	assert_int_equal(dir, PL_TO_GPU);
	assert_in_range(nr, 1, MOST);
	if (gpu.nr_lists < 64)
		gpu.sizes[gpu.nr_lists] = nr;
	gpu.nr_lists++;
	gpu.nr_copies += nr;
	memcpy(m->list, list, nr * sizeof(list[0]));
	m->nr = gpu.copy_err ? 0 : nr;
	m->polls = 0;
	m->set = true;
	return gpu.copy_err;
}

static int mark_done(struct pl_gpu *g, struct pl_mark *m)
{
	(void)g;
	/* Before the driver has the list its mark would tell of an older one. */
	assert_true(m->set);
	if (__atomic_load_n(&gpu.mark_err, __ATOMIC_RELAXED))
		return gpu.mark_err;
	if (__atomic_load_n(&gpu.stuck, __ATOMIC_RELAXED) || m->polls++ < gpu.polls)
		return 0;
	for (unsigned int i = 0; i < m->nr; i++)
		memcpy(m->list[i].dst, m->list[i].src, m->list[i].bytes);
	m->set = false;
	return 1;
}

static const struct pl_gpu_ops played = {
	.name = "played",
	.queue_create = queue_create,
	.queue_destroy = queue_destroy,
	.mark_create = mark_create,
	.mark_destroy = mark_destroy,
	.copy = copy,
	.mark_done = mark_done,
};

static struct pl_gpu played_gpu = { .ops = &played };
static struct peerlane ctx = { .gpu = &played_gpu };
static struct pl_convoy *convoy;
static uint32_t from[MANY], to[MANY];
static struct pl_ride rides[MANY];

static int setup(void **state)
{
	(void)state;
	memset(&gpu, 0, sizeof(gpu));
	memset(to, 0, sizeof(to));
	for (unsigned int i = 0; i < MANY; i++) {
		from[i] = i + 1;
		rides[i].copy =
			(struct pl_copy){ .dst = &to[i], .src = &from[i], .bytes = sizeof(to[i]) };
	}
	pl_convoys_init(&ctx.convoys);
	convoy = pl_convoy_get(&ctx, &ctx);
	return convoy ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	pl_convoys_fini(&ctx, false);
	return gpu.queues || gpu.marks ? -1 : 0;
}

static void join(unsigned int first, unsigned int last)
{
	for (unsigned int i = first; i <= last; i++)
		pl_convoy_join(convoy, &rides[i]);
}

static void assert_over(unsigned int first, unsigned int last, int err)
{
	for (unsigned int i = first; i <= last; i++) {
		for (int k = 0; k < 1000 && !pl_convoy_over(convoy, &rides[i]); k++)
			;
		assert_true(pl_convoy_over(convoy, &rides[i]));
		assert_int_equal(rides[i].err, err);
		assert_int_equal(to[i], err ? 0 : i + 1);
	}
}

static void test_alone(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, 0);
	assert_int_equal(gpu.nr_lists, 1);
	assert_false(pl_convoy_over(convoy, &rides[0]));
	gpu.stuck = false;
	assert_over(0, 0, 0);
	/* To another GPU context others go. */
	assert_ptr_equal(pl_convoy_get(&ctx, &ctx), convoy);
	assert_ptr_not_equal(pl_convoy_get(&ctx, &gpu), convoy);
}

/* One is under way, one is behind it, the others wait and go as one. */
static void test_together(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, 9);
	assert_int_equal(gpu.nr_lists, 2);
	for (unsigned int i = 0; i < 10; i++)
		assert_false(pl_convoy_over(convoy, &rides[i]));
	gpu.stuck = false;
	assert_over(0, 9, 0);
	assert_int_equal(gpu.nr_lists, 3);
	assert_int_equal(gpu.sizes[2], 8);
}

static void test_too_many(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, MANY - 1);
	gpu.stuck = false;
	assert_over(0, MANY - 1, 0);
	assert_int_equal(gpu.nr_lists, 4);
	assert_int_equal(gpu.sizes[2], MOST);
	assert_int_equal(gpu.sizes[3], MANY - 2 - MOST);
}

static void nap_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	nanosleep(&ts, NULL);
}

/* Once it is known what a copy takes, nobody goes before the one under way is nearly done. */
static void test_in_time(void **state)
{
	static char big[MIB], gpu_big[MIB];
	uint64_t began;

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		rides[i].copy = (struct pl_copy){ .dst = gpu_big, .src = big, .bytes = MIB };
	gpu.stuck = true;
	join(0, 0);
	nap_ms(400);
	gpu.stuck = false;
	assert_true(pl_convoy_over(convoy, &rides[0]));
	gpu.stuck = true;
	began = pl_now_ns();
	join(1, 2);
	nap_ms(150);
	assert_false(pl_convoy_over(convoy, &rides[2]));
	if (pl_now_ns() - began < 300000000)
		assert_int_equal(gpu.nr_lists, 2);
	/* What it takes was learnt from a nap, which may have been longer. */
	for (unsigned int i = 0; i < 600 && gpu.nr_lists == 2; i++) {
		nap_ms(10);
		assert_false(pl_convoy_over(convoy, &rides[2]));
	}
	assert_int_equal(gpu.nr_lists, 3);
	gpu.stuck = false;
	assert_true(pl_convoy_over(convoy, &rides[1]));
	assert_true(pl_convoy_over(convoy, &rides[2]));
}

/* One ride is under way that will take minutes, by what is known of the rate. */
static void long_ride(void)
{
	static char big[MIB], gpu_big[MIB];

	gpu.stuck = true;
	join(0, 0);
	nap_ms(2);
	gpu.stuck = false;
	assert_over(0, 0, 0);
	gpu.copy_err = -EFAULT;
	/* Copies that are refused say nothing about it, and nobody is left waiting. */
	for (unsigned int i = 1; i < MANY; i++) {
		join(i, i);
		assert_over(i, i, -EFAULT);
	}
	gpu.copy_err = 0;
	rides[0].copy = (struct pl_copy){ .dst = gpu_big, .src = big, .bytes = MIB };
	gpu.stuck = true;
	join(0, 0);
}

/* Who has gone or has left is not counted among those who wait: enough of these would not wait for the end of the list
 * under way. */
static void test_count(void **state)
{
	unsigned int lists;

	(void)state;
	long_ride();
	lists = gpu.nr_lists;
	join(1, 1);
	assert_int_equal(gpu.nr_lists, lists);
	for (unsigned int i = 0; i < 2 * MOST; i++) {
		join(2, 2);
		assert_false(pl_convoy_leave(convoy, &rides[2]));
	}
	join(3, 3);
	assert_int_equal(gpu.nr_lists, lists);
	/* So many do not wait. */
	join(4, MOST + 1);
	assert_int_equal(gpu.nr_lists, lists + 1);
	assert_int_equal(gpu.sizes[lists], MOST);
	gpu.stuck = false;
	assert_over(1, 1, 0);
	assert_over(3, MOST + 1, 0);
}

/* A list that is refused: those in it are told, others go on. */
static void test_refused(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, 1);
	gpu.copy_err = -EFAULT;
	join(2, 5);
	gpu.stuck = false;
	assert_over(0, 1, 0);
	assert_over(2, 5, -EFAULT);
	gpu.copy_err = 0;
	join(6, 7);
	assert_over(6, 7, 0);
	assert_ptr_equal(pl_convoy_get(&ctx, &ctx), convoy);
}

/* The GPU context is gone: nobody waits for ever, and nobody comes again. */
static void test_failed(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, 5);
	gpu.mark_err = -EREMOTEIO;
	assert_over(0, 5, -EREMOTEIO);
	assert_int_equal(gpu.nr_lists, 2);
	assert_null(pl_convoy_get(&ctx, &ctx));
	join(6, 6);
	assert_over(6, 6, -EREMOTEIO);
	assert_int_equal(gpu.nr_lists, 2);
}

static void test_no_queue(void **state)
{
	(void)state;
	gpu.create_err = -EREMOTEIO;
	assert_null(pl_convoy_get(&ctx, &gpu));
	gpu.create_err = 0;
	assert_non_null(pl_convoy_get(&ctx, &gpu));
}

/* Who leaves before it began is never copied, and the others do not mind. */
static void test_leave(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, 5);
	assert_false(pl_convoy_leave(convoy, &rides[3]));
	assert_false(pl_convoy_leave(convoy, &rides[5]));
	join(6, 6);
	gpu.stuck = false;
	assert_over(0, 2, 0);
	assert_over(4, 4, 0);
	assert_over(6, 6, 0);
	assert_int_equal(to[3], 0);
	assert_int_equal(to[5], 0);
	assert_int_equal(gpu.nr_copies, 5);
}

/* Who leaves later may still be copied until its list has passed. The queue does not get on: nobody else waits for it. */
static void test_leave_stuck(void **state)
{
	(void)state;
	gpu.stuck = true;
	join(0, 5);
	assert_true(pl_convoy_leave(convoy, &rides[0]));
	assert_over(2, 5, -ECANCELED);
	assert_null(pl_convoy_get(&ctx, &ctx));
	assert_false(pl_convoy_over(convoy, &rides[1]));
	assert_true(pl_convoy_leave(convoy, &rides[1]));
	assert_false(pl_convoy_passed(convoy, 1));
	/* They are not looked at any more. */
	memset(&rides[0], 0xff, 2 * sizeof(rides[0]));
	join(6, 6);
	assert_over(6, 6, -EREMOTEIO);
	gpu.stuck = false;
	assert_true(pl_convoy_passed(convoy, 1));
	assert_true(pl_convoy_passed(convoy, 2));
	assert_int_equal(to[0], 1);
	assert_int_equal(to[1], 2);
	assert_int_equal(gpu.nr_copies, 2);
}

/* Of one that is over, the other side may be gone. */
static void test_leave_late(void **state)
{
	(void)state;
	join(0, 0);
	assert_over(0, 0, 0);
	assert_false(pl_convoy_leave(convoy, &rides[0]));
	memset(&rides[0], 0xff, sizeof(rides[0]));
	gpu.stuck = true;
	join(1, 1);
	assert_true(pl_convoy_leave(convoy, &rides[1]));
}

struct rider {
	pthread_t thread;
	unsigned int id;
	uint32_t wrong;
};

static void *ride_on(void *arg)
{
	struct rider *r = arg;

	for (uint32_t i = 1; i <= NR_RIDES; i++) {
		uint32_t src = r->id << 16 | i, dst = 0;
		struct pl_ride ride = { .copy = {
						.dst = &dst, .src = &src, .bytes = sizeof(dst) } };

		pl_convoy_join(convoy, &ride);
		while (!pl_convoy_over(convoy, &ride))
			sched_yield();
		r->wrong += ride.err || dst != src;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct rider riders[NR_THREADS];

	(void)state;
	gpu.polls = 3;
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		riders[i] = (struct rider){ .id = i };
		assert_int_equal(pthread_create(&riders[i].thread, NULL, ride_on, &riders[i]), 0);
	}
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		pthread_join(riders[i].thread, NULL);
		assert_int_equal(riders[i].wrong, 0);
	}
	assert_int_equal(gpu.nr_copies, NR_THREADS * NR_RIDES);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(alone),	   TEST(together),   TEST(too_many), TEST(in_time),
		TEST(refused),	   TEST(failed),     TEST(no_queue), TEST(leave),
		TEST(leave_stuck), TEST(leave_late), TEST(threads),  TEST(count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
