// SPDX-License-Identifier: MIT
/* Handles: what they are good for, and that old ones are good for nothing. */
#include "cf_test.h"

#include <malloc.h>

#define BYTES 8192ul
#define MANY 20000u

static char *mem;

static int setup(void **state)
{
	cf_setup(state);
	mem = cf_alloc(BYTES);
	return 0;
}

static int teardown(void **state)
{
	cf_free(mem);
	return cf_teardown(state);
}

static void refused(CUfileHandle_t fh, int code)
{
	errno = 0;
	assert_int_equal(cf.cuFileRead(fh, mem, 4096, 0, 0), -1);
	assert_int_equal(errno, code);
}

/* A read to an offset past what is registered. */
static void refused_at(CUfileHandle_t fh, off_t at)
{
	errno = 0;
	assert_int_equal(cf.cuFileRead(fh, mem, 4096, 0, at), -1);
	assert_int_equal(errno, CU_FILE_INVALID_MAPPING_RANGE);
}

/* Comes first: the first file and the first batch have the same place, each in its table. */
static void other_kind(void **state)
{
	CUfileHandle_t fh = cf_open("kind", BYTES, 1, O_RDWR);
	CUfileIOParams_t io = { .mode = CUFILE_BATCH,
				.u.batch = { .devPtr_base = mem, .size = 4096 },
				.fh = fh,
				.opcode = CUFILE_READ };
	CUfileIOEvents_t event;
	CUfileBatchHandle_t batch;
	unsigned int nr = 1;

	(void)state;
	assert_ok(cf.cuFileBatchIOSetUp(&batch, 1));
	refused((CUfileHandle_t)batch, EINVAL);
	cf.cuFileHandleDeregister((CUfileHandle_t)batch);
	assert_code(cf.cuFileBatchIOSubmit((CUfileBatchHandle_t)fh, 1, &io, 0),
		    CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	cf.cuFileBatchIODestroy((CUfileBatchHandle_t)fh);
	/* Both are still what they were. */
	assert_ok(cf.cuFileBatchIOSubmit(batch, 1, &io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
	assert_int_equal(nr, 1);
	assert_int_equal(event.status, CUFILE_COMPLETE);
	cf.cuFileBatchIODestroy(batch);
	cf.cuFileHandleDeregister(fh);
}

/* Another file has its place: it must not be read by the old name. */
static void old_handle(void **state)
{
	CUfileHandle_t old = cf_open("old", BYTES, 1, O_RDWR), fh;

	(void)state;
	for (unsigned int i = 0; i < 10; i++) {
		cf.cuFileHandleDeregister(old);
		refused(old, CU_FILE_HANDLE_NOT_REGISTERED);
		fh = cf_open(i % 2 ? "old" : "new", BYTES, 2, O_RDWR);
		assert_ptr_not_equal(fh, old);
		cf_fill(mem, BYTES, 0, 7);
		refused(old, CU_FILE_HANDLE_NOT_REGISTERED);
		assert_int_equal(cf_differs(mem, BYTES, 0, 7), BYTES);
		/* Deregistered again, it takes no other with it. */
		cf.cuFileHandleDeregister(old);
		assert_int_equal(cf.cuFileRead(fh, mem, 4096, 0, 0), 4096);
		old = fh;
	}
	cf.cuFileHandleDeregister(old);
}

/* Places are used again: a program may make as many as it likes, one after the other. */
static void many(void **state)
{
	CUfileBatchHandle_t batch;
	size_t heap = 0;

	(void)state;
	assert_ok(cf.cuFileDriverOpen());
	for (unsigned int i = 0; i < MANY; i++) {
		assert_ok(cf.cuFileBatchIOSetUp(&batch, 1));
		cf.cuFileBatchIODestroy(batch);
		if (i == 100)
			heap = mallinfo2().uordblks;
	}
	assert_in_range(mallinfo2().uordblks, 0, heap + MANY * sizeof(void *));
}

/* What was registered ends with the driver: the same descriptor and memory can be registered again, or used without. */
static void after_close(void **state)
{
	int fd = cf_make("closed", 2 * BYTES, 1, O_RDWR);
	CUfileHandle_t old = cf_register(fd), fh;

	(void)state;
	assert_non_null(old);
	assert_ok(cf.cuFileBufRegister(mem, 4096, 0));
	refused_at(old, 4096);
	assert_ok(cf.cuFileDriverClose());
	assert_int_equal(cf.cuFileUseCount(), 0);
	assert_ok(cf.cuFileDriverOpen());
	fh = cf_register(fd);
	assert_non_null(fh);
	refused(old, CU_FILE_HANDLE_NOT_REGISTERED);
	/* All of the memory, since none of it is registered. */
	assert_int_equal(cf.cuFileRead(fh, mem, 4096, 0, 4096), 4096);
	assert_code(cf.cuFileBufDeregister(mem), CU_FILE_MEMORY_NOT_REGISTERED);
	cf.cuFileHandleDeregister(fh);
	close(fd);
}

/* A file system in the process that can neither be read nor written is none. */
static void no_functions(void **state)
{
	CUfileFSOps_t ops = { .fs_type = NULL };
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_USERSPACE_FS, .fs_ops = &ops };
	CUfileHandle_t fh = NULL;

	(void)state;
	assert_code(cf.cuFileHandleRegister(&fh, &descr), CU_FILE_IO_NOT_SUPPORTED);
	assert_null(fh);
}

/* A batch writes a file that is open for reading: that entry fails, the other one is done. */
static void read_only(void **state)
{
	CUfileHandle_t fh = cf_open("read only", BYTES, 1, O_RDONLY);
	CUfileIOParams_t io[2];
	CUfileIOEvents_t events[2];
	CUfileBatchHandle_t batch;
	unsigned int nr = 2;

	(void)state;
	for (int i = 0; i < 2; i++)
		io[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					    .u.batch = { .devPtr_base = mem, .size = 4096 },
					    .fh = fh,
					    .opcode = i ? CUFILE_WRITE : CUFILE_READ,
					    .cookie = &io[i] };
	assert_ok(cf.cuFileBatchIOSetUp(&batch, 2));
	assert_ok(cf.cuFileBatchIOSubmit(batch, 2, io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 2, &nr, events, NULL));
	assert_int_equal(nr, 2);
	for (int i = 0; i < 2; i++) {
		bool wrote = events[i].cookie == &io[1];

		assert_int_equal(events[i].status, wrote ? CUFILE_FAILED : CUFILE_COMPLETE);
		assert_int_equal((ssize_t)events[i].ret, wrote ? -EIO : 4096);
	}
	cf.cuFileBatchIODestroy(batch);
	cf.cuFileHandleDeregister(fh);
}

#define handle_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		handle_test(other_kind),   handle_test(old_handle), handle_test(many),
		handle_test(no_functions), handle_test(read_only),  handle_test(after_close),
	};
	int failed;

	cf_alarm(100);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
