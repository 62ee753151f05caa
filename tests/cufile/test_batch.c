// SPDX-License-Identifier: MIT
/* Batches: many entries, both directions, waiting, cancelling, and what happens meanwhile. */
#include "cf_test.h"

#define NR 128
#define PIECE 4096ul

static char *mem;
static CUfileHandle_t fh;
static CUfileBatchHandle_t batch;

static int setup(void **state)
{
	cf_setup(state);
	mem = cf_alloc(2 * NR * PIECE);
	fh = cf_open("batch", 4 * NR * PIECE, 1, O_RDWR | O_DIRECT);
	assert_ok(cf.cuFileBatchIOSetUp(&batch, NR));
	return 0;
}

static int teardown(void **state)
{
	cf.cuFileBatchIODestroy(batch);
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
	return cf_teardown(state);
}

static CUfileIOParams_t entry(unsigned int i, CUfileOpcode_t op)
{
	return (CUfileIOParams_t){ .mode = CUFILE_BATCH,
				   .u.batch = { .devPtr_base = mem,
						.devPtr_offset = (off_t)(i * PIECE),
						.file_offset = (off_t)(2 * i * PIECE),
						.size = PIECE },
				   .fh = fh,
				   .opcode = op,
				   .cookie = (void *)(uintptr_t)(i + 1) };
}

/* Collects @nr events in pieces and sees that each came once. */
static void collect(unsigned int nr)
{
	CUfileIOEvents_t events[NR];
	bool seen[NR + 1] = { false };
	unsigned int got = 0;

	while (got < nr) {
		unsigned int n = 7;

		assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &n, events, NULL));
		assert_in_range(n, 1, 7);
		for (unsigned int i = 0; i < n; i++) {
			uintptr_t cookie = (uintptr_t)events[i].cookie;

			assert_in_range(cookie, 1, NR);
			assert_false(seen[cookie]);
			seen[cookie] = true;
			assert_int_equal(events[i].status, CUFILE_COMPLETE);
			assert_int_equal(events[i].ret, PIECE);
		}
		got += n;
	}
}

static void full(void **state)
{
	CUfileIOParams_t io[NR + 1];

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (unsigned int i = 0; i <= NR; i++)
			io[i] = entry(i, CUFILE_READ);
		assert_code(cf.cuFileBatchIOSubmit(batch, NR + 1, io, 0), 5040);
		assert_ok(cf.cuFileBatchIOSubmit(batch, NR, io, 0));
		assert_code(cf.cuFileBatchIOSubmit(batch, 1, io, 0), 5040);
		collect(NR);
		for (unsigned int i = 0; i < NR; i++)
			assert_int_equal(
				cf_differs(mem + i * PIECE, PIECE, (off_t)(2 * i * PIECE), 1),
				PIECE);
	}
}

static void both_directions(void **state)
{
	CUfileIOParams_t io[NR];

	(void)state;
	for (unsigned int i = 0; i < NR; i++) {
		io[i] = entry(i, i % 2 ? CUFILE_WRITE : CUFILE_READ);
		if (i % 2)
			cf_fill(mem + i * PIECE, PIECE, (off_t)(2 * i * PIECE), 6);
	}
	assert_ok(cf.cuFileBatchIOSubmit(batch, NR / 2, io, 0));
	assert_ok(cf.cuFileBatchIOSubmit(batch, NR / 2, io + NR / 2, 0));
	collect(NR);
	for (unsigned int i = 0; i < NR; i++) {
		if (i % 2)
			assert_int_equal(
				cf_file_differs(cf_file("batch"), PIECE, (off_t)(2 * i * PIECE), 6),
				PIECE);
		else
			assert_int_equal(
				cf_differs(mem + i * PIECE, PIECE, (off_t)(2 * i * PIECE), 1),
				PIECE);
	}
}

static void waiting(void **state)
{
	struct timespec none = { 0 }, odd = { .tv_nsec = 2000000000 }, past = { .tv_sec = -5 };
	CUfileIOEvents_t events[NR];
	CUfileIOParams_t io[4];
	unsigned int n = NR, got = 0;

	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		io[i] = entry(i, CUFILE_READ);
	assert_ok(cf.cuFileBatchIOSubmit(batch, 4, io, 0));
	for (int i = 0; i < 100000 && got < 2; i++) {
		n = 2 - got;
		assert_ok(cf.cuFileBatchIOGetStatus(batch, 0, &n, events, &none));
		got += n;
		if (!n)
			usleep(100);
	}
	n = 2;
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 2, &n, events, &odd));
	assert_int_equal(n, 2);
	/* More than are in flight: those that are. */
	n = NR;
	assert_ok(cf.cuFileBatchIOGetStatus(batch, NR, &n, events, NULL));
	assert_int_equal(n, 0);
	n = 1;
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &n, events, &past));
	assert_code(cf.cuFileBatchIOGetStatus(batch, 0, NULL, events, NULL), 5022);
	n = 1;
	assert_code(cf.cuFileBatchIOGetStatus(batch, 0, &n, NULL, NULL), 5022);
	n = 0;
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 0, &n, NULL, NULL));
}

/* Nothing is left to collect, and no time is spent on waiting for it. */
static void assert_no_events(void)
{
	CUfileIOEvents_t events[NR];
	unsigned int n = NR;

	assert_ok(cf.cuFileBatchIOGetStatus(batch, NR, &n, events, NULL));
	assert_int_equal(n, 0);
}

/* After a cancel no entry gives an event or touches memory, and the batch can be used at once. */
static void cancelled(void **state)
{
	CUfileIOParams_t io[NR];

	(void)state;
	for (int round = 0; round < 20; round++) {
		for (unsigned int i = 0; i < NR; i++)
			io[i] = entry(i, CUFILE_READ);
		assert_ok(cf.cuFileBatchIOSubmit(batch, NR, io, 0));
		assert_ok(cf.cuFileBatchIOCancel(batch));
		cf_fill(mem, NR * PIECE, 0, 9);
		assert_no_events();
		assert_int_equal(cf_differs(mem, NR * PIECE, 0, 9), NR * PIECE);
	}
	assert_ok(cf.cuFileBatchIOSubmit(batch, NR, io, 0));
	collect(NR);
}

/* Entries that were done, or wrong from the start, before the cancel: their events go, too. */
static void cancelled_late(void **state)
{
	CUfileIOEvents_t event;
	CUfileIOParams_t io[3];
	unsigned int n = 1;

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		io[i] = entry(i, CUFILE_READ);
	io[1].u.batch.file_offset = -1;
	assert_ok(cf.cuFileBatchIOSubmit(batch, 3, io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &n, &event, NULL));
	assert_int_equal(n, 1);
	assert_ok(cf.cuFileBatchIOCancel(batch));
	assert_no_events();
	/* Nothing in flight: nothing happens. */
	assert_ok(cf.cuFileBatchIOCancel(batch));
	assert_no_events();
}

/* A file may go, and the batch, and the driver, while entries are in flight. */
static void pulled_away(void **state)
{
	CUfileIOParams_t io[NR];

	(void)state;
	for (int what = 0; what < 3; what++) {
		for (unsigned int i = 0; i < NR; i++)
			io[i] = entry(i, CUFILE_READ);
		assert_ok(cf.cuFileBatchIOSubmit(batch, NR, io, 0));
		if (what == 0) {
			cf.cuFileHandleDeregister(fh);
			collect(NR);
			fh = cf_register(open(cf_file("batch"), O_RDWR | O_CLOEXEC));
		} else if (what == 1) {
			cf.cuFileBatchIODestroy(batch);
			assert_ok(cf.cuFileBatchIOSetUp(&batch, NR));
		} else {
			assert_ok(cf.cuFileDriverClose());
			assert_int_equal(cf.cuFileUseCount(), 0);
		}
	}
}

/* A read longer than its memory: well if the file ends first, else wrong by itself. */
static void too_long(void **state)
{
	const size_t bytes = 64 * MIB, last = 2 * PIECE;
	CUfileHandle_t big = cf_open("big", 8 * MIB, 1, O_RDWR);
	CUfileIOParams_t io[4];
	CUfileIOEvents_t events[4];
	unsigned int n = 4;

	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		io[i] = entry(i, CUFILE_READ);
	io[0].fh = big;
	io[0].u.batch.size = bytes;
	io[1].u.batch.size = bytes;
	io[1].u.batch.file_offset = (off_t)(4 * NR * PIECE - last);
	io[2].opcode = CUFILE_WRITE;
	io[2].u.batch.size = bytes;
	assert_ok(cf.cuFileBatchIOSubmit(batch, 4, io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 4, &n, events, NULL));
	assert_int_equal(n, 4);
	for (unsigned int i = 0; i < 4; i++) {
		uintptr_t cookie = (uintptr_t)events[i].cookie;
		ssize_t want = cookie == 4 ? (ssize_t)PIECE : cookie == 2 ? (ssize_t)last : -EIO;

		assert_int_equal(events[i].status, want < 0 ? CUFILE_FAILED : CUFILE_COMPLETE);
		assert_int_equal((ssize_t)events[i].ret, want);
	}
	assert_int_equal(cf_differs(mem + PIECE, last, io[1].u.batch.file_offset, 1), last);
	cf.cuFileHandleDeregister(big);
}

static void bad_entries(void **state)
{
	CUfileIOParams_t io[6];
	CUfileIOEvents_t events[6];
	unsigned int n = 6;

	(void)state;
	assert_ok(cf.cuFileBufRegister(mem, NR * PIECE, 0));
	for (unsigned int i = 0; i < 6; i++)
		io[i] = entry(i, CUFILE_READ);
	io[0].u.batch.file_offset = -1;
	io[1].u.batch.devPtr_offset = -1;
	io[2].u.batch.devPtr_base = NULL;
	io[3].u.batch.devPtr_offset = (off_t)(NR * PIECE); /* past what is registered */
	assert_ok(cf.cuFileBatchIOSubmit(batch, 6, io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 6, &n, events, NULL));
	assert_int_equal(n, 6);
	for (unsigned int i = 0; i < 6; i++) {
		bool good = (uintptr_t)events[i].cookie > 4;

		assert_int_equal(events[i].status, good ? CUFILE_COMPLETE : CUFILE_FAILED);
		assert_int_equal((ssize_t)events[i].ret, good ? (ssize_t)PIECE : -EIO);
	}
	assert_ok(cf.cuFileBufDeregister(mem));
}

#define batch_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		batch_test(full),      batch_test(both_directions), batch_test(waiting),
		batch_test(cancelled), batch_test(cancelled_late),  batch_test(bad_entries),
		batch_test(too_long),  batch_test(pulled_away),
	};
	int failed;

	cf_alarm(150);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
