// SPDX-License-Identifier: MIT
/* What can go wrong with streams that a kernel serves: refusals, time-outs, closing, fallbacks. */
#include "fake/serve_fixture.h"

static size_t all_bytes = ROOM;
static off_t start;

static int read_all(uint64_t addr, ssize_t *result, void *stream)
{
	return peerlane_read_async(file, to(addr), &all_bytes, &start, result, stream, 0);
}

/* A context of its own in which the stream and the memory are. */
static void with_stream(void (*test)(uint64_t addr, void *stream))
{
	uint64_t addr = gpu_alloc(ROOM);
	void *stream = stream_make();

	test(addr, stream);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

static void assert_works(uint64_t addr, void *stream)
{
	ssize_t result = -1;

	assert_int_equal(cu.cuMemsetD8Async(addr, 0, ROOM, stream), 0);
	assert_int_equal(read_all(addr, &result, stream), 0);
	sync_stream(stream);
	assert_int_equal(result, ROOM);
	assert_like_file(addr, 0, ROOM);
}

/* ------------------------------------------------------------------ refusals */

static void launch_refused(uint64_t addr, void *stream)
{
	ssize_t result = 12345, other = 12345;

	open_context(0, 0, 0);
	assert_works(addr, stream);
	/* Nothing was queued, and the result is not touched. */
	for (unsigned int i = 0; i < 50; i++) {
		inject("cuLaunchKernel:0:700:2");
		assert_int_equal(read_all(addr, &result, stream), -EREMOTEIO);
		assert_int_equal(read_all(addr, &other, stream), -EREMOTEIO);
		inject(NULL);
		assert_works(addr, stream);
	}
	close_context();
	assert_int_equal(result, 12345);
	assert_int_equal(other, 12345);
}

static void test_launch_refused(void **state)
{
	(void)state;
	with_stream(launch_refused);
}

/* ------------------------------------------------------------------ the other way */

static void held(uint64_t addr, void *stream)
{
	strict(0);
	open_context(PEERLANE_NO_KERNELS, 0, 0);
	assert_works(addr, stream);
	assert_works(addr, NULL);
	close_context();
	/* The driver does not take our kernel. */
	inject("cuModuleLoadData:0:218");
	open_context(0, 0, 0);
	assert_works(addr, stream);
	close_context();
	inject("cuMemHostAlloc:1:2:1");
	open_context(0, 0, 0);
	assert_works(addr, stream);
	assert_works(addr, stream);
	inject(NULL);
	close_context();
}

static void test_held(void **state)
{
	(void)state;
	with_stream(held);
}

/* Memory of another context than the stream's: no kernel on the stream can reach it. */
static void other_context(uint64_t addr, void *stream)
{
	void *second, *there, *gpu1;
	uint64_t far;
	ssize_t result = -1;

	strict(0);
	open_context(0, 0, 0);
	assert_works(addr, stream);
	assert_int_equal(cu.cuCtxCreate_v2(&second, 0, 0), 0);
	there = stream_make();
	assert_int_equal(read_all(addr, &result, there), 0);
	sync_stream(there);
	assert_int_equal(result, ROOM);
	assert_int_equal(cu.cuStreamDestroy_v2(there), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_like_file(addr, 0, ROOM);
	assert_int_equal(cu.cuCtxCreate_v2(&gpu1, 0, 1), 0);
	far = gpu_alloc(ROOM);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	/* Back and forth on one stream. */
	assert_int_equal(read_all(far, &result, stream), 0);
	assert_works(addr, stream);
	assert_int_equal(result, ROOM);
	assert_int_equal(cu.cuCtxPushCurrent_v2(gpu1), 0);
	assert_like_file(far, 0, ROOM);
	assert_int_equal(cu.cuMemFree_v2(far), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	close_context();
	assert_int_equal(cu.cuCtxDestroy_v2(gpu1), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(second), 0);
}

static void test_other_context(void **state)
{
	(void)state;
	with_stream(other_context);
}

/* ------------------------------------------------------------------ time-outs */

/* The kernel does not copy: the request is given up, and what was posted is never done. */
static void stalled(uint64_t addr, void *stream)
{
	ssize_t result = 0;

	open_context(0, MIB, 600);
	assert_works(addr, stream);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(cu.cuMemsetD8Async(addr, 0xa5, ROOM, stream), 0);
		strict(FAKE_STRICT_CALLS | FAKE_STALL);
		if (i < 2)
			assert_int_equal(read_all(addr, &result, stream), 0);
		else
			assert_int_equal(peerlane_write_async(file, to(addr), &all_bytes, &start,
							      &result, stream, 0),
					 0);
		sync_stream(stream);
		strict(FAKE_STRICT_CALLS);
		assert_int_equal(result, -ETIMEDOUT);
		assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, addr, ROOM), 0);
		for (size_t k = 0; k < ROOM; k++)
			if (scratch[k] != 0xa5)
				fail_msg("byte %zu was written after all", k);
	}
	/* The lanes come back. */
	for (unsigned int i = 0; i < 8; i++)
		assert_works(addr, stream);
	close_context();
}

static void test_stalled(void **state)
{
	(void)state;
	with_stream(stalled);
}

/* ------------------------------------------------------------------ closing */

static void close_waits(uint64_t addr, void *stream)
{
	struct gate gate = { .after_ms = 100 };
	ssize_t results[3] = { 0 };
	pthread_t thread;

	open_context(0, 0, 20000);
	assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(read_all(addr, &results[i], stream), 0);
	assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
	file = NULL;
	close_context();
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(results[i], ROOM);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_like_file(addr, 0, ROOM);
}

static void test_close_waits(void **state)
{
	(void)state;
	with_stream(close_waits);
}

/* The stream comes to its requests when the context is long closed. */
static void close_gives_up(uint64_t addr, void *stream)
{
	struct gate gate = { 0 };
	ssize_t results[3] = { 0 };

	open_context(0, 0, 100);
	assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(read_all(addr, &results[i], stream), 0);
	file = NULL;
	close_context();
	gate_open(&gate);
	sync_stream(stream);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(results[i], -ECANCELED);
}

static void test_close_gives_up(void **state)
{
	(void)state;
	with_stream(close_gives_up);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(launch_refused),
		TEST(held),
		TEST(other_context),
		TEST(stalled),
		TEST(close_waits),
		cmocka_unit_test_setup_teardown(test_close_gives_up, setup, teardown_left_behind),
	};

	return RUN_TESTS(tests);
}
