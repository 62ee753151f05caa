// SPDX-License-Identifier: MIT
/* Several contexts in one process, and what is left after many of them: nothing. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define BYTES (3 * MIB + 5)

/* Memory of one context is good in another, files are not. */
static void shared_memory(void **state)
{
	struct peerlane *a = sim_open(0), *b = sim_open(0);
	struct peerlane_file *fa, *fb;
	struct peerlane_batch *batch;
	struct peerlane_io io;
	char *gpu;

	(void)state;
	sim_make_file("shared", BYTES, 1);
	sim_make_file("copy", 0, 0);
	fa = sim_file(a, sim_path("shared"), O_RDONLY);
	fb = sim_file(b, sim_path("copy"), O_RDWR);
	gpu = sim_alloc(a, BYTES);
	assert_int_equal(peerlane_read(fa, gpu, BYTES, 0), BYTES);
	assert_int_equal(peerlane_write(fb, gpu, BYTES, 0, 0), BYTES);
	sim_assert_file(sim_path("copy"), 0, BYTES, 1);
	sim_assert_gpu(b, gpu, BYTES, 0, 1);

	assert_int_equal(peerlane_batch_create(b, 1, &batch), 0);
	io = (struct peerlane_io){ .file = fa, .addr = gpu, .bytes = 1 };
	assert_int_equal(peerlane_batch_submit(batch, &io, 1), -EINVAL);
	sim_assert_error(-EINVAL, "another context");
	peerlane_batch_destroy(batch);

	/* Registrations are the context's own. */
	assert_int_equal(peerlane_buffer_register(a, gpu, 4096, 0), 0);
	assert_int_equal(peerlane_buffer_register(b, gpu, 8192, 0), 0);
	assert_int_equal(peerlane_read(fa, gpu, 8192, 0), -ERANGE);
	assert_int_equal(peerlane_write(fb, gpu, 8192, 0, 0), 8192);
	peerlane_close(a);
	assert_int_equal(peerlane_write(fb, gpu, 8192, 0, 0), 8192);
	/* Memory outlives the context it came from. */
	sim_assert_gpu(b, gpu, BYTES, 0, 1);
	assert_int_equal(peerlane_gpu_free(b, gpu), 0);
	peerlane_close(b);
}

/* Statistics, files and faults are the context's own. */
static void independent(void **state)
{
	struct peerlane *a = sim_open(0), *b = sim_open(0);
	struct peerlane_file *fa, *fb;
	char *gpu = sim_alloc(a, BYTES);

	(void)state;
	sim_make_file("own", BYTES, 2);
	fa = sim_file(a, sim_path("own"), O_RDONLY);
	fb = sim_file(b, sim_path("own"), O_RDONLY);
	assert_int_equal(peerlane_sim_inject(a, "copy", 0, 1000), 0);
	assert_int_equal(peerlane_read(fb, gpu, BYTES, 0), BYTES);
	assert_int_equal(peerlane_read(fa, gpu, BYTES, 0), -EREMOTEIO);
	assert_int_equal(sim_stats(a).read.failed, 1);
	assert_int_equal(sim_stats(a).read.ok, 0);
	assert_int_equal(sim_stats(b).read.ok, 1);
	assert_int_equal(sim_stats(b).read.bytes, BYTES);
	assert_int_equal(sim_stats(b).files, 1);
	assert_int_equal(peerlane_gpu_free(b, gpu), 0);
	peerlane_close(a);
	peerlane_close(b);
}

static void use(unsigned int i)
{
	static const unsigned int flags[] = { 0, PEERLANE_NO_IO_URING, PEERLANE_NO_DIRECT,
					      PEERLANE_SAVE_CPU };
	struct peerlane_options opt = { .flags = flags[i % 4], .pool_bytes = 4 * MIB };
	struct peerlane *ctx = sim_open_with(&opt);
	struct peerlane_file *file = sim_file(ctx, sim_path("many"), O_RDWR);
	char *gpu = sim_alloc(ctx, MIB);
	struct peerlane_batch *batch;
	void *stream;
	size_t bytes = MIB;
	off_t offset = 0;
	ssize_t result = -1;

	assert_int_equal(peerlane_buffer_register(ctx, gpu, MIB, 0), 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), MIB);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	assert_int_equal(peerlane_read_async(file, gpu, &bytes, &offset, &result, stream, 0), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(result, MIB);
	peerlane_gpu_stream_destroy(ctx, stream);
	assert_int_equal(peerlane_batch_create(ctx, 4, &batch), 0);
	peerlane_batch_destroy(batch);
	if (i % 2) {
		assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
		assert_int_equal(peerlane_file_close(file), 0);
	}
	/* Else the context closes them. */
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* The simulator keeps the addresses of its last 64 freed allocations: maps grow up to that. */
static void many(const char *env, unsigned int nr)
{
	unsigned int fds, threads, maps;

	sim_env(env);
	sim_make_file("many", MIB, 3);
	for (unsigned int i = 0; i < 80; i++)
		use(i);
	fds = sim_count_fds();
	threads = sim_count_threads();
	maps = sim_count_maps();
	for (unsigned int i = 0; i < nr; i++) {
		if (i % 4 == 0)
			sim_chill(sim_path("many"));
		use(i);
	}
	assert_int_equal(sim_count_fds(), fds);
	assert_int_equal(sim_count_threads(), threads);
	assert_in_range(sim_count_maps(), 0, maps + 16);
	sim_env("");
}

static void many_used(void **state)
{
	(void)state;
	many("", sim_slow() ? 60 : 400);
}

static void many_used_async(void **state)
{
	(void)state;
	many("SIM_ASYNC=1", sim_slow() ? 40 : 200);
}

static void many_idle(void **state)
{
	unsigned int fds = sim_count_fds(), threads = sim_count_threads(), maps = sim_count_maps();

	(void)state;
	for (int i = 0; i < 1000; i++)
		peerlane_close(sim_open(0));
	assert_int_equal(sim_count_fds(), fds);
	assert_int_equal(sim_count_threads(), threads);
	assert_in_range(sim_count_maps(), 0, maps + 8);
}

/* An open that fails half way leaves nothing either. */
static void many_refused(void **state)
{
	struct peerlane_options opt = {
		.size = sizeof(opt), .backend = "sim", .pool_bytes = MIB, .slot_bytes = 16 * MIB
	};
	unsigned int fds = sim_count_fds(), maps = sim_count_maps();
	struct peerlane *ctx;

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(peerlane_open(&ctx, &opt), -EINVAL);
	assert_int_equal(sim_count_fds(), fds);
	assert_in_range(sim_count_maps(), 0, maps + 4);
}

/* --- many contexts at once, each with its thread --- */

static char crowd_path[320];

static void *own_context(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	struct peerlane_file *file = NULL;
	struct peerlane *ctx = NULL;
	uintptr_t bad = 0;
	void *gpu = NULL;

	for (int i = 0; i < 10 && !bad; i++) {
		bad |= peerlane_open(&ctx, &opt) != 0;
		if (bad)
			break;
		bad |= peerlane_file_open(ctx, crowd_path, O_RDONLY, 0, &file) != 0;
		bad |= peerlane_gpu_alloc(ctx, 0, BYTES, &gpu) != 0;
		if (!bad) {
			bad |= peerlane_read(file, gpu, BYTES - seed, (off_t)seed) !=
			       (ssize_t)(BYTES - seed);
			bad |= sim_gpu_differs(ctx, gpu, BYTES - seed, (off_t)seed, 4) !=
			       BYTES - seed;
		}
		bad |= peerlane_gpu_free(ctx, gpu) != 0;
		peerlane_close(ctx);
	}
	return (void *)bad;
}

static void crowd(void **state)
{
	pthread_t threads[8];
	void *bad;

	(void)state;
	snprintf(crowd_path, sizeof(crowd_path), "%s", sim_make_file("crowd", BYTES, 4));
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, own_context, (void *)i), 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(shared_memory), cmocka_unit_test(independent),
		sim_test(many_idle),	 cmocka_unit_test(many_refused),
		sim_test(many_used),	 cmocka_unit_test(many_used_async),
		sim_test(crowd),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
