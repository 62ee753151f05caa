// SPDX-License-Identifier: MIT
/* The kernel of strrev: reverses n bytes in place, each thread swapping every stride-th pair. */
extern "C" __global__ void reverse(char *s, unsigned long long n)
{
	unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
	unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;

	for (; i < n / 2; i += stride) {
		char c = s[i];

		s[i] = s[n - 1 - i];
		s[n - 1 - i] = c;
	}
}
