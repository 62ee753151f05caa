// SPDX-License-Identifier: MIT
/*
 * Copies that never finish: every call returns within about its time-out with -ETIMEDOUT, other
 * requests go on when the GPU does again, and closing does not wait for ever.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BYTES (64 * MIB)
/* Of a sanitizer nothing goes forward that fast. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TIMEOUT_MS 1500
#else
#define TIMEOUT_MS 300
#endif
/* The bound is on standing still: a request gives up at most twice, and closing waits once. */
#define SOON 2.0

static const char *path;

static double slack(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return 3;
#else
	return 1;
#endif
}

static void run(const char *async, unsigned int after, enum fault_how how, enum peerlane_op op,
		size_t bytes, bool clear, unsigned int flags)
{
	struct peerlane *ctx;
	struct peerlane_file *f;
	char *gpu;
	double t;
	ssize_t n;

	CASE("%s %s of %zu, hang after %u, async %s, flags %#x, %s", fault_how_name[how],
	     op == PEERLANE_READ ? "read" : "write", bytes, after, async, flags,
	     clear ? "cleared" : "closed in it");
	setenv("PEERLANE_SIM_ASYNC", async, 1);
	ctx = fault_open(flags, TIMEOUT_MS);
	f = fault_file(ctx, path, O_RDWR);
	gpu = fault_gpu(ctx, BYTES);
	if (op == PEERLANE_WRITE)
		fault_pattern(fault_see(gpu), BYTES, 0, 1);
	CHECK_EQ(peerlane_sim_inject(ctx, "hang", after, 1000000), 0);
	t = fault_now();
	n = fault_io(how, ctx, f, op, gpu, bytes, 0);
	CHECK(fault_now() - t < SOON * slack());
	if (after)
		CHECK(n == -ETIMEDOUT || (n > 0 && n <= (ssize_t)bytes));
	else
		CHECK_EQ(n, -ETIMEDOUT);
	if (n > 0 && op == PEERLANE_READ)
		CHECK_EQ(fault_differs(fault_see(gpu), (size_t)n, 0, 1), n);
	if (clear) {
		CHECK_EQ(peerlane_sim_inject(ctx, "hang", 0, 0), 0);
		/* What hung may still end now, into the memory given then: this is other memory. */
		gpu = fault_gpu(ctx, BYTES);
		for (int i = 0; i < 2; i++) {
			memset(fault_see(gpu), 0, BYTES);
			CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0), BYTES);
			CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
		}
	}
	t = fault_now();
	CHECK_EQ(peerlane_file_close(f), 0);
	peerlane_close(ctx);
	CHECK(fault_now() - t < SOON * slack());
}

/* A batch of many requests: all end, none in time. */
static void many(void)
{
	enum { NR = 64 };
	struct peerlane_event e[NR];
	struct peerlane_io io[NR];
	struct peerlane_stats st = { .size = sizeof(st) };
	struct peerlane_batch *b;
	struct peerlane_file *f;
	struct peerlane *ctx;
	char *gpu;
	double t;

	CASE("batch of %d", NR);
	ctx = fault_open(0, TIMEOUT_MS);
	f = fault_file(ctx, path, O_RDWR);
	gpu = fault_gpu(ctx, BYTES);
	for (int i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){
			.file = f, .addr = gpu + i * 8192, .bytes = 8192, .offset = i * 8192
		};
	CHECK_EQ(peerlane_batch_create(ctx, NR, &b), 0);
	CHECK_EQ(peerlane_sim_inject(ctx, "hang", 0, 1000000), 0);
	t = fault_now();
	CHECK_EQ(peerlane_batch_submit(b, io, NR), 0);
	CHECK_EQ(peerlane_batch_wait(b, NR, e, NR, NULL), NR);
	CHECK(fault_now() - t < SOON * slack());
	for (int i = 0; i < NR; i++)
		CHECK_EQ(e[i].result, -ETIMEDOUT);
	CHECK_EQ(peerlane_sim_inject(ctx, "hang", 0, 0), 0);
	CHECK_EQ(peerlane_batch_submit(b, io, NR), 0);
	CHECK_EQ(peerlane_batch_wait(b, NR, e, NR, NULL), NR);
	for (int i = 0; i < NR; i++)
		CHECK_EQ(e[i].result, 8192);
	CHECK_EQ(fault_differs(fault_see(gpu), NR * 8192, 0, 1), NR * 8192);
	/* Destroyed in the middle of a hang. */
	CHECK_EQ(peerlane_sim_inject(ctx, "hang", 0, 1000000), 0);
	CHECK_EQ(peerlane_batch_submit(b, io, NR), 0);
	t = fault_now();
	peerlane_batch_destroy(b);
	CHECK(fault_now() - t < SOON * slack());
	CHECK_EQ(peerlane_stats_get(ctx, &st), 0);
	CHECK_EQ(st.in_flight, 0);
	CHECK_EQ(st.batches, 0);
	peerlane_close(ctx);
}

int main(void)
{
	fault_begin(50);
	path = fault_path("file");
	fault_make_file(path, BYTES, 1);
	run("0", 0, FAULT_SYNC, PEERLANE_READ, BYTES, true, 0);
	run("1", 0, FAULT_SYNC, PEERLANE_READ, BYTES, false, 0);
	run("1", 3, FAULT_SYNC, PEERLANE_READ, BYTES, true, 0);
	run("1", 2, FAULT_SYNC, PEERLANE_WRITE, BYTES, true, 0);
	run("0", 0, FAULT_SYNC, PEERLANE_WRITE, BYTES, false, 0);
	run("1", 0, FAULT_BATCH, PEERLANE_READ, BYTES, true, 0);
	run("0", 0, FAULT_BATCH, PEERLANE_WRITE, BYTES, false, 0);
	run("1", 0, FAULT_STREAM, PEERLANE_READ, BYTES, true, 0);
	run("0", 2, FAULT_STREAM, PEERLANE_WRITE, BYTES, false, 0);
	run("1", 0, FAULT_SYNC, PEERLANE_READ, 5000, true, 0);
	fault_make_cold(path);
	run("1", 1, FAULT_SYNC, PEERLANE_READ, BYTES, true, 0);
	/* The copy given up may end beside the one that takes its place: a race, and known. */
#ifndef __SANITIZE_THREAD__
	fault_make_cached(path);
	setenv("PEERLANE_SIM_IN_PLACE", "1", 1);
	run("1", 0, FAULT_SYNC, PEERLANE_READ, BYTES, true, PEERLANE_SAVE_CPU);
	run("1", 1, FAULT_SYNC, PEERLANE_READ, BYTES, false, PEERLANE_SAVE_CPU);
	unsetenv("PEERLANE_SIM_IN_PLACE");
#endif
	many();
	return 0;
}
