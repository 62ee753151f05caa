/* SPDX-License-Identifier: MIT */
/* What tests of the CUDA back end need around each test: the fake libcuda, an open back end, and
 * the proof that nothing is left. One program includes it once. */
#ifndef TESTS_FAKE_CUDA_FIXTURE_H
#define TESTS_FAKE_CUDA_FIXTURE_H

#include "gpu.h"

#include "fake/cuda_abi.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define PAGE 4096u

static const char *fake_path; /* set by find_fake() */
static void *fake;
static struct cuda_abi cu;
static __typeof__(fake_cuda_leaks) *leaks;
static __typeof__(fake_cuda_violations) *violations;
static __typeof__(fake_cuda_fail) *inject;

static struct pl_gpu *gpu;
static const struct pl_gpu_ops *ops;

static void assert_clean(void)
{
	char text[1024];

	if (leaks(text, sizeof(text)))
		fail_msg("leaked: %s", text);
	if (violations(text, sizeof(text)))
		fail_msg("rules broken: %s", text);
}

static int setup(void **state)
{
	char why[160];

	(void)state;
	setenv("PEERLANE_LIBCUDA", fake_path, 1);
	unsetenv("FAKE_CUDA_GPUS");
	assert_int_equal(pl_gpu_cuda.open(&gpu, why, sizeof(why)), 0);
	ops = gpu->ops;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	inject(NULL);
	ops->close(gpu);
	assert_clean();
	return 0;
}

static void load(void *to, const char *symbol)
{
	void *sym = dlsym(fake, symbol);

	assert_non_null(sym);
	memcpy(to, &sym, sizeof(sym));
}

static int setup_group(void **state)
{
	(void)state;
	fake = dlopen(fake_path, RTLD_NOW);
	if (!fake)
		fail_msg("%s", dlerror());
	assert_null(cuda_abi_load(&cu, fake));
	load(&leaks, "fake_cuda_leaks");
	load(&violations, "fake_cuda_violations");
	load(&inject, "fake_cuda_fail");
	return 0;
}

static inline void *current(void)
{
	void *ctx = NULL;

	assert_int_equal(cu.cuCtxGetCurrent(&ctx), 0);
	return ctx;
}

static inline void *alloc(int ordinal, size_t bytes)
{
	void *addr = NULL;

	assert_int_equal(ops->alloc(gpu, ordinal, bytes, &addr), 0);
	assert_non_null(addr);
	return addr;
}

static inline void *owner_of(const void *addr)
{
	struct pl_mem mem;

	assert_int_equal(ops->query(gpu, addr, &mem), 0);
	assert_non_null(mem.owner);
	return mem.owner;
}

static inline void nap(void)
{
	const struct timespec ts = { .tv_nsec = 200000 };

	nanosleep(&ts, NULL);
}

/* Polls a mark for up to ten seconds. */
static inline int wait_mark(struct pl_mark *mark)
{
	int done = 0;

	for (int i = 0; i < 50000 && !done; i++) {
		done = ops->mark_done(gpu, mark);
		if (!done)
			nap();
	}
	return done;
}

static inline void fill(unsigned char *p, size_t bytes, unsigned int seed)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

/* A queue with a mark, and memory at both its ends. */
struct lane {
	void *dev;
	void *pinned;
	struct pl_queue *queue;
	struct pl_mark *mark;
};

static inline void lane_open(struct lane *l, int ordinal, size_t bytes)
{
	l->dev = alloc(ordinal, bytes);
	assert_int_equal(ops->pin_alloc(gpu, bytes, &l->pinned), 0);
	assert_int_equal(ops->queue_create(gpu, owner_of(l->dev), &l->queue), 0);
	assert_int_equal(ops->mark_create(gpu, l->queue, &l->mark), 0);
}

static inline void lane_close(struct lane *l, size_t bytes)
{
	ops->mark_destroy(gpu, l->mark);
	ops->queue_destroy(gpu, l->queue);
	ops->pin_free(gpu, l->pinned, bytes);
	if (l->dev)
		assert_int_equal(ops->free(gpu, l->dev), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

/* What main() returns for its list of tests. */
#define RUN_TESTS(tests) (find_fake() ? cmocka_run_group_tests(tests, setup_group, NULL) : 77)

static bool find_fake(void)
{
	fake_path = getenv("FAKE_LIBCUDA");
	if (!fake_path)
		puts("FAKE_LIBCUDA does not name the fake libcuda");
	return fake_path;
}

#endif
