// SPDX-License-Identifier: MIT
/* The CUDA back end: many small copies as one kernel (scatter.cu). */
#include "gpu_cuda.h"
#include "scatter_ptx.h"

#include <errno.h>

#define PIECES 128u
/* Fewer pieces, or larger ones, are better off with the copy engine. */
#define MIN_PIECES 4u
#define MAX_PIECE_BYTES (32 * 1024)
#define THREADS 128u

struct piece {
	uint64_t dst, src, bytes;
};

static const struct peerlane_kernel scatter = { .name = "peerlane_scatter", .ptx = scatter_ptx };

static bool in_range(const struct pl_cuda_range *r, pl_cu_ptr at, size_t bytes)
{
	return at - r->start < r->bytes && bytes <= r->bytes - (at - r->start);
}

bool pl_cuda_alive(struct pl_cuda *c, const void *addr, size_t bytes, struct pl_cuda_range *seen)
{
	static const int what[] = { PL_CU_PTR_MEMORY_TYPE, PL_CU_PTR_RANGE_START,
				    PL_CU_PTR_RANGE_SIZE };
	pl_cu_ptr at = (pl_cu_ptr)(uintptr_t)addr;
	unsigned int type = 0;
	void *where[] = { &type, &seen->start, &seen->bytes };

	if (in_range(seen, at, bytes))
		return true;
	seen->bytes = 0;
	return !c->api.pointer_attributes(3, what, where, at) && type && in_range(seen, at, bytes);
}

bool pl_cuda_scatter_fits(struct pl_cuda *c, enum pl_dir dir, const struct pl_copy *list,
			  unsigned int nr)
{
	struct pl_cuda_range seen = { .bytes = 0 };

	/* Streams of the caller that wait for our transfers can take up all the channels on which a
	 * kernel could start, and then it would wait for them; the copy engines have their own. */
	if (c->gpu.no_kernels || __atomic_load_n(&c->held, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&c->served, __ATOMIC_RELAXED) || nr < MIN_PIECES || nr > PIECES)
		return false;
	for (unsigned int i = 0; i < nr; i++)
		if (list[i].bytes > MAX_PIECE_BYTES ||
		    !pl_cuda_alive(c, dir == PL_TO_GPU ? list[i].dst : list[i].src, list[i].bytes,
				   &seen))
			return false;
	return true;
}

/*
 * Loading waits for all work in the context, and that work may be waiting for a transfer. So it is
 * done when the engine first hears of a context, not when a transfer runs.
 */
void pl_cuda_prepare(struct pl_gpu *gpu, void *owner)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *function;

	if (c->gpu.no_kernels || __atomic_load_n(&c->held, __ATOMIC_RELAXED))
		return;
	if ((!owner && pl_cuda_current(c, &owner)) || pl_cuda_enter(c, owner))
		return;
	/* A driver that does not take the kernel will not take it next time. */
	if (pl_cuda_function(c, owner, &scatter, true, &function) ||
	    pl_cuda_serve_load(c, owner, true, &function))
		c->gpu.no_kernels = true;
	pl_cuda_leave(c);
}

int pl_cuda_scatter(struct pl_cuda *c, void *owner, void *stream, const struct pl_copy *list,
		    unsigned int nr)
{
	struct piece pieces[PIECES];
	void *args[] = { pieces };
	void *function;
	int err = pl_cuda_function(c, owner, &scatter, false, &function);

	if (err)
		return err;
	for (unsigned int i = 0; i < nr; i++) {
		pieces[i].dst = (uint64_t)(uintptr_t)list[i].dst;
		pieces[i].src = (uint64_t)(uintptr_t)list[i].src;
		pieces[i].bytes = list[i].bytes;
	}
	return pl_cuda_check(
		c->api.launch(function, nr, 1, 1, THREADS, 1, 1, 0, stream, args, NULL));
}
