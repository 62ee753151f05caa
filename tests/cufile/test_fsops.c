// SPDX-License-Identifier: MIT
/* A file system that lives in the process: its functions are called, by every kind of request. */
#include "cf_test.h"

#define BYTES (300 * KIB)

static char store[BYTES];
static unsigned int reads, writes;
static int failure; /* what calls give, as errno; negative: as the value itself */

static ssize_t fs_read(const void *handle, char *mem, size_t bytes, loff_t offset,
		       const cufileRDMAInfo_t *info)
{
	(void)info;
	__atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED);
	if (handle != store || offset < 0)
		return -EBADF;
	if (failure < 0)
		return failure;
	errno = failure;
	if (failure)
		return -1;
	if ((size_t)offset >= BYTES)
		return 0;
	if (bytes > BYTES - (size_t)offset)
		bytes = BYTES - (size_t)offset;
	memcpy(mem, store + offset, bytes);
	return (ssize_t)bytes;
}

static ssize_t fs_write(const void *handle, const char *mem, size_t bytes, loff_t offset,
			const cufileRDMAInfo_t *info)
{
	(void)info;
	__atomic_fetch_add(&writes, 1, __ATOMIC_RELAXED);
	if (handle != store || (size_t)offset + bytes > BYTES)
		return -ENOSPC;
	memcpy(store + offset, mem, bytes);
	return (ssize_t)bytes;
}

static const CUfileFSOps_t table = { .read = fs_read, .write = fs_write };
static CUfileHandle_t fh;
static char *mem;

static int setup(void **state)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_USERSPACE_FS,
				.handle.handle = store,
				.fs_ops = &table };

	cf_setup(state);
	failure = 0;
	reads = writes = 0;
	cf_pattern(store, BYTES, 0, 1);
	mem = cf_alloc(BYTES + 4096);
	assert_ok(cf.cuFileHandleRegister(&fh, &descr));
	return 0;
}

static int teardown(void **state)
{
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
	return cf_teardown(state);
}

static void both_ways(void **state)
{
	(void)state;
	assert_int_equal(cf.cuFileRead(fh, mem, BYTES + 4096, 0, 0), BYTES);
	assert_int_equal(cf_differs(mem, BYTES, 0, 1), BYTES);
	assert_true(reads > 0);
	cf_fill(mem, BYTES, 0, 2);
	assert_int_equal(cf.cuFileWrite(fh, mem, BYTES - 1, 1, 0), BYTES - 1);
	assert_true(writes > 0);
	cf_fill(mem, BYTES, 0, 3);
	assert_int_equal(cf.cuFileRead(fh, mem, 1000, 1, 0), 1000);
	assert_int_equal(cf_differs(mem, 1000, 0, 2), 1000);
}

static void their_errors(void **state)
{
	(void)state;
	failure = ESTALE;
	assert_int_equal(cf.cuFileRead(fh, mem, 100, 0, 0), -1);
	assert_int_equal(errno, ESTALE);
	failure = -EDQUOT;
	assert_int_equal(cf.cuFileRead(fh, mem, 100, 0, 0), -1);
	assert_int_equal(errno, EDQUOT);
	failure = -99999;
	assert_int_equal(cf.cuFileRead(fh, mem, 100, 0, 0), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(cf.cuFileWrite(fh, mem, 100, BYTES, 0), -1);
	assert_int_equal(errno, ENOSPC);
}

static void batch_and_stream(void **state)
{
	CUfileIOParams_t io = { .mode = CUFILE_BATCH,
				.u.batch = { .devPtr_base = mem, .size = 9999, .file_offset = 5 },
				.fh = fh };
	CUfileIOEvents_t event;
	CUfileBatchHandle_t batch;
	unsigned int nr = 1;
	size_t size = 7777;
	off_t at = 11, zero = 0;
	ssize_t bytes = 0;
	void *stream;

	(void)state;
	assert_ok(cf.cuFileBatchIOSetUp(&batch, 1));
	assert_ok(cf.cuFileBatchIOSubmit(batch, 1, &io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
	assert_int_equal(event.ret, 9999);
	assert_int_equal(cf_differs(mem, 9999, 5, 1), 9999);
	cf.cuFileBatchIODestroy(batch);
	assert_int_equal(peerlane_gpu_stream_create(cf_gpu(), 0, &stream), 0);
	assert_ok(cf.cuFileReadAsync(fh, mem, &size, &at, &zero, &bytes, stream));
	assert_int_equal(peerlane_gpu_stream_sync(cf_gpu(), stream), 0);
	assert_int_equal(bytes, 7777);
	assert_int_equal(cf_differs(mem, 7777, 11, 1), 7777);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

static void half_a_table(void **state)
{
	const CUfileFSOps_t reader = { .read = fs_read }, nothing = { 0 };
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_USERSPACE_FS,
				.handle.handle = store,
				.fs_ops = &nothing };
	CUfileHandle_t half;

	(void)state;
	assert_code(cf.cuFileHandleRegister(&half, &descr), CU_FILE_IO_NOT_SUPPORTED);
	descr.fs_ops = &reader;
	assert_ok(cf.cuFileHandleRegister(&half, &descr));
	assert_int_equal(cf.cuFileRead(half, mem, 10, 0, 0), 10);
	assert_int_equal(cf.cuFileWrite(half, mem, 10, 0, 0), -1);
	assert_int_equal(errno, EIO);
	cf.cuFileHandleDeregister(half);
}

#define fs_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		fs_test(both_ways),
		fs_test(their_errors),
		fs_test(batch_and_stream),
		fs_test(half_a_table),
	};
	int failed;

	cf_alarm(100);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
