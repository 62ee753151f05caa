// SPDX-License-Identifier: MIT
/*
 * Edges: memory past the registered length, more events than there is room for, a descriptor number whose file is on
 * another device, a log that is exactly full.
 */
#include "cf_test.h"

#include <sys/stat.h>

#define REGISTERED 8192ul
#define BYTES (64 * KIB)

/* ------------------------------------------------------------------ registered memory */

static void refused(CUfileHandle_t fh, char *mem, size_t bytes, off_t at)
{
	errno = 0;
	assert_int_equal(cf.cuFileRead(fh, mem, bytes, 0, at), -1);
	assert_int_equal(errno, CU_FILE_INVALID_MAPPING_RANGE);
	errno = 0;
	assert_int_equal(cf.cuFileWrite(fh, mem, bytes, 0, at), -1);
	assert_int_equal(errno, CU_FILE_INVALID_MAPPING_RANGE);
}

/* The allocation goes on behind what is registered; that is no reason to let an offset pass. */
static void past_registered(void **state)
{
	CUfileHandle_t fh = cf_open("past", BYTES, 1, O_RDWR);
	char *mem = cf_alloc(BYTES);

	(void)state;
	cf_fill(mem, BYTES, 0, 2);
	assert_ok(cf.cuFileBufRegister(mem, REGISTERED, 0));
	refused(fh, mem, 1, REGISTERED);
	refused(fh, mem, 1, REGISTERED + 1);
	refused(fh, mem, 4096, REGISTERED + 4096);
	refused(fh, mem, 4096, BYTES - 4096);
	refused(fh, mem, 2, REGISTERED - 1);
	refused(fh, mem, REGISTERED + 1 - 4096, 4096);
	/* Nothing came there, and nothing was written. */
	assert_int_equal(cf_differs(mem, BYTES, 0, 2), BYTES);
	assert_int_equal(cf_file_differs(cf_file("past"), BYTES, 0, 1), BYTES);
	assert_int_equal(cf.cuFileRead(fh, mem, 1, 0, REGISTERED - 1), 1);
	assert_int_equal(cf.cuFileRead(fh, mem, REGISTERED - 4096, 0, 4096), REGISTERED - 4096);
	assert_ok(cf.cuFileBufDeregister(mem));
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
}

/* On a stream that a kernel serves, an offset past the end of memory that is not registered. Elsewhere the address alone
 * counts, and something else may be there. */
static void past_memory(void **state)
{
	static const off_t past[] = { BYTES, BYTES + 1, BYTES + 4096, 16 * BYTES, BYTES - 4095 };
	CUfileHandle_t fh;
	void *stream;
	char *mem;

	(void)state;
	if (!cf_cuda("cuInit"))
		skip();
	fh = cf_open("stream", BYTES, 1, O_RDWR);
	mem = cf_alloc(BYTES);
	cf_fill(mem, BYTES, 0, 2);
	assert_int_equal(peerlane_gpu_stream_create(cf_gpu(), 0, &stream), 0);
	for (unsigned int i = 0; i < sizeof(past) / sizeof(past[0]); i++) {
		off_t file_offset = 0, offset = past[i];
		size_t size = 4096;
		ssize_t n = 0;

		assert_ok(cf.cuFileReadAsync(fh, mem, &size, &file_offset, &offset, &n, stream));
		assert_int_equal(peerlane_gpu_stream_sync(cf_gpu(), stream), 0);
		assert_int_equal(n, -CU_FILE_INVALID_MAPPING_SIZE);
	}
	assert_int_equal(cf_differs(mem, BYTES, 0, 2), BYTES);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
}

/* ------------------------------------------------------------------ batches */

static CUfileIOParams_t entry(CUfileHandle_t fh, char *mem, off_t at, unsigned int i)
{
	return (CUfileIOParams_t){
		.mode = CUFILE_BATCH,
		.u.batch = { .devPtr_base = mem, .devPtr_offset = at, .size = 4096 },
		.fh = fh,
		.opcode = CUFILE_READ,
		.cookie = (void *)(uintptr_t)(i + 1)
	};
}

/* Entries that fail at once are told one by one if that is the room there is. */
static void room_for_one(void **state)
{
	static const off_t past[] = { REGISTERED, REGISTERED + 4096, BYTES - 4096,
				      REGISTERED - 4095 };
	const unsigned int nr = sizeof(past) / sizeof(past[0]);
	CUfileHandle_t fh = cf_open("batched", BYTES, 1, O_RDWR);
	CUfileIOEvents_t events[3], guard;
	CUfileBatchHandle_t batch;
	CUfileIOParams_t io[4];
	char *mem = cf_alloc(BYTES);

	(void)state;
	cf_fill(mem, BYTES, 0, 2);
	assert_ok(cf.cuFileBufRegister(mem, REGISTERED, 0));
	assert_ok(cf.cuFileBatchIOSetUp(&batch, nr));
	for (unsigned int round = 0; round < 3; round++) {
		for (unsigned int i = 0; i < nr; i++)
			io[i] = entry(fh, mem, past[i], i);
		assert_ok(cf.cuFileBatchIOSubmit(batch, nr, io, 0));
		for (unsigned int i = 0; i < nr; i++) {
			unsigned int n = 1;

			memset(events, 0x5a, sizeof(events));
			guard = events[1];
			assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &n, events, NULL));
			assert_int_equal(n, 1);
			assert_int_equal(events[0].status, CUFILE_FAILED);
			assert_int_equal((ssize_t)events[0].ret, -EIO);
			assert_ptr_equal(events[0].cookie, (void *)(uintptr_t)(i + 1));
			assert_memory_equal(&events[1], &guard, sizeof(guard));
		}
	}
	assert_int_equal(cf_differs(mem, BYTES, 0, 2), BYTES);
	cf.cuFileBatchIODestroy(batch);
	cf.cuFileHandleDeregister(fh);
	assert_ok(cf.cuFileBufDeregister(mem));
	cf_free(mem);
}

/* ------------------------------------------------------------------ descriptors used again */

/* Added to the device number of every file. */
static dev_t other_device;

/* The library finds this one before libc's. */
int fstat(int fd, struct stat *st)
{
	int err = fstatat(fd, "", st, AT_EMPTY_PATH);

	if (!err)
		st->st_dev += other_device;
	return err;
}

/* A program closes a descriptor it has registered and gets the number again, for a file that has the same number on
 * another device. */
static void same_number_elsewhere(void **state)
{
	int fd = cf_make("reused", 4096, 1, O_RDWR);
	CUfileHandle_t first = cf_register(fd), second;

	(void)state;
	assert_non_null(first);
	/* It is the same file: refused. */
	assert_null(cf_register(fd));
	other_device = 1;
	second = cf_register(fd);
	other_device = 0;
	assert_non_null(second);
	assert_ptr_not_equal(first, second);
	cf.cuFileHandleDeregister(first);
	cf.cuFileHandleDeregister(second);
	close(fd);
}

/* ------------------------------------------------------------------ the log */

static off_t log_size(void)
{
	struct stat st;

	assert_int_equal(stat(cf_file("full.log"), &st), 0);
	return st.st_size;
}

/* Opens the driver on a log of @bytes, and says @nr times the same thing. How long the log is then. */
static off_t say(const char *max_mb, off_t bytes, unsigned int nr)
{
	CUfileHandle_t fh;
	char byte;

	close(cf_make("full.log", 0, 0, O_RDWR));
	assert_int_equal(truncate(cf_file("full.log"), bytes), 0);
	setenv("CUFILE_LOGFILE_PATH", cf_file("full.log"), 1);
	setenv("CUFILE_LOGFILE_MAX_SIZE_MB", max_mb, 1);
	fh = cf_open("logged", 8192, 1, O_RDONLY);
	for (unsigned int i = 0; i < nr; i++)
		assert_int_equal(cf.cuFileRead(fh, &byte, 1, -1, 0), -1);
	cf.cuFileHandleDeregister(fh);
	assert_ok(cf.cuFileDriverClose());
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGFILE_MAX_SIZE_MB");
	return log_size();
}

static void log_is_full(void **state)
{
	off_t line;

	(void)state;
	line = say("1", 0, 1);
	assert_in_range(line, 20, 1000);
	/* All lines of this process are of one length. */
	assert_int_equal(say("1", 0, 3), 3 * line);
	assert_int_equal(say("1", (off_t)MIB - line, 1), MIB);
	assert_int_equal(say("1", (off_t)MIB - line, 2), line);
	assert_int_equal(say("1", (off_t)MIB - line + 1, 1), line);
	/* Without an end: -1, and as many MiB as bytes cannot be counted any more. */
	assert_int_equal(say("-1", 0, 3), 3 * line);
	assert_int_equal(say("17592186044416", 0, 3), 3 * line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cf_test(past_registered),	cf_test(past_memory), cf_test(room_for_one),
		cf_test(same_number_elsewhere), cf_test(log_is_full),
	};
	int failed;

	cf_alarm(100);
	/* Should a request get lost, the driver is closed before the alarm. */
	setenv("PEERLANE_TIMEOUT_MS", "20000", 1);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
