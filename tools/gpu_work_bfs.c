/* SPDX-License-Identifier: MIT */
/* A search through a graph, level by level, from vertex 0. Offsets come first, then the edges (CSR). */
#include "gpu_work.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t *offsets_of(const struct pl_gpu_work *w)
{
	return (uint64_t *)w->memory;
}

static uint32_t *edges_of(const struct pl_gpu_work *w)
{
	return (uint32_t *)(w->memory + w->shape.edges_at);
}

/* Vertices by rank: the lower, the more edges go out and come in. The ranks are spread over the vertices. */
struct ranks {
	uint64_t nr, step, back; /* step * back is 1, modulo nr */
};

static uint64_t common(uint64_t a, uint64_t b)
{
	return b ? common(b, a % b) : a;
}

static struct ranks make_ranks(uint64_t nr)
{
	struct ranks r = { .nr = nr, .step = nr * 5 / 8 + 1, .back = 1 };
	int64_t a = 0, b = 1, rest, whole;
	uint64_t x, y;

	while (common(r.step, nr) != 1)
		r.step++;
	/* Euclid's way to the inverse. */
	for (x = nr, y = r.step % nr; y > 1;) {
		whole = (int64_t)(x / y);
		rest = a - whole * b;
		a = b;
		b = rest;
		x %= y;
		whole = (int64_t)x;
		x = y;
		y = (uint64_t)whole;
	}
	r.back = b < 0 ? (uint64_t)(b + (int64_t)nr) : (uint64_t)b;
	return r;
}

static uint64_t rank_of(const struct ranks *r, uint64_t vertex)
{
	return (vertex * r->step + r->nr / 2) % r->nr;
}

static uint64_t vertex_of(const struct ranks *r, uint64_t rank)
{
	return (rank + r->nr - r->nr / 2) % r->nr * r->back % r->nr;
}

/* Degrees follow a power law with the exponent 2.5, as those of many networks: three times the least on average. */
static uint64_t degree_of(const struct ranks *r, uint64_t vertex, uint32_t average)
{
	const double share = (double)r->nr / (double)(rank_of(r, vertex) + 1);
	const double degree = average / 3.0 * cbrt(share * share);

	return degree < 1 ? 1 : (uint64_t)degree;
}

/* Where an edge leads: likelier to a vertex with many, by the same law. */
static uint32_t end_of(const struct ranks *r, uint64_t edge)
{
	const uint64_t u = plk_mix(edge + 0x5bd1e995) >> 32, cube = (u * u >> 32) * u >> 32;

	return (uint32_t)vertex_of(r, cube * r->nr >> 32);
}

/* Every vertex has an edge to the next, so that all can be reached. */
static void make_graph(struct pl_gpu_work *w)
{
	const uint64_t room = w->bytes - 8;
	uint64_t *offsets = offsets_of(w), nr = 0, most;
	struct ranks ranks;
	uint32_t *edges;

	w->nr_vertices = (uint32_t)(room / (8 + w->edges * 4));
	w->shape.edges_at = ((uint64_t)w->nr_vertices + 1) * 8;
	most = (w->bytes - w->shape.edges_at) / 4;
	edges = edges_of(w);
	ranks = make_ranks(w->nr_vertices);
	for (uint32_t v = 0; v < w->nr_vertices; v++) {
		const uint64_t left = most - nr, needed = w->nr_vertices - v;
		uint64_t degree = degree_of(&ranks, v, w->edges);

		/* One for each of those that come. */
		if (degree > left - needed + 1)
			degree = left - needed + 1;
		offsets[v] = nr;
		edges[nr++] = v + 1 < w->nr_vertices ? v + 1 : 0;
		for (uint64_t i = 1; i < degree; i++, nr++)
			edges[nr] = end_of(&ranks, nr);
	}
	offsets[w->nr_vertices] = nr;
}

/* The same search, in the plainest way. */
static int search(struct pl_gpu_work *w)
{
	const uint64_t *offsets = offsets_of(w);
	const uint32_t *edges = edges_of(w);
	uint32_t *queue = malloc((size_t)w->nr_vertices * sizeof(*queue));
	uint32_t nr = 1;

	w->levels = malloc((size_t)w->nr_vertices * sizeof(*w->levels));
	if (!queue || !w->levels) {
		free(queue);
		return -ENOMEM;
	}
	memset(w->levels, 0xff, (size_t)w->nr_vertices * sizeof(*w->levels));
	w->levels[0] = 0;
	w->elements = 0;
	queue[0] = 0;
	for (uint32_t i = 0; i < nr; i++) {
		const uint32_t v = queue[i];

		for (uint64_t e = offsets[v]; e < offsets[v + 1]; e++, w->elements++)
			if (w->levels[edges[e]] == ~0u) {
				w->levels[edges[e]] = w->levels[v] + 1;
				queue[nr++] = edges[e];
			}
	}
	free(queue);
	return 0;
}

/* Pages are held while others are waited for only if they are so small a part of all frames: that all of a set are held
 * is as good as impossible then, and would end with -EBUSY. */
#define HELD_SHARE 16u

/* Of long lists, for a warp at a time. */
static uint32_t piece_edges(const struct pl_gpu_work *w)
{
	return pl_gpu_run_on_gpu(&w->bench->run) ? 512 : 256;
}

/* Memory of kernels: the level of each vertex, three words more, pieces of long lists, and scratch. */
static size_t level_bytes(const struct pl_gpu_work *w)
{
	return (((size_t)w->nr_vertices + 3) * 4 + 15) / 16 * 16;
}

static size_t piece_bytes(const struct pl_gpu_work *w)
{
	return (w->bytes / piece_edges(w) / 2 + 1) * 16;
}

/* For parts of lists that come without their page. */
static size_t scratch_bytes(const struct pl_gpu_work *w)
{
	return (size_t)w->nr_warps * w->bench->run.width * PLK_PEEK_ROOM;
}

static int make_bfs(struct pl_gpu_work *w)
{
	void *device;
	int err;

	make_graph(w);
	err = search(w);
	if (!err)
		err = pl_kmem_alloc(&w->bench->run.kmem,
				    level_bytes(w) + piece_bytes(w) + scratch_bytes(w), &device);
	if (!err)
		w->device = device;
	return err;
}

/* There is no way out of vertex 0. */
static void spoil_bfs(struct pl_gpu_work *w)
{
	memset(edges_of(w), 0, offsets_of(w)[1] * 4);
}

/* Nothing is seen but vertex 0. */
static int begin(struct pl_gpu_work *w, struct plk_array *k)
{
	uint32_t *image;
	int err;

	/* What the scratch is made for. */
	if (k->cache.stripe.target[0].log_block != 9)
		return -EINVAL;
	image = malloc(level_bytes(w));
	if (!image)
		return -ENOMEM;
	memset(image, 0xff, level_bytes(w));
	image[0] = 0;
	k->levels = w->device;
	k->more = k->levels + w->nr_vertices;
	k->nr_pieces = k->more + 1;
	k->next_part = k->more + 2;
	k->pieces = (uint64_t *)((char *)w->device + level_bytes(w));
	k->scratch = (char *)k->pieces + piece_bytes(w);
	k->piece = piece_edges(w);
	k->hold_on = (uint64_t)k->cache.ways << k->cache.log_sets >=
		     (uint64_t)HELD_SHARE * k->nr_warps;
	k->nr_vertices = w->nr_vertices;
	k->level = 0;
	err = pl_kmem_put(&w->bench->run.kmem, w->device, image, level_bytes(w));
	free(image);
	return err;
}

static int run_part(struct pl_gpu_work *w, struct plk_array *k, uint64_t *edges)
{
	struct plk_counts n;
	double part;
	int err = pl_gpu_run_kernel(&w->bench->run, w->kind->kernel, k->nr_warps, k, &n, &part);

	if (!err && n.failed)
		err = pl_gpu_bench_complain("array", -(int)n.a_status);
	if (!err)
		*edges += n.done;
	return err;
}

/* One level, and then its long lists. *more tells whether there is another. */
static int run_level(struct pl_gpu_work *w, struct plk_array *k, uint64_t *edges, uint32_t *more)
{
	uint32_t words[3] = { 0, 0, 0 };
	int err = pl_kmem_put(&w->bench->run.kmem, k->more, words, sizeof(words));

	k->pieces_now = 0;
	if (!err)
		err = run_part(w, k, edges);
	if (!err)
		err = pl_kmem_get(&w->bench->run.kmem, words, k->more, sizeof(words));
	k->pieces_now = words[1];
	if (!err && k->pieces_now) {
		err = run_part(w, k, edges);
		if (!err)
			err = pl_kmem_get(&w->bench->run.kmem, words, k->more, sizeof(words));
	}
	*more = words[0];
	return err;
}

/* Level after level; what the CPU does in between counts, too. */
static int search_by_kernels(struct pl_gpu_work *w, struct plk_array *k, uint64_t *edges,
			     double *seconds)
{
	uint64_t start = pld_clock_ns();
	uint32_t more = 1;
	int err = 0;

	*edges = 0;
	for (; !err && more; k->level++)
		err = run_level(w, k, edges, &more);
	*seconds = (double)(pld_clock_ns() - start) / 1e9;
	return err;
}

static int compare(struct pl_gpu_work *w, const struct plk_array *k)
{
	const size_t bytes = (size_t)w->nr_vertices * 4;
	uint32_t *levels = malloc(bytes);
	int err = levels ? pl_kmem_get(&w->bench->run.kmem, levels, k->levels, bytes) : -ENOMEM;

	for (uint32_t v = 0; !err && v < w->nr_vertices; v++)
		if (levels[v] != w->levels[v])
			err = pl_gpu_work_wrong(w, "level of a vertex", levels[v], w->levels[v]);
	free(levels);
	return err;
}

static int run_bfs(struct pl_gpu_work *w, struct plk_array *k, double *seconds)
{
	uint64_t edges = 0;
	int err = begin(w, k);

	if (!err)
		err = search_by_kernels(w, k, &edges, seconds);
	if (!err)
		err = compare(w, k);
	if (!err && edges != w->elements)
		err = pl_gpu_work_wrong(w, "edges", edges, w->elements);
	return err;
}

static void end_bfs(struct pl_gpu_work *w)
{
	pl_kmem_free(&w->bench->run.kmem, w->device);
	free(w->levels);
}

const struct pl_gpu_work_kind pl_gpu_work_bfs = {
	.kernel = &pl_gpu_kernel_bfs,
	.unit = "edges/s",
	.element_bytes = 4,
	.make = make_bfs,
	.spoil = spoil_bfs,
	.run = run_bfs,
	.end = end_bfs,
};
