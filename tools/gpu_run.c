/* SPDX-License-Identifier: MIT */
/* Where the kernels of peerlane bench gpu run: on a GPU, or as threads of the CPU. */
#include "gpu_run.h"

#include "gpu_array_kernels_ptx.h"
#include "gpu_kernels_ptx.h"
#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_WARPS 4u

#define KERNEL(kernel, type, text)                                                                 \
	static void run_##kernel(unsigned int warp, void *arg)                                     \
	{                                                                                          \
		plk_##kernel(arg, warp);                                                           \
	}                                                                                          \
	const struct pl_gpu_kernel pl_gpu_kernel_##kernel = { #kernel, run_##kernel,               \
							      sizeof(struct plk_##type), text };

KERNEL(ring, ring, gpu_kernels_ptx)
KERNEL(bare, bare, gpu_kernels_ptx)
KERNEL(read, read, gpu_kernels_ptx)
KERNEL(direct, read, gpu_kernels_ptx)
KERNEL(pages, array, gpu_array_kernels_ptx)
KERNEL(mixed, array, gpu_array_kernels_ptx)
KERNEL(sum, array, gpu_array_kernels_ptx)
KERNEL(scan, array, gpu_array_kernels_ptx)
KERNEL(bfs, array, gpu_array_kernels_ptx)

static int complain(const char *what, int err)
{
	pl_message_error("%s: %s", what, pl_session_reason(err).text);
	return err;
}

int pl_gpu_run_open(struct pl_gpu_run *r, const char *backend, unsigned int gpu)
{
	void *counts;
	int err;

	memset(r, 0, sizeof(*r));
	err = pl_session_open(&r->session, backend, gpu, 0);
	if (err)
		return err;
	err = pl_kmem_init(&r->kmem, r->session.ctx, r->session.gpu);
	if (!err && pl_kmem_on_gpu(&r->kmem))
		err = peerlane_gpu_stream_create(r->session.ctx, r->session.gpu, &r->stream);
	if (!err)
		err = pl_kmem_alloc(&r->kmem, sizeof(*r->counts), &counts);
	if (err) {
		complain("cannot run kernels", err);
		pl_gpu_run_close(r);
		return err;
	}
	r->counts = counts;
	r->width = pl_gpu_run_on_gpu(r) ? PLD_WARP : PL_GPU_CPU_LANES;
	r->lanes = r->width == 32 ? ~0u : (1u << r->width) - 1;
	if (pl_gpu_run_on_gpu(r))
		snprintf(r->where, sizeof(r->where), "on %s", pl_session_name(&r->session).text);
	else
		snprintf(r->where, sizeof(r->where),
			 "on the CPU, as threads in warps of %u; this says nothing of the speed of "
			 "a "
			 "GPU",
			 r->width);
	return 0;
}

void pl_gpu_run_close(struct pl_gpu_run *r)
{
	if (!r->session.ctx)
		return;
	pl_kmem_free(&r->kmem, r->counts);
	peerlane_gpu_stream_destroy(r->session.ctx, r->stream);
	pl_session_close(&r->session);
}

static double now(void)
{
	return (double)pld_clock_ns() / 1e9;
}

static int run(struct pl_gpu_run *r, const struct pl_gpu_kernel *kernel, unsigned int nr_warps,
	       void *args)
{
	struct peerlane_kernel k = { .name = kernel->name, .ptx = kernel->ptx };
	void *arg[1] = { args };
	int err;

	if (!pl_gpu_run_on_gpu(r))
		return peerlane_cpu_run(nr_warps, r->width, kernel->fn, args);
	err = peerlane_gpu_launch(r->session.ctx, r->stream, &k,
				  (nr_warps + BLOCK_WARPS - 1) / BLOCK_WARPS,
				  BLOCK_WARPS * PLD_WARP, arg, &kernel->arg_bytes, 1);
	return err ? err : peerlane_gpu_stream_sync(r->session.ctx, r->stream);
}

int pl_gpu_run_kernel(struct pl_gpu_run *r, const struct pl_gpu_kernel *kernel,
		      unsigned int nr_warps, void *args, struct plk_counts *n, double *seconds)
{
	const struct plk_counts none = { 0 };
	int err = pl_kmem_put(&r->kmem, r->counts, &none, sizeof(none));
	double start = now();

	if (!err)
		err = run(r, kernel, nr_warps, args);
	*seconds = now() - start;
	if (!err)
		err = pl_kmem_get(&r->kmem, n, r->counts, sizeof(*n));
	return err ? complain(kernel->name, err) : 0;
}

unsigned int pl_gpu_run_registers(const struct pl_gpu_kernel *kernel)
{
	char line[80];
	const char *found;

	/* scripts/ptx wrote it there. */
	snprintf(line, sizeof(line), "// registers by ptxas for sm_90: %s ", kernel->name);
	found = strstr(kernel->ptx, line);
	return found ? (unsigned int)strtoul(found + strlen(line), NULL, 10) : 0;
}
