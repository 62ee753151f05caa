/* SPDX-License-Identifier: MIT */
/* A bare ring between kernels and the CPU: the limit of all others. */
#ifndef PL_GPU_BARE_H
#define PL_GPU_BARE_H

#include "gpu_bench.h"

/* Measures it with as many rings as the row has warps, and as many threads as there are proxies, for the
 * limit of the row. */
int pl_gpu_bare_measure(struct pl_gpu_bench *b, struct pl_gpu_row *row);

#endif
