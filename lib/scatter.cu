// SPDX-License-Identifier: MIT
/*
 * Moves many small pieces in one launch: a copy engine needs over a microsecond for each piece,
 * however small. One block a piece; the list travels in the launch's parameters. The PTX made
 * from this file is kept beside it, so that a build needs no CUDA compiler.
 */
#define PIECES 128

struct piece {
	char *dst;
	const char *src;
	unsigned long long bytes;
};

struct list {
	struct piece pieces[PIECES];
};

extern "C" __global__ void peerlane_scatter(const struct list list)
{
	const struct piece p = list.pieces[blockIdx.x];
	const unsigned long long both = (unsigned long long)p.dst | (unsigned long long)p.src;
	unsigned long long done = 0;

	if (!(both & 15)) {
		const uint4 *src = (const uint4 *)p.src;
		uint4 *dst = (uint4 *)p.dst;

		for (unsigned long long i = threadIdx.x; i < p.bytes / 16; i += blockDim.x)
			dst[i] = src[i];
		done = p.bytes / 16 * 16;
	} else if (!(both & 3)) {
		const unsigned int *src = (const unsigned int *)p.src;
		unsigned int *dst = (unsigned int *)p.dst;

		for (unsigned long long i = threadIdx.x; i < p.bytes / 4; i += blockDim.x)
			dst[i] = src[i];
		done = p.bytes / 4 * 4;
	}
	for (unsigned long long i = done + threadIdx.x; i < p.bytes; i += blockDim.x)
		p.dst[i] = p.src[i];
}
