// SPDX-License-Identifier: MIT
/* Statistics: true numbers at each level, only while they are collected, and in no other bytes. */
#include "cf_test.h"

#include <stddef.h>

static char *mem;
static CUfileHandle_t fh;

static int setup(void **state)
{
	cf_setup(state);
	mem = cf_alloc(MIB);
	fh = cf_open("stats", MIB, 1, O_RDWR);
	return 0;
}

static int teardown(void **state)
{
	cf.cuFileHandleDeregister(fh);
	cf_free(mem);
	return cf_teardown(state);
}

static void begin(int level)
{
	assert_ok(cf.cuFileSetStatsLevel(level));
	assert_ok(cf.cuFileStatsReset());
	assert_ok(cf.cuFileStatsStart());
}

static void level_1(void **state)
{
	CUfileStatsLevel1_t s;

	(void)state;
	begin(1);
	for (int i = 0; i < 10; i++)
		assert_int_equal(cf.cuFileRead(fh, mem, 5000, 0, 0), 5000);
	assert_int_equal(cf.cuFileRead(fh, mem, 4096, (off_t)MIB - 96, 0), 96);
	assert_int_equal(cf.cuFileRead(fh, mem, 10, -1, 0), -1);
	assert_int_equal(cf.cuFileWrite(fh, mem, 777, 0, 0), 777);
	assert_ok(cf.cuFileBufRegister(mem, 4096, 0));
	assert_code(cf.cuFileBufRegister(mem, 4096, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	assert_ok(cf.cuFileBufDeregister(mem));
	assert_ok(cf.cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 11);
	assert_int_equal(s.read_ops.err, 1);
	assert_int_equal(s.read_bytes, 50096);
	assert_int_equal(s.write_ops.ok, 1);
	assert_int_equal(s.write_bytes, 777);
	assert_int_equal(s.buf_register_ops.ok, 1);
	assert_int_equal(s.buf_register_ops.err, 1);
	assert_int_equal(s.buf_deregister_ops.ok, 1);
	assert_true(s.read_bw_bytes_per_sec > 0);
	assert_true(s.read_ops_per_sec > 0);
	assert_int_equal(s.read_lat_avg_us, s.read_lat_sum_us / 11);
}

/* Nothing counts before the start, after the stop, or at level 0. */
static void only_while(void **state)
{
	CUfileStatsLevel1_t s;

	(void)state;
	begin(1);
	assert_ok(cf.cuFileStatsStop());
	cf.cuFileRead(fh, mem, 5000, 0, 0);
	assert_ok(cf.cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 0);
	assert_ok(cf.cuFileStatsStart());
	cf.cuFileRead(fh, mem, 5000, 0, 0);
	assert_ok(cf.cuFileSetStatsLevel(0));
	cf.cuFileRead(fh, mem, 5000, 0, 0);
	assert_code(cf.cuFileGetStatsL1(&s), CU_FILE_INVALID_VALUE);
	assert_ok(cf.cuFileSetStatsLevel(1));
	assert_ok(cf.cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 1);
	assert_ok(cf.cuFileStatsReset());
	assert_ok(cf.cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 0);
	assert_int_equal(s.read_bytes, 0);
}

static void level_2(void **state)
{
	CUfileStatsLevel2_t s;

	(void)state;
	begin(2);
	cf.cuFileRead(fh, mem, 100, 0, 0);
	cf.cuFileRead(fh, mem, 4096, 0, 0);
	cf.cuFileRead(fh, mem, 8191, 0, 0);
	cf.cuFileRead(fh, mem, MIB, 0, 0);
	cf.cuFileWrite(fh, mem, 65536, 0, 0);
	assert_ok(cf.cuFileGetStatsL2(&s));
	assert_int_equal(s.read_size_kb_hist[0], 1);
	assert_int_equal(s.read_size_kb_hist[2], 2);
	assert_int_equal(s.read_size_kb_hist[10], 1);
	assert_int_equal(s.write_size_kb_hist[6], 1);
	assert_int_equal(s.basic.read_ops.ok, 4);
}

static void level_3(void **state)
{
	static CUfileStatsLevel3_t s;
	char host[4096];

	(void)state;
	begin(3);
	assert_ok(cf.cuFileBufRegister(mem, MIB, 0));
	cf.cuFileRead(fh, mem, 4096, 0, 0);
	cf.cuFileRead(fh, mem, 4095, 0, 0);
	cf.cuFileRead(fh, host, 4096, 0, 0);
	cf.cuFileRead(fh, mem, MIB, 0, 4096);
	cf.cuFileWrite(fh, mem, 8192, 0, 0);
	assert_ok(cf.cuFileGetStatsL3(&s));
	assert_int_equal(s.num_gpus, peerlane_gpu_count(cf_gpu()));
	assert_int_equal(s.per_gpu_stats[0].n_total_reads, 2);
	assert_int_equal(s.per_gpu_stats[0].n_posix_reads, 2);
	assert_int_equal(s.per_gpu_stats[0].n_p2p_reads, 0);
	assert_int_equal(s.per_gpu_stats[0].n_unaligned_reads, 1);
	assert_int_equal(s.per_gpu_stats[0].read_bytes, 8191);
	assert_int_equal(s.per_gpu_stats[0].n_reads_err, 1);
	assert_int_equal(s.per_gpu_stats[0].n_total_writes, 1);
	assert_int_equal(s.per_gpu_stats[0].writes_bytes, 8192);
	assert_int_equal(s.per_gpu_stats[0].reg_bytes, MIB);
	assert_int_equal(s.detailed.basic.read_ops.ok, 3);
}

static void batches(void **state)
{
	CUfileIOEvents_t events[8];
	CUfileIOParams_t io[8];
	CUfileStatsLevel1_t s;
	CUfileBatchHandle_t batch;
	unsigned int nr = 8;

	(void)state;
	begin(1);
	assert_ok(cf.cuFileBatchIOSetUp(&batch, 8));
	for (int i = 0; i < 8; i++)
		io[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					    .u.batch = { .devPtr_base = mem,
							 .file_offset = i * 4096,
							 .devPtr_offset = i * 4096,
							 .size = i == 7 ? 100 * MIB : 1000 },
					    .fh = fh,
					    .opcode = i < 4 ? CUFILE_READ : CUFILE_WRITE };
	assert_ok(cf.cuFileBatchIOSubmit(batch, 8, io, 0));
	assert_code(cf.cuFileBatchIOSubmit(batch, 0, io, 0), 5040);
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 8, &nr, events, NULL));
	assert_ok(cf.cuFileBatchIOCancel(batch));
	cf.cuFileBatchIODestroy(batch);
	assert_ok(cf.cuFileGetStatsL1(&s));
	assert_int_equal(s.batch_setup_ops.ok, 1);
	assert_int_equal(s.batch_submit_ops.ok, 1);
	assert_int_equal(s.batch_mixed_io_submit_ops.ok, 1);
	assert_int_equal(s.batch_enqueued_ops.ok, 8);
	assert_int_equal(s.batch_processed_ops.ok, 7);
	assert_int_equal(s.batch_complete_ops.err, 1);
	assert_int_equal(s.batch_read_bytes, 4000);
	assert_int_equal(s.batch_write_bytes, 3000);
	assert_int_equal(s.batch_cancel_ops.ok, 1);
	assert_int_equal(s.batch_destroy_ops.ok, 1);
	assert_int_equal(s.read_ops.ok, 0);
}

/* Nothing is written behind the structs as programs know them. */
static void room(void **state)
{
	struct {
		CUfileStatsLevel3_t s;
		unsigned char after[64];
	} three;
	struct {
		CUfileStatsLevel1_t s;
		unsigned char after[64];
	} one;

	(void)state;
	begin(3);
	memset(&three, 0xa5, sizeof(three));
	memset(&one, 0xa5, sizeof(one));
	assert_ok(cf.cuFileGetStatsL3(&three.s));
	assert_ok(cf.cuFileGetStatsL1(&one.s));
	for (int i = 0; i < 64; i++) {
		assert_int_equal(three.after[i], 0xa5);
		assert_int_equal(one.after[i], 0xa5);
	}
}

/* The configuration can start them with the driver. */
static void configured(void **state)
{
	CUfileStatsLevel1_t s;
	int level;

	(void)state;
	cf_setup(NULL);
	assert_ok(cf.cuFileSetParameterSizeT(CUFILE_PARAM_PROFILE_STATS, 2));
	fh = cf_open("stats", MIB, 1, O_RDWR);
	assert_int_equal(cf.cuFileRead(fh, mem, 100, 0, 0), 100);
	assert_ok(cf.cuFileGetStatsLevel(&level));
	assert_int_equal(level, 2);
	assert_ok(cf.cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 1);
	assert_int_equal(s.hdl_register_ops.ok, 1);
}

#define stats_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		stats_test(level_1),	stats_test(only_while), stats_test(level_2),
		stats_test(level_3),	stats_test(batches),	stats_test(room),
		stats_test(configured),
	};
	int failed;

	cf_alarm(100);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
