// SPDX-License-Identifier: MIT
/* DMA maps: addresses, pages, and what is refused. */
#include "nvme_test.h"

static void test_maps(void **state)
{
	struct peerlane_nvme_memory memory = { .size = sizeof(memory), .pin_fd = -1 };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_map *map;
	uint64_t address, pages[4];
	void *ptr;

	(void)state;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	memory.ptr = e.mem;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	memory.bytes = SIZE_MAX;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	memory.bytes = 4096;
	memory.flags = 0x80;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map(e.nvme, NULL, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map_host(NULL, e.mem, 1, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map_alloc(e.nvme, 0, &ptr, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map_alloc(e.nvme, SIZE_MAX, &ptr, &map), -EINVAL);
	peerlane_nvme_unmap(NULL);

	/* Not at a page, and ending in the middle of one. */
	assert_int_equal(peerlane_nvme_map_host(e.nvme, e.mem + 100, 8192, &map), 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 0, pages, 4), 3);
	assert_int_equal(pages[0] & 4095, 100);
	assert_int_equal(pages[1] & 4095, 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 2, pages, 4), 1);
	assert_int_equal(peerlane_nvme_map_pages(map, 3, pages, 4), 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 0, NULL, 4), -EINVAL);
	assert_int_equal(peerlane_nvme_map_address(map, 8191, &address, NULL), 0);
	assert_ptr_equal(fake_at(e.f, address, 1), e.mem + 100 + 8191);
	assert_int_equal(peerlane_nvme_map_address(map, 8192, &address, NULL), -EINVAL);
	peerlane_nvme_unmap(map);

	assert_int_equal(peerlane_nvme_map_alloc(e.nvme, 10000, &ptr, &map), 0);
	memset(ptr, 1, 10000);
	assert_int_equal(peerlane_nvme_map_address(map, 9999, &address, NULL), 0);
	env_close(&e); /* what is left is unmapped */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_maps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
