// SPDX-License-Identifier: MIT
/* File I/O in the order of CUDA streams, beside other work of the program. */
#include "gpu/cuda_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#define KIB ((size_t)1 << 10)
#define APART (12 * MIB) /* places in the file */
#define NR_STREAMS 64u
#define STREAM_BYTES (256 * KIB + 13)
#define MANY 300u /* more than a GPU runs kernels at a time */
#define MANY_BYTES (24 * KIB + 5)
#define LARGE (100 * MIB + 3)
#define SMALL_LARGE (20 * MIB + 3) /* where time is short */
#define PATIENCE_S 110

static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
			  ".visible .entry reverse(.param .u64 a, .param .u64 b)\n{\nret;\n}\n";

static bool all(const unsigned char *p, size_t bytes, unsigned char value)
{
	return !bytes || (p[0] == value && !memcmp(p, p + 1, bytes - 1));
}

/* ------------------------------------------------------------------ many streams */

struct lane {
	void *ctx;
	void *stream;
	uint64_t addr;
	size_t bytes;
	off_t offset;
	ssize_t written, read;
};

static void lane_open(struct lane *l, unsigned int i)
{
	memset(l, 0, sizeof(*l));
	l->ctx = i & 1 ? second : primary;
	l->bytes = i < 4 ? BYTES : STREAM_BYTES;
	l->offset = (off_t)(i * APART + 1);
	enter(l->ctx);
	assert_int_equal(cu.cuStreamCreate(&l->stream, i & 2 ? CU_STREAM_NON_BLOCKING : 0), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&l->addr, l->bytes), 0);
	leave();
}

/* Fill, write, fill with something else, read back, and overwrite one byte: each step spoils the
 * result if it is done too early or too late. */
static void lane_queue(struct lane *l, unsigned char value)
{
	void *addr = (void *)(uintptr_t)l->addr;

	l->written = l->read = -1;
	enter(l->ctx);
	assert_int_equal(cu.cuMemsetD8Async(l->addr, value, l->bytes, l->stream), 0);
	assert_int_equal(peerlane_write_async(file, addr, &l->bytes, &l->offset, &l->written,
					      l->stream, PEERLANE_FIXED),
			 0);
	assert_int_equal(cu.cuMemsetD8Async(l->addr, 0xee, l->bytes, l->stream), 0);
	assert_int_equal(
		peerlane_read_async(file, addr, &l->bytes, &l->offset, &l->read, l->stream, 0), 0);
	assert_int_equal(cu.cuMemsetD8Async(l->addr + 1, 0x55, 1, l->stream), 0);
	leave();
}

static void lane_sync(struct lane *l)
{
	enter(l->ctx);
	assert_int_equal(cu.cuStreamSynchronize(l->stream), 0);
	leave();
}

static void lane_check(struct lane *l, unsigned char value)
{
	enter(l->ctx);
	assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, l->addr, l->bytes), 0);
	leave();
	assert_int_equal(l->written, l->bytes);
	assert_int_equal(l->read, l->bytes);
	assert_int_equal(scratch[0], value);
	assert_int_equal(scratch[1], 0x55);
	assert_true(all(scratch + 2, l->bytes - 2, value));
	assert_int_equal(pread(fd, scratch, l->bytes, l->offset), l->bytes);
	assert_true(all(scratch, l->bytes, value));
}

static void lane_close(struct lane *l)
{
	enter(l->ctx);
	assert_int_equal(cu.cuStreamDestroy_v2(l->stream), 0);
	assert_int_equal(cu.cuMemFree_v2(l->addr), 0);
	leave();
}

static void rounds(void (*meanwhile)(struct lane *lanes, unsigned int round))
{
	static struct lane lanes[NR_STREAMS];

	assert_int_equal(ftruncate(fd, 0), 0);
	for (unsigned int i = 0; i < NR_STREAMS; i++)
		lane_open(&lanes[i], i);
	for (unsigned int round = 0; round < 4; round++) {
		for (unsigned int i = 0; i < NR_STREAMS; i++)
			lane_queue(&lanes[i], (unsigned char)(i + round));
		if (meanwhile)
			meanwhile(lanes, round);
		/* In any order. */
		for (unsigned int i = 0; i < NR_STREAMS; i++)
			lane_sync(&lanes[i * 37 % NR_STREAMS]);
		for (unsigned int i = 0; i < NR_STREAMS; i++)
			lane_check(&lanes[i], (unsigned char)(i + round));
	}
	for (unsigned int i = 0; i < NR_STREAMS; i++)
		lane_close(&lanes[i]);
}

static void test_streams(void **state)
{
	(void)state;
	rounds(NULL);
}

/* Calls that wait for work of the context and keep the driver's lock. */
static void driver_calls(struct lane *lanes, unsigned int round)
{
	void *module, *streams[16];
	uint64_t addr;

	(void)round;
	enter(lanes[0].ctx);
	for (unsigned int i = 0; i < 16; i++)
		assert_int_equal(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, MIB), 0);
	assert_int_equal(cu.cuModuleLoadData(&module, ptx), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	assert_int_equal(cu.cuModuleUnload(module), 0);
	for (unsigned int i = 0; i < 16; i++)
		assert_int_equal(cu.cuStreamDestroy_v2(streams[i]), 0);
	leave();
}

static void test_beside_driver_calls(void **state)
{
	(void)state;
	rounds(driver_calls);
}

static void read_meanwhile(struct lane *lanes, unsigned int round)
{
	uint64_t addr;

	(void)round;
	enter(lanes[0].ctx);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, BYTES), 0);
	leave();
	for (unsigned int i = 0; i < 8; i++)
		assert_true(peerlane_read(file, (void *)(uintptr_t)addr, BYTES, 0) >= 0);
	driver_calls(lanes, round);
	enter(lanes[0].ctx);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	leave();
}

static void test_beside_reads(void **state)
{
	(void)state;
	rounds(read_meanwhile);
}

/* More streams than kernels can run at a time. */
static void test_very_many(void **state)
{
	static void *streams[MANY];
	static off_t offsets[MANY];
	static ssize_t results[MANY];
	size_t bytes = MANY_BYTES;
	uint64_t addr;

	(void)state;
	assert_int_equal(pwrite(fd, pattern, BYTES, 0), BYTES);
	enter(primary);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, MANY * MANY_BYTES), 0);
	for (unsigned int i = 0; i < MANY; i++) {
		offsets[i] = (off_t)(i * MANY_BYTES);
		results[i] = -1;
		assert_int_equal(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
		assert_int_equal(
			peerlane_read_async(file, (void *)(uintptr_t)(addr + i * MANY_BYTES),
					    &bytes, &offsets[i], &results[i], streams[i], 0),
			0);
	}
	for (unsigned int i = 0; i < MANY; i++)
		assert_int_equal(cu.cuStreamSynchronize(streams[i]), 0);
	assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, addr, MANY * MANY_BYTES), 0);
	assert_memory_equal(scratch, pattern, MANY * MANY_BYTES);
	for (unsigned int i = 0; i < MANY; i++) {
		assert_int_equal(results[i], bytes);
		assert_int_equal(cu.cuStreamDestroy_v2(streams[i]), 0);
	}
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	leave();
}

/* ------------------------------------------------------------------ one stream */

/* Every alignment of the two sides, with what is beside the range left alone. */
static void test_alignments(void **state)
{
	size_t bytes = 200 * KIB + 1;
	uint64_t addr;
	void *stream;

	(void)state;
	assert_int_equal(pwrite(fd, pattern, BYTES, 0), BYTES);
	enter(primary);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, MIB), 0);
	assert_int_equal(cu.cuStreamCreate(&stream, 0), 0);
	for (unsigned int i = 0; i < 2 * 17; i++) {
		size_t at = 4096 + i;
		off_t from = (off_t)(i * 5 % 19);
		ssize_t got = -1, put = -1;
		off_t back = (off_t)(BYTES + i * 7);

		assert_int_equal(cu.cuMemsetD8Async(addr, 0xa5, MIB, stream), 0);
		assert_int_equal(peerlane_read_async(file, (void *)(uintptr_t)(addr + at), &bytes,
						     &from, &got, stream, PEERLANE_FIXED),
				 0);
		assert_int_equal(peerlane_write_async(file, (void *)(uintptr_t)(addr + at), &bytes,
						      &back, &put, stream, PEERLANE_FIXED),
				 0);
		assert_int_equal(cu.cuStreamSynchronize(stream), 0);
		assert_int_equal(got, bytes);
		assert_int_equal(put, bytes);
		assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, addr, MIB), 0);
		assert_memory_equal(scratch + at, pattern + from, bytes);
		assert_true(all(scratch, at, 0xa5));
		assert_true(all(scratch + at + bytes, MIB - at - bytes, 0xa5));
		assert_int_equal(pread(fd, scratch, bytes, back), bytes);
		assert_memory_equal(scratch, pattern + from, bytes);
	}
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	leave();
}

/* Much more than passes through at once. */
static void test_large(void **state)
{
	size_t bytes = fake ? SMALL_LARGE : LARGE;
	unsigned char *a = malloc(bytes), *b = malloc(bytes);
	ssize_t got = -1, put = -1;
	off_t from = 5, back = (off_t)(2 * LARGE);
	uint64_t addr;

	(void)state;
	assert_true(a && b);
	for (size_t i = 0; i < bytes; i++)
		a[i] = (unsigned char)(i * 31 + i / 4093 + i / 1000003);
	assert_int_equal(pwrite(fd, a, bytes, from), bytes);
	enter(primary);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, bytes + 3), 0);
	assert_int_equal(peerlane_read_async(file, (void *)(uintptr_t)(addr + 3), &bytes, &from,
					     &got, NULL, 0),
			 0);
	assert_int_equal(peerlane_write_async(file, (void *)(uintptr_t)(addr + 3), &bytes, &back,
					      &put, NULL, 0),
			 0);
	assert_int_equal(cu.cuStreamSynchronize(NULL), 0);
	assert_int_equal(got, bytes);
	assert_int_equal(put, bytes);
	assert_int_equal(cu.cuMemcpyDtoH_v2(b, addr + 3, bytes), 0);
	assert_memory_equal(a, b, bytes);
	memset(b, 0, bytes);
	assert_int_equal(pread(fd, b, bytes, back), bytes);
	assert_memory_equal(a, b, bytes);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	leave();
	free(a);
	free(b);
}

static void decide(void *arg)
{
	struct lane *l = arg;

	l->bytes = 1000;
	l->offset = 77;
}

/* Length and position are taken when the stream gets there; errors do not stop it. */
static void test_late_arguments(void **state)
{
	struct lane l;
	void *addr;
	size_t bytes = 10;
	off_t offset = -1;
	ssize_t bad = 0;

	(void)state;
	lane_open(&l, 0);
	addr = (void *)(uintptr_t)l.addr;
	assert_int_equal(pwrite(fd, pattern, 5000, 0), 5000);
	l.bytes = 0;
	enter(l.ctx);
	assert_int_equal(peerlane_read_async(file, addr, &bytes, &offset, &bad, l.stream, 0), 0);
	assert_int_equal(cu.cuLaunchHostFunc(l.stream, decide, &l), 0);
	assert_int_equal(peerlane_read_async(file, addr, &l.bytes, &l.offset, &l.read, l.stream, 0),
			 0);
	assert_int_equal(cu.cuStreamSynchronize(l.stream), 0);
	assert_int_equal(bad, -EINVAL);
	assert_int_equal(l.read, 1000);
	assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, l.addr, 1000), 0);
	leave();
	assert_memory_equal(scratch, pattern + 77, 1000);
	lane_close(&l);
}

/* ------------------------------------------------------------------ start and end */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_arguments), cmocka_unit_test(test_alignments),
		cmocka_unit_test(test_large),	       cmocka_unit_test(test_streams),
		cmocka_unit_test(test_very_many),      cmocka_unit_test(test_beside_driver_calls),
		cmocka_unit_test(test_beside_reads),
	};
	const char *why = start_cuda();

	/* Instead of waiting for ever. */
	if (!fake)
		alarm(PATIENCE_S);
	return why ? skip_all(why) : cmocka_run_group_tests(tests, setup, teardown);
}
