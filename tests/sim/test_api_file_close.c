// SPDX-License-Identifier: MIT
/* Closing a file under I/O: waits for it, or refuses when the time is up; nothing is cut off. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define BYTES (4 * MIB)

static struct peerlane *ctx;
static struct peerlane_file *file;
static char *gpu;
static ssize_t read_result;

static void open_all(const char *env, unsigned int timeout_ms)
{
	struct peerlane_options opt = { .timeout_ms = timeout_ms };

	sim_env(env);
	ctx = sim_open_with(&opt);
	file = sim_file(ctx, sim_make_file("close", BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
}

static void close_all(void)
{
	assert_int_equal(sim_stats(ctx).in_flight, 0);
	assert_int_equal(sim_stats(ctx).files, 0);
	sim_close(ctx, NULL, gpu);
}

static void *reader(void *arg)
{
	(void)arg;
	read_result = peerlane_read(file, gpu, BYTES, 0);
	return NULL;
}

static pthread_t start_reader(void)
{
	struct peerlane_stats st;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, reader, NULL), 0);
	do {
		sched_yield();
		st = sim_stats(ctx);
	} while (!st.in_flight && !st.read.ok && !st.read.failed);
	sim_nap_ms(5);
	return thread;
}

static void waits_for_read(void **state)
{
	pthread_t thread;

	(void)state;
	open_all("SIM_ASYNC=100000", 20000);
	thread = start_reader();
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(sim_gpu_differs(ctx, gpu, BYTES, 0, 1), BYTES);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(read_result, BYTES);
	assert_int_equal(peerlane_read(file, gpu, 1, 0), -EBADF);
	close_all();
}

/* Each copy takes less than the time-out, all of them more. */
static void refuses_in_the_end(void **state)
{
	pthread_t thread;

	(void)state;
	open_all("SIM_ASYNC=600000 POOL_BYTES=1M", 1000);
	thread = start_reader();
	assert_int_equal(peerlane_file_close(file), -EBUSY);
	sim_assert_error(-EBUSY, "did not end");
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(read_result, BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	/* It is still open. */
	assert_int_equal(peerlane_read(file, gpu, 10, 0), 10);
	assert_int_equal(peerlane_file_close(file), 0);
	close_all();
}

static void waits_for_batch(void **state)
{
	struct peerlane_event events[8];
	struct peerlane_batch *batch;
	struct peerlane_io io[8];

	(void)state;
	open_all("SIM_ASYNC=20000", 20000);
	assert_int_equal(peerlane_batch_create(ctx, 8, &batch), 0);
	for (size_t i = 0; i < 8; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + i * (BYTES / 8),
					      .bytes = BYTES / 8,
					      .offset = (off_t)(i * (BYTES / 8)) };
	assert_int_equal(peerlane_batch_submit(batch, io, 8), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	/* All of them were done, none was turned away. */
	assert_int_equal(peerlane_batch_wait(batch, 8, events, 8, NULL), 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(events[i].result, BYTES / 8);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	peerlane_batch_destroy(batch);
	close_all();
}

static void slow_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	(void)args;
	sim_nap_ms(100);
}

/* A request a stream has not come to yet is in flight too: it was accepted. */
static void waits_for_stream(void **state)
{
	const struct peerlane_kernel kernel = { .name = "slow", .ptx = "", .host = slow_kernel };
	size_t bytes = BYTES;
	off_t offset = 0;
	ssize_t result = 0;
	void *stream;

	(void)state;
	open_all("", 20000);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, NULL, NULL, 0), 0);
	assert_int_equal(peerlane_read_async(file, gpu, &bytes, &offset, &result, stream, 0), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(result, BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	peerlane_gpu_stream_destroy(ctx, stream);
	close_all();
}

/* --- many threads that read, and one that closes under them --- */

static void *read_until_closed(void *arg)
{
	uintptr_t i = (uintptr_t)arg;
	ssize_t n;

	do {
		n = peerlane_read(file, gpu + i * (BYTES / 8), BYTES / 8, (off_t)(i * (BYTES / 8)));
	} while (n == (ssize_t)(BYTES / 8));
	return (void *)(uintptr_t)(n != -EBADF);
}

static void under_threads(void **state)
{
	pthread_t threads[8];
	void *bad;

	(void)state;
	open_all("", 20000);
	for (int round = 0; round < 20; round++) {
		for (uintptr_t i = 0; i < 8; i++)
			assert_int_equal(
				pthread_create(&threads[i], NULL, read_until_closed, (void *)i), 0);
		sim_nap_ms(3);
		assert_int_equal(peerlane_file_close(file), 0);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(pthread_join(threads[i], &bad), 0);
			assert_null(bad);
		}
		file = sim_file(ctx, sim_path("close"), O_RDWR);
	}
	assert_int_equal(peerlane_file_close(file), 0);
	close_all();
}

/* Of many that close the same file one does. */
static void *closer(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)peerlane_file_close(file);
}

static void closed_once(void **state)
{
	pthread_t threads[8];
	int closed;
	void *res;

	(void)state;
	open_all("", 20000);
	for (int round = 0; round < 50; round++) {
		closed = 0;
		for (int i = 0; i < 8; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, closer, NULL), 0);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(pthread_join(threads[i], &res), 0);
			assert_true(!res || (intptr_t)res == -EBADF);
			closed += !res;
		}
		assert_int_equal(closed, 1);
		file = sim_file(ctx, sim_path("close"), O_RDWR);
	}
	assert_int_equal(peerlane_file_close(file), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(waits_for_read),   sim_test(refuses_in_the_end), sim_test(waits_for_batch),
		sim_test(waits_for_stream), sim_test(under_threads),	  sim_test(closed_once),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
