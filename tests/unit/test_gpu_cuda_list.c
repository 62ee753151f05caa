// SPDX-License-Identifier: MIT
/* Copies that the CUDA back end gives to the driver as one list, on the fake libcuda. */
#include "fake/cuda_fixture.h"

#define NR_PARTS 5u
#define PART (40u * 1024) /* not small */

/* The whole of @l in parts, the last first: they cannot be joined. */
static int copy_parts(struct lane *l, enum pl_dir dir)
{
	struct pl_copy list[NR_PARTS];

	for (unsigned int i = 0; i < NR_PARTS; i++) {
		size_t at = (NR_PARTS - 1 - i) * PART;
		char *dev = (char *)l->dev + at, *pinned = (char *)l->pinned + at;

		list[i] = (struct pl_copy){ dir == PL_TO_GPU ? dev : pinned,
					    dir == PL_TO_GPU ? pinned : dev, PART };
	}
	return ops->copy(gpu, l->queue, dir, list, NR_PARTS, l->mark);
}

/* Several copies go as one list; where the driver does not take it, one by one. */
static void test_copy_list(void **state)
{
	static const char *const refusals[] = {
		"cuMemcpyHtoDAsync:0:719:99,cuMemcpyDtoHAsync:0:719:99",
		"cuMemcpyBatchAsync:0:801:99"
	};
	static unsigned char all[NR_PARTS * PART];
	struct lane l;

	(void)state;
	lane_open(&l, 0, sizeof(all));
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(inject(refusals[i]), 0);
		fill(all, sizeof(all), i + 1);
		memcpy(l.pinned, all, sizeof(all));
		assert_int_equal(copy_parts(&l, PL_TO_GPU), 0);
		assert_int_equal(wait_mark(l.mark), 1);
		memset(l.pinned, 0, sizeof(all));
		assert_int_equal(copy_parts(&l, PL_FROM_GPU), 0);
		assert_int_equal(wait_mark(l.mark), 1);
		assert_memory_equal(l.pinned, all, sizeof(all));
	}
	inject(NULL);
	lane_close(&l, sizeof(all));
}

/* One of several goes to memory that was freed: that is said, and the others are made. */
static void test_copy_list_to_freed(void **state)
{
	static unsigned char all[NR_PARTS * PART], back[NR_PARTS * PART];
	struct pl_copy list[2];
	struct lane l;
	void *gone;

	(void)state;
	lane_open(&l, 0, sizeof(all));
	gone = alloc(0, PART);
	assert_int_equal(ops->free(gpu, gone), 0);
	fill(all, sizeof(all), 3);
	memcpy(l.pinned, all, sizeof(all));
	list[0] = (struct pl_copy){ l.dev, l.pinned, PART };
	list[1] = (struct pl_copy){ gone, l.pinned, PART };
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, list, 2, l.mark), -EFAULT);
	assert_int_equal(wait_mark(l.mark), 1);
	assert_int_equal(ops->copy_sync(gpu, back, l.dev, PART), 0);
	assert_memory_equal(back, all, PART);
	lane_close(&l, sizeof(all));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(copy_list),
		TEST(copy_list_to_freed),
	};

	return RUN_TESTS(tests);
}
