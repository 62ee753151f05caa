// SPDX-License-Identifier: MIT
/* Reads that are queued on streams are known before their time comes, and are read ahead. What was read ahead is
 * given out only if it is what the file has when the stream gets there. */
#include "fake/serve_fixture.h"

#include "lane.h"
#include "stream.h"

#define CALL (256 * KIB) /* shorter ones are not read ahead */
#define NR_CALLS (ROOM / CALL)

/* A file that was last changed a while ago and has nothing to be written back. */
static void open_quiet(unsigned int flags, size_t pool)
{
	setenv("PEERLANE_THREADS", "6", 1);
	open_context(flags, pool, 0);
	assert_int_equal(fdatasync(fd), 0);
	nap_ms(120);
}

static void read_call(uint64_t addr, const off_t *offset, ssize_t *result, void *stream)
{
	static const size_t bytes = CALL;

	assert_int_equal(
		peerlane_read_async(file, to(addr), &bytes, offset, result, stream, PEERLANE_FIXED),
		0);
}

/* All calls spread over @nr streams, queued at once, from the last to the first: nobody could guess that. Returns what
 * was read ahead of it. */
static uint64_t read_all(unsigned int nr, uint64_t addr)
{
	uint64_t before = stats().ahead_bytes;
	ssize_t results[NR_CALLS];
	struct gate gate = { 0, 0 };
	void *streams[8];

	assert_int_equal(cu.cuMemsetD8Async(addr, 0xee, NR_CALLS * CALL, NULL), 0);
	sync_stream(NULL);
	for (unsigned int i = 0; i < nr; i++) {
		streams[i] = stream_make();
		assert_int_equal(cu.cuLaunchHostFunc(streams[i], wait_at_gate, &gate), 0);
	}
	for (unsigned int i = 0; i < NR_CALLS; i++) {
		off_t at = (off_t)((NR_CALLS - 1 - i) * CALL);

		results[i] = -1;
		read_call(addr + (uint64_t)at, &at, &results[i], streams[i % nr]);
	}
	gate_open(&gate);
	for (unsigned int i = 0; i < nr; i++) {
		sync_stream(streams[i]);
		assert_int_equal(cu.cuStreamDestroy_v2(streams[i]), 0);
	}
	for (unsigned int i = 0; i < NR_CALLS; i++)
		assert_int_equal(results[i], CALL);
	assert_like_file(addr, 0, NR_CALLS * CALL);
	return stats().ahead_bytes - before;
}

static void test_queued(void **state)
{
	static const size_t pools[] = { 0, 8 * MIB };
	uint64_t addr = gpu_alloc(NR_CALLS * CALL);

	(void)state;
	for (unsigned int p = 0; p < 2; p++) {
		open_quiet(0, pools[p]);
		for (unsigned int nr = 1; nr <= 8; nr *= 2) {
			uint64_t got = read_all(nr, addr);

			if (!stats().ahead_bytes) {
				print_message("nothing is read ahead on this file system\n");
				close_context();
				assert_int_equal(cu.cuMemFree_v2(addr), 0);
				skip();
			}
			/* With few lanes there may be none for a while. */
			assert_in_range(got, p ? 1 : NR_CALLS / 2 * CALL, NR_CALLS * CALL);
		}
		close_context();
	}
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* A stream that has still to come to its read: it is done by then. */
static void test_waiting(void **state)
{
	uint64_t addr = gpu_alloc(CALL);
	struct gate gate = { 0, 0 };
	void *stream = stream_make();
	ssize_t result = -1;
	off_t at = CALL;

	(void)state;
	open_quiet(0, 0);
	assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
	read_call(addr, &at, &result, stream);
	nap_ms(100);
	gate_open(&gate);
	sync_stream(stream);
	assert_int_equal(result, CALL);
	assert_like_file(addr, at, CALL);
	assert_int_equal(stats().ahead_bytes, CALL);
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

static void test_switched_off(void **state)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL);

	(void)state;
	open_quiet(PEERLANE_NO_AHEAD, 0);
	read_all(2, addr);
	assert_int_equal(stats().ahead_bytes, 0);
	close_context();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* The file is changed by somebody while the stream waits, with the first of its reads done ahead. */
static void test_changed(void **state)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL);
	struct gate gate = { 0, 0 };
	void *stream = stream_make();
	ssize_t results[4];

	(void)state;
	for (unsigned int synced = 0; synced < 2; synced++) {
		open_quiet(0, 0);
		gate = (struct gate){ 0, 0 };
		assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
		for (unsigned int i = 0; i < 4; i++) {
			off_t at = (off_t)(i * CALL);

			read_call(addr + i * CALL, &at, &results[i], stream);
		}
		/* Time for the first one to be read ahead. */
		nap_ms(100);
		memset(pattern + 100, 0x31 + (int)synced, 50);
		assert_int_equal(pwrite(fd, pattern, 200, 0), 200);
		if (synced)
			assert_int_equal(fdatasync(fd), 0);
		gate_open(&gate);
		sync_stream(stream);
		assert_like_file(addr, 0, 4 * CALL);
		close_context();
	}
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* Each read sees what the stream wrote before it. */
static void test_writes_between(void **state)
{
	uint64_t from = gpu_alloc(CALL), addr = gpu_alloc(NR_CALLS * CALL);
	ssize_t wrote[NR_CALLS], results[NR_CALLS];
	const size_t bytes = CALL;
	void *stream = stream_make();

	(void)state;
	open_quiet(0, 0);
	for (unsigned int i = 0; i < NR_CALLS; i++) {
		off_t at = (off_t)(i * CALL);

		if (i % 3 == 2) {
			assert_int_equal(
				cu.cuMemsetD8Async(from, (unsigned char)(0x40 + i), CALL, stream),
				0);
			assert_int_equal(peerlane_write_async(file, to(from), &bytes, &at,
							      &wrote[i], stream, PEERLANE_FIXED),
					 0);
			memset(pattern + at, 0x40 + (int)i, CALL);
		}
		read_call(addr + i * CALL, &at, &results[i], stream);
	}
	sync_stream(stream);
	for (unsigned int i = 0; i < NR_CALLS; i++)
		assert_int_equal(results[i], CALL);
	assert_like_file(addr, 0, NR_CALLS * CALL);
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	assert_int_equal(cu.cuMemFree_v2(from), 0);
}

struct guess {
	off_t at;
	ssize_t n;
};

static int read_elsewhere(void *arg, struct pl_stream_what *what)
{
	struct guess *g = arg;

	*what = (struct pl_stream_what){ .bytes = CALL, .offset = g->at };
	return 0;
}

static void note_count(void *arg, ssize_t n, size_t p2p)
{
	struct guess *g = arg;

	(void)p2p;
	g->n = n;
}

static const struct pl_stream_work elsewhere = { read_elsewhere, note_count };

/* What was announced is not what is read: nothing is wrong, and right ones are still read ahead later on. */
static void test_wrong_guesses(void **state)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL);
	struct guess guesses[200];
	void *stream = stream_make();
	uint64_t got = 0;
	bool queued;

	(void)state;
	open_quiet(0, 0);
	for (unsigned int i = 0; i < 200; i++) {
		guesses[i].at = (off_t)(i % NR_CALLS * CALL);
		assert_int_equal(pl_stream_run(file, PEERLANE_READ, to(addr), CALL,
					       guesses[i].at + (off_t)i + 1, stream, &elsewhere,
					       &guesses[i], &queued),
				 0);
		if (i % 16 == 15) {
			sync_stream(stream);
			assert_like_file(addr, guesses[i].at, CALL);
		}
	}
	sync_stream(stream);
	for (unsigned int i = 0; i < 200; i++)
		assert_int_equal(guesses[i].n, CALL);
	for (unsigned int i = 0; i < 6; i++)
		got = read_all(1, addr);
	assert_in_range(got, NR_CALLS / 2 * CALL, NR_CALLS * CALL);
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* The file is let go while requests wait that were read ahead. */
static void test_closed(void **state)
{
	uint64_t addr = gpu_alloc(4 * CALL);
	struct gate gate = { 0, 0 };
	void *stream = stream_make();
	ssize_t results[4];

	(void)state;
	open_quiet(0, 0);
	assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
	for (unsigned int i = 0; i < 4; i++) {
		off_t at = (off_t)(i * CALL);

		read_call(addr + i * CALL, &at, &results[i], stream);
	}
	nap_ms(50);
	gate_open(&gate);
	close_context();
	sync_stream(stream);
	assert_like_file(addr, 0, 4 * CALL);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* ------------------------------------------------------------------ several under way */

#define NR_STREAMS 16u /* more than there are workers for them */

struct many {
	void *streams[NR_STREAMS];
	ssize_t results[NR_STREAMS];
	uint64_t addr;
	struct gate gate;
};

/* One read on each stream, read ahead; the GPU copies nothing. */
static void many_start(struct many *m)
{
	m->addr = gpu_alloc(NR_STREAMS * CALL);
	m->gate = (struct gate){ 0, 0 };
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
	strict(FAKE_STRICT_CALLS | FAKE_STALL);
	gate_open(&m->gate);
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

/* Whether files are read ahead at all, here. */
static bool reads_ahead(void)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL), got = read_all(1, addr);

	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	return got;
}

/* More copies are under way than there are workers to wait for them. */
static void test_more_than_workers(void **state)
{
	unsigned int most = 0;
	struct many m;

	(void)state;
	open_quiet(0, 0);
	if (!reads_ahead()) {
		close_context();
		skip();
	}
	many_start(&m);
	for (unsigned int i = 0; i < 5000 && most < NR_STREAMS; i++) {
		unsigned int now = (unsigned int)stats().in_flight;

		most = now > most ? now : most;
		nap_ms(1);
	}
	assert_int_equal(most, NR_STREAMS);
	assert_in_range(stats().threads, 1, 6 + PL_STREAM_THREADS);
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
	open_quiet(0, 0);
	if (!reads_ahead()) {
		close_context();
		skip();
	}
	many_start(&m);
	while (stats().in_flight < NR_STREAMS)
		nap_ms(1);
	for (unsigned int i = 0; i < PL_STREAM_THREADS + 4; i++) {
		streams[i] = stream_make();
		assert_int_equal(pl_stream_run(file, PEERLANE_READ, to(m.addr), 0, 0, streams[i],
					       &slow_work, &slow, &queued),
				 0);
	}
	while (__atomic_load_n(&slow.begun, __ATOMIC_RELAXED) < (int)PL_STREAM_THREADS - 1)
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

/* What was read ahead for calls into memory that is not pinned is not for kernels. */
static void test_not_pinned(void **state)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL);
	ssize_t results[NR_CALLS];
	void *stream = stream_make();

	(void)state;
	open_quiet(0, 0);
	/* Enough for the stream to be served, and not for the rest. */
	inject("cuMemHostRegister:2:2:100000,cuMemHostAlloc:2:2:100000");
	for (unsigned int round = 0; round < 4; round++) {
		for (unsigned int i = 0; i < NR_CALLS; i++) {
			off_t at = (off_t)(i * CALL);

			/* In between, what comes next is read ahead for calls. */
			if (i == 2) {
				sync_stream(stream);
				strict(0);
				for (unsigned int k = 2; k < 6; k++)
					assert_int_equal(peerlane_read(file, to(addr + k * CALL),
								       CALL, (off_t)(k * CALL)),
							 CALL);
				strict(FAKE_STRICT_CALLS);
				i = 6;
				at = (off_t)(i * CALL);
			}
			read_call(addr + i * CALL, &at, &results[i], stream);
		}
		sync_stream(stream);
		for (unsigned int i = 6; i < NR_CALLS; i++)
			assert_int_equal(results[i], CALL);
		assert_like_file(addr, 0, NR_CALLS * CALL);
	}
	assert_true(stats().pool_bytes > 0 && stats().pool_failures > 0);
	inject(NULL);
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* Copies that never come to an end are given up, and what they use is kept from others until their kernels have
 * gone. */
static void test_given_up(void **state)
{
	struct many m;

	(void)state;
	setenv("PEERLANE_THREADS", "6", 1);
	open_context(0, 0, 300);
	assert_int_equal(fdatasync(fd), 0);
	nap_ms(120);
	many_start(&m);
	many_end(&m, -ETIMEDOUT);
	assert_int_equal(stats().in_flight, 0);
	for (unsigned int i = 0; i < 4; i++)
		reads_ahead();
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(queued),	  TEST(waiting),	   TEST(switched_off),
		TEST(changed),	  TEST(writes_between),	   TEST(wrong_guesses),
		TEST(closed),	  TEST(more_than_workers), TEST(beside_slow_ones),
		TEST(not_pinned), TEST(given_up),	   TEST(closed_under_way),
	};

	return RUN_TESTS(tests);
}
