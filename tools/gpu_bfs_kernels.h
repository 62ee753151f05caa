/* SPDX-License-Identifier: MIT */
/*
 * The kernel of peerlane bench gpu bfs: a search through a graph, level by level. Where the vertices of a level are few, the
 * pages of their edges would hold little else that is wanted: then only the blocks are read that have them.
 */
#ifndef PL_GPU_BFS_KERNELS_H
#define PL_GPU_BFS_KERNELS_H

#include "gpu_array_kernels.h"

#include <peerlane/device/peek.h>

#define PLK_LANE_EDGES 8u
/* Vertices that each lane looks at before edges are followed. */
#define PLK_LANE_LEVELS 8u
/* What a lane has read at once without its page, and room for it where blocks are of 512 bytes. */
#define PLK_PEEK_BYTES 1024u
#define PLK_PEEK_ROOM (PLK_PEEK_BYTES + 512u)

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

/* The page of edges that a warp holds. */
struct plk_held {
	const char *page;
	uint64_t at; /* byte where it begins */
};

PLD_FN void plk_let_go_held_(struct plk_view *v, struct plk_held *h)
{
	if (h->page)
		plk_let_go_(v, h->page);
	h->page = 0;
	h->at = ~(uint64_t)0;
}

/*
 * The edges of some lanes' vertices, [begin, end) of each. A page is held as long as the next are in it, too; those
 * behind it in which lanes have their byte @ahead come in meanwhile.
 */
PLD_FN int plk_follow_(struct plk_view *v, struct plk_held *h, uint32_t lanes, uint64_t begin,
		       uint64_t end, uint64_t ahead)
{
	const struct plk_array *k = v->k;
	const uint64_t window = (uint64_t)(k->ahead + 1) * k->page_bytes;
	const uint32_t rank = pld_rank(k->lanes);
	uint64_t asked = 0; /* byte to which pages were asked for */
	int any = 0;

	for (; lanes; lanes &= lanes - 1) {
		const uint32_t who = pld_lowest32(lanes);
		uint64_t at = k->edges_at + pld_shfl64(k->lanes, begin, who) * 4;
		const uint64_t last = k->edges_at + pld_shfl64(k->lanes, end, who) * 4;

		while (at < last) {
			const uint64_t base = at & ~(uint64_t)(k->page_bytes - 1);
			const uint64_t limit = base + k->page_bytes;
			const uint64_t to = last < limit ? last : limit;

			if (base >= asked && last > limit)
				plk_ahead_(v,
					   rank <= k->ahead && base + rank * k->page_bytes < last,
					   base + rank * k->page_bytes);
			else if (base >= asked)
				plk_ahead_(v, ahead - base < window, ahead);
			if (base >= asked)
				asked = base + window;
			if (base != h->at) {
				plk_let_go_held_(v, h);
				h->page = plk_hold_(v, base);
				h->at = base;
			}
			if (!h->page)
				return any;
			any |= plk_visit_(k, (const uint32_t *)(h->page + (at - base)),
					  (uint32_t)(to - at) / 4);
			at = to;
		}
	}
	/* What follows begins where this ended. Where the frames are few, warps could hold all of a set. */
	if (!k->hold_on)
		plk_let_go_held_(v, h);
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
	struct plk_held h = { 0, ~(uint64_t)0 };
	int any = 0;

	for (uint32_t i = warp; !v->err && i < k->pieces_now; i += k->nr_warps)
		any |= plk_follow_(v, &h, 1, k->pieces[2 * i], k->pieces[2 * i + 1], 0);
	plk_let_go_held_(v, &h);
	return any;
}

/*
 * Whether lists, bytes [at, last) of each lane that has one, are better read by blocks: these are at most half of the
 * bytes of the pages. The lists of lanes follow each other in the array.
 */
PLD_FN int plk_sparse_(const struct plk_array *k, int mine, uint64_t at, uint64_t last)
{
	const uint32_t rank = pld_rank(k->lanes);
	const uint64_t page = at / k->page_bytes, end = mine ? (last - 1) / k->page_bytes : 0;
	const uint64_t before = pld_shfl64(k->lanes, end, rank ? rank - 1 : 0);
	uint64_t blocks = 0, pages = 0, sum;

	if (mine) {
		blocks = (last + 511) / 512 - at / 512;
		pages = end + 1 - page - (rank && before == page);
	}
	sum = pld_sum_(k->lanes, blocks << 32 | pages);
	return 2 * (sum >> 32) * 512 <= (sum & 0xffffffff) * k->page_bytes;
}

/* The edges of some lanes' vertices, by blocks: each lane gets a part of its own at a time, and all look at them. */
PLD_FN int plk_follow_blocks_(struct plk_view *v, int mine, uint64_t at, uint64_t last,
			      uint32_t warp)
{
	const struct plk_array *k = v->k;
	const uint32_t width = pld_count32(k->lanes), rank = pld_rank(k->lanes);
	char *memory = k->scratch + ((uint64_t)warp * width + rank) * PLK_PEEK_ROOM;
	int any = 0;

	while (pld_ballot(k->lanes, mine)) {
		const uint64_t limit = (at / k->page_bytes + 1) * k->page_bytes;
		const char *data = memory;
		uint64_t to = at + PLK_PEEK_BYTES;
		int err;

		to = to < last ? to : last;
		to = to < limit ? to : limit;
		err = pld_array_peek(&v->a, mine, at, (uint32_t)(to - at), memory, 0, &data);
		if (pld_ballot(k->lanes, err != 0)) {
			v->err = err ? err : -EIO;
			break;
		}
		for (uint32_t left = pld_ballot(k->lanes, mine); left; left &= left - 1) {
			const uint32_t who = pld_lowest32(left);
			const uint64_t place = pld_shfl64(k->lanes, (uintptr_t)data, who);

			any |= plk_visit_(k, (const uint32_t *)(uintptr_t)place,
					  pld_shfl32(k->lanes, (uint32_t)(to - at) / 4, who));
		}
		/* All have seen it before more comes. */
		pld_sync(k->lanes);
		at = to;
		mine = mine && at < last;
	}
	return any;
}

/* Follow the edges of one vertex for each lane, up to @nr of them. */
PLD_FN int plk_vertices_(struct plk_view *v, struct plk_held *h, uint32_t nr, uint64_t vertex,
			 uint32_t warp, struct plk_counts *n)
{
	const struct plk_array *k = v->k;
	const uint32_t rank = pld_rank(k->lanes);
	const int mine = rank < nr;
	uint64_t begin = 0, end = 0, ahead;
	int page, block, any = 0;

	/* A list ends where the next begins. */
	if (plk_get_(v, mine, vertex * 8, &begin) || plk_get_(v, mine, vertex * 8 + 8, &end))
		return 0;
	n->done += end - begin;
	page = mine && end - begin <= 2 * k->piece;
	if (mine && !page)
		plk_note_pieces_(k, begin, end);
	block = page && !k->direct && end > begin;
	if (pld_ballot(k->lanes, block) &&
	    plk_sparse_(k, block, k->edges_at + begin * 4, k->edges_at + end * 4)) {
		any = plk_follow_blocks_(v, block, k->edges_at + begin * 4, k->edges_at + end * 4,
					 warp);
		page = page && !block;
	}
	/* Where lists begin; the first page comes at once, in its stead that of the end. */
	ahead = k->edges_at + pld_shfl64(k->lanes, end, nr - 1) * 4 - 4;
	if (rank || nr == 1)
		ahead = k->edges_at + begin * 4;
	if (!v->err && pld_ballot(k->lanes, page))
		any |= plk_follow_(v, h, pld_ballot(k->lanes, page), begin, end, ahead);
	return any;
}

/* What a warp knows of a level. */
struct plk_search {
	/* Of the vertices from @first on that were looked at, those to be followed. */
	uint32_t masks[PLK_LANE_LEVELS];
	uint64_t first;
	uint64_t vertex; /* this lane's, to be followed next */
	uint32_t nr;	 /* lanes that have one, from the first on */
	int over;	 /* there are no more to look at */
};

/*
 * Look at the next vertices. Warps take them part by part: where one needs longer, others go on. Returns 0 if there are
 * none.
 */
PLD_FN int plk_look_at_(const struct plk_array *k, struct plk_search *s)
{
	const uint32_t rank = pld_rank(k->lanes), width = pld_count32(k->lanes);
	uint32_t part = 0, levels[PLK_LANE_LEVELS];

	if (pld_leads(k->lanes))
		part = pld_add_dev32(k->next_part, 1);
	part = pld_shfl32(k->lanes, part, pld_lowest32(k->lanes));
	s->first = (uint64_t)part * PLK_LANE_LEVELS * width;
	for (uint32_t i = 0; i < PLK_LANE_LEVELS; i++) {
		const uint64_t vertex = s->first + i * width + rank;

		levels[i] = ~k->level;
		if (vertex < k->nr_vertices)
			levels[i] = pld_load_relaxed_dev32(&k->levels[vertex]);
	}
	for (uint32_t i = 0; i < PLK_LANE_LEVELS; i++)
		s->masks[i] = pld_ballot(k->lanes, levels[i] == k->level);
	return s->first < k->nr_vertices;
}

/* Have a vertex of the level in every lane, as far as there are so many. */
PLD_FN void plk_collect_(const struct plk_array *k, struct plk_search *s)
{
	const uint32_t rank = pld_rank(k->lanes), width = pld_count32(k->lanes);

	s->nr = 0;
	while (s->nr < width && !s->over) {
		uint32_t all = 0;

		for (; s->masks[0] && s->nr < width; s->masks[0] &= s->masks[0] - 1, s->nr++)
			if (rank == s->nr)
				s->vertex = s->first + pld_lowest32(s->masks[0]);
		if (s->masks[0])
			break;
		s->first += width;
		for (uint32_t i = 0; i < PLK_LANE_LEVELS; i++) {
			s->masks[i] = i + 1 < PLK_LANE_LEVELS ? s->masks[i + 1] : 0;
			all |= s->masks[i];
		}
		if (!all)
			s->over = !plk_look_at_(k, s);
	}
}

PLD_FN int plk_level_(struct plk_view *v, uint32_t warp, struct plk_counts *n)
{
	struct plk_search s = { { 0 }, 0, 0, 0, 0 };
	struct plk_held h = { 0, ~(uint64_t)0 };
	int any = 0;

	do {
		plk_collect_(v->k, &s);
		if (s.nr)
			any |= plk_vertices_(v, &h, s.nr, s.vertex, warp, n);
	} while (s.nr && !v->err);
	plk_let_go_held_(v, &h);
	return any;
}

/* One level, or the long lists that it left. */
PLD_FN void plk_bfs(const struct plk_array *k, uint32_t warp)
{
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	int any = 0;
	struct plk_view v;
	struct pld_group g;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, &g, k, warp);
	if (!v.err)
		any = k->pieces_now ? plk_pieces_(&v, warp) : plk_level_(&v, warp, &n);
	if (pld_ballot(k->lanes, any) && pld_leads(k->lanes))
		pld_store_relaxed_dev32(k->more, 1);
	plk_view_close_(&v, &n);
}

#endif
