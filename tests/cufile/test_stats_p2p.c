// SPDX-License-Identifier: MIT
/*
 * The statistics of transfers between drive and GPU memory: counted as such, one by one, in batches
 * and on streams, and those through the host beside them. Over the fake libcuda, with the module
 * played.
 */
#include "fake/played_module.h"

#include "cf_test.h"

#define PART (64 * KIB)
#define NR 8u

static char *mem;
static CUfileHandle_t fh;

static CUfileStatsLevel3_t stats(void)
{
	CUfileStatsLevel3_t s;

	assert_ok(cf.cuFileGetStatsL3(&s));
	return s;
}

static int setup(void **state)
{
	cf_setup(state);
	memset(&played, 0, sizeof(played));
	mem = cf_alloc(4 * MIB);
	fh = cf_open("stats", 4 * MIB, 1, O_RDWR | O_DIRECT);
	assert_ok(cf.cuFileSetStatsLevel(3));
	assert_ok(cf.cuFileStatsReset());
	assert_ok(cf.cuFileStatsStart());
	return 0;
}

static int teardown(void **state)
{
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
	return cf_teardown(state);
}

static void single(void **state)
{
	CUfileStatsLevel3_t s;

	(void)state;
	assert_int_equal(cf.cuFileRead(fh, mem, MIB, 0, 4096), MIB);
	assert_int_equal(cf_differs(mem + 4096, MIB, 0, 1), MIB);
	assert_int_equal(cf.cuFileWrite(fh, mem, MIB, 2 * MIB, 0), MIB);
	s = stats();
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 1);
	assert_int_equal(s.per_gpu_stats[0].n_p2p_writes, 1);
	/* More than half of it, and less. */
	assert_int_equal(cf.cuFileRead(fh, mem, PART, 100, 100), PART);
	assert_int_equal(cf.cuFileRead(fh, mem, 1299, 1, 1), 1299);
	assert_int_equal(cf.cuFileRead(fh, mem, 100, 0, 0), 100);
	s = stats();
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 2);
	assert_int_equal(s.per_gpu_stats[0].n_posix_reads, 2);
	assert_int_equal(s.per_gpu_stats[0].n_total_reads, 4);
	/* At the end of the file, and past it. */
	assert_int_equal(cf.cuFileRead(fh, mem, MIB, 4 * MIB - PART, 0), PART);
	assert_int_equal(cf.cuFileRead(fh, mem, MIB, 4 * MIB, 0), 0);
	s = stats();
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 3);
	assert_int_equal(s.per_gpu_stats[0].n_posix_reads, 3);
	assert_int_equal(s.per_gpu_stats[0].n_posix_writes, 0);
}

static void vectors(void **state)
{
	CUfileIOVec_t iov[] = { { .base = mem, .len = PART }, { .base = mem + MIB, .len = PART } };
	CUfileStatsLevel3_t s;

	(void)state;
	assert_int_equal(cf.cuFileReadv(fh, iov, 2, 0, 0), 2 * PART);
	s = stats();
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 1);
	assert_int_equal(cf_differs(mem + MIB, PART, PART, 1), PART);
}

static void batch(void **state)
{
	CUfileIOEvents_t events[NR];
	CUfileIOParams_t io[NR];
	CUfileBatchHandle_t handle;
	CUfileStatsLevel3_t s;
	unsigned int nr = NR;

	(void)state;
	assert_ok(cf.cuFileBatchIOSetUp(&handle, NR));
	for (unsigned int i = 0; i < NR; i++)
		io[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					    .u.batch = { .devPtr_base = mem,
							 .devPtr_offset = (off_t)(i * PART),
							 .file_offset = (off_t)(i * PART),
							 /* No memory for the last but one. */
							 .size = i == NR - 1   ? 100
								 : i == NR - 2 ? 100 * MIB
									       : PART },
					    .fh = fh,
					    .opcode = i % 2 ? CUFILE_WRITE : CUFILE_READ };
	io[NR - 2].opcode = CUFILE_WRITE;
	assert_ok(cf.cuFileBatchIOSubmit(handle, NR, io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(handle, NR, &nr, events, NULL));
	cf.cuFileBatchIODestroy(handle);
	s = stats();
	assert_int_equal(s.detailed.basic.batch_p2p_submit_ops.ok, NR - 2);
	assert_int_equal(s.detailed.basic.batch_posix_enqueued_ops.ok, 2);
	assert_int_equal(s.detailed.basic.batch_posix_processed_ops.ok, 1);
	assert_int_equal(s.detailed.basic.batch_posix_processed_ops.err, 1);
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 3);
	assert_int_equal(s.per_gpu_stats[0].n_p2p_writes, 3);
	assert_int_equal(s.per_gpu_stats[0].n_posix_writes, 1);
}

static void stream(void **state)
{
	off_t zero = 0, at = 4096;
	size_t size = MIB, small = 77;
	CUfileStatsLevel3_t s;
	ssize_t n[3] = { 0 };
	void *on;

	(void)state;
	assert_int_equal(peerlane_gpu_stream_create(cf_gpu(), 0, &on), 0);
	assert_ok(cf.cuFileReadAsync(fh, mem, &size, &at, &zero, &n[0], (CUstream)on));
	assert_ok(cf.cuFileWriteAsync(fh, mem, &size, &zero, &at, &n[1], (CUstream)on));
	assert_ok(cf.cuFileReadAsync(fh, mem, &small, &at, &zero, &n[2], (CUstream)on));
	assert_int_equal(peerlane_gpu_stream_sync(cf_gpu(), on), 0);
	peerlane_gpu_stream_destroy(cf_gpu(), on);
	assert_int_equal(n[0], size);
	assert_int_equal(n[1], size);
	assert_int_equal(n[2], small);
	s = stats();
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 1);
	assert_int_equal(s.per_gpu_stats[0].n_posix_reads, 1);
	assert_int_equal(s.per_gpu_stats[0].n_p2p_writes, 1);
}

/* All of it through the host, if that is asked for. */
static void forced(void **state)
{
	CUfileStatsLevel3_t s;

	cf.cuFileHandleDeregister(fh);
	cf_setup(state);
	assert_ok(cf.cuFileSetParameterBool(CUFILE_PARAM_FORCE_COMPAT_MODE, true));
	fh = cf_open("stats", 4 * MIB, 1, O_RDWR | O_DIRECT);
	assert_ok(cf.cuFileSetStatsLevel(3));
	assert_ok(cf.cuFileStatsStart());
	assert_int_equal(cf.cuFileRead(fh, mem, MIB, 0, 0), MIB);
	s = stats();
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 0);
	assert_int_equal(s.per_gpu_stats[0].n_posix_reads, 1);
	assert_int_equal(played.nr_pinned, 0);
}

#define stats_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static bool has_direct(void)
{
	int fd;

	close(cf_make("direct", 4096, 1, O_RDONLY));
	fd = open(cf_file("direct"), O_RDONLY | O_DIRECT);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { stats_test(single), stats_test(vectors),
					    stats_test(batch), stats_test(stream),
					    stats_test(forced) };
	int failed;

	cf_alarm(100);
	setenv("CF_DIR", ".", 0);
	if (!has_direct()) {
		puts("the file system here has no O_DIRECT");
		return 77;
	}
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
