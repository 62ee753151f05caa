/* SPDX-License-Identifier: MIT */
/* An array over the blocks of a device, cached in memory of kernels. */
#ifndef PL_GPU_CACHE_H
#define PL_GPU_CACHE_H

#include "gpu_bench.h"

struct pl_gpu_cache {
	struct pl_gpu_bench *bench;
	struct plk_array k; /* arguments of a kernel that reads through it */
	void *memory;	    /* frames, from a page on */
	void *metadata;
	size_t metadata_bytes;
};

/* Can a cache be so large, with such pages? What is wrong is said. 0 or -EINVAL. */
int pl_gpu_cache_check(uint64_t cache_bytes, uint64_t page_bytes);
/*
 * What was not asked for: @gpu_bytes of data, or less without a GPU, and a cache of a quarter of them; and whether it can be, as
 * above.
 */
int pl_gpu_cache_sizes(const struct pl_gpu_bench *b, uint64_t gpu_bytes, uint64_t *bytes,
		       uint64_t *cache, uint64_t page_bytes);
/* An array of the first @bytes of the device with room for @cache_bytes. A failure is said. */
int pl_gpu_cache_init(struct pl_gpu_cache *c, struct pl_gpu_bench *b, const struct pl_gpu_row *row,
		      struct peerlane_device *dev, uint64_t bytes, uint64_t cache_bytes,
		      uint32_t page_bytes);
void pl_gpu_cache_fini(struct pl_gpu_cache *c);
/* Forget all pages and statistics. */
int pl_gpu_cache_clear(struct pl_gpu_cache *c);
int pl_gpu_cache_stats(struct pl_gpu_cache *c, struct pld_array_stats *stats);
/* Bytes of all frames. */
uint64_t pl_gpu_cache_bytes(const struct pl_gpu_cache *c);

#endif
