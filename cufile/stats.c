// SPDX-License-Identifier: MIT
/* Statistics: counted in the very structs that programs get, with what follows from them added. */
#include "stats.h"

#include "buffer.h"
#include "driver.h"
#include "error.h"
#include "log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include <peerlane/gpu.h>

#define MAX_GPUS 16
#define NS_PER_US 1000u
#define NS_PER_S 1000000000ull
#define PAGE_MASK 4095u

static CUfileStatsLevel3_t now; /* its words are atomic */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the clock and the level */
static int level;
static bool level_set; /* by the program, which then counts for more than the configuration */
static bool running;
static uint64_t began_ns, before_ns; /* since the last start; and what was before */
static bool collecting;		     /* running at a level above 0; read without the lock */

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static bool is_on(void)
{
	return __atomic_load_n(&collecting, __ATOMIC_RELAXED);
}

uint64_t pl_cf_stats_begin(void)
{
	return is_on() ? clock_ns() : 0;
}

void pl_cf_stats_count(size_t member, bool ok, uint64_t n)
{
	CUfileOpCounter_t *c = (void *)((char *)&now + member);

	if (is_on())
		add(ok ? &c->ok : &c->err, n);
}

/* Entry i of the histogram counts 2^i to 2^(i+1)-1 KiB; less than 2 KiB is entry 0. */
static unsigned int hist_entry(size_t bytes)
{
	uint64_t kb = bytes >> 10;
	unsigned int i = kb < 2 ? 0 : 63u - (unsigned int)__builtin_clzll(kb);

	return i < 31 ? i : 31;
}

static bool unaligned(const void *addr, size_t bytes, off_t offset)
{
	return ((uintptr_t)addr | bytes | (uintptr_t)offset) & PAGE_MASK;
}

/* Most of its bytes went between drive and GPU memory; others count as through the host. */
static bool by_p2p(ssize_t result, size_t p2p)
{
	return result > 0 && p2p > (size_t)result / 2;
}

static void gpu_io(CUfilePerGpuStats_t *g, enum peerlane_op op, bool ragged, ssize_t result,
		   size_t p2p, uint64_t us)
{
	bool rd = op == PEERLANE_READ;

	if (result < 0) {
		add(rd ? &g->n_reads_err : &g->n_writes_err, 1);
		return;
	}
	add(rd ? &g->n_total_reads : &g->n_total_writes, 1);
	if (by_p2p(result, p2p))
		add(rd ? &g->n_p2p_reads : &g->n_p2p_writes, 1);
	else
		add(rd ? &g->n_posix_reads : &g->n_posix_writes, 1);
	add(rd ? &g->read_bytes : &g->writes_bytes, (uint64_t)result);
	add(rd ? &g->read_duration_us : &g->write_duration_us, us);
	if (ragged)
		add(rd ? &g->n_unaligned_reads : &g->n_unaligned_writes, 1);
}

/* What single transfers and those of a batch have in common. */
int pl_cf_stats_gpu(struct peerlane *ctx, const void *addr)
{
	return __atomic_load_n(&level, __ATOMIC_RELAXED) >= 3 ? pl_cf_buffer_gpu(ctx, addr) : -1;
}

static void details(int gpu, enum peerlane_op op, const void *addr, size_t asked, off_t offset,
		    ssize_t result, size_t p2p, uint64_t us)
{
	CUfileStatsLevel2_t *l2 = &now.detailed;
	int at = __atomic_load_n(&level, __ATOMIC_RELAXED);

	if (at >= 2)
		add(&(op == PEERLANE_READ ? l2->read_size_kb_hist
					  : l2->write_size_kb_hist)[hist_entry(asked)],
		    1);
	if (at < 3)
		return;
	if (gpu >= 0 && gpu < MAX_GPUS)
		gpu_io(&now.per_gpu_stats[gpu], op, unaligned(addr, asked, offset), result, p2p,
		       us);
}

void pl_cf_stats_io(int gpu, enum peerlane_op op, const void *addr, size_t asked, off_t offset,
		    ssize_t result, size_t p2p, uint64_t start)
{
	CUfileStatsLevel1_t *l1 = &now.detailed.basic;
	uint64_t us = (clock_ns() - start) / NS_PER_US;
	bool rd = op == PEERLANE_READ;
	CUfileOpCounter_t *ops = rd ? &l1->read_ops : &l1->write_ops;

	add(result < 0 ? &ops->err : &ops->ok, 1);
	if (result >= 0) {
		add(rd ? &l1->read_bytes : &l1->write_bytes, (uint64_t)result);
		add(rd ? &l1->read_lat_sum_us : &l1->write_lat_sum_us, us);
	}
	details(gpu, op, addr, asked, offset, result, p2p, us);
}

void pl_cf_stats_batch_io(int gpu, enum peerlane_op op, const void *addr, size_t asked,
			  off_t offset, ssize_t result, size_t p2p, uint64_t start)
{
	CUfileStatsLevel1_t *l1 = &now.detailed.basic;
	uint64_t us = (clock_ns() - start) / NS_PER_US;
	bool rd = op == PEERLANE_READ;

	PL_CF_COUNT(batch_complete_ops, result >= 0);
	PL_CF_COUNT(batch_processed_ops, result >= 0);
	/* Which way it went is known only now. */
	if (by_p2p(result, p2p)) {
		PL_CF_COUNT(batch_p2p_submit_ops, true);
	} else {
		PL_CF_COUNT(batch_posix_enqueued_ops, true);
		PL_CF_COUNT(batch_posix_processed_ops, result >= 0);
	}
	if (result >= 0) {
		add(rd ? &l1->batch_read_bytes : &l1->batch_write_bytes, (uint64_t)result);
		add(&l1->batch_completion_lat_sum_us, us);
		__atomic_store_n(rd ? &l1->last_batch_read_bytes : &l1->last_batch_write_bytes,
				 (uint64_t)result, __ATOMIC_RELAXED);
	}
	details(gpu, op, addr, asked, offset, result, p2p, us);
}

void pl_cf_stats_batch_submit(unsigned int nr, bool ok, bool mixed, uint64_t start)
{
	CUfileStatsLevel1_t *l1 = &now.detailed.basic;

	if (!is_on())
		return;
	PL_CF_COUNT(batch_submit_ops, ok);
	PL_CF_COUNT(batch_total_submit_ops, ok);
	if (mixed)
		PL_CF_COUNT(batch_mixed_io_submit_ops, ok);
	PL_CF_COUNT_N(batch_enqueued_ops, ok, nr);
	if (ok && start)
		add(&l1->batch_submit_lat_sum_us, (clock_ns() - start) / NS_PER_US);
}

/* ------------------------------------------------------------------ level and clock */

/* Lock held. */
static void switch_on_or_off(void)
{
	__atomic_store_n(&collecting, running && level > 0, __ATOMIC_RELAXED);
}

static void start_locked(void)
{
	if (!running)
		began_ns = clock_ns();
	running = true;
	switch_on_or_off();
}

static void reset_locked(void)
{
	uint64_t *words = (uint64_t *)(void *)&now;

	for (size_t i = 0; i < sizeof(now) / sizeof(*words); i++)
		__atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
	before_ns = 0;
	began_ns = clock_ns();
}

void pl_cf_stats_open(int configured)
{
	pthread_mutex_lock(&lock);
	if (!level_set)
		__atomic_store_n(&level, configured, __ATOMIC_RELAXED);
	if (configured)
		start_locked();
	pthread_mutex_unlock(&lock);
}

void pl_cf_stats_close(void)
{
	pthread_mutex_lock(&lock);
	running = level_set = false;
	__atomic_store_n(&level, 0, __ATOMIC_RELAXED);
	switch_on_or_off();
	reset_locked();
	pthread_mutex_unlock(&lock);
}

void pl_cf_stats_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pl_cf_stats_close();
}

CUfileError_t cuFileSetStatsLevel(int wanted)
{
	if (wanted < 0 || wanted > 3)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	pthread_mutex_lock(&lock);
	__atomic_store_n(&level, wanted, __ATOMIC_RELAXED);
	level_set = true;
	switch_on_or_off();
	pthread_mutex_unlock(&lock);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileGetStatsLevel(int *out)
{
	if (!out)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	*out = __atomic_load_n(&level, __ATOMIC_RELAXED);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileStatsStart(void)
{
	pthread_mutex_lock(&lock);
	start_locked();
	pthread_mutex_unlock(&lock);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileStatsStop(void)
{
	pthread_mutex_lock(&lock);
	if (running)
		before_ns += clock_ns() - began_ns;
	running = false;
	switch_on_or_off();
	pthread_mutex_unlock(&lock);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileStatsReset(void)
{
	pthread_mutex_lock(&lock);
	reset_locked();
	pthread_mutex_unlock(&lock);
	return pl_cf_status(CU_FILE_SUCCESS);
}

/* ------------------------------------------------------------------ results */

static uint64_t per_second(uint64_t n, uint64_t ns)
{
	return ns ? (uint64_t)((double)n * (double)NS_PER_S / (double)ns) : 0;
}

static uint64_t mean(uint64_t sum, uint64_t n)
{
	return n ? sum / n : 0;
}

static void derive_basic(CUfileStatsLevel1_t *s, uint64_t ns)
{
	s->read_bw_bytes_per_sec = per_second(s->read_bytes, ns);
	s->write_bw_bytes_per_sec = per_second(s->write_bytes, ns);
	s->read_ops_per_sec = per_second(s->read_ops.ok, ns);
	s->write_ops_per_sec = per_second(s->write_ops.ok, ns);
	s->read_lat_avg_us = mean(s->read_lat_sum_us, s->read_ops.ok);
	s->write_lat_avg_us = mean(s->write_lat_sum_us, s->write_ops.ok);
	s->batch_read_bw_bytes = per_second(s->batch_read_bytes, ns);
	s->batch_write_bw_bytes = per_second(s->batch_write_bytes, ns);
	s->batch_submit_ops_per_sec = per_second(s->batch_submit_ops.ok, ns);
	s->batch_complete_ops_per_sec = per_second(s->batch_complete_ops.ok, ns);
	s->batch_submit_lat_avg_us = mean(s->batch_submit_lat_sum_us, s->batch_submit_ops.ok);
	s->batch_completion_lat_avg_us =
		mean(s->batch_completion_lat_sum_us, s->batch_complete_ops.ok);
}

/* Part of the time in which such transfers ran, in percent; more than all when they overlap. */
static uint64_t share(uint64_t us, uint64_t ns)
{
	uint64_t percent = ns ? us * NS_PER_US * 100 / ns : 0;

	return percent < 100 ? percent : 100;
}

/* The GPU's own number, from the driver if that is loaded; else zeros. */
static void read_uuid(int gpu, char *uuid)
{
	int (*get)(char *uuid, int device) = NULL;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *symbol = lib ? dlsym(lib, "cuDeviceGetUuid_v2") : NULL;

	memcpy(&get, &symbol, sizeof(get));
	if (!get || get(uuid, gpu))
		memset(uuid, 0, CUFILE_GPU_UUID_LEN);
	if (lib)
		dlclose(lib);
}

static void derive_gpus(struct peerlane *ctx, CUfileStatsLevel3_t *s, uint64_t ns)
{
	int nr = peerlane_gpu_count(ctx);

	s->num_gpus = nr < 0 ? 0 : nr > MAX_GPUS ? MAX_GPUS : (uint32_t)nr;
	for (uint32_t i = 0; i < s->num_gpus; i++) {
		CUfilePerGpuStats_t *g = &s->per_gpu_stats[i];

		if (!strcmp(peerlane_backend(ctx), "cuda"))
			read_uuid((int)i, g->uuid);
		g->read_bw_bytes_per_sec = per_second(g->read_bytes, ns);
		g->write_bw_bytes_per_sec = per_second(g->writes_bytes, ns);
		g->read_utilization = share(g->read_duration_us, ns);
		g->write_utilization = share(g->write_duration_us, ns);
		g->reg_bytes = pl_cf_buffer_bytes((int)i);
	}
}

static void copy_words(void *to, const void *from, size_t bytes)
{
	const uint64_t *words = from;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		((uint64_t *)to)[i] = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
}

/* Fills @out, which has room for what @wanted promises and no more. */
static CUfileError_t get(int wanted, void *out, size_t bytes)
{
	struct peerlane *ctx;
	uint64_t ns;
	bool enough;

	if (!out)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	ctx = pl_cf_enter();
	if (!ctx)
		return pl_cf_status(CU_FILE_DRIVER_NOT_INITIALIZED);
	pthread_mutex_lock(&lock);
	enough = level >= wanted;
	ns = before_ns + (running ? clock_ns() - began_ns : 0);
	if (enough) {
		copy_words(out, &now, bytes);
		derive_basic(out, ns);
	}
	pthread_mutex_unlock(&lock);
	if (enough && wanted == 3)
		derive_gpus(ctx, out, ns);
	pl_cf_leave();
	return pl_cf_status(enough ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats)
{
	return get(1, stats, sizeof(*stats));
}

CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats)
{
	return get(2, stats, sizeof(*stats));
}

CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats)
{
	return get(3, stats, sizeof(*stats));
}

void pl_cf_stats_log(void)
{
	CUfileStatsLevel1_t s;

	if (!is_on() || !pl_cf_log_wants(PL_CF_INFO))
		return;
	copy_words(&s, &now, sizeof(s));
	pl_cf_log(PL_CF_INFO,
		  "reads %llu ok %llu failed %llu bytes, writes %llu ok %llu failed %llu bytes",
		  (unsigned long long)s.read_ops.ok, (unsigned long long)s.read_ops.err,
		  (unsigned long long)s.read_bytes, (unsigned long long)s.write_ops.ok,
		  (unsigned long long)s.write_ops.err, (unsigned long long)s.write_bytes);
}
