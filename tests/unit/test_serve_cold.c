// SPDX-License-Identifier: MIT
/* Reads on a stream of a file that is not in the page cache: what is on its way from the device when the stream gets
 * there is waited for and used, not thrown away. */
#include "fake/ahead_fixture.h"

#define ROUNDS 20u

/* Out of the page cache; false where the file system keeps it. */
static bool chill(void)
{
	const off_t end = NR_CALLS * CALL;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };

	assert_int_equal(fdatasync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, end, POSIX_FADV_DONTNEED), 0);
	/* Without waiting nothing is read of what is not there. */
	return preadv2(fd, &iov, 1, end / 2, RWF_NOWAIT) != 1;
}

static void test_used(void **state)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL), ahead = 0;
	bool cold = false;

	(void)state;
	open_quiet(0, 0);
	for (unsigned int i = 0; i < ROUNDS && !ahead && chill(); i++) {
		uint64_t before = stats().read.path_bytes[PEERLANE_PATH_DIRECT];

		ahead = read_all(1, addr);
		cold |= stats().read.path_bytes[PEERLANE_PATH_DIRECT] - before >= NR_CALLS * CALL;
	}
	close_context();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	/* Not where the file comes from memory, or by another way. */
	if (!cold)
		skip();
	assert_in_range(ahead, 1, NR_CALLS * CALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(used),
	};

	return RUN_TESTS(tests);
}
