/* SPDX-License-Identifier: MIT */
/* An array over the blocks of a device, cached in memory of kernels. */
#include "gpu_cache.h"

#include "message.h"

#include <peerlane/device_array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_ALIGNMENT 4096u
#define BUSY_BYTES (8u << 20)
#define MOST_AHEAD 8u

static int set_up(struct pl_gpu_cache *c, struct peerlane_array_options *opt)
{
	const uint64_t cache_bytes = opt->frames_bytes;
	int err;

	c->metadata_bytes = peerlane_array_metadata_bytes(opt);
	if (!c->metadata_bytes)
		return -EINVAL;
	err = pl_kmem_alloc(&c->bench->run.kmem, cache_bytes + FRAME_ALIGNMENT, &c->memory);
	if (!err)
		err = pl_kmem_alloc(&c->bench->run.kmem, c->metadata_bytes, &c->metadata);
	if (!err)
		err = pl_gpu_cache_clear(c);
	if (err)
		return err;
	opt->metadata = c->metadata;
	opt->frames = (void *)(((uintptr_t)c->memory + FRAME_ALIGNMENT - 1) &
			       ~(uintptr_t)(FRAME_ALIGNMENT - 1));
	return peerlane_array_init(&c->k.cache, opt);
}

int pl_gpu_cache_check(uint64_t cache_bytes, uint64_t page_bytes)
{
	if (page_bytes & (page_bytes - 1)) {
		pl_message_error("--page: %llu is not a power of two",
				 (unsigned long long)page_bytes);
		return -EINVAL;
	}
	if (cache_bytes / page_bytes < 8) {
		pl_message_error("--cache: %llu bytes are less than 8 pages",
				 (unsigned long long)cache_bytes);
		return -EINVAL;
	}
	return 0;
}

/*
 * Pages for each warp to have under way beside the one it works on: enough in all for a bus to be busy, and few beside those
 * that the cache holds.
 */
static uint32_t pages_ahead(const struct pl_gpu_cache *c)
{
	const uint64_t room = pl_gpu_cache_bytes(c) / 16;
	const uint64_t each =
		(room < BUSY_BYTES ? room : BUSY_BYTES) / c->k.page_bytes / c->k.nr_warps;
	const uint32_t most = c->bench->run.width - 1 < MOST_AHEAD ? c->bench->run.width - 1
								   : MOST_AHEAD;

	return each > most ? most : each ? (uint32_t)each : 1;
}

int pl_gpu_cache_sizes(const struct pl_gpu_bench *b, uint64_t gpu_bytes, uint64_t *bytes,
		       uint64_t *cache, uint64_t page_bytes)
{
	if (!*bytes)
		*bytes = pl_gpu_run_on_gpu(&b->run) ? gpu_bytes : 256u << 10;
	if (!*cache)
		*cache = *bytes / 4;
	if (*bytes % 65536) {
		pl_message_error("--bytes: %llu is not a multiple of 65536",
				 (unsigned long long)*bytes);
		return -EINVAL;
	}
	return pl_gpu_cache_check(*cache, page_bytes);
}

int pl_gpu_cache_init(struct pl_gpu_cache *c, struct pl_gpu_bench *b, const struct pl_gpu_row *row,
		      struct peerlane_device *dev, uint64_t bytes, uint64_t cache_bytes,
		      uint32_t page_bytes)
{
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct peerlane_device_space space = { .size = sizeof(space) };
	struct pld_target target = { 0 };
	struct pld_path path = { 0 };
	struct peerlane_array_options opt = {
		.size = sizeof(opt),
		.bytes = bytes,
		.page_bytes = page_bytes,
		.frames_bytes = cache_bytes,
		.timeout_ns = PL_GPU_TIMEOUT_NS,
		.busy_ns = PL_GPU_TIMEOUT_NS,
		.targets = &target,
		.paths = &path,
		.nr_targets = 1,
		.nr_paths = 1,
	};
	int err;

	memset(c, 0, sizeof(*c));
	c->bench = b;
	err = peerlane_device_get_info(dev, &info);
	if (!err)
		err = peerlane_device_get_space(dev, 0, &space);
	if (err)
		return pl_gpu_bench_complain("array", err);
	target.nsid = space.nsid;
	target.log_block = (uint32_t)__builtin_ctz(space.block_bytes);
	path.queues = info.queues;
	path.nr_queues = info.nr_queues;
	path.slots_per_queue = info.ports_per_queue * info.slots_per_port;
	err = set_up(c, &opt);
	if (err)
		return pl_gpu_bench_complain("array", err);
	c->k.counts = b->run.counts;
	c->k.bytes = bytes;
	c->k.nr_warps = pl_gpu_bench_warps(b, row);
	c->k.lanes = b->run.lanes;
	c->k.page_bytes = page_bytes;
	c->k.ahead = pages_ahead(c);
	return 0;
}

void pl_gpu_cache_fini(struct pl_gpu_cache *c)
{
	if (!c->bench)
		return;
	pl_kmem_free(&c->bench->run.kmem, c->memory);
	pl_kmem_free(&c->bench->run.kmem, c->metadata);
}

int pl_gpu_cache_clear(struct pl_gpu_cache *c)
{
	void *zeroes = calloc(1, c->metadata_bytes);
	int err = zeroes ? 0 : -ENOMEM;

	if (!err)
		err = pl_kmem_put(&c->bench->run.kmem, c->metadata, zeroes, c->metadata_bytes);
	free(zeroes);
	return err;
}

int pl_gpu_cache_stats(struct pl_gpu_cache *c, struct pld_array_stats *stats)
{
	return pl_kmem_get(&c->bench->run.kmem, stats, c->k.cache.stats, sizeof(*stats));
}

uint64_t pl_gpu_cache_bytes(const struct pl_gpu_cache *c)
{
	return ((uint64_t)c->k.cache.ways << c->k.cache.log_sets) << c->k.cache.stripe.log_page;
}
