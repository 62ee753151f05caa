/* SPDX-License-Identifier: MIT */
/* Work on data that the cache cannot hold: what it reads, and what must come out. */
#ifndef PL_GPU_WORK_H
#define PL_GPU_WORK_H

#include "gpu_cache.h"

struct pl_gpu_work {
	const struct pl_gpu_work_kind *kind;
	struct pl_gpu_bench *bench;
	char *memory; /* the data, as the CPU sees them */
	uint64_t bytes;
	uint32_t nr_warps;	/* of the kernels */
	uint32_t nr_runs;	/* of the source that was measured last */
	uint32_t edges;		/* of a vertex, on average */
	bool ordered;		/* rows lie in the order of their keys */
	struct plk_array shape; /* what kernels must know of the data; the rest is not looked at */
	/* What the CPU found. */
	uint64_t elements, sum, found;
	/* Of the search. */
	uint32_t nr_vertices;
	uint32_t *levels; /* that the CPU found, ~0 where there is no way */
	uint32_t *device; /* memory of kernels */
};

struct pl_gpu_work_kind {
	const struct pl_gpu_kernel *kernel;
	const char *unit;
	uint32_t element_bytes;
	/* Make data, and work on them by the CPU. 0 or a negative errno, of which peerlane_error() tells. */
	int (*make)(struct pl_gpu_work *w);
	/* Change the data, so that something else comes out. */
	void (*spoil)(struct pl_gpu_work *w);
	/* One run; -EBADMSG, with words, if something else came out than the CPU found. */
	int (*run)(struct pl_gpu_work *w, struct plk_array *k, double *seconds);
	void (*end)(struct pl_gpu_work *w); /* may be NULL */
};

extern const struct pl_gpu_work_kind pl_gpu_work_sum, pl_gpu_work_scan, pl_gpu_work_bfs;

/* Something else came out. */
int pl_gpu_work_wrong(const struct pl_gpu_work *w, const char *what, uint64_t got, uint64_t want);

#endif
