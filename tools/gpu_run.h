/* SPDX-License-Identifier: MIT */
/* Where the kernels of peerlane bench gpu run: on a GPU, or as threads of the CPU. */
#ifndef PL_GPU_RUN_H
#define PL_GPU_RUN_H

#include "gpu_bfs_kernels.h"
#include "gpu_mixed_kernels.h"
#include "session.h"

#include <kmem.h>
#include <stdbool.h>

struct pl_gpu_run {
	struct pl_session session;
	struct pl_kmem kmem;
	void *stream;		   /* NULL: on the CPU */
	struct plk_counts *counts; /* memory of kernels */
	unsigned int width;	   /* lanes of a warp */
	uint32_t lanes;		   /* the same, as a set */
	char where[400];	   /* in words */
};

/* A kernel for both: @fn takes the warp and the arguments. */
struct pl_gpu_kernel {
	const char *name;
	peerlane_cpu_fn fn;
	size_t arg_bytes;
	const char *ptx;
};

extern const struct pl_gpu_kernel pl_gpu_kernel_ring, pl_gpu_kernel_bare, pl_gpu_kernel_read,
	pl_gpu_kernel_direct, pl_gpu_kernel_pages, pl_gpu_kernel_mixed, pl_gpu_kernel_sum,
	pl_gpu_kernel_scan, pl_gpu_kernel_bfs;

/* Lanes of a warp on the CPU, where each is a thread that waits for the others. */
#define PL_GPU_CPU_LANES 4u

/* A failure is said on standard error; these return 0 or a negative errno. */
int pl_gpu_run_open(struct pl_gpu_run *r, const char *backend, unsigned int gpu);
void pl_gpu_run_close(struct pl_gpu_run *r);
static inline bool pl_gpu_run_on_gpu(const struct pl_gpu_run *r)
{
	return r->stream;
}

/* Run a kernel with warps enough, and wait. The counts begin at 0, and *n receives them. */
int pl_gpu_run_kernel(struct pl_gpu_run *r, const struct pl_gpu_kernel *kernel,
		      unsigned int nr_warps, void *args, struct plk_counts *n, double *seconds);

/* Registers of a thread of the kernel on the GPU for which they are known; 0: unknown. */
unsigned int pl_gpu_run_registers(const struct pl_gpu_kernel *kernel);

#endif
