// SPDX-License-Identifier: MIT
/* Reads and writes on streams that a kernel serves, with no driver call meanwhile. */
#include "fake/serve_fixture.h"

#define NR_STREAMS 300u
#define EACH (13 * KIB + 7)

static const char ptx[] = ".version 6.3\n.target sm_75\n.visible .entry reverse(\n";

/* Fill, write, fill, read: each step spoils the result if it is done too early or too late. */
static void there_and_back(void *stream, uint64_t addr, const size_t *bytes, const off_t *offset,
			   ssize_t *results, unsigned char value)
{
	assert_int_equal(cu.cuMemsetD8Async(addr, value, *bytes, stream), 0);
	assert_int_equal(peerlane_write_async(file, to(addr), bytes, offset, &results[0], stream,
					      PEERLANE_FIXED),
			 0);
	assert_int_equal(cu.cuMemsetD8Async(addr, 0xee, *bytes, stream), 0);
	assert_int_equal(peerlane_read_async(file, to(addr), bytes, offset, &results[1], stream, 0),
			 0);
	assert_int_equal(cu.cuMemsetD8Async(addr + 1, 0x55, 1, stream), 0);
}

static void assert_there_and_back(uint64_t addr, size_t bytes, off_t offset, const ssize_t *results,
				  unsigned char value)
{
	memset(pattern + offset, value, bytes);
	assert_int_equal(results[0], bytes);
	assert_int_equal(results[1], bytes);
	assert_int_equal(pread(fd, scratch, bytes, offset), bytes);
	assert_memory_equal(scratch, pattern + offset, bytes);
	pattern[offset + 1] = 0x55;
	assert_like_file(addr, offset, bytes);
	pattern[offset + 1] = value;
}

/* More streams than the GPU runs kernels at a time, all waiting at once. */
static void test_many_streams(void **state)
{
	static struct {
		void *stream;
		off_t offset;
		ssize_t results[2];
	} s[NR_STREAMS];
	uint64_t addr = gpu_alloc(NR_STREAMS * EACH);
	struct gate gate = { 0 };
	size_t bytes = EACH;

	(void)state;
	open_context(0, 0, 0);
	for (unsigned int i = 0; i < NR_STREAMS; i++) {
		s[i].stream = stream_make();
		s[i].offset = (off_t)(i * EACH);
		assert_int_equal(cu.cuLaunchHostFunc(s[i].stream, wait_at_gate, &gate), 0);
		there_and_back(s[i].stream, addr + i * EACH, &bytes, &s[i].offset, s[i].results,
			       (unsigned char)i);
	}
	gate_open(&gate);
	for (unsigned int i = 0; i < NR_STREAMS; i++)
		sync_stream(s[i].stream);
	for (unsigned int i = 0; i < NR_STREAMS; i++) {
		assert_there_and_back(addr + i * EACH, EACH, s[i].offset, s[i].results,
				      (unsigned char)i);
		assert_int_equal(cu.cuStreamDestroy_v2(s[i].stream), 0);
	}
	assert_int_equal(stats().in_flight, 0);
	close_context();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* Sizes and places of all kinds, one after the other on one stream. */
static void in_order(size_t pool, unsigned int flags)
{
	static const size_t sizes[] = { 1,	 3,	  15,	   16,		 17,
					4096,	 4097,	  65535,   65536 + 1,	 64 * KIB * 8,
					MIB + 5, 3 * MIB, 4 * MIB, 4 * MIB + 99, 100 };
	static const off_t places[] = { 0, 1, 16, 4095, 4096, 4099 };
	uint64_t addr = gpu_alloc(ROOM);
	void *stream = stream_make();
	ssize_t results[2];

	open_context(flags, pool, 0);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned int k = 0; k < 6; k++) {
			off_t offset = places[k];
			size_t at = (size_t)places[5 - k] + i;

			if (sizes[i] < 2 || at + sizes[i] > ROOM)
				continue;
			there_and_back(stream, addr + at, &sizes[i], &offset, results,
				       (unsigned char)(i * 6 + k));
			sync_stream(stream);
			assert_there_and_back(addr + at, sizes[i], offset, results,
					      (unsigned char)(i * 6 + k));
		}
	}
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

static void test_sizes(void **state)
{
	(void)state;
	in_order(0, 0);
	in_order(MIB, 0);
	in_order(2 * MIB, PEERLANE_NO_IO_URING);
}

/* What is read is what is in the file, and beside it nothing changes. */
static void test_content(void **state)
{
	uint64_t addr = gpu_alloc(ROOM);
	void *const streams[] = { stream_make(), NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD };
	size_t bytes = 3 * MIB + 77;

	(void)state;
	open_context(0, 4 * MIB, 0);
	for (unsigned int i = 0; i < 4; i++) {
		size_t at = 1001 + i;
		off_t offset = (off_t)(i * 333 + 1);
		ssize_t result = -1;

		assert_int_equal(cu.cuMemsetD8Async(addr, 0xa5, ROOM, streams[i]), 0);
		assert_int_equal(peerlane_read_async(file, to(addr + at), &bytes, &offset, &result,
						     streams[i], PEERLANE_FIXED),
				 0);
		sync_stream(streams[i]);
		assert_int_equal(result, bytes);
		assert_like_file(addr + at, offset, bytes);
		assert_int_equal(cu.cuMemcpyDtoH_v2(scratch, addr, ROOM), 0);
		assert_int_equal(scratch[at - 1], 0xa5);
		assert_int_equal(scratch[at + bytes], 0xa5);
	}
	assert_int_equal(cu.cuStreamDestroy_v2(streams[0]), 0);
	close_context();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

struct late {
	size_t bytes;
	off_t offset;
	ssize_t result, want;
};

static void decide(void *arg)
{
	struct late *list = arg;
	static const struct late later[] = {
		{ 1000, 77, 0, 1000 },
		{ 100, -1, 0, -EINVAL },
		{ 4097, 0, 0, -EFAULT },
		{ 100, INT64_MAX, 0, -EOVERFLOW },
		{ SIZE_MAX, 0, 0, -EOVERFLOW },
		{ SIZE_MAX / 2, 0, 0, -EFAULT },
		{ 100, (off_t)ROOM, 0, 0 },
		{ 100, (off_t)ROOM - 7, 0, 7 },
		{ 0, 0, 0, 0 },
		{ 4096, 5, 0, 4096 },
	};

	memcpy(list, later, sizeof(later));
}

/* Length and position are taken when the stream gets there; errors do not stop it. */
static void test_late_arguments(void **state)
{
	struct late list[10];
	uint64_t addr = gpu_alloc(4096);
	void *stream = stream_make();

	(void)state;
	open_context(0, 0, 0);
	memset(list, 0, sizeof(list));
	assert_int_equal(cu.cuLaunchHostFunc(stream, decide, list), 0);
	for (unsigned int i = 0; i < 10; i++)
		assert_int_equal(peerlane_read_async(file, to(addr), &list[i].bytes,
						     &list[i].offset, &list[i].result, stream, 0),
				 0);
	sync_stream(stream);
	for (unsigned int i = 0; i < 10; i++)
		assert_int_equal(list[i].result, list[i].want);
	assert_like_file(addr, 5, 4096);
	/* Of registered buffers the one that goes furthest counts. */
	assert_int_equal(peerlane_buffer_register(ctx, to(addr), 3000, 0), 0);
	assert_int_equal(peerlane_buffer_register(ctx, to(addr + 8), 100, 0), 0);
	list[0].bytes = 2992;
	list[1].bytes = 2993;
	list[1].offset = 0;
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(peerlane_read_async(file, to(addr + 8), &list[i].bytes,
						     &list[i].offset, &list[i].result, stream, 0),
				 0);
	sync_stream(stream);
	assert_int_equal(list[0].result, 2992);
	assert_int_equal(list[1].result, -ERANGE);
	assert_int_equal(peerlane_buffer_release(ctx, to(addr)), 0);
	assert_int_equal(peerlane_buffer_release(ctx, to(addr + 8)), 0);
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* Memory the CPU reaches, and memory of both. */
static void test_other_memory(void **state)
{
	size_t bytes = 2 * MIB + 1;
	off_t offset = 3;
	void *stream = stream_make(), *pinned = NULL, *plain = malloc(bytes);
	void *memory[3];
	ssize_t result;
	uint64_t managed;

	(void)state;
	open_context(0, 0, 0);
	assert_int_equal(cu.cuMemHostAlloc(&pinned, bytes, 0), 0);
	assert_int_equal(cu.cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL), 0);
	memory[0] = plain;
	memory[1] = pinned;
	memory[2] = to(managed);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(
			peerlane_read_async(file, memory[i], &bytes, &offset, &result, stream, 0),
			0);
		sync_stream(stream);
		assert_int_equal(result, bytes);
		assert_memory_equal(memory[i], pattern + offset, bytes);
		assert_int_equal(peerlane_write_async(file, memory[i], &bytes, &offset, &result,
						      stream, PEERLANE_DURABLE),
				 0);
		sync_stream(stream);
		assert_int_equal(result, bytes);
	}
	close_context();
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuMemFreeHost(pinned), 0);
	assert_int_equal(cu.cuMemFree_v2(managed), 0);
	free(plain);
}

/*
 * The program loads a kernel, makes streams and frees memory while its streams wait for I/O. The
 * driver then waits for the streams and lets nobody else in, so I/O that needs it would never end.
 */
static void test_beside_driver_calls(void **state)
{
	uint64_t addr = gpu_alloc(8 * 600 * KIB), other;
	size_t bytes = 600 * KIB - 1;
	off_t offset = 0;
	void *streams[8], *more, *module;
	ssize_t results[8][3];
	pthread_t thread;

	(void)state;
	open_context(0, 0, 0);
	for (unsigned int i = 0; i < 8; i++)
		streams[i] = stream_make();
	strict(FAKE_STRICT_CALLS | FAKE_STRICT_LOCK);
	for (unsigned int round = 0; round < 4; round++) {
		struct gate gate = { .after_ms = 30 };

		other = gpu_alloc(100);
		for (unsigned int i = 0; i < 8; i++) {
			assert_int_equal(cu.cuLaunchHostFunc(streams[i], wait_at_gate, &gate), 0);
			for (unsigned int k = 0; k < 3; k++)
				assert_int_equal(peerlane_read_async(file, to(addr + i * 600 * KIB),
								     &bytes, &offset,
								     &results[i][k], streams[i], 0),
						 0);
		}
		assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
		if (round & 1) {
			assert_int_equal(cu.cuModuleLoadData(&module, ptx), 0);
			assert_int_equal(cu.cuModuleUnload(module), 0);
		} else {
			more = stream_make();
			assert_int_equal(cu.cuStreamDestroy_v2(more), 0);
		}
		assert_int_equal(cu.cuMemFree_v2(other), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		for (unsigned int i = 0; i < 8; i++)
			sync_stream(streams[i]);
		for (unsigned int i = 0; i < 24; i++)
			assert_int_equal(results[i / 3][i % 3], bytes);
		for (unsigned int i = 0; i < 8; i++)
			assert_like_file(addr + i * 600 * KIB, 0, bytes);
	}
	strict(FAKE_STRICT_CALLS);
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(cu.cuStreamDestroy_v2(streams[i]), 0);
	close_context();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(content),	    TEST(sizes),	TEST(late_arguments),
		TEST(other_memory), TEST(many_streams), TEST(beside_driver_calls),
	};

	return RUN_TESTS(tests);
}
