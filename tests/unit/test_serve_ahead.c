// SPDX-License-Identifier: MIT
/* Reads that are queued on streams are known before their time comes, and are read ahead. What was read ahead is
 * given out only if it is what the file has when the stream gets there. */
#include "fake/ahead_fixture.h"

#include "stream.h"

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
	struct gate gate = { 0 };
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

/* By somebody, or by us; @synced: and written back. */
static void change_start(bool by_us, bool synced)
{
	int again = open_again(O_RDWR);
	struct peerlane_file *other;

	if (by_us) {
		assert_int_equal(peerlane_file_from_fd(ctx, again, &other), 0);
		assert_int_equal(peerlane_write(other, pattern, 200, 0, 0), 200);
		assert_int_equal(peerlane_file_close(other), 0);
	} else {
		assert_int_equal(pwrite(again, pattern, 200, 0), 200);
	}
	if (synced)
		assert_int_equal(fdatasync(again), 0);
	close(again);
}

/* The file is changed while the stream waits, with the first of its reads done ahead. */
static void test_changed(void **state)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL);
	struct gate gate = { 0 };
	void *stream = stream_make();
	ssize_t results[4];

	(void)state;
	for (unsigned int how = 0; how < 4; how++) {
		open_quiet(0, 0);
		gate = (struct gate){ 0 };
		assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
		for (unsigned int i = 0; i < 4; i++) {
			off_t at = (off_t)(i * CALL);

			read_call(addr + i * CALL, &at, &results[i], stream);
		}
		/* Time for the first one to be read ahead. */
		nap_ms(100);
		memset(pattern + 100, 0x31 + (int)how, 50);
		change_start(how & 1, how & 2);
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
	struct peerlane_file *other;
	void *stream = stream_make();
	int again;

	(void)state;
	open_quiet(0, 0);
	again = open_again(O_RDWR);
	assert_int_equal(peerlane_file_from_fd(ctx, again, &other), 0);
	close(again);
	for (unsigned int i = 0; i < NR_CALLS; i++) {
		off_t at = (off_t)(i * CALL);

		if (i % 3 == 2) {
			assert_int_equal(
				cu.cuMemsetD8Async(from, (unsigned char)(0x40 + i), CALL, stream),
				0);
			assert_int_equal(peerlane_write_async(other, to(from), &bytes, &at,
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
	assert_int_equal(peerlane_file_close(other), 0);
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
	struct gate gate = { 0 };
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(queued),	      TEST(waiting),	   TEST(switched_off), TEST(changed),
		TEST(writes_between), TEST(wrong_guesses), TEST(closed),       TEST(not_pinned),
	};

	return RUN_TESTS(tests);
}
