// SPDX-License-Identifier: MIT
/*
 * Writes through a mapping to a file of somebody else, whose times only a write moves: the byte that is written again
 * for that is one of the request. The one behind it may be another's who writes there now, or past the end.
 */
#include "sim/sim_fixture.h"

#include <dlfcn.h>
#include <sys/stat.h>

#define BYTES (4 * MIB)
#define MAX_NOTED 64u

/* Single bytes that were written, by place. */
static off_t noted[MAX_NOTED];
static unsigned int nr_noted;

int futimens(int fd, const struct timespec times[2])
{
	(void)fd;
	(void)times;
	errno = EPERM;
	return -1;
}

ssize_t pwrite(int fd, const void *mem, size_t bytes, off_t offset)
{
	ssize_t (*real)(int, const void *, size_t, off_t);

	*(void **)(void *)&real = dlsym(RTLD_NEXT, "pwrite64");
	if (bytes == 1 && nr_noted < MAX_NOTED)
		noted[nr_noted++] = offset;
	return real(fd, mem, bytes, offset);
}

static struct peerlane *ctx;
static struct peerlane_file *file;
static const char *path;
static char *gpu;

static int setup(void **state)
{
	sim_test_setup(state);
	ctx = sim_open(0);
	path = sim_make_file("touched", BYTES, 1);
	file = sim_file(ctx, path, O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sim_close(ctx, file, gpu);
	return 0;
}

static uint64_t mapped(void)
{
	return sim_stats(ctx).mapped_write_bytes;
}

/* One write; the byte written again, if there is any, is one of it. */
static void one(size_t bytes, off_t offset)
{
	uint64_t before = mapped();

	nr_noted = 0;
	assert_int_equal(peerlane_write(file, gpu + offset, bytes, offset, 0), bytes);
	if (mapped() == before)
		return;
	assert_in_range(nr_noted, 1, MAX_NOTED);
	for (unsigned int i = 0; i < nr_noted; i++)
		assert_in_range(noted[i], offset, offset + (off_t)bytes - 1);
}

static void inside(void **state)
{
	(void)state;
	one(BYTES, 0);
	if (!mapped())
		skip();
	for (size_t bytes = 64 * KIB; bytes <= BYTES; bytes *= 2) {
		one(bytes, 0);
		one(bytes, (off_t)(BYTES - bytes));
		one(bytes / 2 + 77, 333);
	}
	sim_assert_file(path, 0, BYTES, 1);
	assert_int_equal(sim_file_size(path), BYTES);
}

/* Those of a batch, each of which is touched by itself or with others. */
static void batches(void **state)
{
	enum { NR = 8 };
	const size_t part = BYTES / NR;
	struct peerlane_event events[NR];
	struct peerlane_io io[NR];
	struct peerlane_batch *b;

	(void)state;
	one(BYTES, 0);
	if (!mapped())
		skip();
	assert_int_equal(peerlane_batch_create(ctx, NR, &b), 0);
	/* Every second piece of the file, not the last one. */
	for (unsigned int i = 0; i < NR / 2; i++)
		io[i] = (struct peerlane_io){
			.file = file,
			.addr = gpu + 2 * i * part,
			.bytes = part,
			.offset = (off_t)(2 * i * part),
			.op = PEERLANE_WRITE,
		};
	nr_noted = 0;
	assert_int_equal(peerlane_batch_submit(b, io, NR / 2), 0);
	assert_int_equal(peerlane_batch_wait(b, NR / 2, events, NR, NULL), NR / 2);
	peerlane_batch_destroy(b);
	for (unsigned int i = 0; i < nr_noted; i++)
		assert_int_equal((size_t)noted[i] / part % 2, 0);
	sim_assert_file(path, 0, BYTES, 1);
}

#define touch_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		touch_test(inside),
		touch_test(batches),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
