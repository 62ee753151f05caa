// SPDX-License-Identifier: MIT
/* The end of the file, holes and growth: counts as with pread(2) and pwrite(2), and the memory
 * behind the count untouched. */
#include "sim/sim_fixture.h"

#define FILLER 0x5a

struct mode {
	const char *env;
	int file_flags;
	bool host;
};

static const size_t file_sizes[] = { 0,	   1,	  100,	 511,	512,	4095, 4096,
				     4097, 65535, 65536, 65537, 200000, MIB,  MIB + 1 };
static const size_t asks[] = { 1, 512, 4096, 8192, 65536, 65537, 131072, 2 * MIB };

/* A read of @ask at each of some offsets gives what there is and leaves the rest alone. */
static void read_ends(struct peerlane *ctx, struct peerlane_file *file, char *mem, size_t size,
		      size_t ask)
{
	const off_t offsets[] = { 0,
				  4096,
				  (off_t)size - 1,
				  (off_t)size,
				  (off_t)size + 1,
				  (off_t)(size & ~4095ul),
				  INT64_MAX - (off_t)ask };

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		off_t at = offsets[i];
		size_t want;
		ssize_t n;

		if (at < 0)
			continue;
		want = at >= (off_t)size ? 0 : size - (size_t)at < ask ? size - (size_t)at : ask;
		sim_gpu_set(ctx, mem, FILLER, ask + 4096);
		n = peerlane_read(file, mem, ask, at);
		if (n != (ssize_t)want)
			fail_msg("%zu at %lld of %zu: %zd", ask, (long long)at, size, n);
		assert_int_equal(sim_gpu_differs(ctx, mem, want, at, 1), want);
		sim_assert_gpu_is(ctx, mem + want, FILLER, ask + 4096 - want);
	}
}

static void sweep(const struct mode m)
{
	struct peerlane *ctx;
	char *mem;

	sim_env(m.env);
	ctx = sim_open(0);
	mem = m.host ? aligned_alloc(4096, 3 * MIB) : sim_alloc(ctx, 3 * MIB);
	for (size_t i = 0; i < sizeof(file_sizes) / sizeof(file_sizes[0]); i++) {
		struct peerlane_file *file = sim_file(ctx, sim_make_file("eof", file_sizes[i], 1),
						      O_RDONLY | m.file_flags);

		for (size_t k = 0; k < sizeof(asks) / sizeof(asks[0]); k++)
			read_ends(ctx, file, mem, file_sizes[i], asks[k]);
		assert_int_equal(peerlane_file_close(file), 0);
	}
	if (m.host)
		free(mem);
	else
		sim_close(ctx, NULL, mem);
}

#define MODE(name, ...)                                                                            \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		sweep((struct mode){ __VA_ARGS__ });                                               \
	}

MODE(gpu, .env = "")
MODE(gpu_direct, .env = "", .file_flags = O_DIRECT)
MODE(host, .env = "", .host = true)
MODE(host_direct, .env = "", .file_flags = O_DIRECT, .host = true)
MODE(mapped, .env = "SIM_BAR=1")
MODE(mapped_direct, .env = "SIM_BAR=1", .file_flags = O_DIRECT)
MODE(threads, .env = "FLAGS=no-io-uring THREADS=8")

/* The same through a batch, many at a time. */
static void batch_ends(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("eof", 100001, 1), O_RDONLY);
	char *mem = sim_alloc(ctx, 64 * 128 * KIB);
	struct peerlane_event events[64];
	struct peerlane_batch *batch;
	struct peerlane_io io[64];

	(void)state;
	sim_gpu_set(ctx, mem, FILLER, 64 * 128 * KIB);
	assert_int_equal(peerlane_batch_create(ctx, 64, &batch), 0);
	for (uintptr_t i = 0; i < 64; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = mem + i * 128 * KIB,
					      .bytes = i % 2 ? 5000 : 128 * KIB,
					      .offset = (off_t)(i * 1700),
					      .cookie = (void *)i };
	assert_int_equal(peerlane_batch_submit(batch, io, 64), 0);
	assert_int_equal(peerlane_batch_wait(batch, 64, events, 64, NULL), 64);
	for (int k = 0; k < 64; k++) {
		uintptr_t i = (uintptr_t)events[k].cookie;
		off_t left = 100001 - io[i].offset;
		ssize_t want = left < 0			   ? 0
			       : left < (off_t)io[i].bytes ? left
							   : (ssize_t)io[i].bytes;

		assert_int_equal(events[k].result, want);
		sim_assert_gpu(ctx, io[i].addr, (size_t)want, io[i].offset, 1);
		sim_assert_gpu_is(ctx, (char *)io[i].addr + want, FILLER, 128 * KIB - (size_t)want);
	}
	peerlane_batch_destroy(batch);
	sim_close(ctx, NULL, mem);
}

/* Holes are zeros; data between them is where it was. */
static void holes(void **state)
{
	struct peerlane *ctx = sim_open(0);
	const char *path = sim_make_file("holes", 0, 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct peerlane_file *file;
	char *mem = sim_alloc(ctx, 8 * MIB), page[4096];

	(void)state;
	sim_pattern(page, sizeof(page), 0, 1);
	assert_int_equal(pwrite(fd, page, 4096, (off_t)(2 * MIB)), 4096);
	assert_int_equal(ftruncate(fd, (off_t)(7 * MIB + 9)), 0);
	close(fd);
	file = sim_file(ctx, path, O_RDONLY);
	for (int cold = 0; cold < 2; cold++) {
		if (cold)
			sim_chill(path);
		sim_gpu_set(ctx, mem, FILLER, 8 * MIB);
		assert_int_equal(peerlane_read(file, mem, 8 * MIB, 0), 7 * MIB + 9);
		sim_assert_gpu_is(ctx, mem, 0, 2 * MIB);
		sim_assert_gpu(ctx, mem + 2 * MIB, 4096, 0, 1);
		sim_assert_gpu_is(ctx, mem + 2 * MIB + 4096, 0, 5 * MIB + 9 - 4096);
		sim_assert_gpu_is(ctx, mem + 7 * MIB + 9, FILLER, MIB - 9);
	}
	sim_close(ctx, NULL, mem);
}

/* A write behind the end makes a hole before it; one across the end makes the file longer. */
static void growth(int flags, bool host)
{
	struct peerlane *ctx = sim_open(0);
	const char *path = sim_make_file("growth", 1000, 1);
	struct peerlane_file *file = sim_file(ctx, path, O_RDWR | flags);
	char *mem = host ? aligned_alloc(4096, 2 * MIB) : sim_alloc(ctx, 2 * MIB);
	char *zero = sim_alloc(ctx, 2 * MIB);

	sim_gpu_pattern(ctx, mem, 2 * MIB, 500, 2);
	assert_int_equal(peerlane_write(file, mem, 2 * MIB, 500, 0), 2 * MIB);
	assert_int_equal(sim_file_size(path), 2 * MIB + 500);
	sim_assert_file(path, 0, 500, 1);
	sim_assert_file(path, 500, 2 * MIB, 2);
	sim_gpu_pattern(ctx, mem, 2 * MIB, (off_t)(5 * MIB + 1), 3);
	assert_int_equal(peerlane_write(file, mem, 2 * MIB, (off_t)(5 * MIB + 1), 0), 2 * MIB);
	assert_int_equal(sim_file_size(path), 7 * MIB + 1);
	sim_assert_file(path, (off_t)(5 * MIB + 1), 2 * MIB, 3);
	assert_int_equal(peerlane_read(file, zero, 2 * MIB, (off_t)(3 * MIB)), 2 * MIB);
	sim_assert_gpu_is(ctx, zero, 0, 2 * MIB);
	assert_int_equal(peerlane_write(file, mem, 0, (off_t)(100 * MIB), 0), 0);
	assert_int_equal(sim_file_size(path), 7 * MIB + 1);
	if (host)
		free(mem);
	else
		assert_int_equal(peerlane_gpu_free(ctx, mem), 0);
	sim_close(ctx, NULL, zero);
}

static void growth_modes(void **state)
{
	(void)state;
	growth(0, false);
	growth(0, true);
	growth(O_DIRECT, false);
	growth(O_DIRECT, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(gpu),	  sim_test(gpu_direct),	   sim_test(host),    sim_test(host_direct),
		sim_test(mapped), sim_test(mapped_direct), sim_test(threads), sim_test(batch_ends),
		sim_test(holes),  sim_test(growth_modes),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
