/* SPDX-License-Identifier: MIT */
/* What tests of streams served by a kernel need: the whole library over the fake libcuda, which
 * ends the program if a thread of the library calls the driver while a stream is served. One
 * program includes it once. */
#ifndef TESTS_FAKE_SERVE_FIXTURE_H
#define TESTS_FAKE_SERVE_FIXTURE_H

#include <peerlane/gpu.h>

#include "fake/cuda_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define ROOM (5 * MIB + 4099) /* of the memory and of the file */

static void *library;
static struct cuda_abi cu;
static __typeof__(fake_cuda_leaks) *leaks;
static __typeof__(fake_cuda_violations) *violations;
static __typeof__(fake_cuda_fail) *inject;
static __typeof__(fake_cuda_strict) *strict;

static void *primary;
static struct peerlane *ctx;
static struct peerlane_file *file;
static int fd;
static unsigned char *pattern, *scratch;

static inline void *to(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

static inline uint64_t gpu_alloc(size_t bytes)
{
	uint64_t addr = 0;

	assert_int_equal(cu.cuMemAlloc_v2(&addr, bytes), 0);
	return addr;
}

static inline void *stream_make(void)
{
	void *stream = NULL;

	assert_int_equal(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	return stream;
}

static inline void sync_stream(void *stream)
{
	assert_int_equal(cu.cuStreamSynchronize(stream), 0);
}

static inline void nap_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* A host function that keeps a stream until it is told. */
struct gate {
	int reached, open;
	unsigned int after_ms; /* for open_later() */
};

static inline void wait_at_gate(void *arg)
{
	struct gate *g = arg;

	__atomic_store_n(&g->reached, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE))
		nap_ms(1);
}

static inline void gate_open(struct gate *g)
{
	__atomic_store_n(&g->open, 1, __ATOMIC_RELEASE);
}

/* For a thread of its own. */
static inline void *open_later(void *arg)
{
	struct gate *g = arg;

	nap_ms(g->after_ms);
	gate_open(g);
	return NULL;
}

/* Whether memory has what is in the file. */
static inline void assert_like_file(uint64_t addr, off_t offset, size_t bytes)
{
	memset(scratch, 0x77, bytes);
	assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, addr, bytes), 0);
	assert_memory_equal(scratch, pattern + offset, bytes);
}

static inline struct peerlane_stats stats(void)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	assert_int_equal(peerlane_stats_get(ctx, &st), 0);
	return st;
}

static void open_context(unsigned int flags, size_t pool, unsigned int timeout_ms)
{
	const struct peerlane_options opt = { .size = sizeof(opt),
					      .backend = "cuda",
					      .flags = flags,
					      .pool_bytes = pool,
					      .timeout_ms = timeout_ms };
	char path[] = "/tmp/peerlane-serve-XXXXXX";

	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(pwrite(fd, pattern, ROOM, 0), ROOM);
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
}

static void close_context(void)
{
	if (file)
		assert_int_equal(peerlane_file_close(file), 0);
	file = NULL;
	peerlane_close(ctx);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	assert_int_equal(cu.cuDevicePrimaryCtxRetain(&primary, 0), 0);
	assert_int_equal(cu.cuCtxPushCurrent_v2(primary), 0);
	pattern = malloc(ROOM);
	scratch = malloc(ROOM);
	assert_true(pattern && scratch);
	for (size_t i = 0; i < ROOM; i++)
		pattern[i] = (unsigned char)(i * 31 + i / 4093);
	strict(FAKE_STRICT_CALLS);
	alarm(150);
	return 0;
}

static int teardown(void **state)
{
	char text[1024];

	(void)state;
	alarm(0);
	strict(0);
	inject(NULL);
	free(pattern);
	free(scratch);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_int_equal(cu.cuDevicePrimaryCtxRelease_v2(0), 0);
	if (leaks(text, sizeof(text)))
		fail_msg("leaked: %s", text);
	if (violations(text, sizeof(text)))
		fail_msg("rules broken: %s", text);
	return 0;
}

/* After a test that leaves a context behind: what that has stays for ever, so such a test comes last. */
static inline int teardown_left_behind(void **state)
{
	char text[1024];

	(void)state;
	alarm(0);
	strict(0);
	free(pattern);
	free(scratch);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	if (violations(text, sizeof(text)))
		fail_msg("rules broken: %s", text);
	return 0;
}

static void load(void *where, const char *symbol)
{
	void *sym = dlsym(library, symbol);

	if (sym)
		memcpy(where, &sym, sizeof(sym));
}

static bool find_fake(void)
{
	const char *path = getenv("FAKE_LIBCUDA");

	if (!path) {
		puts("FAKE_LIBCUDA does not name the fake libcuda");
		return false;
	}
	setenv("PEERLANE_LIBCUDA", path, 1);
	library = dlopen(path, RTLD_NOW);
	if (!library || cuda_abi_load(&cu, library))
		exit(1);
	load(&leaks, "fake_cuda_leaks");
	load(&violations, "fake_cuda_violations");
	load(&inject, "fake_cuda_fail");
	load(&strict, "fake_cuda_strict");
	return leaks && violations && inject && strict && !cu.cuInit(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
#define RUN_TESTS(tests) (find_fake() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)

#endif
