// SPDX-License-Identifier: MIT
/* Cases: opening and closing, properties, parameters, statistics' levels. */
#include "case.h"

#include "../../cufile/bar.h"

#include <sys/stat.h>

/* A GPU that the kernel shows as a PCI device has a BAR 1. */
static bool has_bar(void)
{
	struct peerlane_gpu_info info = { .size = sizeof(info) };
	char path[80];

	if (peerlane_gpu_get_info(cf_gpu(), 0, &info) || !info.pci[0])
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", info.pci);
	return access(path, R_OK) == 0;
}

/* What the machine says of GPU 0, so that the cases are the same on all. */
static void say_bar(size_t kb)
{
	if (kb == pl_cf_bar_kb(cf_gpu(), 0) && (kb || !has_bar()))
		say("bar");
	else
		say("%zu", kb);
}

CASE(open_counts, "open: counts", "0 1 0 2 0 1 0 0")
{
	say_status(cf.cuFileDriverOpen());
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileDriverOpen());
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileDriverClose());
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileDriverClose_v2());
	say("%ld", cf.cuFileUseCount());
}

CASE(close_closed, "close: when closed", "5001 5001")
{
	say_status(cf.cuFileDriverClose());
	say_status(cf.cuFileDriverClose_v2());
}

CASE(again, "open: after close", "0 0 0 1")
{
	say_status(cf.cuFileDriverOpen());
	say_status(cf.cuFileDriverClose());
	say_status(cf.cuFileDriverOpen());
	say("%ld", cf.cuFileUseCount());
}

CASE(implicit_handle, "implicit open: bad HandleRegister", "5022 1 5022 1")
{
	cf_gpu();
	say_status(cf.cuFileHandleRegister(NULL, NULL));
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileHandleRegister(NULL, NULL));
	say("%ld", cf.cuFileUseCount());
}

CASE(implicit_buffer, "implicit open: bad BufRegister", "5022 1")
{
	cf_gpu();
	say_status(cf.cuFileBufRegister(NULL, 0, 0));
	say("%ld", cf.cuFileUseCount());
}

CASE(implicit_async, "implicit open: bad ReadAsync, WriteAsync", "5022 1 5022 1")
{
	cf_gpu();
	say_status(cf.cuFileReadAsync(NULL, NULL, NULL, NULL, NULL, NULL, NULL));
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileWriteAsync(NULL, NULL, NULL, NULL, NULL, NULL, NULL));
	say("%ld", cf.cuFileUseCount());
}

CASE(stream_closed, "closed: StreamRegister, StreamDeregister", "0 0 5022 0 0 5022 0")
{
	cf_gpu();
	say_status(cf.cuFileStreamRegister(NULL, 0));
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileStreamRegister(NULL, 0));
	say_status(cf.cuFileStreamDeregister(NULL));
	say("%ld", cf.cuFileUseCount());
	say_status(cf.cuFileStreamDeregister(NULL));
	say("%ld", cf.cuFileUseCount());
}

CASE(early_io, "closed: Read, Write", "-1 errno 22 -1 errno 22 0")
{
	char mem[16];

	errno = 0;
	say_count(cf.cuFileRead(NULL, mem, 16, 0, 0));
	errno = 0;
	say_count(cf.cuFileWrite(NULL, mem, 16, 0, 0));
	say("%ld", cf.cuFileUseCount());
}

CASE(early_batch, "closed: batch calls", "5022 5040 5041 0")
{
	CUfileIOEvents_t event;
	CUfileIOParams_t io = { .mode = CUFILE_BATCH };
	CUfileBatchHandle_t batch = NULL;
	unsigned int nr = 1;

	say_status(cf.cuFileBatchIOSetUp(&batch, 1));
	say_status(cf.cuFileBatchIOSubmit(NULL, 1, &io, 0));
	say_status(cf.cuFileBatchIOGetStatus(NULL, 0, &nr, &event, NULL));
	say_status(cf.cuFileBatchIOCancel(NULL));
}

CASE(early_deregister, "closed: BufDeregister", "5006 5022")
{
	char mem[16] = "";

	say_status(cf.cuFileBufDeregister(mem));
	say_status(cf.cuFileBufDeregister(NULL));
}

CASE(early_bar, "closed: GetBARSizeInKB", "0")
{
	size_t kb = 1;

	say_status(cf.cuFileGetBARSizeInKB(0, &kb));
}

CASE(early_stats, "closed: GetStatsL1", "5001")
{
	CUfileStatsLevel1_t s;

	say_status(cf.cuFileGetStatsL1(&s));
}

CASE_BUT(set_open_set, "SetParameter, then open", "0 0 200", NULL,
	 "1.17.1 of the real library divides by zero here")
{
	size_t v = 0;

	say_status(cf.cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 200));
	say_status(cf.cuFileDriverOpen());
	cf.cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &v);
	say("%zu", v);
}

CASE(loaded, "GetProperties loads the configuration", "0 0 5026 0 0 0")
{
	CUfileDrvProps_t props;

	say_status(cf.cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, false));
	say_status(cf.cuFileDriverGetProperties(&props));
	say_status(cf.cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, true));
	say_status(cf.cuFileDriverOpen());
	say_status(cf.cuFileDriverClose());
	say_status(cf.cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, true));
}

CASE(loaded_too, "SetPollMode, SetMaxDirectIOSize before open", "0 0 5026")
{
	say_status(cf.cuFileDriverSetPollMode(true, 4));
	say_status(cf.cuFileDriverSetMaxDirectIOSize(1024));
	say_status(cf.cuFileSetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 2));
}

CASE(set_while_open, "SetParameter while open", "5026 5026 5026 5026")
{
	const size_t one = 1;

	cf.cuFileDriverOpen();
	say_status(cf.cuFileSetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 2));
	say_status(cf.cuFileSetParameterBool(CUFILE_PARAM_FORCE_COMPAT_MODE, true));
	say_status(cf.cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, "INFO"));
	say_status(cf.cuFileSetParameterPosixPoolSlabArray(&one, &one, 1));
}

CASE(properties, "GetProperties",
     "0.0 poll 4 direct 16384 status 0 control 0x2 features 0xf cache 131072 buffer 0 "
     "pinned 33554432 batch 128 timeout 5")
{
	CUfileDrvProps_t p;

	memset(&p, 0xff, sizeof(p));
	cf.cuFileDriverOpen();
	if (cf.cuFileDriverGetProperties(&p).err)
		say("failed");
	say("%u.%u poll %zu direct %zu status %#x control %#x features %#x", p.nvfs.major_version,
	    p.nvfs.minor_version, p.nvfs.poll_thresh_size, p.nvfs.max_direct_io_size,
	    p.nvfs.dstatusflags, p.nvfs.dcontrolflags, p.fflags);
	say("cache %u buffer %u pinned %u batch %u timeout %u", p.max_device_cache_size,
	    p.per_buffer_cache_size, p.max_device_pinned_mem_size, p.max_batch_io_size,
	    p.max_batch_io_timeout_msecs);
}

CASE(null_props, "GetProperties: NULL", "5022")
{
	say_status(cf.cuFileDriverGetProperties(NULL));
}

CASE_BUT(direct_limits, "SetMaxDirectIOSize: limits", "5003 0 0 5003 5003 512",
	 "5003 0 0 5003 5003 16384", "the real library takes the value and shows the one before")
{
	CUfileDrvProps_t p = { .fflags = 0 };

	cf.cuFileDriverOpen();
	say_status(cf.cuFileDriverSetMaxDirectIOSize(63));
	say_status(cf.cuFileDriverSetMaxDirectIOSize(64));
	say_status(cf.cuFileDriverSetMaxDirectIOSize(16384));
	say_status(cf.cuFileDriverSetMaxDirectIOSize(16385));
	say_status(cf.cuFileDriverSetMaxDirectIOSize(0));
	cf.cuFileDriverSetMaxDirectIOSize(512);
	cf.cuFileDriverGetProperties(&p);
	say("%zu", p.nvfs.max_direct_io_size);
}

CASE(memory_limits, "SetMaxCacheSize, SetMaxPinnedMemSize", "0 0")
{
	cf.cuFileDriverOpen();
	say_status(cf.cuFileDriverSetMaxCacheSize(131072));
	say_status(cf.cuFileDriverSetMaxPinnedMemSize(1024));
}

CASE_BUT(poll_mode, "SetPollMode: in the properties", "0 0x3 8", "0 0x2 4",
	 "the real library takes the values and shows those before")
{
	CUfileDrvProps_t p = { .fflags = 0 };

	cf.cuFileDriverOpen();
	say_status(cf.cuFileDriverSetPollMode(true, 8));
	cf.cuFileDriverGetProperties(&p);
	say("%#x %zu", p.nvfs.dcontrolflags, p.nvfs.poll_thresh_size);
}

CASE(bar, "GetBARSizeInKB", "0 bar 5022 5022 5022")
{
	size_t kb = 1;

	cf_gpu();
	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetBARSizeInKB(0, &kb));
	say_bar(kb);
	say_status(cf.cuFileGetBARSizeInKB(-1, &kb));
	say_status(cf.cuFileGetBARSizeInKB(99, &kb));
	say_status(cf.cuFileGetBARSizeInKB(0, NULL));
}

CASE(version, "GetVersion", "0 1150")
{
	int v = 0;

	say_status(cf.cuFileGetVersion(&v));
	say("%d", v);
}

CASE(null_version, "GetVersion: NULL", "5022")
{
	say_status(cf.cuFileGetVersion(NULL));
}

static void say_range(CUFileSizeTConfigParameter_t param)
{
	size_t min = 7, max = 7;
	CUfileError_t status = cf.cuFileGetParameterMinMaxValue(param, &min, &max);

	if (status.err) {
		say_status(status);
	} else if (param == CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB ||
		   param == CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB) {
		say("%zu to", min);
		say_bar(max);
	} else {
		say("%zu..%zu", min, max);
	}
}

CASE(ranges, "GetParameterMinMaxValue",
     "5022 1..256 0..32 4..4294967295 0..8 64..16384 0 to bar 64..16384 64 to bar 1..256 "
     "4..18014398509481980 1..1000")
{
	cf_gpu();
	cf.cuFileDriverOpen();
	for (int i = 0; i <= CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS; i++)
		say_range((CUFileSizeTConfigParameter_t)i);
}

CASE(bad_ranges, "GetParameterMinMaxValue: bad arguments", "5022 5022 5022")
{
	size_t v;

	say_status(cf.cuFileGetParameterMinMaxValue((CUFileSizeTConfigParameter_t)12, &v, &v));
	say_status(
		cf.cuFileGetParameterMinMaxValue(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, NULL, &v));
	say_status(
		cf.cuFileGetParameterMinMaxValue(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &v, NULL));
}

CASE(early_get, "GetParameter when closed: nothing, then what was set", "0 0 0 0 0 7 1")
{
	size_t v = 99;
	bool b = true;

	say_status(cf.cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &v));
	say("%zu", v);
	say_status(cf.cuFileGetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, &b));
	say("%d", b);
	say_status(cf.cuFileSetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 7));
	cf.cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, true);
	cf.cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &v);
	cf.cuFileGetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, &b);
	say("%zu %d", v, b);
}

CASE(sizes, "GetParameterSizeT: running", "0 128 4 8192 4 16384 131072 1024 33554432 128 4 5")
{
	size_t v;

	cf.cuFileDriverOpen();
	for (int i = 0; i <= CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS; i++) {
		v = 77;
		cf.cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)i, &v);
		say("%zu", v);
	}
}

CASE(switches, "GetParameterBool: running", "0 1 0 0 1 0 1 0 0 0 0 0")
{
	bool b;

	cf.cuFileDriverOpen();
	for (int i = 0; i <= CUFILE_PARAM_STREAM_MEMOPS_BYPASS; i++) {
		b = false;
		cf.cuFileGetParameterBool((CUFileBoolConfigParameter_t)i, &b);
		say("%d", b);
	}
}

CASE(bad_params, "Get/SetParameter: bad arguments", "5022 5022 5022 5022 5022 5022 5022")
{
	size_t v;
	bool b;
	char text[8];

	say_status(cf.cuFileSetParameterSizeT((CUFileSizeTConfigParameter_t)12, 1));
	say_status(cf.cuFileSetParameterBool((CUFileBoolConfigParameter_t)99, true));
	say_status(cf.cuFileSetParameterString((CUFileStringConfigParameter_t)99, "x"));
	say_status(cf.cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, NULL));
	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)12, &v));
	say_status(cf.cuFileGetParameterBool((CUFileBoolConfigParameter_t)99, &b));
	say_status(cf.cuFileGetParameterString((CUFileStringConfigParameter_t)99, text, 8));
}

CASE(staged_out_of_range, "SetParameter out of range: taken, replaced at open", "0 999 128")
{
	size_t v = 0;

	say_status(cf.cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 999));
	cf.cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &v);
	say("%zu", v);
	cf.cuFileDriverOpen();
	cf.cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &v);
	say("%zu", v);
}

CASE(consumed, "SetParameter: used up by one open", "7 4")
{
	size_t v = 0;

	cf.cuFileSetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 7);
	cf.cuFileDriverOpen();
	cf.cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &v);
	say("%zu", v);
	cf.cuFileDriverClose();
	cf.cuFileDriverOpen();
	cf.cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &v);
	say("%zu", v);
}

CASE(strings, "GetParameterString: room", "0 ERROR 5022 0")
{
	char text[64] = "";

	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, 64));
	say("%s", text);
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, 5));
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, 6));
}

CASE(log_path, "GetParameterString: no log path", "5022")
{
	char text[64];

	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, 64));
}

/* What the getter does with an empty path, which some programs set so that it succeeds. */
CASE(log_path_empty, "GetParameterString: empty log path in the environment", "5022 0 []")
{
	char text[64] = "x";

	unsetenv("CUFILE_LOGFILE_PATH");
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, 64));
	setenv("CUFILE_LOGFILE_PATH", "", 1);
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, 64));
	say("[%s]", text);
}

CASE(log_path_set, "GetParameterString: log path in the environment", "0 same")
{
	char text[256] = "x", want[256];

	snprintf(want, sizeof(want), "%s", cf_file("log"));
	setenv("CUFILE_LOGFILE_PATH", want, 1);
	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, 256));
	say(strcmp(text, want) ? "other" : "same");
}

CASE(log_dir, "LOG_DIR: only a folder that is there", "0 0 same")
{
	char text[256] = "x", want[256];

	snprintf(want, sizeof(want), "%s", cf_file("logs"));
	mkdir(want, 0700);
	say_status(cf.cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, want));
	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetParameterString(CUFILE_PARAM_LOG_DIR, text, 256));
	say(strcmp(text, want) ? "other" : "same");
}

CASE(log_dir_missing, "LOG_DIR: a folder that is not there", "0 other")
{
	char text[256] = "x";

	say_status(cf.cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, "/no/such/folder"));
	cf.cuFileDriverOpen();
	cf.cuFileGetParameterString(CUFILE_PARAM_LOG_DIR, text, 256);
	say(strcmp(text, "/no/such/folder") ? "other" : "same");
}

CASE(slabs, "PosixPoolSlabArray: get", "5022 5022 0 4/128 1024/64 16384/64")
{
	size_t kb[4], count[4];

	cf.cuFileDriverOpen();
	say_status(cf.cuFileGetParameterPosixPoolSlabArray(kb, count, 2));
	say_status(cf.cuFileGetParameterPosixPoolSlabArray(kb, count, 4));
	say_status(cf.cuFileGetParameterPosixPoolSlabArray(kb, count, 3));
	for (int i = 0; i < 3; i++)
		say("%zu/%zu", kb[i], count[i]);
}

CASE(set_slabs, "PosixPoolSlabArray: set, then get", "0 0 8/2 64/1")
{
	size_t kb[2] = { 8, 64 }, count[2] = { 2, 1 };

	say_status(cf.cuFileSetParameterPosixPoolSlabArray(kb, count, 2));
	cf.cuFileDriverOpen();
	memset(kb, 0, sizeof(kb));
	say_status(cf.cuFileGetParameterPosixPoolSlabArray(kb, count, 2));
	say("%zu/%zu %zu/%zu", kb[0], count[0], kb[1], count[1]);
}

CASE(levels, "SetStatsLevel", "5022 5022 0 3 0 0")
{
	int v = -1;

	cf.cuFileDriverOpen();
	say_status(cf.cuFileSetStatsLevel(-1));
	say_status(cf.cuFileSetStatsLevel(4));
	say_status(cf.cuFileSetStatsLevel(3));
	cf.cuFileGetStatsLevel(&v);
	say("%d", v);
	say_status(cf.cuFileSetStatsLevel(0));
	cf.cuFileGetStatsLevel(&v);
	say("%d", v);
}

CASE_BUT(stats_levels, "GetStatsLn: needs level n", "0 5022 5022 5022 5022 0 0 0 0", "signal 11",
	 "the real library crashes")
{
	static CUfileStatsLevel3_t s;

	cf_gpu();
	cf.cuFileDriverOpen();
	say_status(cf.cuFileSetStatsLevel(1));
	say_status(cf.cuFileGetStatsL2(&s.detailed));
	say_status(cf.cuFileGetStatsL3(&s));
	say_status(cf.cuFileGetStatsL1(NULL));
	say_status(cf.cuFileSetStatsLevel(7));
	say_status(cf.cuFileSetStatsLevel(3));
	say_status(cf.cuFileStatsStart());
	say_status(cf.cuFileGetStatsL3(&s));
	say_status(cf.cuFileStatsStop());
}

CASE_BUT(later, "functions of later versions", "0 0 5022 0 5007 5022 -1 errno 22", "absent",
	 "1.16 to 1.19 added them")
{
	CUfileP2PFlags_t flags = CUFILE_C2C;
	size_t kb[4], count[4];

	if (!cf.cuFileReadv || !cf.cuFileDriverSetP2PFlags) {
		say("absent");
		return;
	}
	cf.cuFileDriverOpen();
	say_status(cf.cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, CUFILE_P2PDMA));
	say_status(cf.cuFileDriverGetP2PFlags(CU_FILE_NVME_SUPPORTED, &flags));
	say_status(cf.cuFileDriverGetP2PFlags(CU_FILE_MAX_TARGET_TYPES, &flags));
	say_status(cf.cuFileGetParameterGpuBounceBufferSlabArray(kb, count, 4));
	say_status(cf.cuFileExportPCIeTopology("/dev/null"));
	say_status(cf.cuFileExportPCIeTopology(NULL));
	errno = 0;
	say_count(cf.cuFileReadv(NULL, NULL, 0, 0, 0));
}

CASE_BUT(stdin_kept, "open leaves descriptor 0 alone", "open", NULL,
	 "the real library closes it where nvidia-fs is half there")
{
	cf.cuFileDriverOpen();
	say(fcntl(0, F_GETFD) < 0 ? "closed" : "open");
}

CASE_BUT(no_log, "no cufile.log in the working directory", "none", "cufile.log",
	 "ours logs only where a path or folder is configured")
{
	char file[64];
	FILE *p;

	cf.cuFileDriverOpen();
	cf.cuFileHandleRegister(NULL, NULL);
	cf.cuFileDriverClose();
	p = popen("ls | grep '^cufile.*log' | sed 's/[-_0-9]//g' | head -n 1", "re");
	if (!p || !fgets(file, sizeof(file), p))
		snprintf(file, sizeof(file), "none");
	file[strcspn(file, "\n")] = '\0';
	say("%s", file);
}
