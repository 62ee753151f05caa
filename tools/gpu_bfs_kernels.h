/* SPDX-License-Identifier: MIT */
/* The kernel of peerlane bench gpu bfs: a search through a graph, level by level. */
#ifndef PL_GPU_BFS_KERNELS_H
#define PL_GPU_BFS_KERNELS_H

#include "gpu_array_kernels.h"

#define PLK_LANE_EDGES 8u

/* Edges to @nr vertices that lie together: those that were not seen are of the next level. Returns whether any. */
PLD_FN int plk_visit_(const struct plk_array *k, const uint32_t *edges, uint32_t nr)
{
	const uint32_t width = pld_count32(k->lanes);
	uint32_t to[PLK_LANE_EDGES];
	int any = 0;

	for (uint32_t at = pld_rank(k->lanes); at < nr; at += PLK_LANE_EDGES * width) {
		int fresh[PLK_LANE_EDGES];

		for (uint32_t i = 0; i < PLK_LANE_EDGES; i++)
			to[i] = at + i * width < nr ? edges[at + i * width] : ~0u;
		for (uint32_t i = 0; i < PLK_LANE_EDGES; i++)
			fresh[i] = to[i] < k->nr_vertices &&
				   pld_load_relaxed_dev32(&k->levels[to[i]]) == ~0u;
		/* Several may write it, and all the same. */
		for (uint32_t i = 0; i < PLK_LANE_EDGES; i++)
			if (fresh[i]) {
				pld_store_relaxed_dev32(&k->levels[to[i]], k->level + 1);
				any = 1;
			}
	}
	return any;
}

/*
 * The edges of some lanes' vertices, [begin, end) of each. A page is held as long as the next are in it, too; those
 * behind it in which lanes have their byte @ahead come in meanwhile.
 */
PLD_FN int plk_follow_(struct plk_view *v, uint32_t lanes, uint64_t begin, uint64_t end,
		       uint64_t ahead)
{
	const struct plk_array *k = v->k;
	const uint64_t window = (uint64_t)(k->ahead + 1) * k->page_bytes;
	const uint32_t rank = pld_rank(k->lanes);
	const char *page = 0;
	uint64_t held = ~(uint64_t)0; /* byte where it begins */
	uint64_t asked = 0;	      /* byte to which pages were asked for */
	int any = 0;

	for (; lanes; lanes &= lanes - 1) {
		const uint32_t who = pld_lowest32(lanes);
		uint64_t at = k->edges_at + pld_shfl64(k->lanes, begin, who) * 4;
		const uint64_t last = k->edges_at + pld_shfl64(k->lanes, end, who) * 4;

		while (at < last) {
			const uint64_t base = at & ~(uint64_t)(k->page_bytes - 1);
			const uint64_t limit = base + k->page_bytes;
			const uint64_t to = last < limit ? last : limit;

			if (base != held) {
				if (page)
					plk_let_go_(v, page);
				if (base >= asked && last > limit)
					plk_ahead_(v,
						   rank <= k->ahead &&
							   base + rank * k->page_bytes < last,
						   base + rank * k->page_bytes);
				else if (base >= asked)
					plk_ahead_(v, ahead - base < window, ahead);
				if (base >= asked)
					asked = base + window;
				page = plk_hold_(v, base);
				held = base;
			}
			if (!page)
				return any;
			any |= plk_visit_(k, (const uint32_t *)(page + (at - base)),
					  (uint32_t)(to - at) / 4);
			at = to;
		}
	}
	if (page)
		plk_let_go_(v, page);
	return any;
}

/* Note a long list of this lane for all warps, in pieces. */
PLD_FN void plk_note_pieces_(const struct plk_array *k, uint64_t begin, uint64_t end)
{
	const uint32_t nr = (uint32_t)((end - begin + k->piece - 1) / k->piece);
	uint32_t i = pld_add_dev32(k->nr_pieces, nr);

	for (uint64_t at = begin; at < end; at += k->piece, i++) {
		k->pieces[2 * i] = at;
		k->pieces[2 * i + 1] = end - at < k->piece ? end : at + k->piece;
	}
}

PLD_FN int plk_pieces_(struct plk_view *v, uint32_t warp)
{
	const struct plk_array *k = v->k;
	int any = 0;

	for (uint32_t i = warp; !v->err && i < k->pieces_now; i += k->nr_warps)
		any |= plk_follow_(v, 1, k->pieces[2 * i], k->pieces[2 * i + 1], 0);
	return any;
}

/*
 * One level: a warp takes vertices that follow each other, one lane less than it has, and looks which are of it. Or what
 * that left.
 */
PLD_FN void plk_bfs(const struct plk_array *k, uint32_t warp)
{
	const uint32_t rank = pld_rank(k->lanes), nr = pld_count32(k->lanes) - 1;
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	int any = 0;
	struct plk_view v;
	struct pld_group g;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, &g, k, warp);
	if (k->pieces_now && !v.err)
		any = plk_pieces_(&v, warp);
	for (uint64_t first = (uint64_t)warp * nr;
	     !k->pieces_now && !v.err && first < k->nr_vertices;
	     first += (uint64_t)k->nr_warps * nr) {
		const uint64_t vertex = first + rank;
		const int mine = rank < nr && vertex < k->nr_vertices &&
				 pld_load_relaxed_dev32(&k->levels[vertex]) == k->level;
		const uint32_t lanes = pld_ballot(k->lanes, mine);
		uint64_t begin = 0, end, ahead = 0;
		int hub;

		if (!lanes)
			continue;
		/* A list ends where the next begins. */
		if (plk_get_(&v, (lanes | lanes << 1) >> rank & 1, vertex * 8, &begin))
			break;
		end = pld_shfl64(k->lanes, begin, mine ? rank + 1 : rank);
		/* Where lists begin, and where the last one ends. */
		if (mine || (rank && lanes >> (rank - 1) == 1))
			ahead = k->edges_at + begin * 4 - (mine ? 0 : 4);
		hub = mine && end - begin > 4 * k->piece;
		if (hub)
			plk_note_pieces_(k, begin, end);
		any |= plk_follow_(&v, pld_ballot(k->lanes, mine && !hub), begin, end,
				   hub ? 0 : ahead);
		n.done += mine ? end - begin : 0;
	}
	if (pld_ballot(k->lanes, any) && pld_leads(k->lanes))
		pld_store_relaxed_dev32(k->more, 1);
	plk_view_close_(&v, &n);
}

#endif
