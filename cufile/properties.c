// SPDX-License-Identifier: MIT
/* What the driver says of itself: version, properties, limits. */
#include "bar.h"
#include "driver.h"
#include "error.h"

#include <peerlane/gpu.h>

#define MIN_DIRECT_KB 64
#define MAX_DIRECT_KB 16384
#define MAX_P2P_FLAGS 32

CUfileError_t cuFileGetVersion(int *version)
{
	const struct pl_cf_config *c;

	if (!version)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	c = pl_cf_config_hold(false);
	if (c) {
		*version = (int)c->values[PL_CF_VERSION].number;
	} else {
		/* Asked before all else: the answer must not count as the use of a configuration. */
		struct pl_cf_config now;

		pl_cf_config_load(&now);
		*version = (int)now.values[PL_CF_VERSION].number;
	}
	pl_cf_config_release();
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props)
{
	const struct pl_cf_config *c;
	const struct pl_cf_value *v;

	if (!props)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	c = pl_cf_config_hold(true);
	v = c->values;
	/* A version of the kernel driver would say that there is a direct path: there is none. */
	*props = (CUfileDrvProps_t){
		.nvfs = {
			.poll_thresh_size = v[PL_CF_POLL_KB].number,
			.max_direct_io_size = v[PL_CF_MAX_DIRECT_KB].number,
			.dcontrolflags = (unsigned int)v[PL_CF_POLL].number << CU_FILE_USE_POLL_MODE |
					 (unsigned int)v[PL_CF_ALLOW_COMPAT].number
						 << CU_FILE_ALLOW_COMPAT_MODE,
		},
		.fflags = 1u << CU_FILE_DYN_ROUTING_SUPPORTED | 1u << CU_FILE_BATCH_IO_SUPPORTED |
			  1u << CU_FILE_STREAMS_SUPPORTED | 1u << CU_FILE_PARALLEL_IO_SUPPORTED,
		.max_device_cache_size = (unsigned int)v[PL_CF_CACHE_KB].number,
		.max_device_pinned_mem_size = (unsigned int)v[PL_CF_PINNED_KB].number,
		.max_batch_io_size = (unsigned int)v[PL_CF_BATCH_SIZE].number,
		.max_batch_io_timeout_msecs = (unsigned int)v[PL_CF_BATCH_TIMEOUT_MS].number,
	};
	pl_cf_config_release();
	return pl_cf_status(CU_FILE_SUCCESS);
}

static void set(struct pl_cf_config *c, enum pl_cf_id id, uint64_t number)
{
	c->values[id] = (struct pl_cf_value){ .source = PL_CF_PROGRAM, .number = number };
}

CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size)
{
	struct pl_cf_config *c = pl_cf_config_hold(true);
	bool fits = pl_cf_config_fits(PL_CF_POLL_KB, poll_threshold_size);

	/* Without polling the threshold says nothing. */
	if (fits || !poll)
		set(c, PL_CF_POLL, poll);
	if (fits)
		set(c, PL_CF_POLL_KB, poll_threshold_size);
	pl_cf_config_release();
	return pl_cf_status(fits || !poll ? CU_FILE_SUCCESS : CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
}

CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size)
{
	struct pl_cf_config *c = pl_cf_config_hold(true);
	bool fits = max_direct_io_size >= MIN_DIRECT_KB && max_direct_io_size <= MAX_DIRECT_KB;

	if (fits)
		set(c, PL_CF_MAX_DIRECT_KB, max_direct_io_size);
	pl_cf_config_release();
	return pl_cf_status(fits ? CU_FILE_SUCCESS : CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
}

/* Limits of GPU memory held by a kernel driver: kept and shown, and no larger than the window to
 * that memory where its size is known. */
static CUfileError_t set_memory(enum pl_cf_id id, size_t kb)
{
	struct peerlane *ctx = pl_cf_enter();
	size_t bar = ctx ? pl_cf_bar_kb(ctx, 0) : 0;
	bool fits = pl_cf_config_fits(id, kb) && (!bar || kb <= bar);
	struct pl_cf_config *c;

	if (ctx)
		pl_cf_leave();
	c = pl_cf_config_hold(true);
	if (fits)
		set(c, id, kb);
	pl_cf_config_release();
	return pl_cf_status(fits ? CU_FILE_SUCCESS : CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
}

CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size)
{
	return set_memory(PL_CF_CACHE_KB, max_cache_size);
}

CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size)
{
	return set_memory(PL_CF_PINNED_KB, max_pinned_size);
}

static CUfileError_t get_bar(struct peerlane *ctx, int gpu, size_t *kb)
{
	if (gpu < 0 || gpu >= peerlane_gpu_count(ctx))
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	*kb = pl_cf_bar_kb(ctx, gpu);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileGetBARSizeInKB(int gpu_index, size_t *bar_size)
{
	struct peerlane *ctx, *own;
	CUfileError_t status;

	if (!bar_size)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	ctx = pl_cf_enter();
	if (ctx) {
		status = get_bar(ctx, gpu_index, bar_size);
		pl_cf_leave();
		return status;
	}
	/* To ask does not open the driver. */
	if (peerlane_open(&own, NULL))
		return pl_cf_status(CU_FILE_DRIVER_NOT_INITIALIZED);
	status = get_bar(own, gpu_index, bar_size);
	peerlane_close(own);
	return status;
}

/* What a program wants of each kind of target; the engine decides by itself. */
static unsigned int p2p_flags[CU_FILE_MAX_TARGET_TYPES]; /* atomic */

CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t flags)
{
	if ((unsigned int)target >= CU_FILE_MAX_TARGET_TYPES ||
	    (unsigned int)flags >= MAX_P2P_FLAGS)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	__atomic_store_n(&p2p_flags[target], (unsigned int)flags, __ATOMIC_RELAXED);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t *flags)
{
	if ((unsigned int)target >= CU_FILE_MAX_TARGET_TYPES || !flags)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	*flags = (CUfileP2PFlags_t)__atomic_load_n(&p2p_flags[target], __ATOMIC_RELAXED);
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileExportPCIeTopology(const char *path)
{
	return pl_cf_status(path ? CU_FILE_PLATFORM_NOT_SUPPORTED : CU_FILE_INVALID_VALUE);
}
