/* SPDX-License-Identifier: MIT */
/*
 * The kernels of peerlane bench gpu that use arrays: pages, a sum, a scan of columns and a search through a
 * graph. Each can also read plain memory, of the host or of the GPU, without a cache: that is what it is
 * compared with.
 */
#ifndef PL_GPU_ARRAY_KERNELS_H
#define PL_GPU_ARRAY_KERNELS_H

#include "gpu_kernels.h"

#include <peerlane/device/array.h>

struct plk_array {
	struct pld_cache cache;
	const char *direct; /* all the data, or NULL: through the array */
	struct plk_counts *counts;
	uint64_t bytes; /* of the data that are used, whole pages */
	uint64_t per_warp;
	uint64_t seed;
	uint32_t nr_warps;
	uint32_t lanes;
	uint32_t page_bytes;
	uint32_t order; /* of pages: enum plk_order, no chase */
	/* Of the scan: keys from 0 on, values behind them. */
	uint64_t nr_rows, values_at;
	uint32_t low, high; /* keys that count: low <= key < high */
	/* Of the search. In memory of the GPU: one bit for each vertex seen, and the vertices of two
	 * levels. */
	uint64_t edges_at; /* byte; offsets, from 0 on, are counted in edges */
	uint32_t *seen, *levels, *now, *next, *nr_next;
	uint32_t nr_now, level;
};

/* The view of one warp. */
struct plk_view {
	const struct plk_array *k;
	struct pld_array a;
	int err;
};

PLD_FN int plk_view_open_(struct plk_view *v, const struct plk_array *k, uint32_t warp)
{
	v->k = k;
	v->err = k->direct ? 0 : pld_array_open(&v->a, &k->cache, warp, k->lanes);
	return v->err;
}

/* Close it, and count for the warp. */
PLD_FN void plk_view_close_(struct plk_view *v, const struct plk_counts *n)
{
	if (!v->k->direct && v->err != -EINVAL)
		pld_array_close(&v->a);
	if (v->err && pld_leads(v->k->lanes)) {
		pld_count_dev64(&v->k->counts->failed, 1);
		pld_store_relaxed_dev64(&v->k->counts->a_status, (uint64_t)-v->err);
	}
	pld_count_dev64(&v->k->counts->done, n->done);
	pld_count_dev64(&v->k->counts->sum, n->sum);
	pld_count_dev64(&v->k->counts->found, n->found);
	if (n->wrong) {
		pld_count_dev64(&v->k->counts->wrong, n->wrong);
		pld_store_relaxed_dev64(&v->k->counts->a_wrong_block, n->a_wrong_block);
	}
}

/* Bytes from a place to the end of its page, in place; NULL after an error. */
PLD_FN const char *plk_hold_(struct plk_view *v, uint64_t at)
{
	const char *data = 0;
	uint32_t bytes;

	if (v->k->direct)
		return v->k->direct + at;
	v->err = pld_array_hold(&v->a, at, &data, &bytes);
	return v->err ? 0 : data;
}

PLD_FN void plk_let_go_(struct plk_view *v, const char *data)
{
	if (!v->k->direct)
		pld_array_let_go(&v->a, data);
}

#define PLK_BATCH 8u

/* Look at sixteen bytes after the other, several under way: all are added up. */
PLD_FN uint64_t plk_fold_(uint32_t lanes, const char *data, uint32_t bytes)
{
	const uint32_t width = pld_count32(lanes) * 16;
	struct pld_vec v[PLK_BATCH];
	uint64_t sum = 0;

	for (uint32_t at = pld_rank(lanes) * 16; at < bytes; at += PLK_BATCH * width) {
		for (uint32_t i = 0; i < PLK_BATCH; i++)
			if (at + i * width < bytes)
				v[i] = pld_load16(data + at + i * width);
		for (uint32_t i = 0; i < PLK_BATCH; i++)
			if (at + i * width < bytes)
				sum += (v[i].w[0] | (uint64_t)v[i].w[1] << 32) +
				       (v[i].w[2] | (uint64_t)v[i].w[3] << 32);
	}
	return sum;
}

/* ------------------------------------------------------------------ pages */

/* Whether a page holds what it must, by this lane's share of it. */
PLD_FN int plk_page_is_(const struct plk_array *k, const char *data, uint64_t at)
{
	int good = 1;

	for (uint32_t i = pld_rank(k->lanes) * 16; i < k->page_bytes;
	     i += pld_count32(k->lanes) * 16) {
		const struct pld_vec v = pld_load16(data + i);
		const uint64_t word = (at + i) / 8;

		good &= (v.w[0] | (uint64_t)v.w[1] << 32) == plk_word(word) &&
			(v.w[2] | (uint64_t)v.w[3] << 32) == plk_word(word + 1);
	}
	return good;
}

/* A warp reads whole pages, at random, or each once and compares it. */
PLD_FN void plk_pages(const struct plk_array *k, uint32_t warp)
{
	const uint64_t nr_pages = k->bytes / k->page_bytes;
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	struct plk_view v;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, k, warp);
	for (uint64_t i = 0; !v.err && i < k->per_warp; i++) {
		const uint64_t turn = i * k->nr_warps + warp;
		const uint64_t page = k->order == PLK_SWEEP
					      ? turn
					      : plk_below_(plk_mix(k->seed + turn), nr_pages);
		const char *data;

		if (page >= nr_pages)
			break;
		data = plk_hold_(&v, page * k->page_bytes);
		if (!data)
			break;
		if (k->order != PLK_SWEEP)
			n.sum += plk_fold_(k->lanes, data, k->page_bytes);
		else if (pld_ballot(k->lanes, !plk_page_is_(k, data, page * k->page_bytes)) &&
			 pld_leads(k->lanes)) {
			n.wrong++;
			n.a_wrong_block = page * (k->page_bytes / 512);
		}
		n.done += (uint32_t)pld_leads(k->lanes);
		plk_let_go_(&v, data);
	}
	plk_view_close_(&v, &n);
}

/* ------------------------------------------------------------------ a sum */

/* All words of eight bytes are added up; each warp takes pages in turn. */
PLD_FN void plk_sum(const struct plk_array *k, uint32_t warp)
{
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	struct plk_view v;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, k, warp);
	for (uint64_t at = (uint64_t)warp * k->page_bytes; !v.err && at < k->bytes;
	     at += (uint64_t)k->nr_warps * k->page_bytes) {
		const char *data = plk_hold_(&v, at);

		if (!data)
			break;
		n.sum += plk_fold_(k->lanes, data, k->page_bytes);
		n.done += pld_leads(k->lanes) ? k->page_bytes / 8 : 0;
		plk_let_go_(&v, data);
	}
	plk_view_close_(&v, &n);
}

/* ------------------------------------------------------------------ a scan of columns */

#define PLK_LANE_ROWS 32u /* that a lane looks at before the values are asked for */

/* Which of this lane's rows count; they are one lane's width apart. */
PLD_FN uint32_t plk_match_(const struct plk_array *k, const char *data, uint64_t left)
{
	const uint32_t width = pld_count32(k->lanes), rank = pld_rank(k->lanes);
	const uint32_t *keys = (const uint32_t *)data;
	uint32_t mask = 0;

	for (uint32_t i = 0; i < PLK_LANE_ROWS; i++) {
		const uint32_t row = i * width + rank;
		const uint32_t key = row < left ? keys[row] : ~0u;

		mask |= (uint32_t)(key >= k->low && key < k->high) << i;
	}
	return mask;
}

/* Rows whose key is in a range: how many, and the sum of their values. */
PLD_FN void plk_scan(const struct plk_array *k, uint32_t warp)
{
	const uint32_t width = pld_count32(k->lanes), rank = pld_rank(k->lanes);
	const uint64_t step = PLK_LANE_ROWS * width;
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	struct plk_view v;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, k, warp);
	for (uint64_t row = warp * step; !v.err && row < k->nr_rows; row += k->nr_warps * step) {
		const uint64_t left = k->nr_rows - row < step ? k->nr_rows - row : step;
		const char *data = plk_hold_(&v, row * 4);
		uint32_t mask;

		if (!data)
			break;
		mask = plk_match_(k, data, left);
		plk_let_go_(&v, data);
		n.done += pld_leads(k->lanes) ? left : 0;
		n.found += pld_count32(mask);
		if (!pld_ballot(k->lanes, mask != 0))
			continue;
		data = plk_hold_(&v, k->values_at + row * 4);
		if (!data)
			break;
		for (uint32_t i = 0; i < PLK_LANE_ROWS; i++)
			if (mask >> i & 1)
				n.sum += ((const uint32_t *)data)[i * width + rank];
		plk_let_go_(&v, data);
	}
	plk_view_close_(&v, &n);
}

/* ------------------------------------------------------------------ a search, level by level */

PLD_FN int plk_get_(struct plk_view *v, int want, uint64_t at, void *out, uint32_t bytes)
{
	const struct plk_array *k = v->k;
	int err = 0;

	if (!k->direct)
		err = pld_array_read(&v->a, want, at / bytes, out, bytes);
	else if (want && bytes == 8)
		*(uint64_t *)out = *(const uint64_t *)(k->direct + at);
	else if (want)
		*(uint32_t *)out = *(const uint32_t *)(k->direct + at);
	/* They leave together. */
	if (pld_ballot(k->lanes, err != 0))
		v->err = err ? err : -EIO;
	return v->err;
}

PLD_FN void plk_visit_(const struct plk_array *k, uint32_t vertex)
{
	const uint32_t bit = 1u << (vertex & 31);

	if (pld_or_dev32(&k->seen[vertex / 32], bit) & bit)
		return;
	k->levels[vertex] = k->level + 1;
	k->next[pld_add_dev32(k->nr_next, 1)] = vertex;
}

/* One level: a warp takes a vertex, its lanes the edges. */
PLD_FN void plk_bfs(const struct plk_array *k, uint32_t warp)
{
	const uint32_t width = pld_count32(k->lanes), rank = pld_rank(k->lanes);
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	struct plk_view v;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, k, warp);
	for (uint32_t i = warp; !v.err && i < k->nr_now; i += k->nr_warps) {
		uint64_t offset = 0, first, last;

		if (plk_get_(&v, rank < 2, ((uint64_t)k->now[i] + rank) * 8, &offset, 8))
			break;
		first = pld_shfl64(k->lanes, offset, 0);
		last = pld_shfl64(k->lanes, offset, 1);
		for (uint64_t e = first; e < last; e += width) {
			const int want = e + rank < last;
			uint32_t vertex = 0;

			if (plk_get_(&v, want, k->edges_at + (e + rank) * 4, &vertex, 4))
				break;
			if (want)
				plk_visit_(k, vertex);
			n.done += (uint32_t)want;
		}
	}
	plk_view_close_(&v, &n);
}

#endif
