// SPDX-License-Identifier: MIT
/* The CUDA back end over the fake libcuda: pinned memory, its own and what others made. */
#include "fake/cuda_fixture.h"

#include <sys/mman.h>

/* Memory of ours where it can be, else the driver's; never any left behind, and the same to use. */
static void test_pin_large(void **state)
{
	static const char *const faults[] = { NULL, "cuMemHostRegister:0:2:1",
					      "cuMemHostGetDevicePointer:0:999:1", NULL };
	const size_t bytes = (size_t)6 << 20;
	struct pl_mem mem;
	uint64_t there;
	void *pinned;

	(void)state;
	for (int i = 0; i < 4; i++) {
		inject(faults[i]);
		if (i == 3)
			setenv("FAKE_CUDA_OTHER_ADDRESS", "1", 1);
		assert_int_equal(ops->pin_alloc(gpu, bytes, &pinned), 0);
		inject(NULL);
		/* Huge pages can only be had at such addresses. */
		assert_true(i || (uintptr_t)pinned % ((size_t)2 << 20) == 0);
		assert_int_equal(ops->query(gpu, (char *)pinned + bytes - 1, &mem), 0);
		assert_int_equal(mem.kind, PL_MEM_PINNED);
		assert_int_equal(ops->pin_address(gpu, 0, pinned, (void **)&there), 0);
		assert_true(there == (uintptr_t)pinned);
		memset(pinned, 0x5a, bytes);
		ops->pin_free(gpu, pinned, bytes);
		unsetenv("FAKE_CUDA_OTHER_ADDRESS");
		assert_int_equal(ops->query(gpu, pinned, &mem), 0);
		assert_int_equal(mem.kind, PL_MEM_HOST);
	}
	inject("cuMemHostRegister:0:2:1,cuMemHostAlloc:0:2:1");
	assert_int_equal(ops->pin_alloc(gpu, bytes, &pinned), -ENOMEM);
	inject(NULL);
}

/* Smaller ones share a huge page, whichever comes and goes; what could not be had so is the driver's. */
static void test_pin_parts(void **state)
{
	static const size_t sizes[] = { (size_t)1 << 20, (size_t)1 << 17, (size_t)1 << 19 };
	unsigned char *parts[3][40];
	struct pl_mem mem;

	(void)state;
	for (int i = 0; i < 40; i++) {
		for (int s = 0; s < 3; s++) {
			inject(i % 9 == 8 ? "cuMemHostRegister:0:2:1" : NULL);
			assert_int_equal(ops->pin_alloc(gpu, sizes[s], (void **)&parts[s][i]), 0);
			memset(parts[s][i], i * 3 + s, sizes[s]);
			/* One in the middle goes and is had again. */
			if (i % 7 == 6) {
				ops->pin_free(gpu, parts[s][i - 3], sizes[s]);
				assert_int_equal(
					ops->pin_alloc(gpu, sizes[s], (void **)&parts[s][i - 3]),
					0);
				memset(parts[s][i - 3], (i - 3) * 3 + s, sizes[s]);
			}
		}
	}
	inject(NULL);
	for (int i = 0; i < 40; i++) {
		for (int s = 0; s < 3; s++) {
			unsigned char *p = parts[s][(i * 7) % 40];
			unsigned char is = (unsigned char)((i * 7) % 40 * 3 + s);

			assert_true(p[0] == is && p[sizes[s] / 2] == is && p[sizes[s] - 1] == is);
			assert_int_equal(ops->query(gpu, p, &mem), 0);
			assert_int_equal(mem.kind, PL_MEM_PINNED);
			ops->pin_free(gpu, p, sizes[s]);
		}
	}
}

static void test_register(void **state)
{
	char *pages = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pl_mem mem;

	(void)state;
	assert_ptr_not_equal(pages, MAP_FAILED);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ops->pin_register(gpu, i, pages, 4 * PAGE), 0);
		assert_int_equal(ops->query(gpu, pages + PAGE, &mem), 0);
		assert_int_equal(mem.kind, PL_MEM_PINNED);
		assert_true(ops->pin_register(gpu, i, pages, PAGE) < 0);
		assert_int_equal(ops->result(), CU_ALREADY_REGISTERED);
		ops->pin_unregister(gpu, i, pages);
		assert_int_equal(ops->query(gpu, pages, &mem), 0);
		assert_int_equal(mem.kind, PL_MEM_HOST);
	}
	inject("cuMemHostRegister:0:801:1");
	assert_int_equal(ops->pin_register(gpu, 0, pages, PAGE), -EOPNOTSUPP);
	munmap(pages, 4 * PAGE);
	assert_true(ops->pin_register(gpu, 0, pages, PAGE) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pin_large),
		TEST(pin_parts),
		TEST(register),
	};

	return RUN_TESTS(tests);
}
