// SPDX-License-Identifier: MIT
/* Reads and writes in the order of a stream, between kernels. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define BYTES (2 * MIB + 99)

static struct peerlane *ctx;
static char *gpu;

static void open_all(const char *env)
{
	sim_env(env);
	ctx = sim_open(0);
	gpu = sim_alloc(ctx, BYTES);
}

static void close_all(void)
{
	sim_close(ctx, NULL, gpu);
}

static void *new_stream(void)
{
	void *stream = NULL;

	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	return stream;
}

/* Adds @add to every byte, each block its share. Takes its time in the first one. */
static void add_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	unsigned char *p = peerlane_sim_host(*(void **)args[0]);
	size_t bytes = *(size_t *)args[1], share = bytes / nr_blocks + 1;
	unsigned char add = *(unsigned char *)args[2];

	if (!block)
		sim_nap_ms(10);
	for (size_t i = block * share; i < bytes && i < (block + 1) * share; i++)
		p[i] = (unsigned char)(p[i] + add);
}

static const struct peerlane_kernel add = { .name = "add", .ptx = "", .host = add_kernel };

static void launch_add(void *stream, char *at, size_t bytes, unsigned char value)
{
	void *args[] = { &at, &bytes, &value };
	const size_t sizes[] = { sizeof(at), sizeof(bytes), sizeof(value) };

	assert_int_equal(peerlane_gpu_launch(ctx, stream, &add, 4, 32, args, sizes, 3), 0);
}

static void nap_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	sim_nap_ms(*(unsigned int *)args[0]);
}

static const struct peerlane_kernel nap = { .name = "nap", .ptx = "", .host = nap_kernel };

static void launch_nap(void *stream, unsigned int ms)
{
	void *args[] = { &ms };
	const size_t sizes[] = { sizeof(ms) };

	assert_int_equal(peerlane_gpu_launch(ctx, stream, &nap, 1, 1, args, sizes, 1), 0);
}

/* The file has every byte of the pattern and @plus. */
static void assert_file_plus(const char *path, unsigned char plus)
{
	unsigned char *mem = malloc(BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, mem, BYTES, 0), BYTES);
	close(fd);
	for (size_t i = 0; i < BYTES; i++)
		mem[i] = (unsigned char)(mem[i] - plus);
	assert_int_equal(sim_differs(mem, BYTES, 0, 1), BYTES);
	free(mem);
}

/* read, kernel, write, kernel, read back, write: each sees what the one before did. */
static void in_order(const char *env, bool null_stream)
{
	struct peerlane_file *in, *out, *out2;
	size_t bytes = BYTES;
	off_t offset = 0;
	ssize_t results[4] = { 0 };
	void *stream;

	open_all(env);
	stream = null_stream ? NULL : new_stream();
	in = sim_file(ctx, sim_make_file("in", BYTES, 1), O_RDONLY);
	out = sim_file(ctx, sim_make_file("out", 0, 0), O_RDWR);
	out2 = sim_file(ctx, sim_make_file("out2", 0, 0), O_RDWR);
	launch_nap(stream, 20);
	assert_int_equal(peerlane_read_async(in, gpu, &bytes, &offset, &results[0], stream, 0), 0);
	launch_add(stream, gpu, BYTES, 3);
	assert_int_equal(peerlane_write_async(out, gpu, &bytes, &offset, &results[1], stream, 0),
			 0);
	launch_add(stream, gpu, BYTES, 5);
	assert_int_equal(peerlane_write_async(out2, gpu, &bytes, &offset, &results[2], stream,
					      PEERLANE_DURABLE),
			 0);
	assert_int_equal(peerlane_read_async(out, gpu, &bytes, &offset, &results[3], stream, 0), 0);
	launch_add(stream, gpu, BYTES, (unsigned char)-3);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(results[i], BYTES);
	assert_file_plus(sim_path("out"), 3);
	assert_file_plus(sim_path("out2"), 8);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	peerlane_gpu_stream_destroy(ctx, stream);
	close_all();
}

static void order(void **state)
{
	(void)state;
	in_order("", false);
	in_order("SIM_ASYNC=1000", false);
	in_order("SIM_BAR=1", false);
	in_order("FLAGS=no-io-uring POOL_BYTES=1M THREADS=4", false);
}

static void default_stream(void **state)
{
	(void)state;
	in_order("", true);
	in_order("SIM_ASYNC=1000", true);
}

/* The call comes back before the work in front of it is done. */
static void does_not_wait(void **state)
{
	struct peerlane_file *in;
	size_t bytes = BYTES;
	off_t offset = 0;
	ssize_t result = -12345;
	void *stream;
	uint64_t start;

	(void)state;
	open_all("");
	stream = new_stream();
	in = sim_file(ctx, sim_make_file("in", BYTES, 1), O_RDONLY);
	start = sim_now_ms();
	launch_nap(stream, 400);
	assert_int_equal(peerlane_read_async(in, gpu, &bytes, &offset, &result, stream, 0), 0);
	if (!sim_slow())
		assert_in_range(sim_now_ms() - start, 0, 200);
	assert_int_equal(__atomic_load_n(&result, __ATOMIC_ACQUIRE), -12345);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_true(sim_now_ms() - start >= 399);
	assert_int_equal(result, BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	peerlane_gpu_stream_destroy(ctx, stream);
	close_all();
}

static void set_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	**(size_t **)args[0] = *(size_t *)args[2];
	**(off_t **)args[1] = *(off_t *)args[3];
}

static const struct peerlane_kernel set = { .name = "set", .ptx = "", .host = set_kernel };

/* Length and position are those of the moment the stream gets there, or of the call. */
static void values(bool fixed)
{
	struct peerlane_file *in;
	size_t bytes = 1000, later_bytes = 2000;
	off_t offset = 100, later_offset = 50000;
	size_t *bytes_at = &bytes;
	off_t *offset_at = &offset;
	void *args[] = { &bytes_at, &offset_at, &later_bytes, &later_offset };
	const size_t sizes[] = { 8, 8, 8, 8 };
	ssize_t result = -1;
	void *stream;

	open_all("");
	stream = new_stream();
	in = sim_file(ctx, sim_make_file("in", BYTES, 1), O_RDONLY);
	sim_gpu_set(ctx, gpu, 0, BYTES);
	launch_nap(stream, 30);
	assert_int_equal(peerlane_gpu_launch(ctx, stream, &set, 1, 1, args, sizes, 4), 0);
	assert_int_equal(peerlane_read_async(in, gpu, &bytes, &offset, &result, stream,
					     fixed ? PEERLANE_FIXED : 0),
			 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(bytes, 2000);
	assert_int_equal(result, fixed ? 1000 : 2000);
	sim_assert_gpu(ctx, gpu, fixed ? 1000 : 2000, fixed ? 100 : 50000, 1);
	sim_assert_gpu_is(ctx, gpu + result, 0, 1000);
	peerlane_gpu_stream_destroy(ctx, stream);
	close_all();
}

static void values_late_and_fixed(void **state)
{
	(void)state;
	values(false);
	values(true);
}

/* What goes wrong is in the result, and the stream goes on. */
static void errors(void **state)
{
	static const struct {
		size_t bytes;
		off_t offset;
		ssize_t want;
	} cases[] = {
		{ 100, -1, -EINVAL },
		{ BYTES + 1, 0, -EFAULT },
		{ 100, INT64_MAX, -EOVERFLOW },
		{ SIZE_MAX, 0, -EOVERFLOW },
		{ 100, BYTES, 0 },
		{ 100, BYTES - 7, 7 },
		{ 0, 0, 0 },
		{ BYTES, 0, BYTES },
	};
	struct peerlane_file *in;
	ssize_t results[8];
	void *stream;

	(void)state;
	open_all("");
	stream = new_stream();
	in = sim_file(ctx, sim_make_file("in", BYTES, 1), O_RDWR);
	for (int i = 0; i < 8; i++) {
		results[i] = -12345;
		assert_int_equal(peerlane_read_async(in, gpu, &cases[i].bytes, &cases[i].offset,
						     &results[i], stream, 0),
				 0);
	}
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(results[i], cases[i].want);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 1000), 0);
	assert_int_equal(peerlane_read_async(in, gpu, &cases[7].bytes, &cases[7].offset,
					     &results[0], stream, 0),
			 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(results[0], -EREMOTEIO);
	peerlane_gpu_stream_destroy(ctx, stream);
	close_all();
}

/* Refused at once: nothing is queued, the result is not written. */
static void refusals(void **state)
{
	struct peerlane_file *in, *out;
	size_t bytes = 1;
	off_t offset = 0;
	ssize_t result = -12345;
	void *stream;
	char none;

	(void)state;
	open_all("");
	stream = new_stream();
	in = sim_file(ctx, sim_make_file("in", BYTES, 1), O_RDONLY);
	out = sim_file(ctx, sim_path("in"), O_WRONLY);
#define READ(f, a, b, o, r, s, flags) peerlane_read_async(f, a, b, o, r, s, flags)
	assert_int_equal(READ(NULL, gpu, &bytes, &offset, &result, stream, 0), -EINVAL);
	assert_int_equal(READ(in, NULL, &bytes, &offset, &result, stream, 0), -EINVAL);
	assert_int_equal(READ(in, gpu, NULL, &offset, &result, stream, 0), -EINVAL);
	assert_int_equal(READ(in, gpu, &bytes, NULL, &result, stream, 0), -EINVAL);
	assert_int_equal(READ(in, gpu, &bytes, &offset, NULL, stream, 0), -EINVAL);
	sim_assert_error(-EINVAL, "result");
	assert_int_equal(READ(in, gpu, &bytes, &offset, &result, stream, 1), -EINVAL);
	assert_int_equal(READ(in, gpu, &bytes, &offset, &result, stream, 4), -EINVAL);
	assert_int_equal(READ(in, gpu, &bytes, &offset, &result, &none, 0), -EINVAL);
	sim_assert_error(-EINVAL, "stream");
	assert_int_equal(READ(out, gpu, &bytes, &offset, &result, stream, 0), -EBADF);
	assert_int_equal(peerlane_write_async(in, gpu, &bytes, &offset, &result, stream, 0),
			 -EBADF);
	assert_int_equal(peerlane_write_async(out, gpu, &bytes, &offset, &result, stream, 8),
			 -EINVAL);
	peerlane_gpu_stream_destroy(ctx, stream);
	assert_int_equal(READ(in, gpu, &bytes, &offset, &result, stream, 0), -EINVAL);
	assert_int_equal(result, -12345);
	/* The files are not held. */
	assert_int_equal(peerlane_file_close(in), 0);
	assert_int_equal(peerlane_file_close(out), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(order),	 sim_test(default_stream),
		sim_test(does_not_wait), sim_test(values_late_and_fixed),
		sim_test(errors),	 sim_test(refusals),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
