// SPDX-License-Identifier: MIT
/* Requests of a batch that fail: what their events say, that they do not count as cancelled, and that they hold nothing. */
#include "sim/sim_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#define BYTES (256 * KIB)
#define LIMIT (1 * MIB) /* of a file */
#define NR 4u

static void counted(void **state)
{
	struct rlimit old, less;
	struct peerlane_event events[NR];
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *f = sim_file(ctx, sim_make_file("failed", BYTES, 1), O_RDWR);
	char *gpu = sim_alloc(ctx, BYTES);
	struct peerlane_io io[NR];
	struct peerlane_batch *b;
	unsigned int failed = 0;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	less = (struct rlimit){ .rlim_cur = LIMIT, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 2);
	assert_int_equal(peerlane_batch_create(ctx, NR, &b), 0);
	/* Two inside of what may be written, two past it. */
	for (unsigned int i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){
			.file = f,
			.addr = gpu,
			.bytes = BYTES,
			.offset = (off_t)(i % 2 ? LIMIT + i * BYTES : i * BYTES),
			.op = PEERLANE_WRITE,
			.cookie = &io[i],
		};
	assert_int_equal(peerlane_batch_submit(b, io, NR), 0);
	assert_int_equal(peerlane_batch_wait(b, NR, events, NR, NULL), NR);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	for (unsigned int i = 0; i < NR; i++) {
		const struct peerlane_io *of = events[i].cookie;
		bool past = of->offset >= (off_t)LIMIT;

		assert_int_equal(events[i].result, past ? -EFBIG : (ssize_t)BYTES);
		failed += past;
	}
	assert_int_equal(failed, NR / 2);
	peerlane_batch_destroy(b);
	assert_int_equal(sim_stats(ctx).write.failed, NR / 2);
	assert_int_equal(sim_stats(ctx).cancelled, 0);
	sim_close(ctx, f, gpu);
}

/* What a request used is let go with its event, whatever became of it. */
static void let_go(void **state)
{
	struct peerlane_options opt = { .timeout_ms = 5000 };
	struct peerlane_event events[2];
	struct peerlane_batch *b;
	struct peerlane_file *f;
	struct peerlane_io io[2];
	struct peerlane *ctx;
	char *gpu;

	(void)state;
	ctx = sim_open_with(&opt);
	f = sim_file(ctx, sim_make_file("let go", BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), 0);
	assert_int_equal(peerlane_batch_create(ctx, 2, &b), 0);
	for (unsigned int failing = 0; failing < 2; failing++) {
		for (unsigned int i = 0; i < 2; i++)
			io[i] = (struct peerlane_io){ .file = f, .addr = gpu, .bytes = BYTES };
		assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, failing), 0);
		assert_int_equal(peerlane_batch_submit(b, io, 2), 0);
		assert_int_equal(peerlane_batch_wait(b, 2, events, 2, NULL), 2);
		assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 0), 0);
		assert_true(failing ? events[0].result < 0 || events[1].result < 0
				    : events[0].result == BYTES && events[1].result == BYTES);
	}
	peerlane_batch_destroy(b);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	sim_close(ctx, f, gpu);
}

/* A request of no bytes has its event, too. */
static void of_nothing(void **state)
{
	const struct timespec limit = { .tv_sec = 20 };
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *f = sim_file(ctx, sim_make_file("nothing", BYTES, 1), O_RDWR);
	char *gpu = sim_alloc(ctx, BYTES);
	struct peerlane_event events[NR];
	struct peerlane_batch *b;

	(void)state;
	assert_int_equal(peerlane_batch_create(ctx, NR, &b), 0);
	for (enum peerlane_op op = PEERLANE_READ; op <= PEERLANE_WRITE; op++) {
		struct peerlane_io io = { .file = f, .addr = gpu, .op = op, .cookie = &b };

		assert_int_equal(peerlane_batch_submit(b, &io, 1), 0);
		assert_int_equal(peerlane_batch_wait(b, 1, events, NR, &limit), 1);
		assert_int_equal(events[0].result, 0);
		assert_ptr_equal(events[0].cookie, &b);
	}
	peerlane_batch_destroy(b);
	sim_close(ctx, f, gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(counted),
		sim_test(let_go),
		sim_test(of_nothing),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
