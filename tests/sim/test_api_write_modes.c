// SPDX-License-Identifier: MIT
/* Writes that append, that bypass the page cache, and that must be on stable storage. */
#include "sim/sim_fixture.h"

#include <sys/syscall.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define BYTES (3 * MIB + 77)
/* Enough for the way by mapping, where there is one. */
#define MUCH (20 * MIB + 77)

/* Pages of the file that are not on the device yet; -1 where the kernel does not tell. */
static int64_t unwritten(const char *path)
{
	struct {
		uint64_t off, len;
	} range = { 0, 0 };
	struct {
		uint64_t cache, dirty, writeback, evicted, recently_evicted;
	} counts;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long err = syscall(SYS_cachestat, fd, &range, &counts, 0);

	close(fd);
	return err ? -1 : (int64_t)(counts.dirty + counts.writeback);
}

/* Whether a plain write can be seen to be unwritten (not so on tmpfs or without cachestat). */
static bool tells(void)
{
	const char *path = sim_make_file("tells", MIB, 1);

	if (unwritten(path) <= 0)
		return false;
	sim_chill(path);
	return unwritten(path) == 0;
}

static void append(const char *env, int file_flags, unsigned int flags)
{
	const char *path = sim_make_file("append", 100, 1);
	struct peerlane_file *file;
	struct peerlane *ctx;
	char *gpu;
	off_t end = 100;

	sim_env(env);
	ctx = sim_open(0);
	file = sim_file(ctx, path, O_RDWR | O_APPEND | file_flags);
	gpu = sim_alloc(ctx, BYTES);
	for (int i = 0; i < 3; i++) {
		size_t bytes = i == 1 ? 5 : BYTES;

		sim_gpu_pattern(ctx, gpu, bytes, end, 1);
		/* The offset is ignored. */
		assert_int_equal(peerlane_write(file, gpu, bytes, i * 10, flags), bytes);
		end += (off_t)bytes;
		assert_int_equal(sim_file_size(path), end);
	}
	sim_assert_file(path, 0, (size_t)end, 1);
	assert_int_equal(peerlane_read(file, gpu, 1000, 5), 1000);
	sim_assert_gpu(ctx, gpu, 1000, 5, 1);
	sim_close(ctx, NULL, gpu);
}

static void appending(void **state)
{
	(void)state;
	append("", 0, 0);
	append("", 0, PEERLANE_DURABLE);
	append("SIM_ASYNC=300", 0, 0);
	append("SIM_BAR=1", 0, 0);
	append("POOL_BYTES=1M THREADS=8", 0, 0);
	append("", O_DIRECT, 0);
}

/* Pieces of one vectored write stay together and in order. */
static void appending_vector(void **state)
{
	const char *path = sim_make_file("append", 0, 1);
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, path, O_WRONLY | O_APPEND);
	char *gpu = sim_alloc(ctx, BYTES), *host = malloc(BYTES);
	struct iovec iov[2] = { { gpu, BYTES }, { host, BYTES } };

	(void)state;
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 1);
	sim_pattern(host, BYTES, BYTES, 1);
	assert_int_equal(peerlane_writev(file, iov, 2, 0, 0), 2 * BYTES);
	sim_assert_file(path, 0, 2 * BYTES, 1);
	free(host);
	sim_close(ctx, NULL, gpu);
}

/* What returned is on the device: nothing dirty is left. */
static void durable(const char *env, int file_flags, unsigned int flags, size_t before)
{
	const char *path = sim_make_file("durable", before, 2);
	struct peerlane_file *file;
	struct peerlane *ctx;
	char *gpu;

	sim_env(env);
	ctx = sim_open(0);
	sim_chill(path);
	/* In the page cache but clean: the way by mapping, if it is taken, is open. */
	sim_assert_file(path, 0, before, 2);
	file = sim_file(ctx, path, O_RDWR | file_flags);
	gpu = sim_alloc(ctx, MUCH);
	for (int i = 0; i < 3; i++) {
		size_t bytes = i == 0 ? MUCH : i == 1 ? BYTES : 1000;

		sim_gpu_pattern(ctx, gpu, bytes, 0, 3);
		assert_int_equal(peerlane_write(file, gpu, bytes, 0, flags), bytes);
		if (unwritten(path))
			fail_msg("%s, file flags %#x, flags %#x: %lld pages unwritten", env,
				 file_flags, flags, (long long)unwritten(path));
		sim_assert_file(path, 0, bytes, 3);
	}
	sim_close(ctx, NULL, gpu);
}

static void durable_flag(void **state)
{
	(void)state;
	if (!tells())
		skip();
	durable("", 0, PEERLANE_DURABLE, 0);
	durable("", 0, PEERLANE_DURABLE, MUCH + 10000);
	durable("SIM_BAR=1", 0, PEERLANE_DURABLE, MUCH + 10000);
	durable("", O_DIRECT, PEERLANE_DURABLE, MUCH + 10000);
	durable("", O_APPEND, PEERLANE_DURABLE, 0);
}

/* The same promise by the flags of open(2). */
static void durable_file(void **state)
{
	(void)state;
	if (!tells())
		skip();
	durable("", O_DSYNC, 0, 0);
	durable("", O_DSYNC, 0, MUCH + 10000);
	durable("SIM_BAR=1", O_SYNC, 0, MUCH + 10000);
	durable("", O_SYNC | O_DIRECT, 0, MUCH + 10000);
}

static void durable_batch(void **state)
{
	const char *path;
	struct peerlane_event events[8];
	struct peerlane_file *file;
	struct peerlane_batch *batch;
	struct peerlane_io io[8];
	struct peerlane *ctx;
	char *gpu;

	(void)state;
	if (!tells())
		skip();
	ctx = sim_open(0);
	path = sim_make_file("durable", 8 * MIB, 2);
	file = sim_file(ctx, path, O_RDWR);
	gpu = sim_alloc(ctx, 8 * MIB);
	sim_gpu_pattern(ctx, gpu, 8 * MIB, 0, 4);
	sim_chill(path);
	sim_assert_file(path, 0, 8 * MIB, 2);
	assert_int_equal(peerlane_batch_create(ctx, 8, &batch), 0);
	for (size_t i = 0; i < 8; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + i * MIB,
					      .bytes = i % 2 ? MIB : 1000,
					      .offset = (off_t)(i * MIB),
					      .op = PEERLANE_WRITE,
					      .flags = PEERLANE_DURABLE };
	assert_int_equal(peerlane_batch_submit(batch, io, 8), 0);
	assert_int_equal(peerlane_batch_wait(batch, 8, events, 8, NULL), 8);
	assert_int_equal(unwritten(path), 0);
	for (size_t i = 0; i < 8; i++)
		sim_assert_file(path, io[i].offset, io[i].bytes, 4);
	peerlane_batch_destroy(batch);
	sim_close(ctx, NULL, gpu);
}

static void syncing(void **state)
{
	const char *path;
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file;
	char *gpu = sim_alloc(ctx, BYTES);

	(void)state;
	path = sim_make_file("sync", 2 * BYTES, 2);
	file = sim_file(ctx, path, O_RDWR);
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 5);
	assert_int_equal(peerlane_write(file, gpu, BYTES, 0, 0), BYTES);
	assert_int_equal(peerlane_file_sync(file), 0);
	if (tells())
		assert_int_equal(unwritten(path), 0);
	sim_assert_file(path, 0, BYTES, 5);
	sim_close(ctx, NULL, gpu);
}

/* Writes into the page cache and around it, in turn, with common pages: no byte is lost. */
static void direct_beside_cached(void **state)
{
	const char *path = sim_make_file("beside", 2 * MIB, 1);
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *direct = sim_file(ctx, path, O_RDWR | O_DIRECT);
	struct peerlane_file *plain = sim_file(ctx, path, O_RDWR);
	char *gpu = sim_alloc(ctx, 2 * MIB);
	unsigned int seed = 12;

	(void)state;
	sim_gpu_pattern(ctx, gpu, 2 * MIB, 0, 6);
	for (int i = 0; i < (sim_slow() ? 40 : 200); i++) {
		size_t bytes = (size_t)rand_r(&seed) % 20000 + 1;
		off_t at = rand_r(&seed) % (off_t)(2 * MIB - bytes);
		size_t bytes2 = (size_t)rand_r(&seed) % 20000 + 1;

		assert_int_equal(peerlane_write(i % 2 ? direct : plain, gpu + at, bytes, at, 0),
				 bytes);
		if (at + (off_t)(bytes + bytes2) <= (off_t)(2 * MIB))
			assert_int_equal(peerlane_write(i % 2 ? plain : direct, gpu + at + bytes,
							bytes2, at + (off_t)bytes, 0),
					 bytes2);
		sim_assert_file(path, at, bytes, 6);
	}
	assert_int_equal(peerlane_write(direct, gpu, 2 * MIB, 0, 0), 2 * MIB);
	sim_assert_file(path, 0, 2 * MIB, 6);
	sim_close(ctx, NULL, gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(appending),
		sim_test(appending_vector),
		sim_test(durable_flag),
		sim_test(durable_file),
		sim_test(durable_batch),
		sim_test(syncing),
		sim_test(direct_beside_cached),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
