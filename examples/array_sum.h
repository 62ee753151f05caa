/* SPDX-License-Identifier: MIT */
/* The kernel of array_sum, for nvcc and for the C compiler: every lane adds up every so many numbers. */
#ifndef ARRAY_SUM_H
#define ARRAY_SUM_H

#include <peerlane/device/array.h>

struct sum_args {
	struct pld_cache cache;
	uint64_t nr;	 /* numbers */
	uint64_t *sum;	 /* receives the sum */
	uint64_t *error; /* receives an errno, or stays 0 */
	uint32_t nr_warps;
	uint32_t lanes; /* of a warp */
};

PLD_ARRAY_OF(u64, uint64_t) /* u64_read() */

PLD_FN void sum_kernel(const struct sum_args *k, uint32_t warp)
{
	const uint64_t width = pld_count32(k->lanes);
	struct pld_array a;
	struct pld_group g;
	uint64_t x, sum = 0;
	int err;

	if (warp >= k->nr_warps)
		return;
	err = pld_array_open(&a, &g, &k->cache, warp, k->lanes);
	if (err) {
		pld_store_relaxed_dev64(k->error, (uint64_t)-err);
		return;
	}
	/* All lanes call, also those that have nothing left; after an error they leave together. */
	for (uint64_t i = warp * width; !err && i < k->nr; i += k->nr_warps * width) {
		const uint64_t mine = i + pld_lane();

		x = 0;
		err = u64_read(&a, mine < k->nr, mine, &x);
		sum += x;
		if (err)
			pld_store_relaxed_dev64(k->error, (uint64_t)-err);
		err = pld_ballot(k->lanes, err != 0) != 0;
	}
	pld_count_dev64(k->sum, sum);
	pld_array_close(&a);
}

#endif
