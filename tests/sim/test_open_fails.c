// SPDX-License-Identifier: MIT
/* A context that cannot be opened leaves nothing behind: no memory, no thread, no descriptor, no mapping. */
#include "sim/sim_fixture.h"

#include <malloc.h>

#define TRIES 200

/* Each fails later than the one before. */
static int fail_at(unsigned int stage)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	struct peerlane *ctx = NULL;
	int err;

	switch (stage) {
	case 0: /* before anything is made */
		opt.nr_threads = 1000;
		break;
	case 1: /* no back end */
		opt.backend = "none such";
		break;
	default: /* with a back end */
		opt.pool_bytes = MIB;
		opt.slot_bytes = 16 * MIB;
		break;
	}
	err = peerlane_open(&ctx, &opt);
	assert_null(ctx);
	return err;
}

static void nothing_left(void **state)
{
	unsigned int fds, threads, maps;
	size_t heap;

	(void)state;
	for (unsigned int stage = 0; stage < 3; stage++) {
		assert_int_equal(fail_at(stage), -EINVAL);
		/* What is kept for good was made by then, that of this test too. */
		fds = sim_count_fds();
		threads = sim_count_threads();
		maps = sim_count_maps();
		heap = mallinfo2().uordblks;
		for (unsigned int i = 0; i < TRIES; i++)
			assert_int_equal(fail_at(stage), -EINVAL);
		assert_in_range(mallinfo2().uordblks, 0, heap + TRIES * sizeof(void *));
		assert_int_equal(sim_count_fds(), fds);
		assert_int_equal(sim_count_threads(), threads);
		assert_in_range(sim_count_maps(), 0, maps + 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(nothing_left),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
