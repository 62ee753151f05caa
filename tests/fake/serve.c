// SPDX-License-Identifier: MIT
/*
 * The kernel that serves a stream, on the CPU: the same protocol as lib/serve.cu, with the blocks
 * taking turns. As on a GPU only so many kernels run at a time; others wait for one to end.
 */
#include "fake.h"
#include "serve.h"

#include <time.h>

#define MAX_KERNELS 128u
#define MIN_NAP_NS 5000
#define MAX_NAP_NS 300000
#define LATE_NS 200000000

static unsigned int running;

unsigned int fake_serving(void)
{
	return running;
}

/* Where memory that the kernel uses is; NULL if the GPU does not have it. Lock held. */
static void *at(uint64_t addr, size_t bytes)
{
	size_t got = bytes;
	char *host = fake_range_covers(addr, bytes) ? fake_range_host(addr, true, &got) : NULL;

	return got == bytes ? host : NULL;
}

static int copy(const struct pl_serve_chunk *c)
{
	size_t done = 0;

	pthread_mutex_lock(&fake_lock);
	while (done < c->bytes) {
		size_t bytes = c->bytes - done;
		char *dst = fake_range_host(c->dst + done, true, &bytes);
		const char *src = fake_range_host(c->src + done, true, &bytes);

		if (!dst || !src) {
			pthread_mutex_unlock(&fake_lock);
			return CU_ILLEGAL_ADDRESS;
		}
		pthread_mutex_unlock(&fake_lock);
		memcpy(dst, src, bytes);
		pthread_mutex_lock(&fake_lock);
		done += bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

/* The next ticket. */
static int take(struct pl_serve_host *host, struct pl_serve_gpu *gpu)
{
	struct pl_serve_chunk c = host->ring[gpu->taken++ % PL_SERVE_RING];
	int result;

	if (c.mark >= PL_SERVE_MARKS || !c.bytes || c.bytes > PL_SERVE_CHUNK)
		return CU_ILLEGAL_ADDRESS;
	result = copy(&c);
	if (!result && ++gpu->finished[c.mark] == c.target)
		__atomic_store_n(&host->mark[c.mark], c.target, __ATOMIC_RELEASE);
	return result;
}

/* What was posted before the end. */
static int take_late(struct pl_serve_host *host, struct pl_serve_gpu *gpu)
{
	const struct timespec nap = { .tv_nsec = LATE_NS };
	int result = CU_OK;

	nanosleep(&nap, NULL);
	while (!result && gpu->taken < __atomic_load_n(&host->posted, __ATOMIC_ACQUIRE))
		result = take(host, gpu);
	return result;
}

/* Tickets in order; the lock is not held. */
static int serve(struct pl_serve_host *host, struct pl_serve_gpu *gpu, uint32_t number)
{
	struct timespec nap = { .tv_nsec = MIN_NAP_NS };
	int result = CU_OK;

	__atomic_store_n(&host->here, number, __ATOMIC_RELEASE);
	while (!result) {
		uint32_t begun = __atomic_load_n(&host->begun, __ATOMIC_ACQUIRE);
		uint32_t posted = __atomic_load_n(&host->posted, __ATOMIC_ACQUIRE);
		uint32_t quit = __atomic_load_n(&host->quit, __ATOMIC_ACQUIRE);

		if ((int32_t)(quit - number) >= 0)
			return fake_late() ? take_late(host, gpu) : CU_OK;
		if ((int32_t)(begun - number) < 0 || posted <= gpu->taken || fake_stalled()) {
			nanosleep(&nap, NULL);
			if (nap.tv_nsec < MAX_NAP_NS)
				nap.tv_nsec *= 2;
			continue;
		}
		nap.tv_nsec = MIN_NAP_NS;
		result = take(host, gpu);
	}
	return result;
}

static int run_serve(struct fake_op *op, bool live)
{
	struct pl_serve_host *host = at(op->dst, sizeof(*host));
	struct pl_serve_gpu *gpu = at(op->src, sizeof(*gpu));
	int result = CU_OK;

	if (!live)
		return CU_OK;
	if (!host || !gpu)
		return CU_ILLEGAL_ADDRESS;
	while (running == MAX_KERNELS)
		pthread_cond_wait(&fake_progress, &fake_lock);
	if (gpu->taken || gpu->exited)
		fake_violation("the mailbox was not left empty");
	running++;
	pthread_mutex_unlock(&fake_lock);
	result = serve(host, gpu, op->value);
	memset(gpu, 0, sizeof(*gpu));
	pthread_mutex_lock(&fake_lock);
	running--;
	if (!result)
		__atomic_store_n(&host->gone, op->value, __ATOMIC_RELEASE);
	return result;
}

int fake_take_serve(struct fake_op *op, unsigned int nr_blocks, void **args)
{
	(void)nr_blocks;
	op->run = run_serve;
	op->dst = *(uint64_t *)args[0];
	op->src = *(uint64_t *)args[1];
	op->value = *(uint32_t *)args[2];
	return CU_OK;
}
