// SPDX-License-Identifier: MIT
/*
 * Reads and writes on streams, between drive and GPU memory: on those that a kernel serves with no
 * driver call meanwhile, on those that are held, and not at all where the GPU does not order what
 * other devices write. The module is played.
 */
#include "fake/played_module.h"
#include "fake/serve_fixture.h"

#define BYTES (1 * MIB)

static char path[] = "test_p2p_stream.XXXXXX";

static void begin(unsigned int flags, const char *ordering)
{
	const struct peerlane_options opt = { .size = sizeof(opt),
					      .backend = "cuda",
					      .flags = flags };

	memset(&played, 0, sizeof(played));
	setenv("FAKE_CUDA_ORDERING", ordering, 1);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, pattern, ROOM, 0), ROOM);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_int_equal(peerlane_file_open(ctx, path, O_RDWR | O_DIRECT, 0, &file), 0);
}

static void end(void)
{
	close_context();
	assert_int_equal(played.nr_pinned, played.nr_unpinned);
}

static uint64_t p2p_bytes(void)
{
	struct peerlane_stats st = stats();

	return st.read.path_bytes[PEERLANE_PATH_P2P] + st.write.path_bytes[PEERLANE_PATH_P2P];
}

/* Fill, write, fill, read: the file and the memory then hold the first value, at @at. */
static void there_and_back(void *stream, uint64_t addr, off_t at, size_t bytes, unsigned char value)
{
	ssize_t results[2] = { -1, -1 };

	assert_int_equal(cu.cuMemsetD8Async(addr, value, bytes, stream), 0);
	assert_int_equal(peerlane_write_async(file, to(addr), &bytes, &at, &results[0], stream, 0),
			 0);
	assert_int_equal(cu.cuMemsetD8Async(addr, 0xee, bytes, stream), 0);
	assert_int_equal(peerlane_read_async(file, to(addr), &bytes, &at, &results[1], stream,
					     PEERLANE_FIXED),
			 0);
	sync_stream(stream);
	assert_int_equal(results[0], bytes);
	assert_int_equal(results[1], bytes);
	memset(pattern + at, value, bytes);
	assert_like_file(addr, at, bytes);
	assert_int_equal(pread(fd, scratch, ROOM, 0), ROOM);
	assert_memory_equal(scratch, pattern, ROOM);
}

static void run(unsigned int flags, const char *ordering, bool taken)
{
	uint64_t addr = gpu_alloc(ROOM), before;
	void *stream = stream_make();

	begin(flags, ordering);
	there_and_back(stream, addr, 0, BYTES, 1);
	assert_int_equal(p2p_bytes(), taken ? 2 * BYTES : 0);
	/* Ends that are no whole blocks go another way. */
	before = p2p_bytes();
	there_and_back(stream, addr + 1000, 4096 + 1000, BYTES, 2);
	assert_in_range(p2p_bytes() - before, taken ? 2 * (BYTES - 8192) : 0, 2 * BYTES - 1);
	assert_int_equal(peerlane_buffer_register(ctx, to(addr), ROOM, 0), 0);
	before = p2p_bytes();
	there_and_back(stream, addr, 8192, BYTES, 3);
	assert_int_equal(p2p_bytes() - before, taken ? 2 * BYTES : 0);
	assert_int_equal(peerlane_buffer_release(ctx, to(addr)), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

static void test_served(void **state)
{
	(void)state;
	run(0, "100", true);
	run(PEERLANE_NO_IO_URING, "200", true);
}

static void test_held(void **state)
{
	(void)state;
	/* There the driver is called. */
	strict(0);
	run(PEERLANE_NO_KERNELS, "100", true);
}

/* Work behind the request might see old data. */
static void test_not_ordered(void **state)
{
	(void)state;
	run(0, "0", false);
	strict(0);
	run(PEERLANE_NO_KERNELS, "0", false);
}

/* Transfers that fail go another way, with no call of the driver for it. */
static void test_fallback(void **state)
{
	uint64_t first = gpu_alloc(ROOM), addr = gpu_alloc(ROOM), before;
	void *stream = stream_make();

	(void)state;
	begin(0, "100");
	there_and_back(stream, first, 0, BYTES, 4);
	before = p2p_bytes();
	assert_int_equal(before, 2 * BYTES);
	played.spoilt = true;
	there_and_back(stream, addr, 4096, BYTES, 5);
	there_and_back(stream, addr, 4096, 64 * KIB, 6);
	assert_int_equal(p2p_bytes(), before);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	assert_int_equal(cu.cuMemFree_v2(first), 0);
}

/* A file that can be opened with O_DIRECT; false where there is none. */
static bool make_file(void)
{
	int made = mkstemp(path), direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (made >= 0)
		close(made);
	if (direct >= 0)
		close(direct);
	return direct >= 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(served), TEST(held), TEST(not_ordered),
					    TEST(fallback) };
	int status = 77;

	/* Of the fixture, for files of another kind. */
	(void)open_context;
	if (make_file())
		status = RUN_TESTS(tests);
	else
		puts("the file system here has no O_DIRECT");
	unlink(path);
	return status;
}
