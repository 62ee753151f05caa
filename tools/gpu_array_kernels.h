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
	uint32_t
		ahead; /* pages that a warp has under way beside the one it works on; fewer than lanes */
	/* Of the scan: keys from 0 on, values behind them. */
	uint64_t nr_rows, values_at;
	uint32_t low, high; /* keys that count: low <= key < high */
	/* Of the search. In memory of the GPU: the level of each vertex, ~0 for now, and whether the next
	 * level has any. */
	uint64_t edges_at; /* byte; offsets, from 0 on, are counted in edges */
	uint32_t *levels, *more;
	uint32_t nr_vertices, level;
	/* Lists of more than two pieces are too long for a warp: these, begin and end of each, are left
	 * for all, in a second run of the kernel. */
	uint64_t *pieces;
	uint32_t *nr_pieces, pieces_now;
	uint32_t piece;	     /* edges */
	uint32_t hold_on;    /* a page may be held while others are waited for */
	uint32_t *next_part; /* of the vertices, to be looked at */
	char *scratch;	     /* of each lane, for parts of lists that come without their page */
};

/* The view of one warp. */
struct plk_view {
	const struct plk_array *k;
	struct pld_array a;
	int err;
};

PLD_FN void plk_view_open_(struct plk_view *v, struct pld_group *g, const struct plk_array *k,
			   uint32_t warp)
{
	v->k = k;
	/* Also where it is not used: so compilers see that it is always the same. */
	pld_array_begin_(&v->a, g, &k->cache, k->lanes);
	v->err = k->direct ? 0 : pld_array_open(&v->a, g, &k->cache, warp, k->lanes);
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

/* Have the pages of some lanes' bytes brought in. */
PLD_FN void plk_ahead_(struct plk_view *v, int want, uint64_t at)
{
	if (!v->k->direct)
		pld_array_prefetch(&v->a, want, at, 1);
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
	struct pld_group g;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, &g, k, warp);
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

PLD_FN int plk_get_(struct plk_view *v, int want, uint64_t at, uint64_t *out)
{
	const struct plk_array *k = v->k;
	int err = 0;

	if (!k->direct)
		err = pld_array_read(&v->a, want, at / 8, out, 8);
	else if (want)
		*out = *(const uint64_t *)(k->direct + at);
	/* They leave together. */
	if (pld_ballot(k->lanes, err != 0))
		v->err = err ? err : -EIO;
	return v->err;
}

/* ------------------------------------------------------------------ a sum */

/* All words of eight bytes are added up; each warp takes pages in turn. */
PLD_FN void plk_sum(const struct plk_array *k, uint32_t warp)
{
	const uint64_t step = (uint64_t)k->nr_warps * k->page_bytes;
	const uint32_t rank = pld_rank(k->lanes), often = (k->ahead + 1) / 2;
	uint32_t turn = 0;
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	struct plk_view v;
	struct pld_group g;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, &g, k, warp);
	for (uint64_t at = (uint64_t)warp * k->page_bytes; !v.err && at < k->bytes; at += step) {
		const uint64_t ahead = at + rank * step;
		const char *data;

		/* Several at a time cost little more than one. */
		if (turn++ % often == 0)
			plk_ahead_(&v, rank <= k->ahead && ahead < k->bytes, ahead);
		data = plk_hold_(&v, at);
		if (!data)
			break;
		n.sum += plk_fold_(k->lanes, data, k->page_bytes);
		n.done += pld_leads(k->lanes) ? k->page_bytes / 8 : 0;
		plk_let_go_(&v, data);
	}
	plk_view_close_(&v, &n);
}

/* ------------------------------------------------------------------ a scan of columns */

#define PLK_LANE_ROWS                                                                              \
	32u /* that a lane looks at before the values are asked for; four lie together */

/* Rows that a warp takes at a time: they are all in one page of a column. */
PLD_FN uint32_t plk_step_rows_(const struct plk_array *k)
{
	const uint32_t most = PLK_LANE_ROWS * pld_count32(k->lanes);

	return k->page_bytes / 4 < most ? k->page_bytes / 4 : most;
}

PLD_FN uint32_t plk_is_in_(const struct plk_array *k, uint32_t key)
{
	return key >= k->low && key < k->high;
}

/* Which of this lane's rows count. */
PLD_FN uint32_t plk_match_(const struct plk_array *k, const char *keys, uint32_t rows)
{
	const uint32_t width = pld_count32(k->lanes) * 16, at = pld_rank(k->lanes) * 16;
	struct pld_vec v[PLK_LANE_ROWS / 4];
	uint32_t mask = 0;

	for (uint32_t i = 0; i < PLK_LANE_ROWS / 4; i++)
		if (at + i * width < rows * 4)
			v[i] = pld_load16(keys + at + i * width);
	for (uint32_t i = 0; i < PLK_LANE_ROWS / 4; i++)
		if (at + i * width < rows * 4)
			for (uint32_t j = 0; j < 4; j++)
				mask |= plk_is_in_(k, v[i].w[j]) << (4 * i + j);
	return mask;
}

/* The sum of the values of these rows; where none of four counts they are not read. */
PLD_FN uint64_t plk_add_(const struct plk_array *k, const char *values, uint32_t mask)
{
	const uint32_t width = pld_count32(k->lanes) * 16, at = pld_rank(k->lanes) * 16;
	struct pld_vec v[PLK_LANE_ROWS / 4];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < PLK_LANE_ROWS / 4; i++)
		if (mask >> 4 * i & 15)
			v[i] = pld_load16(values + at + i * width);
	for (uint32_t i = 0; i < PLK_LANE_ROWS / 4; i++)
		if (mask >> 4 * i & 15)
			for (uint32_t j = 0; j < 4; j++)
				sum += mask >> (4 * i + j) & 1 ? v[i].w[j] : 0;
	return sum;
}

/* The first row of the n-th step of a warp: it takes pages in turn, and one step after the other in each. */
PLD_FN uint64_t plk_row_(const struct plk_array *k, uint32_t warp, uint32_t rows, uint64_t n)
{
	const uint32_t steps = k->page_bytes / 4 / rows;
	const uint64_t page = warp + n / steps * k->nr_warps;

	return (page * steps + n % steps) * rows;
}

/*
 * Rows whose key is in a range: how many, and the sum of their values. While keys are looked at, the values
 * of the rows before them come in.
 */
PLD_FN void plk_scan(const struct plk_array *k, uint32_t warp)
{
	const uint32_t rank = pld_rank(k->lanes), rows = plk_step_rows_(k);
	const uint32_t steps = k->page_bytes / 4 / rows;
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	uint64_t row = plk_row_(k, warp, rows, 0), values = 0;
	uint32_t mask = 0, wanted = 0;
	const char *data;
	struct plk_view v;
	struct pld_group g;

	if (warp >= k->nr_warps)
		return;
	plk_view_open_(&v, &g, k, warp);
	for (uint64_t i = 1; !v.err && (row < k->nr_rows || wanted); i++) {
		const uint64_t keys = plk_row_(k, warp, rows, i - 1 + rank * steps);
		uint32_t found = 0;

		/* One lane asks for the values, others for keys. */
		plk_ahead_(&v,
			   rank == k->ahead ? wanted != 0 : rank < k->ahead && keys < k->nr_rows,
			   rank == k->ahead ? values : keys * 4);
		if (row < k->nr_rows) {
			data = plk_hold_(&v, row * 4);
			if (!data)
				break;
			found = plk_match_(k, data, rows);
			plk_let_go_(&v, data);
			n.done += pld_leads(k->lanes) ? rows : 0;
			n.found += pld_count32(found);
		}
		if (wanted) {
			data = plk_hold_(&v, values);
			if (!data)
				break;
			n.sum += plk_add_(k, data, mask);
			plk_let_go_(&v, data);
		}
		mask = found;
		wanted = pld_ballot(k->lanes, mask != 0);
		values = k->values_at + row * 4;
		row = plk_row_(k, warp, rows, i);
	}
	plk_view_close_(&v, &n);
}

#endif
