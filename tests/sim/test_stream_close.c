// SPDX-License-Identifier: MIT
/* A context is closed while a stream has still to come to a request. */
#include "sim/sim_fixture.h"

static void nap_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	sim_nap_ms(*(unsigned int *)args[0]);
}

static const struct peerlane_kernel nap = { .name = "nap", .ptx = "", .host = nap_kernel };

static void launch_nap(struct peerlane *ctx, void *stream, unsigned int ms)
{
	void *args[] = { &ms };
	const size_t sizes[] = { sizeof(ms) };

	assert_int_equal(peerlane_gpu_launch(ctx, stream, &nap, 1, 1, args, sizes, 1), 0);
}

static void closed_context(unsigned int kernel_ms, unsigned int timeout_ms)
{
	struct peerlane_options opt = { .timeout_ms = timeout_ms };
	struct peerlane *keeper = sim_open(0), *ctx = sim_open_with(&opt);
	struct peerlane_file *in = sim_file(ctx, sim_make_file("in", MIB, 1), O_RDONLY);
	char *gpu = sim_alloc(keeper, MIB);
	size_t bytes = MIB;
	off_t offset = 0;
	ssize_t result = -12345;
	void *stream;

	assert_int_equal(peerlane_gpu_stream_create(keeper, 0, &stream), 0);
	launch_nap(keeper, stream, kernel_ms);
	assert_int_equal(peerlane_read_async(in, gpu, &bytes, &offset, &result, stream, 0), 0);
	peerlane_close(ctx);
	/* The stream goes on in any case. */
	assert_int_equal(peerlane_gpu_stream_sync(keeper, stream), 0);
	if (kernel_ms < timeout_ms) {
		assert_int_equal(result, MIB);
		sim_assert_gpu(keeper, gpu, MIB, 0, 1);
	} else {
		assert_true(result < 0);
	}
	peerlane_gpu_stream_destroy(keeper, stream);
	assert_int_equal(peerlane_gpu_free(keeper, gpu), 0);
	peerlane_close(keeper);
}

static void close_waits(void **state)
{
	(void)state;
	sim_alarm(20);
	closed_context(0, 20000);
	closed_context(100, 20000);
	alarm(0);
}

/* The wait is bounded; what the stream comes to afterwards must not touch freed memory. */
static void close_gives_up(void **state)
{
	(void)state;
	sim_alarm(20);
	closed_context(400, 100);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(close_waits),
		sim_test(close_gives_up),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
