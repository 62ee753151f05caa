// SPDX-License-Identifier: MIT
/* The entry points of gpu_kernels.h for CUDA: blocks of whole warps, in one dimension. */
#include "gpu_kernels.h"

#define ENTRY(name)                                                                                \
	extern "C" __global__ void name(const __grid_constant__ struct plk_##name k)               \
	{                                                                                          \
		plk_##name(&k, (blockIdx.x * blockDim.x + threadIdx.x) / PLD_WARP);                \
	}

ENTRY(ring)
ENTRY(bare)
ENTRY(read)

extern "C" __global__ void direct(const __grid_constant__ struct plk_read k)
{
	plk_direct(&k, (blockIdx.x * blockDim.x + threadIdx.x) / PLD_WARP);
}
