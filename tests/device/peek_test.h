/* SPDX-License-Identifier: MIT */
/* An array whose lanes have memory beside the cache, for what they peek at. */
#ifndef PL_PEEK_TEST_H
#define PL_PEEK_TEST_H

#include "array_test.h"

#include <peerlane/device/peek.h>

#define PAGE 4096u
#define CACHED 16u /* frames of the cache; those behind it are for peeks, one for each lane */

static inline struct plan many(unsigned int nr_warps, unsigned int nr_lanes)
{
	return (struct plan){ .nr_targets = 1,
			      .page = PAGE,
			      .ways = 4,
			      .nr_frames = CACHED + nr_warps * nr_lanes,
			      .bytes = 100 * PAGE + 1040,
			      .element = 8,
			      .nr_warps = nr_warps,
			      .nr_lanes = nr_lanes,
			      .rounds = 100,
			      .slots = 8 };
}

/* A bed whose cache does not have the last frames. */
static inline void open_peeks(struct bed *b, const struct plan *plan)
{
	bed_open(b, plan);
	free(b->metadata);
	b->frames_bytes = (size_t)CACHED * plan->page;
	bed_init_cache(b);
}

static inline void close_peeks(struct bed *b)
{
	b->frames_bytes = (size_t)b->plan.nr_frames * b->plan.page;
	bed_close(b);
}

/* Memory of a lane, and where the controllers find it. */
static inline char *memory_of(struct bed *b, unsigned int warp, struct pld_dma dma[MAX_STORES])
{
	const uint32_t frame = CACHED + warp * b->plan.nr_lanes + pld_lane();

	for (unsigned int i = 0; i < b->nr_stores && !b->plan.bounce; i++)
		dma[i] = b->store[i].dma[frame];
	return b->frames + (size_t)frame * b->plan.page;
}

#endif
