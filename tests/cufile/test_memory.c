// SPDX-License-Identifier: MIT
/* Memory of every kind, registered and not: GPU, managed, pinned, registered with the driver, plain. */
#include "cf_test.h"

#define BYTES (300 * KIB)

static CUfileHandle_t fh;

static int setup(void **state)
{
	cf_setup(state);
	fh = cf_open("memory", BYTES, 1, O_RDWR | O_DIRECT);
	return 0;
}

/* Reads the file into @mem and writes it from there to another; both ways of giving an offset. */
static void round_trip(char *mem, bool registered)
{
	CUfileHandle_t to = cf_open("copy", 0, 0, O_RDWR | O_DIRECT);

	if (registered) {
		assert_ok(cf.cuFileBufRegister(mem, BYTES, 0));
		assert_code(cf.cuFileBufRegister(mem, 4096, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
		assert_ok(cf.cuFileBufRegister(mem + 4096, 8192, 0));
	}
	assert_int_equal(cf.cuFileRead(fh, mem, 100000, 0, 0), 100000);
	assert_int_equal(cf.cuFileRead(fh, mem, BYTES - 100000, 100000, 100000), BYTES - 100000);
	assert_int_equal(cf.cuFileWrite(to, mem, BYTES, 0, 0), BYTES);
	assert_int_equal(cf_file_differs(cf_file("copy"), BYTES, 0, 1), BYTES);
	if (registered) {
		/* The inner one has bounds of its own when it is named. */
		assert_int_equal(cf.cuFileRead(fh, mem + 4096, 8192, 0, 4096), -1);
		assert_int_equal(errno, CU_FILE_INVALID_MAPPING_RANGE);
		assert_int_equal(cf.cuFileRead(fh, mem, BYTES, 0, 4096), -1);
		assert_int_equal(errno, CU_FILE_INVALID_MAPPING_RANGE);
		assert_ok(cf.cuFileBufDeregister(mem));
		assert_int_equal(cf.cuFileRead(fh, mem + 4096, 8192, 0, 0), 8192);
		assert_ok(cf.cuFileBufDeregister(mem + 4096));
		assert_code(cf.cuFileBufDeregister(mem), CU_FILE_MEMORY_NOT_REGISTERED);
	}
	cf.cuFileHandleDeregister(to);
}

static void both(char *mem)
{
	round_trip(mem, false);
	round_trip(mem, true);
}

static void device(void **state)
{
	char *mem = cf_alloc(BYTES);

	(void)state;
	both(mem);
	cf_free(mem);
}

static void plain(void **state)
{
	char *mem = malloc(BYTES + 1);

	(void)state;
	both(mem + 1);
	free(mem);
}

static void managed(void **state)
{
	int (*alloc)(uint64_t * addr, size_t bytes, unsigned int flags);
	uint64_t addr = 0;

	(void)state;
	*(void **)(void *)&alloc = cf_cuda("cuMemAllocManaged");
	if (!alloc)
		skip();
	assert_int_equal(alloc(&addr, BYTES, 1), 0);
	both((char *)addr);
}

static void pinned(void **state)
{
	int (*alloc)(void **addr, size_t bytes, unsigned int flags);
	void *mem = NULL;

	(void)state;
	*(void **)(void *)&alloc = cf_cuda("cuMemHostAlloc");
	if (!alloc)
		skip();
	assert_int_equal(alloc(&mem, BYTES, 0), 0);
	both(mem);
}

/* What was freed, or never was, is not memory. */
static void none(void **state)
{
	char *mem = cf_alloc(BYTES);

	(void)state;
	cf_free(mem);
	if (strcmp(peerlane_backend(cf_gpu()), "sim") != 0)
		skip();
	assert_code(cf.cuFileBufRegister(mem, BYTES, 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
	assert_int_equal(cf.cuFileRead(fh, mem, 4096, 0, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_code(cf.cuFileBufRegister((void *)-4096l, 8192, 0),
		    CU_FILE_CUDA_POINTER_RANGE_ERROR);
	assert_int_equal(cf.cuFileRead(fh, (void *)16, 4096, 0, 0), -1);
}

#define memory_test(name) cmocka_unit_test_setup_teardown(name, setup, cf_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		memory_test(device), memory_test(plain), memory_test(managed),
		memory_test(pinned), memory_test(none),
	};
	int failed;

	cf_alarm(100);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
