// SPDX-License-Identifier: MIT
/* Reads on streams in steps: more of them under way than there are workers. */
#include "fake/ahead_fixture.h"

#include "pool.h"
#include "stream.h"

#define NR_STREAMS 16u /* more than there are workers for them */

struct many {
	void *streams[NR_STREAMS];
	ssize_t results[NR_STREAMS];
	uint64_t addr;
	struct gate gate;
};

/* One read on each stream, read ahead; they wait at a gate. */
static void many_queue(struct many *m)
{
	m->addr = gpu_alloc(NR_STREAMS * CALL);
	m->gate = (struct gate){ 0 };
	assert_int_equal(cu.cuMemsetD8Async(m->addr, 0xa5, NR_STREAMS * CALL, NULL), 0);
	sync_stream(NULL);
	for (unsigned int i = 0; i < NR_STREAMS; i++) {
		off_t at = (off_t)(i * CALL);

		m->results[i] = -1;
		m->streams[i] = stream_make();
		assert_int_equal(cu.cuLaunchHostFunc(m->streams[i], wait_at_gate, &m->gate), 0);
		read_call(m->addr + i * CALL, &at, &m->results[i], m->streams[i]);
	}
	/* Time for all to be read ahead. */
	nap_ms(200);
}

/* ...and then for the GPU, which copies nothing, see @how. */
static void many_start_as(struct many *m, unsigned int how)
{
	many_queue(m);
	strict(how);
	gate_open(&m->gate);
}

static void many_start(struct many *m)
{
	many_start_as(m, FAKE_STRICT_CALLS | FAKE_STALL);
}

static void many_end(struct many *m, ssize_t result)
{
	for (unsigned int i = 0; i < NR_STREAMS; i++) {
		sync_stream(m->streams[i]);
		assert_int_equal(m->results[i], result);
		assert_int_equal(cu.cuStreamDestroy_v2(m->streams[i]), 0);
	}
	strict(FAKE_STRICT_CALLS);
	if (result > 0) {
		assert_like_file(m->addr, 0, NR_STREAMS * CALL);
	} else {
		assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, m->addr, NR_STREAMS * CALL), 0);
		for (size_t k = 0; k < NR_STREAMS * CALL; k++)
			if (scratch[k] != 0xa5)
				fail_msg("byte %zu was written after all", k);
	}
	assert_int_equal(cu.cuMemFree_v2(m->addr), 0);
}

/* More copies are under way than there are workers to wait for them. */
static void test_more_than_workers(void **state)
{
	unsigned int most = 0;
	struct many m;

	(void)state;
	if (!open_ahead())
		skip();
	many_start(&m);
	for (unsigned int i = 0; i < 5000 && most < NR_STREAMS; i++) {
		unsigned int now = (unsigned int)stats().in_flight;

		most = now > most ? now : most;
		nap_ms(1);
	}
	assert_int_equal(most, NR_STREAMS);
	assert_in_range(stats().threads, 1, 6 + pl_stream_threads());
	strict(FAKE_STRICT_CALLS);
	many_end(&m, CALL);
	assert_int_equal(stats().in_flight, 0);
	close_context();
}

/* Work that waits for something for long, as a disk would. */
struct slow {
	int begun, open; /* atomic */
};

static int slow_begin(void *arg, struct pl_stream_what *what)
{
	struct slow *w = arg;

	*what = (struct pl_stream_what){ 0 };
	__atomic_fetch_add(&w->begun, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&w->open, __ATOMIC_ACQUIRE))
		nap_ms(1);
	return 0;
}

static void slow_end(void *arg, ssize_t n, size_t p2p)
{
	(void)arg;
	(void)n;
	(void)p2p;
}

static const struct pl_stream_work slow_work = { slow_begin, slow_end };

/* Of a read whose copy has ended the stream is told, though others that wait for something could use all workers. */
static void test_beside_slow_ones(void **state)
{
	struct slow slow = { 0, 0 };
	void *streams[PL_STREAM_THREADS + 4];
	struct many m;
	bool queued;

	(void)state;
	if (!open_ahead())
		skip();
	many_start(&m);
	while (stats().in_flight < NR_STREAMS)
		nap_ms(1);
	for (unsigned int i = 0; i < PL_STREAM_THREADS + 4; i++) {
		streams[i] = stream_make();
		assert_int_equal(pl_stream_run(file, PEERLANE_READ, to(m.addr), 0, 0, streams[i],
					       &slow_work, &slow, &queued),
				 0);
	}
	while (__atomic_load_n(&slow.begun, __ATOMIC_RELAXED) < (int)pl_stream_threads() - 1)
		nap_ms(1);
	nap_ms(50);
	strict(FAKE_STRICT_CALLS);
	/* The end of a copy is seen, and then the result is told. */
	for (unsigned int i = 0; i < 10000 && stats().in_flight; i++)
		nap_ms(1);
	assert_int_equal(stats().in_flight, 0);
	__atomic_store_n(&slow.open, 1, __ATOMIC_RELEASE);
	many_end(&m, CALL);
	for (unsigned int i = 0; i < PL_STREAM_THREADS + 4; i++) {
		sync_stream(streams[i]);
		assert_int_equal(cu.cuStreamDestroy_v2(streams[i]), 0);
	}
	assert_int_equal(slow.begun, PL_STREAM_THREADS + 4);
	close_context();
}

/* Copies that never come to an end are given up, and what they use is kept from others until their kernels have
 * gone. */
static void test_given_up(void **state)
{
	struct many m;
	uint64_t addr;

	(void)state;
	open_quiet_for(0, 0, 600);
	many_start(&m);
	many_end(&m, -ETIMEDOUT);
	assert_int_equal(stats().in_flight, 0);
	addr = gpu_alloc(NR_CALLS * CALL);
	for (unsigned int i = 0; i < 4; i++)
		read_all(1, addr);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	close_context();
}

/* A copy that was given up begins after all: it finds what it was to copy, nobody uses the lane for other data. */
static void test_late_copies(void **state)
{
	off_t other = NR_STREAMS * CALL;
	uint64_t addr;
	struct many m;

	(void)state;
	open_quiet_for(0, 0, 600);
	addr = gpu_alloc(CALL);
	many_start_as(&m, FAKE_LATE);
	while (stats().in_flight < NR_STREAMS)
		nap_ms(1);
	while (stats().in_flight)
		nap_ms(1);
	/* As if there were no other lanes. */
	pl_pool_reclaim(ctx);
	for (unsigned int i = 0; i < 8; i++) {
		off_t at = other + (i % 2) * (off_t)CALL;

		assert_int_equal(peerlane_read(file, to(addr), CALL, at), CALL);
		assert_like_file(addr, at, CALL);
	}
	for (unsigned int i = 0; i < NR_STREAMS; i++) {
		sync_stream(m.streams[i]);
		assert_int_equal(m.results[i], -ETIMEDOUT);
		assert_int_equal(cu.cuStreamDestroy_v2(m.streams[i]), 0);
	}
	strict(FAKE_STRICT_CALLS);
	assert_like_file(m.addr, 0, NR_STREAMS * CALL);
	assert_int_equal(cu.cuMemFree_v2(m.addr), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	close_context();
}

/* The context is closed while copies are under way. */
static void test_closed_under_way(void **state)
{
	struct many m;

	(void)state;
	for (unsigned int late = 0; late < 2; late++) {
		open_quiet(0, 0);
		many_start(&m);
		nap_ms(late * 20);
		strict(FAKE_STRICT_CALLS);
		close_context();
		many_end(&m, CALL);
	}
}

/* The context is closed for good while copies are under way: a stream that does not come to its request keeps it
 * from waiting for them. */
static void test_left_under_way(void **state)
{
	struct gate gate = { 0 };
	void *held = stream_make();
	ssize_t result = -1;
	pthread_t thread;
	off_t at = 0;
	struct many m;

	(void)state;
	open_quiet_for(0, 0, 600);
	assert_int_equal(cu.cuLaunchHostFunc(held, wait_at_gate, &gate), 0);
	many_queue(&m);
	read_call(m.addr, &at, &result, held);
	strict(FAKE_STRICT_CALLS | FAKE_STALL);
	m.gate.after_ms = 400;
	assert_int_equal(pthread_create(&thread, NULL, open_later, &m.gate), 0);
	file = NULL;
	close_context();
	assert_int_equal(pthread_join(thread, NULL), 0);
	gate_open(&gate);
	sync_stream(held);
	assert_int_equal(result, -ECANCELED);
	many_end(&m, -ECANCELED);
	assert_int_equal(cu.cuStreamDestroy_v2(held), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(more_than_workers),
		TEST(beside_slow_ones),
		TEST(given_up),
		TEST(late_copies),
		TEST(closed_under_way),
		cmocka_unit_test_setup_teardown(test_left_under_way, setup, teardown_left_behind),
	};

	return RUN_TESTS(tests);
}
