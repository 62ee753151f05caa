// SPDX-License-Identifier: MIT
/* Large cached reads from the page cache pinned in place, and what happens when that fails in the
 * middle: the ordinary way does the rest, and never is a byte missing that was counted. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define BYTES (97 * MIB + 12345)

static const char *path;

static int group_setup(void **state)
{
	if (sim_group_setup(state))
		return -1;
	path = strdup(sim_make_file("large", BYTES, 1));
	return 0;
}

static int group_teardown(void **state)
{
	free((void *)(uintptr_t)path);
	return sim_group_teardown(state);
}

/* Has all of the file in the page cache. */
static void warm(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *mem = malloc(4 * MIB);

	while (read(fd, mem, 4 * MIB) > 0)
		;
	free(mem);
	close(fd);
}

struct rig {
	struct peerlane *ctx;
	struct peerlane_file *file;
	char *gpu;
};

static void rig_open(struct rig *r, const char *env, unsigned int flags)
{
	struct peerlane_options opt = { .flags = flags, .timeout_ms = 20000 };

	sim_env(env);
	warm();
	r->ctx = sim_open_with(&opt);
	r->file = sim_file(r->ctx, path, O_RDONLY);
	r->gpu = sim_alloc(r->ctx, BYTES);
}

static void rig_close(struct rig *r)
{
	sim_close(r->ctx, r->file, r->gpu);
}

static uint64_t placed(struct rig *r)
{
	return sim_stats(r->ctx).read.path_bytes[PEERLANE_PATH_IN_PLACE];
}

static void whole(void **state)
{
	static const char *const envs[] = { "SIM_IN_PLACE=1", "SIM_IN_PLACE=1 SIM_ASYNC=1000" };
	struct rig r;

	(void)state;
	for (int i = 0; i < 2; i++) {
		rig_open(&r, envs[i], PEERLANE_SAVE_CPU);
		assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
		sim_assert_gpu(r.ctx, r.gpu, BYTES, 0, 1);
		assert_int_equal(placed(&r), BYTES);
		sim_gpu_set(r.ctx, r.gpu, 0, BYTES);
		assert_int_equal(peerlane_read(r.file, r.gpu + 3, 90 * MIB, 4097), 90 * MIB);
		sim_assert_gpu(r.ctx, r.gpu + 3, 90 * MIB, 4097, 1);
		sim_assert_gpu_is(r.ctx, r.gpu, 0, 3);
		/* Past the end. */
		assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 20 * (off_t)MIB),
				 BYTES - 20 * MIB);
		sim_assert_gpu(r.ctx, r.gpu, BYTES - 20 * MIB, 20 * (off_t)MIB, 1);
		assert_int_equal(sim_stats(r.ctx).in_place_failures, 0);
		rig_close(&r);
	}
}

/* Off, refused by the driver, or not all in memory: by copies, and the data is the same. */
static void not_taken(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, "SIM_IN_PLACE=1", PEERLANE_SAVE_CPU | PEERLANE_NO_IN_PLACE);
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	assert_int_equal(placed(&r), 0);
	rig_close(&r);

	rig_open(&r, "", PEERLANE_SAVE_CPU);
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	sim_assert_gpu(r.ctx, r.gpu, BYTES, 0, 1);
	assert_int_equal(placed(&r), 0);
	assert_int_equal(sim_stats(r.ctx).in_place_failures, 1);
	/* One refusal is enough: it is not asked again. */
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	assert_int_equal(sim_stats(r.ctx).in_place_failures, 1);
	rig_close(&r);
}

static uint64_t copied(struct rig *r)
{
	return sim_stats(r->ctx).read.path_bytes[PEERLANE_PATH_COPY];
}

/* How fast a device is says nothing of copies from the page cache, with which reading in place is compared. */
static void devices_do_not_count(void **state)
{
	struct peerlane_file *direct;
	struct rig r;

	(void)state;
	rig_open(&r, "SIM_IN_PLACE=1 SIM_ASYNC=1000", 0);
	if (peerlane_file_open(r.ctx, path, O_RDONLY | O_DIRECT, 0, &direct)) {
		rig_close(&r);
		skip();
	}
	assert_int_equal(peerlane_read(direct, r.gpu, BYTES, 0), BYTES);
	assert_int_equal(peerlane_file_close(direct), 0);
	assert_int_equal(copied(&r), 0);
	warm();
	/* Copies were not measured yet. */
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	assert_int_equal(placed(&r), 0);
	/* They were slow. */
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	assert_true(placed(&r) > 0);
	rig_close(&r);
}

/* One slow copy does not settle it for ever. */
static void copies_are_tried_again(void **state)
{
	uint64_t first;
	struct rig r;

	(void)state;
	if (sim_slow())
		skip();
	rig_open(&r, "SIM_IN_PLACE=1 SIM_ASYNC=1000", 0);
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	first = copied(&r);
	assert_true(first > 0);
	for (int i = 0; i < 50 && copied(&r) == first; i++)
		assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	assert_true(placed(&r) > 0);
	assert_true(copied(&r) > first);
	sim_assert_gpu(r.ctx, r.gpu, BYTES, 0, 1);
	rig_close(&r);
}

static void partly_cold(void **state)
{
	struct rig r;
	int fd;

	(void)state;
	rig_open(&r, "SIM_IN_PLACE=1", PEERLANE_SAVE_CPU);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fdatasync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 70 * (off_t)MIB, 4 * (off_t)MIB, POSIX_FADV_DONTNEED),
			 0);
	close(fd);
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	sim_assert_gpu(r.ctx, r.gpu, BYTES, 0, 1);
	rig_close(&r);
}

/* Operation number @after of kind @what fails: what is counted is in place. */
static void fails_at(const char *env, const char *what, unsigned int after)
{
	struct rig r;
	ssize_t n;

	rig_open(&r, env, PEERLANE_SAVE_CPU);
	sim_gpu_set(r.ctx, r.gpu, 0, BYTES);
	assert_int_equal(peerlane_sim_inject(r.ctx, what, after, 1), 0);
	n = peerlane_read(r.file, r.gpu, BYTES, 0);
	assert_int_equal(peerlane_sim_inject(r.ctx, what, 0, 0), 0);
	assert_true(n == -EREMOTEIO || n > 0);
	if (n > 0 && sim_gpu_differs(r.ctx, r.gpu, (size_t)n, 0, 1) != (size_t)n)
		fail_msg("%s, %s %u fails: %zd bytes counted, wrong from %zu", env, what, after, n,
			 sim_gpu_differs(r.ctx, r.gpu, (size_t)n, 0, 1));
	/* And it works again. */
	assert_int_equal(peerlane_read(r.file, r.gpu, BYTES, 0), BYTES);
	sim_assert_gpu(r.ctx, r.gpu, BYTES, 0, 1);
	rig_close(&r);
}

static void copy_fails(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < (sim_slow() ? 1 : 3); i++)
		fails_at("SIM_IN_PLACE=1", "copy", i);
}

static void copy_fails_async(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < (sim_slow() ? 1 : 3); i++)
		fails_at("SIM_IN_PLACE=1 SIM_ASYNC=500", "copy", i);
}

static void event_fails(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < (sim_slow() ? 1 : 3); i++)
		fails_at("SIM_IN_PLACE=1", "event", i);
}

static void pinning_fails(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < (sim_slow() ? 1 : 3); i++)
		fails_at("SIM_IN_PLACE=1", "register", i);
}

struct cut {
	const char *path;
	off_t size;
	bool done;
};

static unsigned int count_windows(const char *of)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned int nr = 0;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		nr += strstr(line, of) != NULL;
	if (maps)
		fclose(maps);
	return nr;
}

/* Waits until all three windows of the read are mapped and none is copied, then cuts the file. */
static void *cutter(void *arg)
{
	struct cut *c = arg;

	for (int i = 0; i < 20000 && count_windows(c->path) < 3; i++)
		usleep(500);
	c->done = !truncate(c->path, c->size);
	return NULL;
}

/* A file cut short while its pages are copied: where nothing is any more nothing is counted. */
static void cut_short(size_t bytes, size_t left)
{
	struct cut c = { .size = (off_t)left };
	struct peerlane_file *file;
	pthread_t thread;
	struct rig r;

	c.path = sim_make_file("cut", bytes, 2);
	rig_open(&r, "SIM_IN_PLACE=1 SIM_ASYNC=300000", PEERLANE_SAVE_CPU);
	file = sim_file(r.ctx, c.path, O_RDONLY);
	assert_int_equal(pthread_create(&thread, NULL, cutter, &c), 0);
	assert_int_equal(peerlane_read(file, r.gpu, bytes, 0), left);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(c.done);
	sim_assert_gpu(r.ctx, r.gpu, left, 0, 2);
	assert_true(placed(&r) <= left);
	assert_int_equal(peerlane_file_close(file), 0);
	rig_close(&r);
}

static void cut_meanwhile(void **state)
{
	(void)state;
	/* In the last page, which stays where it is: only its end becomes zeros. */
	cut_short(80 * MIB + 3000, 80 * MIB + 1000);
	cut_short(80 * MIB + 3000, 40 * MIB + 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(whole),
		sim_test(not_taken),
		sim_test(partly_cold),
		sim_test(cut_meanwhile),
		sim_test(copy_fails),
		sim_test(event_fails),
		sim_test(pinning_fails),
		sim_test(copy_fails_async),
		sim_test(devices_do_not_count),
		sim_test(copies_are_tried_again),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
