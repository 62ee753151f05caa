// SPDX-License-Identifier: MIT
/* Large writes over data in the page cache, across the places where the engine changes its window
 * on the file, alone and beside others. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define FILE_BYTES (140 * MIB + 4321)
#define BYTES (24 * MIB + 333)

static struct peerlane *ctx;
static const char *path;
static bool stop;

static int group_setup(void **state)
{
	if (sim_group_setup(state))
		return -1;
	path = strdup(sim_make_file("large", FILE_BYTES, 1));
	sim_make_file("small", 4 * MIB, 2);
	return 0;
}

static int group_teardown(void **state)
{
	free((void *)(uintptr_t)path);
	return sim_group_teardown(state);
}

/* Keeps the context busy with requests of its own. */
static void *neighbour(void *arg)
{
	struct peerlane_file *file = arg;
	uintptr_t bad = 0;
	void *gpu = NULL;

	bad |= peerlane_gpu_alloc(ctx, 0, 4 * MIB, &gpu) != 0;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && !bad) {
		bad |= peerlane_read(file, gpu, 4 * MIB, 0) != (ssize_t)(4 * MIB);
		bad |= !sim_slow() && sim_gpu_differs(ctx, gpu, 4 * MIB, 0, 2) != 4 * MIB;
	}
	bad |= peerlane_gpu_free(ctx, gpu) != 0;
	return (void *)bad;
}

static void write_at(struct peerlane_file *file, char *mem, off_t offset, unsigned int seed)
{
	size_t keep = 1000;

	sim_gpu_pattern(ctx, mem, BYTES, offset, seed);
	assert_int_equal(peerlane_write(file, mem, BYTES, offset, 0), BYTES);
	sim_assert_file(path, offset, BYTES, seed);
	sim_assert_file(path, offset - (off_t)keep, keep, 1);
	if (offset + (off_t)(BYTES + keep) <= (off_t)FILE_BYTES)
		sim_assert_file(path, offset + (off_t)BYTES, keep, 1);
	sim_gpu_pattern(ctx, mem, BYTES, offset, 1);
	assert_int_equal(peerlane_write(file, mem, BYTES, offset, 0), BYTES);
}

static void large(const char *env, unsigned int nr_neighbours, bool host)
{
	static const off_t offsets[] = { 56 * MIB, 50 * MIB + 77, 64 * MIB - 4096, 110 * MIB + 1,
					 FILE_BYTES - BYTES };
	struct peerlane_file *file, *small;
	pthread_t threads[4];
	char *mem;
	void *bad;

	sim_env(env);
	ctx = sim_open(0);
	file = sim_file(ctx, path, O_RDWR);
	small = sim_file(ctx, sim_path("small"), O_RDONLY);
	mem = host ? malloc(BYTES) : sim_alloc(ctx, BYTES);
	stop = false;
	for (unsigned int i = 0; i < nr_neighbours; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, neighbour, small), 0);
	for (size_t i = 0; i < (sim_slow() ? 2 : sizeof(offsets) / sizeof(offsets[0])); i++)
		write_at(file, mem, offsets[i], 3 + (unsigned int)i);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < nr_neighbours; i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(sim_file_size(path), FILE_BYTES);
	sim_assert_file(path, 0, FILE_BYTES, 1);
	if (host)
		free(mem);
	else
		sim_close(ctx, NULL, mem);
}

static void alone(void **state)
{
	(void)state;
	large("THREADS=1", 0, false);
	large("THREADS=8", 0, false);
}

static void alone_host(void **state)
{
	(void)state;
	large("THREADS=2", 0, true);
}

static void beside_others(void **state)
{
	(void)state;
	large("THREADS=1", 2, false);
	large("THREADS=2", 4, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(alone),
		sim_test(alone_host),
		sim_test(beside_others),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
