// SPDX-License-Identifier: MIT
/* Work of the library's own in the order of a stream. */
#include "sim/sim_fixture.h"

#include "file.h"
#include "stream.h"

struct work {
	struct peerlane_file *file;
	char *gpu;
	size_t bytes; /* set after it was queued */
	size_t shift;
	int refuse;
	ssize_t result;
	unsigned int begun, calls;
};

static int begin(void *arg, struct pl_stream_what *what)
{
	struct work *w = arg;

	w->begun++;
	*what = (struct pl_stream_what){ .shift = w->shift, .bytes = w->bytes };
	return w->refuse;
}

static int nap(void *arg, struct pl_stream_what *what)
{
	(void)arg;
	(void)what;
	sim_nap_ms(50);
	return 0;
}

static void end(void *arg, ssize_t n, size_t p2p)
{
	struct work *w = arg;

	assert_int_equal(p2p, 0);
	w->calls++;
	w->result = n;
}

static const struct pl_stream_work do_read = { begin, end }, do_nap = { nap, end };

static void in_order(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("run", 100000, 3), O_RDONLY);
	struct work w = { .file = file, .gpu = sim_alloc(ctx, 100000), .result = -1 };
	struct work late = w;
	bool queued = false;
	void *stream;

	(void)state;
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	w.bytes = 100000;
	assert_int_equal(
		pl_stream_run(file, PEERLANE_READ, w.gpu, 0, 0, stream, &do_read, &w, &queued), 0);
	assert_true(queued);
	late.bytes = 10;
	late.shift = 50000;
	assert_int_equal(
		pl_stream_run(file, PEERLANE_READ, w.gpu, 0, 0, stream, &do_read, &late, &queued),
		0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(w.result, 100000);
	assert_int_equal(late.result, 10);
	assert_int_equal(w.calls + late.calls, 2);
	sim_assert_gpu(ctx, w.gpu, 50000, 0, 3);
	sim_assert_gpu(ctx, w.gpu + 50000, 10, 0, 3);
	sim_assert_gpu(ctx, w.gpu + 50010, 100000 - 50010, 50010, 3);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(
		pl_stream_run(file, PEERLANE_READ, w.gpu, 0, 0, stream, &do_read, &w, &queued),
		-EBADF);
	assert_false(queued);
	assert_int_equal(w.calls, 1);
	peerlane_gpu_stream_destroy(ctx, stream);
	peerlane_close(ctx);
}

static void refused(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("refuse", 5000, 3), O_RDONLY);
	struct work w = { .gpu = sim_alloc(ctx, 5000), .bytes = 5000, .refuse = -EPERM };
	bool queued = false;

	(void)state;
	assert_int_equal(
		pl_stream_run(file, PEERLANE_READ, w.gpu, 0, 0, NULL, &do_read, &w, &queued), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, NULL), 0);
	assert_int_equal(w.begun + w.calls, 2);
	assert_int_equal(w.result, -EPERM);
	assert_int_equal(sim_stats(ctx).read.ok + sim_stats(ctx).read.failed, 0);
	sim_close(ctx, file, w.gpu);
}

/* A file that is left while a stream has still to come to it. */
static void left_behind(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("leave", 5000, 3), O_RDONLY);
	struct work w = { .file = file, .gpu = sim_alloc(ctx, 5000), .bytes = 5000 };
	unsigned int fds = sim_count_fds();
	bool queued = false;

	(void)state;
	w.gpu = sim_alloc(ctx, 5000);
	assert_int_equal(
		pl_stream_run(file, PEERLANE_READ, w.gpu, 0, 0, NULL, &do_nap, &w, &queued), 0);
	pl_file_leave(file);
	assert_int_equal(peerlane_read(file, w.gpu, 10, 0), -EBADF);
	assert_int_equal(peerlane_file_close(file), -EBADF);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, NULL), 0);
	assert_int_equal(w.calls, 1);
	assert_int_equal(sim_stats(ctx).files, 0);
	assert_true(sim_count_fds() < fds);
	peerlane_close(ctx);
}

static void not_for_this_file(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("ro", 100, 3), O_RDONLY);
	struct work w = { .file = file, .gpu = sim_alloc(ctx, 100) };
	bool queued = true;

	(void)state;
	assert_int_equal(
		pl_stream_run(file, PEERLANE_WRITE, w.gpu, 0, 0, NULL, &do_read, &w, &queued),
		-EBADF);
	assert_false(queued);
	assert_int_equal(
		pl_stream_run(file, PEERLANE_READ, w.gpu, 0, 0, (void *)16, &do_read, &w, &queued),
		-EINVAL);
	assert_false(queued);
	assert_int_equal(w.calls, 0);
	peerlane_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(in_order),
		sim_test(refused),
		sim_test(left_behind),
		sim_test(not_for_this_file),
	};

	sim_alarm(60);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
