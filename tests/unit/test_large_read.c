// SPDX-License-Identifier: MIT
/* Large reads by many threads, whose copies stay behind in long runs, over the fake libcuda. */
#include "fake/serve_fixture.h"

#define LARGE (96 * MIB + 4096 + 8) /* with unaligned ends */
#define START 4096
#define PAGE 4096ul
/* Runs of 12 MiB are nine, and the end may be in several; of 8 MiB there would be 13. */
#define MOST_RUNS "11"

static off_t error_at; /* the file can be read up to here; 0: all of it */
static struct peerlane_file *played;
static uint64_t memory;

/* A file of the test's own: each page begins with its number. */
static void play_page(unsigned char *page, uint64_t nr)
{
	memcpy(page, pattern, PAGE);
	memcpy(page, &nr, sizeof(nr));
}

static ssize_t played_read(void *arg, void *buf, size_t bytes, off_t offset)
{
	size_t done = 0;

	(void)arg;
	if (error_at && offset >= error_at)
		return -EIO;
	if (error_at && offset + (off_t)bytes > error_at)
		bytes = (size_t)(error_at - offset);
	while (done < bytes) {
		uint64_t at = (uint64_t)offset + done;
		size_t skip = at % PAGE,
		       n = PAGE - skip < bytes - done ? PAGE - skip : bytes - done;
		unsigned char page[PAGE];

		play_page(page, at / PAGE);
		memcpy((char *)buf + done, page + skip, n);
		done += n;
	}
	return (ssize_t)bytes;
}

static void open_large(size_t pool)
{
	const struct peerlane_file_ops ops = { .size = sizeof(ops), .read = played_read };

	setenv("PEERLANE_THREADS", "12", 1);
	open_context(0, pool, 0);
	error_at = 0;
	assert_int_equal(peerlane_file_from_ops(ctx, &ops, NULL, &played), 0);
	memory = gpu_alloc(LARGE);
}

static void close_large(void)
{
	assert_int_equal(peerlane_file_close(played), 0);
	assert_int_equal(cu.cuMemFree_v2(memory), 0);
	close_context();
}

static ssize_t read_large(void)
{
	assert_int_equal(cu.cuMemsetD8Async(memory, 0xa5, LARGE, NULL), 0);
	sync_stream(NULL);
	return peerlane_read(played, to(memory), LARGE, START);
}

/* The first @bytes of what was read are right. */
static void assert_pages(size_t bytes)
{
	for (size_t at = 0, n; at < bytes; at += n) {
		n = bytes - at < 4 * MIB ? bytes - at : 4 * MIB;
		assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, memory + at, n), 0);
		for (size_t i = 0; i < n; i += PAGE) {
			unsigned char page[PAGE];

			play_page(page, (START + at + i) / PAGE);
			if (memcmp(scratch + i, page, n - i < PAGE ? n - i : PAGE) != 0)
				fail_msg("the page at %zu is wrong", at + i);
		}
	}
}

/* Few marks will do, since each stands behind a long run. */
static void test_long_runs(void **state)
{
	(void)state;
	open_large(0);
	inject("cuStreamWriteValue32:" MOST_RUNS ":1");
	assert_int_equal(read_large(), LARGE);
	assert_pages(LARGE);
	inject(NULL);
	close_large();
}

/* Lanes that hold less than a run. */
static void test_small_pool(void **state)
{
	(void)state;
	open_large(8 * MIB);
	assert_int_equal(read_large(), LARGE);
	assert_pages(LARGE);
	close_large();
}

/* Where the file ends with an error, all before is there. */
static void test_error(void **state)
{
	const size_t good = 50 * MIB + 100;

	(void)state;
	open_large(0);
	error_at = START + (off_t)good;
	assert_int_equal(read_large(), good);
	assert_pages(good);
	close_large();
}

/* A run that fails: all before it is there, and the next read is whole. */
static void test_failed_run(void **state)
{
	ssize_t n;

	(void)state;
	open_large(0);
	inject("cuStreamWriteValue32:3:1");
	n = read_large();
	inject(NULL);
	assert_in_range(n, 1, LARGE - 1);
	assert_pages((size_t)n);
	assert_int_equal(read_large(), LARGE);
	assert_pages(LARGE);
	close_large();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(long_runs),
		TEST(small_pool),
		TEST(error),
		TEST(failed_run),
	};

	return RUN_TESTS(tests);
}
