/* SPDX-License-Identifier: MIT */
/* The kernel of peerlane bench gpu mixed: words that are read and written. */
#ifndef PL_GPU_MIXED_KERNELS_H
#define PL_GPU_MIXED_KERNELS_H

#include "gpu_array_kernels.h"

#define PLK_WORDS 8u /* of a lane, which no other uses */

/* Word number @i of a lane: they are spread over the array, so that a page has words of many lanes. */
PLD_FN uint64_t plk_place_(const struct plk_array *k, uint64_t me, uint32_t i)
{
	const uint64_t part = k->bytes / 8 / PLK_WORDS;

	return i * part + me * (part / ((uint64_t)k->nr_warps * pld_count32(k->lanes)));
}

/* What a lane does in a step: which of its words, whether it is written, and what with. */
struct plk_step {
	uint64_t value;
	uint32_t word;
	int write;
};

/* At first each word is written once, so that what it holds is known. */
PLD_FN struct plk_step plk_step_(const struct plk_array *k, uint64_t me, uint64_t i)
{
	struct plk_step s;

	s.value = plk_mix(plk_mix(k->seed + (me << 32)) + i);
	s.word = i < PLK_WORDS ? (uint32_t)i : (uint32_t)s.value % PLK_WORDS;
	s.write = i < PLK_WORDS || (s.value >> 40 & 1);
	return s;
}

PLD_FN void plk_put_(struct plk_view *v, int want, uint64_t index, const uint64_t *value)
{
	int err = 0;

	if (!v->k->direct)
		err = pld_array_write(&v->a, want, index, value, 8);
	else if (want)
		((uint64_t *)(uintptr_t)v->k->direct)[index] = *value;
	if (pld_ballot(v->k->lanes, err != 0))
		v->err = err ? err : -EIO;
}

/* Each lane reads and writes its words at random, and compares what it reads. PLK_SWEEP: what was written goes to the
 * drive. */
PLD_FN void plk_mixed(const struct plk_array *k, uint32_t warp)
{
	const uint64_t me = (uint64_t)warp * pld_count32(k->lanes) + pld_rank(k->lanes);
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	uint64_t mine[PLK_WORDS];
	struct plk_view v;
	struct pld_group g;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, &g, k, warp);
	for (uint64_t i = 0; !v.err && k->order != PLK_SWEEP && i < k->per_warp; i++) {
		const struct plk_step s = plk_step_(k, me, i);
		const uint64_t index = plk_place_(k, me, s.word);
		uint64_t got = 0;

		if (s.write)
			mine[s.word] = s.value;
		plk_put_(&v, s.write, index, &s.value);
		if (v.err || plk_get_(&v, !s.write, index * 8, &got))
			break;
		n.done++;
		if (!s.write && got != mine[s.word]) {
			n.wrong++;
			n.a_wrong_block = index / 64;
		}
	}
	if (!v.err && !k->direct && k->order == PLK_SWEEP)
		v.err = pld_array_flush(&v.a, warp, k->nr_warps);
	plk_view_close_(&v, &n);
}

#endif
