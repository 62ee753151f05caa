// SPDX-License-Identifier: MIT
/* Registered buffers: refusals, bounds, nesting, release under I/O, memory freed under us. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <sys/mman.h>

#define BYTES (4 * MIB)

static struct peerlane *ctx;
static struct peerlane_file *file;
static char *gpu;

static void open_all(const char *env, unsigned int timeout_ms)
{
	struct peerlane_options opt = { .timeout_ms = timeout_ms };

	sim_env(env);
	ctx = sim_open_with(&opt);
	file = sim_file(ctx, sim_make_file("buffer", BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
}

static void close_all(void)
{
	sim_close(ctx, file, gpu);
}

static void refusals(void **state)
{
	char host[100];

	(void)state;
	open_all("", 0);
	assert_int_equal(peerlane_buffer_register(NULL, gpu, 1, 0), -EINVAL);
	assert_int_equal(peerlane_buffer_register(ctx, NULL, 1, 0), -EINVAL);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 0, 0), -EINVAL);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 1, 1), -EINVAL);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES + 1, 0), -EFAULT);
	assert_int_equal(peerlane_buffer_register(ctx, gpu + 1, BYTES, 0), -EFAULT);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, SIZE_MAX, 0), -EOVERFLOW);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, SIZE_MAX - (uintptr_t)gpu, 0), -EFAULT);
	assert_int_equal(peerlane_buffer_release(NULL, gpu), -EINVAL);
	assert_int_equal(peerlane_buffer_release(ctx, NULL), -ENOENT);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), -ENOENT);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), 0);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), -EEXIST);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 1, 0), -EEXIST);
	assert_int_equal(peerlane_buffer_release(ctx, gpu + 1), -ENOENT);
	assert_int_equal(sim_stats(ctx).buffers, 1);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), -ENOENT);
	assert_int_equal(peerlane_buffer_register(ctx, host, sizeof(host), 0), 0);
	assert_int_equal(peerlane_read(file, host, sizeof(host), 0), sizeof(host));
	assert_int_equal(peerlane_read(file, host, sizeof(host) + 1, 0), -ERANGE);
	assert_int_equal(peerlane_buffer_release(ctx, host), 0);
	assert_int_equal(sim_stats(ctx).buffers, 0);
	close_all();
}

/* "-EFAULT not memory of this process". */
static void not_memory(void **state)
{
	char *hole = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *gone;

	(void)state;
	open_all("", 0);
	gone = sim_alloc(ctx, 4096);
	assert_int_equal(peerlane_gpu_free(ctx, gone), 0);
	assert_int_equal(peerlane_buffer_register(ctx, gone, 4096, 0), -EFAULT);
	assert_int_equal(munmap(hole, BYTES), 0);
	assert_int_equal(peerlane_buffer_register(ctx, hole, BYTES, 0), -EFAULT);
	assert_int_equal(sim_stats(ctx).buffers, 0);
	close_all();
}

/* Several may hold an address; a request must fit into one of them. */
static void nested(void **state)
{
	(void)state;
	open_all("", 0);
	assert_int_equal(peerlane_buffer_register(ctx, gpu + 1000, 100, 0), 0);
	assert_int_equal(peerlane_read(file, gpu + 1000, 101, 0), -ERANGE);
	assert_int_equal(peerlane_read(file, gpu + 999, 101, 0), 101);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, MIB, 0), 0);
	assert_int_equal(peerlane_read(file, gpu + 1000, 101, 0), 101);
	assert_int_equal(peerlane_read(file, gpu + 1000, MIB - 1000, 0), MIB - 1000);
	assert_int_equal(peerlane_read(file, gpu + 1000, MIB - 999, 0), -ERANGE);
	assert_int_equal(peerlane_read(file, gpu + 1050, 100, 0), 100);
	/* Behind the inner one it is still the outer one that counts. */
	assert_int_equal(peerlane_read(file, gpu + 2000, MIB - 2000, 0), MIB - 2000);
	assert_int_equal(peerlane_read(file, gpu + 2000, MIB - 1999, 0), -ERANGE);
	assert_int_equal(peerlane_buffer_register(ctx, gpu + 1050, 2 * MIB, 0), 0);
	assert_int_equal(peerlane_read(file, gpu + 1050, 2 * MIB, 0), 2 * MIB);
	assert_int_equal(peerlane_read(file, gpu + 1040, 2 * MIB, 0), -ERANGE);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	assert_int_equal(peerlane_read(file, gpu + 1000, 101, 0), -ERANGE);
	assert_int_equal(peerlane_read(file, gpu, 2 * MIB, 0), 2 * MIB);
	assert_int_equal(peerlane_buffer_release(ctx, gpu + 1000), 0);
	assert_int_equal(peerlane_buffer_release(ctx, gpu + 1050), 0);
	close_all();
}

/* Very many, in no order, and each with its own bounds. */
static void crowd(void **state)
{
	(void)state;
	open_all("", 0);
	for (unsigned int i = 0; i < 1000; i++)
		assert_int_equal(
			peerlane_buffer_register(ctx, gpu + i * 7919 % 1000 * 4096, 4096, 0), 0);
	assert_int_equal(sim_stats(ctx).buffers, 1000);
	for (unsigned int i = 0; i < 1000; i += 37) {
		assert_int_equal(peerlane_read(file, gpu + i * 4096, 4096, (off_t)i * 4096), 4096);
		assert_int_equal(peerlane_read(file, gpu + i * 4096 + 1, 4096, 0), -ERANGE);
		sim_assert_gpu(ctx, gpu + i * 4096, 4096, (off_t)i * 4096, 1);
	}
	for (unsigned int i = 0; i < 1000; i++)
		assert_int_equal(peerlane_buffer_release(ctx, gpu + i * 104729 % 1000 * 4096), 0);
	assert_int_equal(sim_stats(ctx).buffers, 0);
	/* Closing the context releases what is left. */
	for (unsigned int i = 0; i < 10; i++)
		assert_int_equal(peerlane_buffer_register(ctx, gpu + i, 1, 0), 0);
	close_all();
}

/* --- release while I/O is in flight --- */

static ssize_t read_result;

static void *reader(void *arg)
{
	read_result = peerlane_read(file, gpu, BYTES, 0);
	(void)arg;
	return NULL;
}

/* A thread that reads into the buffer, and has begun. */
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

static void release_waits(void **state)
{
	pthread_t thread;

	(void)state;
	open_all("SIM_ASYNC=100000", 20000);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), 0);
	thread = start_reader();
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	/* It waited: the data is there. */
	assert_int_equal(sim_gpu_differs(ctx, gpu, BYTES, 0, 1), BYTES);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(read_result, BYTES);
	assert_int_equal(sim_stats(ctx).buffers, 0);
	close_all();
}

/* Two contexts would do, but one with a short time-out shows it as well: each copy takes less
 * than the time-out, so the read goes on, but all of them together take longer. */
static void release_is_refused(void **state)
{
	pthread_t thread;

	(void)state;
	open_all("SIM_ASYNC=500000 POOL_BYTES=1M", 3000);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), 0);
	thread = start_reader();
	assert_int_equal(peerlane_buffer_release(ctx, gpu), -EBUSY);
	sim_assert_error(-EBUSY, "did not end");
	/* It is still registered. */
	assert_int_equal(sim_stats(ctx).buffers, 1);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), -EEXIST);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(read_result, BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	close_all();
}

static void release_under_batch(void **state)
{
	struct peerlane_batch *batch;
	struct peerlane_event event;
	struct peerlane_io io;

	(void)state;
	open_all("SIM_ASYNC=50000", 20000);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), 0);
	assert_int_equal(peerlane_batch_create(ctx, 1, &batch), 0);
	io = (struct peerlane_io){ .file = file, .addr = gpu, .bytes = BYTES };
	assert_int_equal(peerlane_batch_submit(batch, &io, 1), 0);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	assert_int_equal(sim_gpu_differs(ctx, gpu, BYTES, 0, 1), BYTES);
	assert_int_equal(peerlane_batch_wait(batch, 1, &event, 1, NULL), 1);
	assert_int_equal(event.result, BYTES);
	peerlane_batch_destroy(batch);
	close_all();
}

/* --- memory freed under us --- */

/* Registered, freed, used: an error, no crash, and the context goes on. */
static void freed(const char *env)
{
	char *gone;

	open_all(env, 2000);
	gone = sim_alloc(ctx, BYTES);
	assert_int_equal(peerlane_buffer_register(ctx, gone, BYTES, 0), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gone), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(peerlane_read(file, gone, BYTES, 0), -EFAULT);
		assert_int_equal(peerlane_read(file, gone + 3, 100, 0), -EFAULT);
		assert_int_equal(peerlane_write(file, gone, BYTES, 0, 0), -EFAULT);
		assert_int_equal(peerlane_write(file, gone + 3, 100, 0, 0), -EFAULT);
	}
	sim_assert_file(sim_path("buffer"), 0, BYTES, 1);
	assert_int_equal(peerlane_buffer_release(ctx, gone), 0);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	close_all();
}

static void freed_under_us(void **state)
{
	(void)state;
	freed("");
	freed("SIM_ASYNC=1");
	freed("SIM_BAR=1");
	freed("POOL_BYTES=1M");
}

/* Freed in the middle of a transfer: what is counted came before it. */
static void freed_in_flight(const char *env, bool write)
{
	pthread_t thread;
	char *gone;

	open_all(env, 2000);
	gone = gpu;
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 1);
	if (write) {
		struct peerlane_batch *batch;
		struct peerlane_event event;
		struct peerlane_io io = {
			.file = file, .addr = gpu, .bytes = BYTES, .op = PEERLANE_WRITE
		};

		assert_int_equal(peerlane_batch_create(ctx, 1, &batch), 0);
		assert_int_equal(peerlane_batch_submit(batch, &io, 1), 0);
		sim_nap_ms(5);
		assert_int_equal(peerlane_gpu_free(ctx, gone), 0);
		assert_int_equal(peerlane_batch_wait(batch, 1, &event, 1, NULL), 1);
		read_result = event.result;
		peerlane_batch_destroy(batch);
	} else {
		thread = start_reader();
		assert_int_equal(peerlane_gpu_free(ctx, gone), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	assert_true(read_result == -EFAULT || (read_result >= 0 && read_result <= (ssize_t)BYTES));
	/* Only the pattern it had can have been written. */
	sim_assert_file(sim_path("buffer"), 0, BYTES, 1);
	gpu = sim_alloc(ctx, BYTES);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	close_all();
}

static void freed_during_io(void **state)
{
	(void)state;
	freed_in_flight("SIM_ASYNC=20000 POOL_BYTES=1M", false);
	freed_in_flight("SIM_ASYNC=20000 POOL_BYTES=1M", true);
	freed_in_flight("SIM_ASYNC=1 POOL_BYTES=1M", false);
	freed_in_flight("POOL_BYTES=1M", true);
	freed_in_flight("SIM_BAR=1", false);
	freed_in_flight("SIM_BAR=1", true);
}

/* Register and release from many threads, with I/O beside. */
static void *churn(void *arg)
{
	uintptr_t i = (uintptr_t)arg, bad = 0;
	char *at = gpu + i * (BYTES / 8);

	for (int k = 0; k < (sim_slow() ? 50 : 300); k++) {
		bad |= peerlane_buffer_register(ctx, at, BYTES / 8, 0) != 0;
		bad |= peerlane_read(file, at, BYTES / 8, (off_t)(i * (BYTES / 8))) !=
		       (ssize_t)(BYTES / 8);
		bad |= peerlane_read(file, at, BYTES / 8 + 1, 0) != -ERANGE;
		bad |= peerlane_buffer_release(ctx, at) != 0;
	}
	return (void *)bad;
}

static void churning(void **state)
{
	pthread_t threads[8];
	void *bad;

	(void)state;
	open_all("", 0);
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)i), 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	assert_int_equal(sim_stats(ctx).buffers, 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(refusals),
		sim_test(not_memory),
		sim_test(nested),
		sim_test(crowd),
		sim_test(release_waits),
		sim_test(release_is_refused),
		sim_test(release_under_batch),
		sim_test(freed_under_us),
		sim_test(freed_during_io),
		sim_test(churning),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
