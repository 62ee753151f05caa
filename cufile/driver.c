// SPDX-License-Identifier: MIT
/* The driver: opening, closing and counting; the configuration that goes with it. */
#include "driver.h"

#include "batch.h"
#include "buffer.h"
#include "error.h"
#include "handle.h"
#include "log.h"
#include "stats.h"
#include "stream.h"

#include <pthread.h>
#include <string.h>

/*
 * Held shared by every call that uses the context, alone by those that make or end it. Readers
 * are let in before writers that wait, so a call made inside another one does not deadlock.
 */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct peerlane *ctx;
static long count; /* atomic; changes between 0 and 1 only with the lock held alone */

static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest; inner */
static bool loaded;
static struct pl_cf_config config;
static struct pl_cf_stage stage;

/* ------------------------------------------------------------------ fork */

/* Nothing of the parent's driver can be used. What it held stays: its locks may be taken. */
static void fork_child(void)
{
	static struct peerlane *left; /* in sight of leak checkers */

	pthread_rwlock_init(&lock, NULL);
	pthread_mutex_init(&config_lock, NULL);
	left = ctx ? ctx : left;
	ctx = NULL;
	count = 0;
	loaded = false;
	pl_cf_log_forget();
	pl_cf_handles_forget();
	pl_cf_batches_forget();
	pl_cf_buffers_forget();
	pl_cf_streams_forget();
	pl_cf_stats_forget();
}

static void fork_register(void)
{
	pthread_atfork(NULL, NULL, fork_child);
}

/* ------------------------------------------------------------------ configuration */

/* Configuration lock held. */
static void load_config(void)
{
	if (loaded)
		return;
	pl_cf_config_load(&config);
	for (int i = 0; i < PL_CF_NR; i++)
		if (stage.set[i])
			pl_cf_config_apply(&config, (enum pl_cf_id)i, &stage.values[i]);
	if (stage.posix.nr)
		config.posix = stage.posix;
	if (stage.bounce.nr)
		config.bounce = stage.bounce;
	memset(&stage, 0, sizeof(stage));
	loaded = true;
}

struct pl_cf_config *pl_cf_config_hold(bool load)
{
	pthread_mutex_lock(&config_lock);
	if (load)
		load_config();
	return loaded ? &config : NULL;
}

void pl_cf_config_release(void)
{
	pthread_mutex_unlock(&config_lock);
}

struct pl_cf_stage *pl_cf_stage(void)
{
	return &stage;
}

/* ------------------------------------------------------------------ open and close */

/* Configuration lock held, here and in the next. */
static void log_open(void)
{
	pl_cf_log(PL_CF_INFO, "driver open: back end %s, configuration %s", peerlane_backend(ctx),
		  config.file[0] ? config.file : "built in");
	if (strcmp(peerlane_backend(ctx), "cuda") != 0)
		pl_cf_log(PL_CF_WARN, "the GPU is simulated");
	if (!config.values[PL_CF_ALLOW_COMPAT].number)
		pl_cf_log(PL_CF_WARN, "allow_compat_mode is off: files are used all the same");
}

static CUfileError_t open_with_config(void)
{
	struct peerlane_options opt = { .size = sizeof(opt), .log = pl_cf_log_engine };
	struct peerlane_error_info info = { .size = sizeof(info) };
	int err;

	load_config();
	pl_cf_log_open(&config);
	pl_cf_log_warnings(&config);
	opt.log_level = pl_cf_log_wants(PL_CF_DEBUG) ? 3 : pl_cf_log_wants(PL_CF_INFO) ? 2 : 1;
	if (config.values[PL_CF_FORCE_COMPAT].number)
		opt.flags |= PEERLANE_NO_P2P;
	err = peerlane_open(&ctx, &opt);
	if (err) {
		ctx = NULL;
		peerlane_error(&info);
		pl_cf_log(PL_CF_ERROR, "cannot open: %s", info.text);
		pl_cf_log_close();
		loaded = false;
		return pl_cf_status_of(err);
	}
	__atomic_store_n(&count, 1, __ATOMIC_RELAXED);
	pl_cf_stats_open((int)config.values[PL_CF_STATS].number);
	log_open();
	return pl_cf_status(CU_FILE_SUCCESS);
}

/* Lock held alone. */
static CUfileError_t open_driver(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	CUfileError_t status;

	pthread_once(&once, fork_register);
	pthread_mutex_lock(&config_lock);
	status = open_with_config();
	pthread_mutex_unlock(&config_lock);
	return status;
}

/* Lock held alone. */
static void close_driver(void)
{
	pl_cf_stats_log();
	pl_cf_batches_clear();
	pl_cf_handles_clear();
	pl_cf_buffers_clear();
	pl_cf_streams_clear();
	peerlane_close(ctx);
	ctx = NULL;
	pthread_mutex_lock(&config_lock);
	loaded = false;
	pthread_mutex_unlock(&config_lock);
	pl_cf_stats_close();
	pl_cf_log(PL_CF_INFO, "driver closed");
	pl_cf_log_close();
}

struct peerlane *pl_cf_enter(void)
{
	pthread_rwlock_rdlock(&lock);
	if (ctx)
		return ctx;
	pthread_rwlock_unlock(&lock);
	return NULL;
}

struct peerlane *pl_cf_enter_open(CUfileError_t *why)
{
	struct peerlane *c;

	*why = pl_cf_status(CU_FILE_SUCCESS);
	while (!(c = pl_cf_enter())) {
		pthread_rwlock_wrlock(&lock);
		if (!ctx)
			*why = open_driver();
		pthread_rwlock_unlock(&lock);
		if (why->err)
			return NULL;
	}
	return c;
}

void pl_cf_leave(void)
{
	pthread_rwlock_unlock(&lock);
}

CUfileError_t cuFileDriverOpen(void)
{
	CUfileError_t status = pl_cf_status(CU_FILE_SUCCESS);

	if (pl_cf_enter()) {
		__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
		pl_cf_leave();
		return status;
	}
	pthread_rwlock_wrlock(&lock);
	if (ctx)
		count++;
	else
		status = open_driver();
	pthread_rwlock_unlock(&lock);
	return status;
}

/* Takes one off the count if others remain; that needs no end of the calls in progress. */
static bool drop_one(void)
{
	long n = __atomic_load_n(&count, __ATOMIC_RELAXED);
	bool done = false;

	if (!pl_cf_enter())
		return false;
	while (n > 1 && !done)
		done = __atomic_compare_exchange_n(&count, &n, n - 1, false, __ATOMIC_RELAXED,
						   __ATOMIC_RELAXED);
	pl_cf_leave();
	return done;
}

CUfileError_t cuFileDriverClose_v2(void)
{
	CUfileError_t status = pl_cf_status(CU_FILE_SUCCESS);

	if (drop_one())
		return status;
	pthread_rwlock_wrlock(&lock);
	if (!ctx)
		status.err = CU_FILE_DRIVER_NOT_INITIALIZED;
	else if (!--count)
		close_driver();
	pthread_rwlock_unlock(&lock);
	return status;
}

#undef cuFileDriverClose
CUfileError_t cuFileDriverClose(void)
{
	return cuFileDriverClose_v2();
}

long cuFileUseCount(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED);
}
