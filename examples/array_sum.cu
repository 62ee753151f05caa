// SPDX-License-Identifier: MIT
/* array_sum.h for CUDA. */
#include "array_sum.h"

extern "C" __global__ void array_sum(const __grid_constant__ struct sum_args k)
{
	sum_kernel(&k, (blockIdx.x * blockDim.x + threadIdx.x) / PLD_WARP);
}
