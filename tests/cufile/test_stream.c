// SPDX-License-Identifier: MIT
/* Stream-ordered I/O: order, late arguments, fixed ones, many streams, handles that go. */
#include "cf_test.h"

#include <pthread.h>

#define BYTES (256 * KIB)
#define PIECE (16 * KIB)

static char *mem;
static CUfileHandle_t fh;

static int setup(void **state)
{
	cf_setup(state);
	mem = cf_alloc(BYTES);
	fh = cf_open("stream", BYTES, 1, O_RDWR);
	return 0;
}

static int teardown(void **state)
{
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
	return cf_teardown(state);
}

static void *new_stream(void)
{
	void *stream;

	assert_int_equal(peerlane_gpu_stream_create(cf_gpu(), 0, &stream), 0);
	return stream;
}

static void finish(void *stream)
{
	assert_int_equal(peerlane_gpu_stream_sync(cf_gpu(), stream), 0);
}

/* Something in the stream that lasts until it is let go: on the simulator a kernel that waits, on
 * CUDA a function of the host. */
static int gate;

static void wait_at_gate(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE))
		usleep(100);
}

static void gate_block(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	wait_at_gate(args);
}

static const struct peerlane_kernel gate_kernel = { .name = "gate", .ptx = "", .host = gate_block };

static bool shut_gate(void *stream)
{
	int (*launch)(void *stream, void (*fn)(void *arg), void *arg);

	gate = 0;
	*(void **)(void *)&launch = cf_cuda("cuLaunchHostFunc");
	if (launch)
		return !launch(stream, wait_at_gate, NULL);
	return !peerlane_gpu_launch(cf_gpu(), stream, &gate_kernel, 1, 1, NULL, NULL, 0);
}

static void open_gate(void)
{
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
}

struct args {
	size_t size;
	off_t file, buf;
	ssize_t bytes;
};

static CUfileError_t read_async(struct args *a, void *stream)
{
	a->bytes = -77;
	return cf.cuFileReadAsync(fh, mem, &a->size, &a->file, &a->buf, &a->bytes, stream);
}

/* What the pointers say counts when the stream gets there, all three of them. */
static void late_arguments(void **state)
{
	struct args a = { .size = 1, .file = 1, .buf = 1 };
	void *stream = new_stream();

	(void)state;
	if (!shut_gate(stream))
		skip();
	assert_ok(read_async(&a, stream));
	assert_int_equal(a.bytes, -77);
	a.size = 5000;
	a.file = 777;
	a.buf = 4096;
	open_gate();
	finish(stream);
	assert_int_equal(a.bytes, 5000);
	assert_int_equal(cf_differs(mem + 4096, 5000, 777, 1), 5000);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

/* Each flag fixes one of them. */
static void fixed_arguments(void **state)
{
	(void)state;
	for (unsigned int flags = 0; flags < 16; flags++) {
		struct args a = { .size = 3000, .file = 100, .buf = 200 };
		void *stream = new_stream();
		size_t size = flags & CU_FILE_STREAM_FIXED_FILE_SIZE ? 3000 : 4000;
		off_t file = flags & CU_FILE_STREAM_FIXED_FILE_OFFSET ? 100 : 5100;
		off_t buf = flags & CU_FILE_STREAM_FIXED_BUF_OFFSET ? 200 : 9200;

		assert_ok(cf.cuFileStreamRegister(stream, flags));
		if (!shut_gate(stream))
			skip();
		cf_fill(mem, 20000, 0, 9);
		assert_ok(read_async(&a, stream));
		a.size = 4000;
		a.file = 5100;
		a.buf = 9200;
		open_gate();
		finish(stream);
		assert_int_equal(a.bytes, size);
		assert_int_equal(cf_differs(mem + buf, size, file, 1), size);
		assert_int_equal(cf_differs(mem + buf - 100, 100, buf - 100, 9), 100);
		assert_ok(cf.cuFileStreamDeregister(stream));
		peerlane_gpu_stream_destroy(cf_gpu(), stream);
	}
}

/* A write sees what the read before it in the stream brought; no wait in between. */
static void in_order(void **state)
{
	struct args rd = { .size = PIECE }, wr = { .size = PIECE, .file = (off_t)BYTES };
	void *stream = new_stream();

	(void)state;
	for (int i = 0; i < 16; i++) {
		rd.file = i * (off_t)PIECE;
		wr.file = (off_t)BYTES + i * (off_t)PIECE;
		assert_ok(cf.cuFileReadAsync(fh, mem, &rd.size, &rd.file, &rd.buf, &rd.bytes,
					     stream));
		assert_ok(cf.cuFileWriteAsync(fh, mem, &wr.size, &wr.file, &wr.buf, &wr.bytes,
					      stream));
		finish(stream);
		assert_int_equal(rd.bytes, PIECE);
		assert_int_equal(wr.bytes, PIECE);
	}
	assert_int_equal(cf.cuFileRead(fh, mem, BYTES, (off_t)BYTES, 0), BYTES);
	assert_int_equal(cf_differs(mem, BYTES, 0, 1), BYTES);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

static void many_streams(void **state)
{
	enum { STREAMS = 24, DEEP = 8 };
	static struct args a[STREAMS][DEEP];
	void *streams[STREAMS];
	char *big = cf_alloc(STREAMS * PIECE);

	(void)state;
	for (int s = 0; s < STREAMS; s++)
		streams[s] = new_stream();
	for (int d = 0; d < DEEP; d++) {
		for (int s = 0; s < STREAMS; s++) {
			a[s][d] = (struct args){ .size = PIECE,
						 .file = (s * DEEP + d) * 1000,
						 .buf = s * (off_t)PIECE };
			assert_ok(cf.cuFileReadAsync(fh, big, &a[s][d].size, &a[s][d].file,
						     &a[s][d].buf, &a[s][d].bytes, streams[s]));
		}
	}
	for (int s = 0; s < STREAMS; s++) {
		finish(streams[s]);
		for (int d = 0; d < DEEP; d++)
			assert_int_equal(a[s][d].bytes, PIECE);
		assert_int_equal(cf_differs(big + s * PIECE, PIECE, a[s][DEEP - 1].file, 1), PIECE);
		peerlane_gpu_stream_destroy(cf_gpu(), streams[s]);
	}
	cf_free(big);
}

/* A handle that goes while the stream has still to come: the request is done, nobody waits. */
static void handle_gone(void **state)
{
	struct args a = { .size = 5000 };
	void *stream = new_stream();
	time_t began = time(NULL);

	(void)state;
	if (!shut_gate(stream))
		skip();
	assert_ok(read_async(&a, stream));
	cf.cuFileHandleDeregister(fh);
	assert_code(read_async(&(struct args){ .size = 1 }, stream), CU_FILE_HANDLE_NOT_REGISTERED);
	open_gate();
	finish(stream);
	assert_int_equal(a.bytes, 5000);
	assert_int_equal(cf_differs(mem, 5000, 0, 1), 5000);
	assert_true(time(NULL) - began < 30);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

static void *close_driver(void *arg)
{
	(void)arg;
	cf.cuFileDriverClose();
	return NULL;
}

/* The driver goes: what was queued is done first. */
static void driver_gone(void **state)
{
	struct args a = { .size = 5000 };
	void *stream = new_stream();
	pthread_t closer;

	(void)state;
	if (!shut_gate(stream))
		skip();
	assert_ok(read_async(&a, stream));
	assert_int_equal(pthread_create(&closer, NULL, close_driver, NULL), 0);
	usleep(50000);
	open_gate();
	pthread_join(closer, NULL);
	finish(stream);
	assert_int_equal(a.bytes, 5000);
	assert_int_equal(cf.cuFileUseCount(), 0);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

/* Errors are in *bytes; the stream goes on. */
static void errors(void **state)
{
	struct args bad[4] = { { .size = 10 * BYTES },
			       { .size = 10, .file = -5 },
			       { .size = 10, .buf = -5 },
			       { .size = 0 } };
	static const ssize_t want[4] = { -5016, -1, -5030, 0 };
	struct args good = { .size = 100 };
	void *stream = new_stream();

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_ok(read_async(&bad[i], stream));
	assert_ok(read_async(&good, stream));
	finish(stream);
	for (int i = 0; i < 4; i++)
		assert_int_equal(bad[i].bytes, want[i]);
	assert_int_equal(good.bytes, 100);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

/* Without a length the count is 0 when the call returns, whatever the stream is busy with; a length
 * that comes later counts when the stream gets there. */
static void no_length(void **state)
{
	(void)state;
	for (unsigned int flags = 0; flags < 16; flags++) {
		struct args rd = { .size = 0 }, wr = { .size = 0 }, late = { .size = 0 };
		ssize_t want = flags & CU_FILE_STREAM_FIXED_FILE_SIZE ? 0 : 3000;
		void *stream = new_stream();

		assert_ok(cf.cuFileStreamRegister(stream, flags));
		if (!shut_gate(stream))
			skip();
		assert_ok(read_async(&rd, stream));
		assert_int_equal(rd.bytes, 0);
		wr.bytes = -77;
		assert_ok(cf.cuFileWriteAsync(fh, mem, &wr.size, &wr.file, &wr.buf, &wr.bytes,
					      stream));
		assert_int_equal(wr.bytes, 0);
		assert_ok(read_async(&late, stream));
		late.size = 3000;
		open_gate();
		finish(stream);
		assert_int_equal(rd.bytes, 0);
		assert_int_equal(wr.bytes, 0);
		assert_int_equal(late.bytes, want);
		assert_ok(cf.cuFileStreamDeregister(stream));
		peerlane_gpu_stream_destroy(cf_gpu(), stream);
	}
}

/* A request that is refused leaves the count alone, also one without a length. */
static void refused_no_length(void **state)
{
	struct args a = { .size = 0 };

	(void)state;
	if (strcmp(peerlane_backend(cf_gpu()), "sim") == 0) {
		assert_code(read_async(&a, (void *)64), CU_FILE_CUDA_DRIVER_ERROR);
		assert_int_equal(a.bytes, -77);
	}
	cf.cuFileHandleDeregister(fh);
	assert_code(read_async(&a, NULL), CU_FILE_HANDLE_NOT_REGISTERED);
	assert_int_equal(a.bytes, -77);
}

/* Before the file: -1, reads and writes, whatever is fixed, and nothing is moved. */
static void negative_offset(void **state)
{
	(void)state;
	for (unsigned int flags = 0; flags < 16; flags++) {
		struct args rd = { .size = 100, .file = -4096 }, wr = { .size = 100, .file = -1 };
		void *stream = new_stream();

		assert_ok(cf.cuFileStreamRegister(stream, flags));
		assert_ok(read_async(&rd, stream));
		assert_ok(cf.cuFileWriteAsync(fh, mem, &wr.size, &wr.file, &wr.buf, &wr.bytes,
					      stream));
		finish(stream);
		assert_int_equal(rd.bytes, -1);
		assert_int_equal(wr.bytes, -1);
		assert_ok(cf.cuFileStreamDeregister(stream));
		peerlane_gpu_stream_destroy(cf_gpu(), stream);
	}
	assert_int_equal(cf_file_differs(cf_file("stream"), BYTES, 0, 1), BYTES);
}

/* A file open for one direction; a stream that is none. */
static void refused(void **state)
{
	CUfileHandle_t rd = cf_open("ro", 4096, 1, O_RDONLY);
	struct args a = { .size = 10 };
	CUfileError_t status;

	(void)state;
	assert_code(cf.cuFileWriteAsync(rd, mem, &a.size, &a.file, &a.buf, &a.bytes, NULL),
		    CU_FILE_INVALID_FILE_OPEN_FLAG);
	if (strcmp(peerlane_backend(cf_gpu()), "sim") != 0)
		skip();
	status = read_async(&a, (void *)64);
	assert_code(status, CU_FILE_CUDA_DRIVER_ERROR);
	assert_int_equal(status.cu_err, 400);
}

#define stream_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		stream_test(late_arguments),  stream_test(fixed_arguments),
		stream_test(in_order),	      stream_test(many_streams),
		stream_test(handle_gone),     stream_test(errors),
		stream_test(refused),	      stream_test(driver_gone),
		stream_test(no_length),	      stream_test(refused_no_length),
		stream_test(negative_offset),
	};
	int failed;

	cf_alarm(150);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
