// SPDX-License-Identifier: MIT
/* The entry points of gpu_array_kernels.h for CUDA: blocks of whole warps, in one dimension. */
#include "gpu_bfs_kernels.h"
#include "gpu_mixed_kernels.h"

#define ENTRY(name)                                                                                \
	extern "C" __global__ void name(const __grid_constant__ struct plk_array k)                \
	{                                                                                          \
		plk_##name(&k, (blockIdx.x * blockDim.x + threadIdx.x) / PLD_WARP);                \
	}

ENTRY(pages)
ENTRY(mixed)
ENTRY(sum)
ENTRY(scan)
ENTRY(bfs)
