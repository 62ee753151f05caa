// SPDX-License-Identifier: MIT
/* Durable writes to a namespace: the controller is told to keep nothing of them in its cache. That of the software
 * controller is memory of a file, which it writes with msync(). */
#include "sim/sim_fixture.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define SIZE (4 * MIB)

static unsigned int nr_syncs;

int msync(void *addr, size_t bytes, int flags)
{
	if (flags & MS_SYNC)
		__atomic_fetch_add(&nr_syncs, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_msync, addr, bytes, flags);
}

static struct peerlane *ctx;
static char *gpu;

/* How often the medium was written while @bytes were, at offset 0. */
static unsigned int syncs_of(int open_flags, unsigned int flags, size_t bytes, bool then_sync)
{
	char name[700];
	struct peerlane_file *f;
	unsigned int nr;

	sim_make_file("disk", SIZE, 3);
	snprintf(name, sizeof(name), "nvme:sim:file=%s,size=4M,bs=4096/1", sim_path("disk"));
	f = sim_file(ctx, name, O_RDWR | open_flags);
	nr = __atomic_exchange_n(&nr_syncs, 0, __ATOMIC_RELAXED);
	assert_int_equal(peerlane_write(f, gpu, bytes, 0, flags), bytes);
	if (then_sync)
		assert_int_equal(peerlane_file_sync(f), 0);
	nr = __atomic_load_n(&nr_syncs, __ATOMIC_RELAXED);
	assert_int_equal(peerlane_file_close(f), 0);
	return nr;
}

static void durable(void **state)
{
	static const size_t sizes[] = { 4096, 100, MIB, MIB + 77 };

	(void)state;
	ctx = sim_open(0);
	gpu = sim_alloc(ctx, 2 * MIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(syncs_of(0, 0, sizes[i], false), 0);
		assert_in_range(syncs_of(0, 0, sizes[i], true), 1, 1000);
		assert_in_range(syncs_of(O_DSYNC, 0, sizes[i], false), 1, 1000);
		assert_in_range(syncs_of(0, PEERLANE_DURABLE, sizes[i], false), 1, 1000);
	}
	sim_close(ctx, NULL, gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(durable),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
