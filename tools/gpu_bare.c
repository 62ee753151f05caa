/* SPDX-License-Identifier: MIT */
/* A bare ring between kernels and the CPU: the limit of all others. */
#include "gpu_bare.h"

#include "message.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 256u
#define LINE 64u

struct bare {
	struct pl_shared memory; /* requests, then completions, then tails */
	size_t completions_at, tails_at;
	unsigned int nr_rings, nr_threads;
	bool yields; /* kernels need the CPU, too */
	uint32_t stop;
};

struct poller {
	struct bare *bare;
	pthread_t thread;
	unsigned int index;
	uint32_t *heads; /* of all rings; a poller uses its own */
};

static struct plk_bare_ring ring_at(const struct bare *a, char *base)
{
	return (struct plk_bare_ring){
		.requests = (struct pld_vec *)base,
		.completions = (struct pld_vec *)(base + a->completions_at),
		.tails = (uint32_t *)(base + a->tails_at),
	};
}

/* Completes what is there; how many. */
static uint32_t serve(const struct bare *a, unsigned int ring, uint32_t *head)
{
	const struct plk_bare_ring all = ring_at(a, a->memory.cpu);
	const uint32_t tail = __atomic_load_n(&all.tails[ring * PLK_TAIL_STEP], __ATOMIC_ACQUIRE);
	const uint32_t nr = tail - *head;
	const size_t base = (size_t)ring * DEPTH;

	for (; *head != tail; ++*head) {
		const uint32_t entry = *head & (DEPTH - 1);
		struct pld_vec *cpl = &all.completions[base + entry];

		cpl->w[0] = all.requests[(base + entry) * 4].w[0];
		__atomic_store_n(&cpl->w[3], cpl->w[3] + 1, __ATOMIC_RELEASE);
	}
	return nr;
}

static void *poll(void *arg)
{
	const struct poller *p = arg;
	struct bare *a = p->bare;

	while (!__atomic_load_n(&a->stop, __ATOMIC_RELAXED)) {
		uint32_t nr = 0;

		for (unsigned int r = p->index; r < a->nr_rings; r += a->nr_threads)
			nr += serve(a, r, &p->heads[r]);
		if (!nr && a->yields)
			sched_yield();
	}
	return NULL;
}

static int run(struct pl_gpu_bench *b, struct bare *a, struct plk_bare *k, uint64_t expected,
	       double *seconds)
{
	struct poller *pollers = calloc(a->nr_threads, sizeof(*pollers));
	uint32_t *heads = calloc(a->nr_rings, sizeof(*heads));
	unsigned int nr = 0;
	int err = pollers && heads ? 0 : -ENOMEM;

	memset(a->memory.cpu, 0, a->memory.bytes);
	a->stop = 0;
	for (; !err && nr < a->nr_threads; nr += !err) {
		pollers[nr] = (struct poller){ .bare = a, .index = nr, .heads = heads };
		err = -pthread_create(&pollers[nr].thread, NULL, poll, &pollers[nr]);
	}
	if (err)
		pl_message_error("bare ring: %s", strerror(-err));
	else
		err = pl_gpu_bench_pass(b, &pl_gpu_kernel_bare, k->nr_warps, k, expected, seconds);
	__atomic_store_n(&a->stop, 1, __ATOMIC_RELAXED);
	while (nr--)
		pthread_join(pollers[nr].thread, NULL);
	free(heads);
	free(pollers);
	return err;
}

int pl_gpu_bare_measure(struct pl_gpu_bench *b, struct pl_gpu_row *row)
{
	const unsigned int nr = pl_gpu_bench_warps(b, row);
	struct bare a = {
		.nr_rings = nr,
		.nr_threads = b->args.proxies < nr ? b->args.proxies : nr,
		.completions_at = (size_t)nr * DEPTH * 64,
		.yields = !pl_gpu_run_on_gpu(&b->run),
	};
	struct plk_bare k = {
		.counts = b->run.counts,
		.per_lane = row->ios / row->threads,
		.timeout_ns = PL_GPU_TIMEOUT_NS,
		.nr_warps = nr,
		.depth = DEPTH,
		.lanes = b->run.lanes,
	};
	const uint64_t expected = k.per_lane * row->threads;
	double times[101];
	int err;

	a.tails_at = a.completions_at + (size_t)nr * DEPTH * 16;
	err = pl_kmem_share(&b->run.kmem, a.tails_at + (size_t)nr * LINE, &a.memory);
	if (err)
		return pl_gpu_bench_complain("bare ring", err);
	k.ring = ring_at(&a, a.memory.dev);
	/* The first does not count. */
	for (unsigned int i = 0; !err && i <= b->args.repeat; i++)
		err = run(b, &a, &k, expected, &times[i]);
	if (!err)
		row->limit = (double)expected / pl_gpu_bench_middle(times + 1, b->args.repeat);
	pl_kmem_unshare(&b->run.kmem, &a.memory);
	return err;
}
