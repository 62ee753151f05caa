// SPDX-License-Identifier: MIT
/* Cancelling and destroying batches: each event once, and what is counted was done. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define NR 64
#define EACH (256 * KIB)
#define FILLER 0x77

static struct peerlane *ctx;
static struct peerlane_file *file;
static struct peerlane_batch *batch;
static char *gpu;
static struct peerlane_io io[NR];
static int direct;	    /* O_DIRECT or 0 */
static ssize_t each = EACH; /* bytes of a request */

static void open_all(const char *env, enum peerlane_op op)
{
	sim_env(env);
	ctx = sim_open(0);
	file = sim_file(ctx, sim_make_file("cancel", NR * EACH, 1), O_RDWR | direct);
	gpu = sim_alloc(ctx, NR * EACH);
	if (op == PEERLANE_WRITE)
		sim_gpu_pattern(ctx, gpu, NR * EACH, 0, 2);
	else
		sim_gpu_set(ctx, gpu, FILLER, NR * EACH);
	assert_int_equal(peerlane_batch_create(ctx, NR, &batch), 0);
	for (uintptr_t i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + i * EACH,
					      .bytes = (size_t)each,
					      .offset = (off_t)(i * EACH),
					      .op = op,
					      .cookie = (void *)i };
}

static void close_all(void)
{
	struct peerlane_stats st;

	peerlane_batch_destroy(batch);
	st = sim_stats(ctx);
	assert_int_equal(st.in_flight, 0);
	assert_int_equal(st.batches, 0);
	sim_close(ctx, file, gpu);
}

/* Collects all events, checks each against the data, and gives back how many were cancelled. */
static int check_events(enum peerlane_op op)
{
	struct peerlane_event events[NR];
	unsigned char seen[NR] = { 0 };
	int cut = 0, whole = 0;

	assert_int_equal(peerlane_batch_wait(batch, NR, events, NR, NULL), NR);
	for (int k = 0; k < NR; k++) {
		uintptr_t i = (uintptr_t)events[k].cookie;
		ssize_t n = events[k].result;

		assert_in_range(i, 0, NR - 1);
		assert_int_equal(seen[i]++, 0);
		assert_true(n == -ECANCELED || (n > 0 && n <= each));
		cut += n < each;
		whole += n == -ECANCELED;
		if (n > 0 && op == PEERLANE_READ)
			sim_assert_gpu(ctx, io[i].addr, (size_t)n, io[i].offset, 1);
		if (n > 0 && op == PEERLANE_WRITE)
			sim_assert_file(sim_path("cancel"), io[i].offset, (size_t)n, 2);
	}
	assert_int_equal(sim_stats(ctx).cancelled, whole);
	assert_int_equal(peerlane_batch_wait(batch, 1, events, NR, NULL), 0);
	return cut;
}

/* Cancelled after @ms; the number told is the number seen. */
static void cancelled(const char *env, enum peerlane_op op, unsigned int ms)
{
	int told, cut;

	open_all(env, op);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	if (ms)
		sim_nap_ms(ms);
	told = peerlane_batch_cancel(batch);
	cut = check_events(op);
	if (told != cut)
		fail_msg("%s, %s after %u ms: %d told, %d seen", env,
			 op == PEERLANE_READ ? "reads" : "writes", ms, told, cut);
	/* The batch can be used again. */
	assert_int_equal(peerlane_batch_submit(batch, io, 1), 0);
	{
		struct peerlane_event event;

		assert_int_equal(peerlane_batch_wait(batch, 1, &event, 1, NULL), 1);
		assert_int_equal(event.result, each);
	}
	close_all();
}

static void cancelled_reads(void **state)
{
	(void)state;
	cancelled("SIM_ASYNC=3000 POOL_BYTES=1M", PEERLANE_READ, 0);
	cancelled("SIM_ASYNC=3000 POOL_BYTES=1M", PEERLANE_READ, 20);
	cancelled("SIM_ASYNC=20000 POOL_BYTES=4M THREADS=4", PEERLANE_READ, 30);
	cancelled("POOL_BYTES=1M", PEERLANE_READ, 1);
	cancelled("SIM_BAR=1 THREADS=4", PEERLANE_READ, 1);
}

static void cancelled_writes(void **state)
{
	(void)state;
	cancelled("SIM_ASYNC=3000 POOL_BYTES=1M", PEERLANE_WRITE, 0);
	cancelled("SIM_ASYNC=3000 POOL_BYTES=1M", PEERLANE_WRITE, 20);
	cancelled("SIM_ASYNC=20000 POOL_BYTES=4M THREADS=4", PEERLANE_WRITE, 30);
	cancelled("SIM_ASYNC=5000 POOL_BYTES=8M", PEERLANE_WRITE, 12);
	cancelled("POOL_BYTES=1M", PEERLANE_WRITE, 1);
	cancelled("SIM_BAR=1 THREADS=4", PEERLANE_WRITE, 1);
}

/* Writes with O_DIRECT whose ends are not aligned are no part of a job. */
static void cancelled_odd_writes(void **state)
{
	(void)state;
	direct = O_DIRECT;
	each = EACH - 1;
	cancelled("SIM_ASYNC=3000", PEERLANE_WRITE, 0);
	cancelled("SIM_ASYNC=3000", PEERLANE_WRITE, 20);
	cancelled("THREADS=4", PEERLANE_WRITE, 1);
	open_all("SIM_ASYNC=5000", PEERLANE_WRITE);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	assert_true(peerlane_batch_cancel(batch) > 0);
	assert_int_equal(peerlane_batch_cancel(batch), 0);
	check_events(PEERLANE_WRITE);
	close_all();
	direct = 0;
	each = EACH;
}

/* Nothing in flight, everything done, or twice: nothing to cancel. */
static void nothing_to_cancel(void **state)
{
	struct peerlane_event events[NR];

	(void)state;
	open_all("", PEERLANE_READ);
	assert_int_equal(peerlane_batch_cancel(batch), 0);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	assert_int_equal(peerlane_batch_wait(batch, NR, events, NR, NULL), NR);
	assert_int_equal(peerlane_batch_cancel(batch), 0);
	close_all();
	open_all("SIM_ASYNC=5000 POOL_BYTES=1M", PEERLANE_READ);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	assert_true(peerlane_batch_cancel(batch) > 0);
	assert_int_equal(peerlane_batch_cancel(batch), 0);
	check_events(PEERLANE_READ);
	close_all();
}

/* Destroyed with work in flight: when it returns nothing moves any more. */
static void destroyed(const char *env, enum peerlane_op op, unsigned int ms)
{
	char *before = malloc(NR * EACH), *after = malloc(NR * EACH);

	open_all(env, op);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	if (ms)
		sim_nap_ms(ms);
	peerlane_batch_destroy(batch);
	batch = NULL;
	assert_int_equal(peerlane_gpu_copy(ctx, before, gpu, NR * EACH), 0);
	assert_int_equal(sim_stats(ctx).in_flight, 0);
	/* With slow copies most had not started: they were not waited for. */
	if (strstr(env, "SIM_ASYNC"))
		assert_true(sim_stats(ctx).cancelled > 0);
	sim_nap_ms(40);
	assert_int_equal(peerlane_gpu_copy(ctx, after, gpu, NR * EACH), 0);
	assert_memory_equal(before, after, NR * EACH);
	free(before);
	free(after);
	close_all();
}

static void destroyed_in_flight(void **state)
{
	(void)state;
	for (int op = 0; op < 2; op++) {
		destroyed("SIM_ASYNC=10000 POOL_BYTES=1M", (enum peerlane_op)op, 0);
		destroyed("SIM_ASYNC=10000 POOL_BYTES=4M THREADS=4", (enum peerlane_op)op, 15);
		destroyed("SIM_BAR=1", (enum peerlane_op)op, 1);
		destroyed("", (enum peerlane_op)op, 0);
	}
	/* With events nobody collected. */
	open_all("", PEERLANE_READ);
	assert_int_equal(peerlane_batch_submit(batch, io, NR), 0);
	while (sim_stats(ctx).in_flight)
		sim_nap_ms(1);
	close_all();
}

/* --- cancelled by one thread while others wait and submit --- */

static bool stop;

static void *canceller(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		peerlane_batch_cancel(batch);
		sched_yield();
	}
	return NULL;
}

static void under_fire(void **state)
{
	struct peerlane_event events[NR];
	pthread_t threads[2];

	(void)state;
	open_all("SIM_ASYNC=100 POOL_BYTES=1M THREADS=3", PEERLANE_READ);
	stop = false;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, canceller, NULL), 0);
	for (int round = 0; round < (sim_slow() ? 10 : 40); round++) {
		unsigned char seen[NR] = { 0 };

		for (int i = 0; i < NR; i += NR / 4)
			assert_int_equal(peerlane_batch_submit(batch, io + i, NR / 4), 0);
		assert_int_equal(peerlane_batch_wait(batch, NR, events, NR, NULL), NR);
		for (int k = 0; k < NR; k++) {
			uintptr_t i = (uintptr_t)events[k].cookie;

			assert_int_equal(seen[i]++, 0);
			assert_true(events[k].result == -ECANCELED || events[k].result > 0);
			if (events[k].result > 0)
				sim_assert_gpu(ctx, io[i].addr, (size_t)events[k].result,
					       io[i].offset, 1);
		}
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(cancelled_reads),	sim_test(cancelled_writes),
		sim_test(cancelled_odd_writes), sim_test(nothing_to_cancel),
		sim_test(destroyed_in_flight),	sim_test(under_fire),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
