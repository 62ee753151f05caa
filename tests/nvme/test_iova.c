// SPDX-License-Identifier: MIT
/* Addresses behind an IOMMU: no two allocations overlap, and all come back as what they were. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "iova.h"

static const struct pl_iova_range two[] = { { 0x100000, 0xfedfffff },
					    { 0xfef00000, 0x7fffffffffULL } };

static void test_edges(void **state)
{
	struct pl_iova iova;
	uint64_t a, b;

	(void)state;
	assert_int_equal(pl_iova_init(&iova, &(struct pl_iova_range){ 0x1000, 0x4fff }, 1), 0);
	assert_int_equal(pl_iova_alloc(&iova, 0x5000, 0x1000, &a), -ENOSPC);
	assert_int_equal(pl_iova_alloc(&iova, 0x1000, 0x4000, &a), 0);
	assert_int_equal(a, 0x4000);
	/* The rest before it, whole; then nothing is left. */
	assert_int_equal(pl_iova_alloc(&iova, 0x3000, 0x1000, &b), 0);
	assert_int_equal(b, 0x1000);
	assert_int_equal(pl_iova_alloc(&iova, 1, 1, &b), -ENOSPC);
	pl_iova_free(&iova, 0x1000, 0x3000);
	pl_iova_free(&iova, a, 0x1000);
	assert_int_equal(iova.nr, 1);
	assert_int_equal(iova.ranges[0].first, 0x1000);
	assert_int_equal(iova.ranges[0].last, 0x4fff);
	pl_iova_fini(&iova);

	/* Up to the very last address there is. */
	assert_int_equal(pl_iova_init(&iova, &(struct pl_iova_range){ 0, UINT64_MAX }, 1), 0);
	assert_int_equal(pl_iova_alloc(&iova, UINT64_MAX, 1, &a), 0);
	assert_int_equal(pl_iova_alloc(&iova, 1, 1, &b), 0);
	assert_true(b == UINT64_MAX);
	assert_int_equal(pl_iova_alloc(&iova, 1, 1, &b), -ENOSPC);
	pl_iova_free(&iova, UINT64_MAX, 1);
	assert_int_equal(pl_iova_alloc(&iova, 1, 1 << 12, &b), -ENOSPC);
	pl_iova_free(&iova, a, UINT64_MAX);
	assert_int_equal(iova.nr, 1);
	assert_true(iova.ranges[0].last == UINT64_MAX);
	pl_iova_fini(&iova);
}

/* Ranges that are apart stay so, whatever is taken of them. */
static void test_holes(void **state)
{
	struct pl_iova iova;
	uint64_t at[600];
	size_t i, nr = 0;

	(void)state;
	assert_int_equal(pl_iova_init(&iova, two, 2), 0);
	for (i = 0; i < 600; i++) {
		assert_int_equal(pl_iova_alloc(&iova, 8 << 20, 4096, &at[i]), 0);
		assert_true(at[i] + (8 << 20) <= 0xfee00000 || at[i] >= 0xfef00000);
		nr += at[i] >= 0xfef00000;
	}
	assert_true(nr > 0);
	for (i = 0; i < 600; i++)
		pl_iova_free(&iova, at[i], 8 << 20);
	assert_int_equal(iova.nr, 2);
	assert_int_equal(iova.ranges[1].first, 0xfef00000);
	pl_iova_fini(&iova);
}

struct piece {
	uint64_t at, bytes;
};

static void test_random(void **state)
{
	static struct piece live[200];
	struct pl_iova iova;
	unsigned int seed = 1;
	size_t nr = 0, i;

	(void)state;
	assert_int_equal(pl_iova_init(&iova, two, 2), 0);
	for (int round = 0; round < 20000; round++) {
		if (nr < 200 && rand_r(&seed) % 5 < 3) {
			uint64_t align = (uint64_t)4096 << rand_r(&seed) % 12;
			struct piece p = { 0, (uint64_t)4096 * (1 + rand_r(&seed) % 5000) };

			assert_int_equal(pl_iova_alloc(&iova, p.bytes, align, &p.at), 0);
			assert_int_equal(p.at % align, 0);
			for (i = 0; i < nr; i++)
				assert_true(p.at + p.bytes <= live[i].at ||
					    live[i].at + live[i].bytes <= p.at);
			live[nr++] = p;
		} else if (nr) {
			i = (size_t)rand_r(&seed) % nr;
			pl_iova_free(&iova, live[i].at, live[i].bytes);
			live[i] = live[--nr];
		}
	}
	while (nr) {
		nr--;
		pl_iova_free(&iova, live[nr].at, live[nr].bytes);
	}
	assert_int_equal(iova.nr, 2);
	for (i = 0; i < 2; i++) {
		assert_true(iova.ranges[i].first == two[i].first);
		assert_true(iova.ranges[i].last == two[i].last);
	}
	pl_iova_fini(&iova);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
