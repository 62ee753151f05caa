// SPDX-License-Identifier: MIT
/* Several copies go to the GPU together, and memory of one of them was freed: it is refused, and the others are made. */
#include "gpu/cuda_fixture.h"

#include <pthread.h>
#include <sys/uio.h>
#include <time.h>

static char *gpu_alloc(void)
{
	uint64_t addr;

	enter(primary);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, ROOM), 0);
	leave();
	return (char *)(uintptr_t)addr;
}

static void gpu_free(char *addr)
{
	enter(primary);
	assert_int_equal(cu.cuMemFree_v2((uintptr_t)addr), 0);
	leave();
}

#define PART (256u * 1024)

/* Of several copies that go at once one is to or from memory that was freed. */
static void test_freed_among_others(void **state)
{
	char *good = gpu_alloc(), *gone = gpu_alloc();
	struct iovec iov[3];

	(void)state;
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, pattern, 3 * PART, 0), 3 * PART);
	assert_int_equal(peerlane_buffer_register(ctx, gone, ROOM, 0), 0);
	gpu_free(gone);
	for (unsigned int i = 0; i < 3; i++) {
		iov[0] = (struct iovec){ good + 2 * PART, PART };
		iov[1] = (struct iovec){ good, PART };
		iov[2] = (struct iovec){ good + 4 * PART, PART };
		iov[i].iov_base = gone;
		assert_in_range(peerlane_readv(file, iov, 3, 0) + 1000, 0, i * PART + 1000);
		assert_in_range(peerlane_writev(file, iov, 3, 0, 0) + 1000, 0, i * PART + 1000);
	}
	assert_int_equal(peerlane_buffer_release(ctx, gone), 0);
	/* And nothing is broken afterwards. */
	assert_int_equal(pwrite(fd, pattern, PART, 0), PART);
	assert_int_equal(peerlane_read(file, good, PART, 0), PART);
	assert_int_equal(peerlane_gpu_copy(ctx, scratch, good, PART), 0);
	assert_memory_equal(scratch, pattern, PART);
	gpu_free(good);
}

#define CALL (1u << 20)
#define NR_CALLS 24u

struct reader {
	pthread_t thread;
	char *addr;
	unsigned int *next; /* call; atomic */
	unsigned int right, failed;
};

static void *read_in_turn(void *arg)
{
	struct reader *r = arg;
	unsigned int i;

	while ((i = __atomic_fetch_add(r->next, 1, __ATOMIC_RELAXED)) < 8 * NR_CALLS) {
		off_t at = (off_t)(i % NR_CALLS * CALL);

		if (peerlane_read(file, r->addr, CALL, at) == CALL)
			r->right++;
		else
			r->failed++;
	}
	return NULL;
}

/* Copies of threads that read a file in turns go together: memory of one of them was freed. */
static void test_freed_among_threads(void **state)
{
	struct reader readers[5] = { 0 };
	const struct timespec old = { .tv_nsec = 200000000 };
	unsigned int next = 0;

	(void)state;
	assert_int_equal(ftruncate(fd, 0), 0);
	for (unsigned int i = 0; i < NR_CALLS; i++)
		assert_int_equal(pwrite(fd, pattern, CALL, (off_t)(i * CALL)), CALL);
	assert_int_equal(fsync(fd), 0);
	nanosleep(&old, NULL);
	for (unsigned int i = 0; i < 5; i++) {
		readers[i].addr = gpu_alloc();
		readers[i].next = &next;
	}
	assert_int_equal(peerlane_buffer_register(ctx, readers[4].addr, ROOM, 0), 0);
	gpu_free(readers[4].addr);
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, read_in_turn, &readers[i]), 0);
	for (unsigned int i = 0; i < 5; i++)
		pthread_join(readers[i].thread, NULL);
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(readers[i].failed, 0);
		assert_int_equal(peerlane_gpu_copy(ctx, scratch, readers[i].addr, CALL), 0);
		if (readers[i].right)
			assert_memory_equal(scratch, pattern, CALL);
		gpu_free(readers[i].addr);
	}
	assert_int_equal(readers[4].right, 0);
	assert_int_equal(peerlane_buffer_release(ctx, readers[4].addr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freed_among_others),
		cmocka_unit_test(test_freed_among_threads),
	};
	const char *why = start_cuda();

	return why ? skip_all(why) : cmocka_run_group_tests(tests, setup, teardown);
}
