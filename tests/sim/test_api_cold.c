// SPDX-License-Identifier: MIT
/* Reads of data that is not in the page cache, whole or in part: right, and by the direct path. */
#include "sim/sim_fixture.h"

#define FILE_BYTES (6 * MIB + 1234)

struct mode {
	const char *env;
	unsigned int flags;
	size_t pool_bytes;
	bool host;
};

static const struct {
	size_t bytes;
	off_t offset;
} pieces[] = {
	{ 6 * MIB + 1234, 0 },	 { 3 * MIB + 5, 1 },  { 3 * MIB, 4096 },    { 65537, 511 },
	{ 128 * KIB - 1, 4095 }, { 128 * KIB, 4096 }, { 512 * KIB + 1, 3 }, { 8 * MIB, 1000 },
	{ MIB, FILE_BYTES - 5 }, { MIB, FILE_BYTES }, { 4096, 8192 },	    { 100, 77777 },
};

/* Whether this file system really drops the pages, and has O_DIRECT. */
static bool gets_cold(struct peerlane_file *file, const char *path, void *mem)
{
	struct peerlane_explanation why = { .size = sizeof(why) };

	sim_chill(path);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, mem, MIB, 0, &why), 0);
	return why.cached_bytes == 0 && why.dio_align;
}

static void sweep(const struct mode m)
{
	struct peerlane_options opt = { .flags = m.flags, .pool_bytes = m.pool_bytes };
	const char *path = sim_make_file("cold", FILE_BYTES, 1);
	struct peerlane_file *file;
	struct peerlane *ctx;
	char *mem;

	sim_env(m.env);
	ctx = sim_open_with(&opt);
	file = sim_file(ctx, path, O_RDONLY);
	mem = m.host ? aligned_alloc(4096, 9 * MIB) : sim_alloc(ctx, 9 * MIB);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		size_t want = pieces[i].bytes;
		struct peerlane_stats before = sim_stats(ctx), after;
		bool cold = gets_cold(file, path, mem);

		if (pieces[i].offset + (off_t)want > (off_t)FILE_BYTES)
			want = FILE_BYTES - (size_t)pieces[i].offset;
		assert_int_equal(peerlane_read(file, mem + i, pieces[i].bytes, pieces[i].offset),
				 want);
		assert_int_equal(sim_gpu_differs(ctx, mem + i, want, pieces[i].offset, 1), want);
		after = sim_stats(ctx);
		if (cold && want > 64 * KIB && !m.host && !(m.flags & PEERLANE_NO_DIRECT))
			assert_int_equal(after.read.path_bytes[PEERLANE_PATH_DIRECT] -
						 before.read.path_bytes[PEERLANE_PATH_DIRECT],
					 want);
		if (m.flags & PEERLANE_NO_DIRECT)
			assert_int_equal(after.read.path_bytes[PEERLANE_PATH_DIRECT], 0);
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

MODE(plain, .env = "")
MODE(host, .env = "", .host = true)
MODE(async, .env = "SIM_ASYNC=200")
MODE(no_ring, .env = "", .flags = PEERLANE_NO_IO_URING)
MODE(no_direct, .env = "", .flags = PEERLANE_NO_DIRECT)
MODE(small_pool, .env = "QUEUE_DEPTH=2", .pool_bytes = MIB)
MODE(deep, .env = "QUEUE_DEPTH=256 SLOT_BYTES=64K")

/* Some pages are in memory, some are not, some are dirty there: all come out right. */
static void mixed(void **state)
{
	const char *path = sim_make_file("mixed", FILE_BYTES, 1);
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, path, O_RDWR);
	char *mem = sim_alloc(ctx, FILE_BYTES), page[4096];
	int fd = open(path, O_RDWR | O_CLOEXEC);

	(void)state;
	for (int round = 0; round < 4; round++) {
		sim_chill(path);
		for (off_t at = 0; at < (off_t)(6 * MIB); at += (off_t)(512 * KIB) * (round + 1)) {
			sim_pattern(page, sizeof(page), at, 2);
			if (round % 2)
				assert_int_equal(pwrite(fd, page, 4096, at), 4096);
			else
				assert_int_equal(pread(fd, page, 4096, at), 4096);
		}
		assert_int_equal(peerlane_read(file, mem, FILE_BYTES, 0), FILE_BYTES);
		for (off_t at = 0; at < (off_t)(6 * MIB); at += (off_t)(512 * KIB) * (round + 1)) {
			sim_assert_gpu(ctx, mem + at, 4096, at, round % 2 ? 2 : 1);
			sim_assert_gpu(ctx, mem + at + 4096, 508 * KIB, at + 4096, 1);
			sim_pattern(page, sizeof(page), at, 1);
			assert_int_equal(pwrite(fd, page, 4096, at), 4096);
		}
	}
	close(fd);
	sim_close(ctx, NULL, mem);
}

#define NR_SMALL 128u
#define SMALL_STEP 40000u /* other pages than the neighbours', and not aligned */
#define SMALL_BYTES 4096u
#define PAST_END 1000u

enum part { NONE, SOME, ALL };

/* The last one passes the end. */
static off_t small_offset(uintptr_t i)
{
	return (off_t)(i == NR_SMALL - 1 ? FILE_BYTES - PAST_END : i * SMALL_STEP);
}

static ssize_t small_bytes(uintptr_t i)
{
	return i == NR_SMALL - 1 ? (ssize_t)PAST_END : (ssize_t)SMALL_BYTES;
}

/* A batch of small reads from a file of which none, some or all is in memory: what is there is not read anew, what is
 * not comes by the direct path. */
static void small_batch(const char *env, enum part cached)
{
	const char *path = sim_make_file("small", FILE_BYTES, 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct peerlane_event events[NR_SMALL];
	struct peerlane_io io[NR_SMALL];
	struct peerlane_batch *batch;
	struct peerlane_file *file;
	struct peerlane_stats st;
	struct peerlane *ctx;
	char *mem, page[SMALL_BYTES];
	bool cold;

	sim_env(env);
	ctx = sim_open(0);
	file = sim_file(ctx, path, O_RDONLY);
	mem = sim_alloc(ctx, MIB);
	cold = gets_cold(file, path, mem);
	/* The kernel is not to bring in more than it is asked for. */
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	for (uintptr_t i = 0; i < NR_SMALL; i++) {
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = mem + i * SMALL_BYTES,
					      .bytes = SMALL_BYTES,
					      .offset = small_offset(i),
					      .op = PEERLANE_READ,
					      .cookie = (void *)i };
		if (cached == ALL || (cached == SOME && i / 16 % 2 == 0))
			assert_int_equal(pread(fd, page, SMALL_BYTES, io[i].offset),
					 small_bytes(i));
	}
	assert_int_equal(peerlane_batch_create(ctx, NR_SMALL, &batch), 0);
	assert_int_equal(peerlane_batch_submit(batch, io, NR_SMALL), 0);
	assert_int_equal(peerlane_batch_wait(batch, NR_SMALL, events, NR_SMALL, NULL), NR_SMALL);
	for (uintptr_t i = 0; i < NR_SMALL; i++) {
		assert_int_equal(events[i].result, small_bytes((uintptr_t)events[i].cookie));
		sim_assert_gpu(ctx, io[i].addr, (size_t)small_bytes(i), io[i].offset, 1);
	}
	st = sim_stats(ctx);
	if (cold && cached != ALL)
		assert_in_range(st.read.path_bytes[PEERLANE_PATH_DIRECT],
				(cached == SOME ? NR_SMALL / 4 : NR_SMALL - 1) * SMALL_BYTES,
				NR_SMALL * SMALL_BYTES);
	if (cached == ALL)
		assert_int_equal(st.read.path_bytes[PEERLANE_PATH_DIRECT], 0);
	if (cached != NONE)
		assert_in_range(st.read.path_bytes[PEERLANE_PATH_COPY],
				(cached == SOME ? NR_SMALL / 4 : NR_SMALL - 1) * SMALL_BYTES,
				NR_SMALL * SMALL_BYTES);
	peerlane_batch_destroy(batch);
	close(fd);
	sim_close(ctx, NULL, mem);
}

static void small_batches(void **state)
{
	static const char *const envs[] = { "", "THREADS=6", "THREADS=6 SIM_ASYNC=100" };

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		for (int part = NONE; part <= ALL; part++)
			small_batch(envs[i], (enum part)part);
}

#define LONG_BYTES (96 * MIB)

/* Somebody has read the head of a cold file, and the kernel reads ahead: that is not followed to the end. */
static void begun(void **state)
{
	const char *path = sim_make_file("begun", LONG_BYTES, 1);
	const off_t offset = 200001;
	const size_t want = LONG_BYTES - (size_t)offset;
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, path, O_RDONLY);
	char *mem = sim_alloc(ctx, LONG_BYTES), *head = malloc((size_t)offset);
	bool cold = gets_cold(file, path, mem);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(pread(fd, head, (size_t)offset, 0), offset);
	assert_int_equal(peerlane_read(file, mem, want, offset), want);
	assert_int_equal(sim_gpu_differs(ctx, mem, want, offset, 1), want);
	/* The rest is what the kernel may have read already, and as far as is looked. */
	if (cold)
		assert_true(sim_stats(ctx).read.path_bytes[PEERLANE_PATH_DIRECT] > want / 2);
	free(head);
	close(fd);
	sim_close(ctx, NULL, mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(plain),     sim_test(host),	      sim_test(async), sim_test(no_ring),
		sim_test(no_direct), sim_test(small_pool),    sim_test(deep),  sim_test(mixed),
		sim_test(begun),     sim_test(small_batches),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
