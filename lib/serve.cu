// SPDX-License-Identifier: MIT
/*
 * Serves a stream: does the copies the CPU posts in a mailbox (serve.h) until it is told to end,
 * and with it the stream goes on. Blocks take chunks by ticket, so those that are not running do
 * no harm. The PTX made from this file is kept beside it, so that a build needs no CUDA compiler.
 */
#include "serve.h"

#define IN_FLIGHT 4 /* loads of a thread */
#define MIN_NAP 32u /* ns */
#define MAX_NAP 1000u
#define WORKER_NAP 100u

/*
 * Data is loaded past the nearest cache, which may have older data of the same slot. That it is
 * new at all comes from the fence after the chunk was seen, see take(). Wider than single words
 * matters here: volatile loads would cross the bus one by one.
 */
static __device__ uint4 load16(const char *p)
{
	return __ldcg((const uint4 *)p);
}

static __device__ unsigned int load4(const char *p)
{
	return __ldcg((const unsigned int *)p);
}

static __device__ unsigned int load1(const char *p)
{
	return __ldcg((const unsigned char *)p);
}

/* Sixteen bytes of GPU memory, with the widest loads its alignment allows. */
static __device__ uint4 gather(const char *p, unsigned int align)
{
	unsigned int w[4];

	if (!(align & 15))
		return load16(p);
	for (int i = 0; i < 4; i++)
		w[i] = !(align & 3) ? load4(p + 4 * i)
				    : load1(p + 4 * i) | load1(p + 4 * i + 1) << 8 |
					      load1(p + 4 * i + 2) << 16 |
					      load1(p + 4 * i + 3) << 24;
	return make_uint4(w[0], w[1], w[2], w[3]);
}

static __device__ void scatter(char *p, unsigned int align, uint4 v)
{
	const unsigned int w[4] = { v.x, v.y, v.z, v.w };

	if (!(align & 15)) {
		*(uint4 *)p = v;
		return;
	}
	for (int i = 0; i < 4; i++) {
		if (!(align & 3)) {
			*(unsigned int *)(p + 4 * i) = w[i];
			continue;
		}
		for (int k = 0; k < 4; k++)
			p[4 * i + k] = (char)(w[i] >> (8 * k));
	}
}

/* Whole sixteens: aligned on the pinned side, where wide accesses count. */
static __device__ void copy_body(char *dst, const char *src, unsigned int nr, bool to_host)
{
	const unsigned int align = (unsigned int)(unsigned long long)(to_host ? src : dst);
	uint4 v[IN_FLIGHT];

	for (unsigned int i = threadIdx.x; i < nr; i += blockDim.x * IN_FLIGHT) {
#pragma unroll
		for (int k = 0; k < IN_FLIGHT; k++) {
			const unsigned int at = i + k * blockDim.x;

			if (at < nr)
				v[k] = to_host ? gather(src + 16ull * at, align)
					       : load16(src + 16ull * at);
		}
#pragma unroll
		for (int k = 0; k < IN_FLIGHT; k++) {
			const unsigned int at = i + k * blockDim.x;

			if (at >= nr)
				break;
			if (to_host)
				*(uint4 *)(dst + 16ull * at) = v[k];
			else
				scatter(dst + 16ull * at, align, v[k]);
		}
	}
}

static __device__ void copy_bytes(char *dst, const char *src, unsigned int nr)
{
	for (unsigned int i = threadIdx.x; i < nr; i += blockDim.x)
		dst[i] = (char)load1(src + i);
}

static __device__ void copy(const struct pl_serve_chunk *c)
{
	char *dst = (char *)c->dst;
	const char *src = (const char *)c->src;
	const bool to_host = c->to_host != 0;
	unsigned int head = (0u - (unsigned int)(to_host ? c->dst : c->src)) & 15;
	unsigned int body;

	if (head > c->bytes)
		head = c->bytes;
	body = (c->bytes - head) & ~15u;
	copy_bytes(dst, src, head);
	copy_body(dst + head, src + head, body / 16, to_host);
	copy_bytes(dst + head + body, src + head + body, c->bytes - head - body);
}

/* Waits for a chunk and takes it; false at the end. */
static __device__ bool take(const struct pl_serve_host *host, struct pl_serve_gpu *gpu,
			    struct pl_serve_chunk *out)
{
	const unsigned int ticket = atomicAdd(&gpu->taken, 1);
	const char *chunk = (const char *)&host->ring[ticket % PL_SERVE_RING];
	unsigned int posted, quit;

	for (;;) {
		asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
			     : "=r"(posted), "=r"(quit)
			     : "l"(&gpu->posted)
			     : "memory");
		if (quit)
			return false;
		if (posted > ticket)
			break;
		__nanosleep(WORKER_NAP);
	}
	/* With the one in watch() it pairs with the CPU's release of "posted". */
	__threadfence_system();
	((uint4 *)out)[0] = load16(chunk);
	((uint4 *)out)[1] = load16(chunk + 16);
	return true;
}

/* The first block: tells the CPU that the stream got here, and the others what it says. */
static __device__ void watch(struct pl_serve_host *host, struct pl_serve_gpu *gpu,
			     unsigned int number)
{
	unsigned int nap = MIN_NAP, posted, quit, begun, pad, seen = 0;

	*(volatile unsigned int *)&host->here = number;
	for (;;) {
		asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(posted), "=r"(quit), "=r"(begun), "=r"(pad)
			     : "l"(&host->posted)
			     : "memory");
		if ((int)(quit - number) >= 0)
			break;
		/* Before that it is what an earlier request had. */
		if ((int)(begun - number) >= 0 && posted != seen) {
			__threadfence_system();
			*(volatile unsigned int *)&gpu->posted = posted;
			seen = posted;
			nap = MIN_NAP;
			continue;
		}
		__nanosleep(nap);
		nap = nap * 2 > MAX_NAP ? MAX_NAP : nap * 2;
	}
	*(volatile unsigned int *)&gpu->quit = 1;
}

/* The chunk is done; whoever does the last one of a run tells the CPU. */
static __device__ void finish(struct pl_serve_host *host, struct pl_serve_gpu *gpu,
			      const struct pl_serve_chunk *c)
{
	__threadfence_system();
	if (atomicAdd(&gpu->finished[c->mark], 1) + 1 != c->target)
		return;
	/* What the other blocks did before they counted comes before the mark. */
	__threadfence_system();
	*(volatile unsigned int *)&host->mark[c->mark] = c->target;
}

static __device__ void leave(struct pl_serve_host *host, struct pl_serve_gpu *gpu,
			     unsigned int number)
{
	__threadfence_system();
	if (atomicAdd(&gpu->exited, 1) + 1 != gridDim.x)
		return;
	gpu->taken = 0;
	gpu->exited = 0;
	gpu->posted = 0;
	gpu->quit = 0;
	for (unsigned int i = 0; i < PL_SERVE_MARKS; i++)
		gpu->finished[i] = 0;
	__threadfence_system();
	*(volatile unsigned int *)&host->gone = number;
}

extern "C" __global__ void peerlane_serve(struct pl_serve_host *host, struct pl_serve_gpu *gpu,
					  unsigned int number)
{
	__shared__ __align__(16) struct pl_serve_chunk chunk;
	__shared__ bool more;

	if (!blockIdx.x) {
		if (!threadIdx.x) {
			watch(host, gpu, number);
			leave(host, gpu, number);
		}
		return;
	}
	for (;;) {
		if (!threadIdx.x)
			more = take(host, gpu, &chunk);
		__syncthreads();
		if (!more)
			break;
		copy(&chunk);
		__syncthreads();
		if (!threadIdx.x)
			finish(host, gpu, &chunk);
	}
	if (!threadIdx.x)
		leave(host, gpu, number);
}
