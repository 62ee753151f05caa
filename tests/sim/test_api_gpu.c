// SPDX-License-Identifier: MIT
/* gpu.h: devices, memory, copies, streams, kernels and faults through the public calls. */
#include "sim/sim_fixture.h"

static struct peerlane *ctx;

static void open_all(const char *env)
{
	sim_env(env);
	ctx = sim_open(0);
}

static void devices(void **state)
{
	struct peerlane_gpu_info info = { .size = sizeof(info) };

	(void)state;
	open_all("SIM_GPUS=3 SIM_MEMORY=1G");
	assert_int_equal(peerlane_gpu_count(ctx), 3);
	assert_int_equal(peerlane_gpu_count(NULL), -EINVAL);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(peerlane_gpu_get_info(ctx, i, &info), 0);
		assert_int_equal(info.size, sizeof(info));
		assert_true(info.name[0] != '\0');
		assert_int_equal(info.memory_bytes, 1ul << 30);
		assert_string_equal(info.pci, "");
	}
	assert_int_equal(peerlane_gpu_get_info(ctx, -1, &info), -ENODEV);
	assert_int_equal(peerlane_gpu_get_info(ctx, 3, &info), -ENODEV);
	sim_assert_error(-ENODEV, "3");
	assert_int_equal(peerlane_gpu_get_info(ctx, 0, NULL), -EINVAL);
	info.size = 3;
	assert_int_equal(peerlane_gpu_get_info(ctx, 0, &info), -EINVAL);
	assert_int_equal(peerlane_gpu_get_info(NULL, 0, &info), -EINVAL);
	peerlane_close(ctx);
}

static void memory(void **state)
{
	void *a = NULL, *b = NULL, *none = (void *)-1;

	(void)state;
	open_all("SIM_MEMORY=10M");
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 0, &none), -EINVAL);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 1, NULL), -EINVAL);
	assert_int_equal(peerlane_gpu_alloc(ctx, 1, 1, &none), -ENODEV);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 11 * MIB, &none), -ENOMEM);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, SIZE_MAX, &none), -ENOMEM);
	assert_ptr_equal(none, (void *)-1);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 6 * MIB, &a), 0);
	assert_int_equal((uintptr_t)a % 256, 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 6 * MIB, &b), -ENOMEM);
	assert_int_equal(peerlane_gpu_free(ctx, (char *)a + 1), -EINVAL);
	assert_int_equal(peerlane_gpu_free(ctx, &a), -EINVAL);
	assert_int_equal(peerlane_gpu_free(ctx, a), 0);
	assert_int_equal(peerlane_gpu_free(ctx, a), -EINVAL);
	assert_int_equal(peerlane_gpu_free(ctx, NULL), 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 6 * MIB, &b), 0);
	assert_int_equal(peerlane_gpu_free(ctx, b), 0);
	assert_int_equal(peerlane_sim_inject(ctx, "alloc", 1, 1), 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 1, &a), 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 1, &b), -ENOMEM);
	sim_assert_error(-ENOMEM, "out of memory");
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, 1, &b), 0);
	assert_int_equal(peerlane_gpu_free(ctx, a), 0);
	sim_close(ctx, NULL, b);
}

static void copies(void **state)
{
	char host[100], back[100], *a, *b;

	(void)state;
	open_all("SIM_GPUS=2");
	a = sim_alloc(ctx, 100);
	assert_int_equal(peerlane_gpu_alloc(ctx, 1, 100, (void **)&b), 0);
	sim_pattern(host, sizeof(host), 0, 1);
	assert_int_equal(peerlane_gpu_copy(ctx, a, host, 100), 0);
	assert_int_equal(peerlane_gpu_copy(ctx, b, a, 100), 0);
	assert_int_equal(peerlane_gpu_copy(ctx, back, b, 100), 0);
	assert_memory_equal(host, back, 100);
	assert_int_equal(peerlane_gpu_copy(ctx, a, host, 0), 0);
	assert_int_equal(peerlane_gpu_copy(ctx, a, host, 101), -EFAULT);
	assert_int_equal(peerlane_gpu_copy(ctx, a + 50, host, 51), -EFAULT);
	assert_int_equal(peerlane_gpu_copy(ctx, NULL, host, 1), -EINVAL);
	assert_int_equal(peerlane_gpu_copy(ctx, a, NULL, 1), -EINVAL);
	assert_int_equal(peerlane_gpu_copy(NULL, a, host, 1), -EINVAL);
	assert_int_equal(peerlane_gpu_free(ctx, b), 0);
	assert_int_equal(peerlane_gpu_copy(ctx, b, host, 1), -EFAULT);
	sim_close(ctx, NULL, a);
}

static void limits(void **state)
{
	double rate = 0;

	(void)state;
	open_all("");
	assert_int_equal(peerlane_gpu_copy_limit(ctx, 0, PEERLANE_READ, &rate), 0);
	assert_true(rate > 1e7);
	assert_int_equal(peerlane_gpu_copy_limit(ctx, 0, PEERLANE_WRITE, &rate), 0);
	assert_true(rate > 1e7);
	assert_int_equal(peerlane_gpu_copy_limit(ctx, 1, PEERLANE_READ, &rate), -ENODEV);
	assert_int_equal(peerlane_gpu_copy_limit(ctx, 0, PEERLANE_READ, NULL), -EINVAL);
	assert_int_equal(peerlane_sim_inject(ctx, "pin", 0, 1), 0);
	assert_int_equal(peerlane_gpu_copy_limit(ctx, 0, PEERLANE_READ, &rate), -ENOMEM);
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 1), 0);
	assert_int_equal(peerlane_gpu_copy_limit(ctx, 0, PEERLANE_READ, &rate), -EREMOTEIO);
	peerlane_close(ctx);
}

static void no_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	(void)args;
}

static void launches(void **state)
{
	const struct peerlane_kernel kernel = { .name = "none", .ptx = "", .host = no_kernel };
	void *stream = NULL, *args[17] = { &stream };
	size_t sizes[17] = { 8 };
	char none;

	(void)state;
	open_all("");
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 7, &stream), -ENODEV);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, args, sizes, 1), 0);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, NULL, NULL, 0), 0);
	assert_int_equal(peerlane_gpu_launch(NULL, stream, &kernel, 1, 1, NULL, NULL, 0), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, NULL, 1, 1, NULL, NULL, 0), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 0, 1, NULL, NULL, 0), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 0, NULL, NULL, 0), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, NULL, sizes, 1), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, args, NULL, 1), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, args, sizes, 17), -EINVAL);
	assert_int_equal(peerlane_gpu_launch(ctx, &none, &kernel, 1, 1, NULL, NULL, 0), -EINVAL);
	assert_int_equal(peerlane_sim_inject(ctx, "launch", 0, 1), 0);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &kernel, 1, 1, NULL, NULL, 0),
			 -EREMOTEIO);
	sim_assert_error(-EREMOTEIO, "launch");
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, NULL), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, &none), -EINVAL);
	peerlane_gpu_stream_destroy(ctx, stream);
	peerlane_gpu_stream_destroy(ctx, NULL);
	peerlane_gpu_stream_destroy(NULL, stream);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), -EINVAL);
	peerlane_close(ctx);
}

static void faults(void **state)
{
	struct peerlane_file *file;
	char *gpu;

	(void)state;
	open_all("SIM_FAIL=copy:1:1,pin:0:1");
	file = sim_file(ctx, sim_make_file("faults", MIB, 1), O_RDONLY);
	gpu = sim_alloc(ctx, MIB);
	assert_int_equal(peerlane_sim_inject(ctx, "paper", 0, 1), -EINVAL);
	sim_assert_error(-EINVAL, "paper");
	assert_int_equal(peerlane_sim_inject(ctx, NULL, 0, 1), -EINVAL);
	assert_int_equal(peerlane_sim_inject(NULL, "copy", 0, 1), -EINVAL);
	/* The first copy goes well, the second does not. Pinned memory is refused once. */
	assert_int_equal(peerlane_read(file, gpu, 100, 0), 100);
	assert_int_equal(sim_stats(ctx).pool_failures, 1);
	assert_int_equal(peerlane_read(file, gpu, 100, 0), -EREMOTEIO);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	sim_assert_gpu(ctx, gpu, MIB, 0, 1);
	sim_close(ctx, NULL, gpu);
}

/* A copy that never ends is given up in time, and the context goes on when it can. */
static void hangs(const char *env)
{
	struct peerlane_options opt = { .timeout_ms = sim_slow() ? 1000 : 100 };
	struct peerlane_file *file;
	uint64_t start;
	char *in, *out, *gpu;

	sim_env(env);
	ctx = sim_open_with(&opt);
	file = sim_file(ctx, sim_make_file("hangs", MIB, 1), O_RDWR);
	/* A copy given up may still come, so what it may touch is not used again. */
	in = sim_alloc(ctx, MIB);
	out = sim_alloc(ctx, MIB);
	gpu = sim_alloc(ctx, MIB);
	sim_gpu_pattern(ctx, out, MIB, 0, 2);
	assert_int_equal(peerlane_sim_inject(ctx, "hang", 0, 1000), 0);
	start = sim_now_ms();
	assert_int_equal(peerlane_read(file, in, MIB, 0), -ETIMEDOUT);
	assert_int_equal(peerlane_write(file, out, MIB, 0, 0), -ETIMEDOUT);
	assert_in_range(sim_now_ms() - start, 2 * opt.timeout_ms, 20 * opt.timeout_ms);
	assert_int_equal(peerlane_sim_inject(ctx, "hang", 0, 0), 0);
	sim_assert_file(sim_path("hangs"), 0, MIB, 1);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	sim_assert_gpu(ctx, gpu, MIB, 0, 1);
	assert_int_equal(sim_stats(ctx).in_flight, 0);
	assert_int_equal(peerlane_gpu_free(ctx, in), 0);
	assert_int_equal(peerlane_gpu_free(ctx, out), 0);
	sim_close(ctx, NULL, gpu);
}

static void hanging(void **state)
{
	(void)state;
	sim_alarm(20);
	hangs("");
	hangs("SIM_ASYNC=1");
	hangs("POOL_BYTES=1M THREADS=4");
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(devices),  sim_test(memory), sim_test(copies),	 sim_test(limits),
		sim_test(launches), sim_test(faults), sim_test(hanging),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
