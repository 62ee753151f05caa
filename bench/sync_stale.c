// SPDX-License-Identifier: MIT
/* Counts reads of GPU memory that do not see the CUDA call before them. */
#include "sync_cuda.h"

#include <stdio.h>
#include <string.h>

#define BYTES ((size_t)64 << 10)
#define SPIN_NS 100000ull

static const struct action {
	const char *name;
	size_t bytes;
	int how;
} actions[] = {
	{ "cuMemcpyHtoD 64 KiB pageable", BYTES, 0 },
	{ "cuMemcpyHtoD 4 KiB pageable", 4096, 0 },
	{ "cuMemcpyHtoD 1 MiB pageable", LARGE, 0 },
	{ "cuMemsetD8 64 KiB", BYTES, 1 },
	{ "cuMemsetD8 1 MiB", LARGE, 1 },
	{ "cuMemcpyDtoD 64 KiB", BYTES, 2 },
	{ "cuMemcpyHtoD_ptds 64 KiB", BYTES, 3 },
	{ "cuMemsetD8_ptds 64 KiB", BYTES, 4 },
	{ "kernel 0.1 ms, legacy", BYTES, 5 },
	{ "kernel 0.1 ms, per thread", BYTES, 6 },
	{ "kernel 0.1 ms, blocking stream", BYTES, 7 },
	{ "kernel 0.1 ms, stream apart", BYTES, 8 },
};

#define NR_ACTIONS (sizeof(actions) / sizeof(actions[0]))

static uint64_t source; /* of copies inside the GPU */

static void act(const struct action *a, uint64_t addr, unsigned char value)
{
	memset(pageable, value, a->bytes);
	switch (a->how) {
	case 0:
		NEED(cuMemcpyHtoD_v2(addr, pageable, a->bytes));
		break;
	case 1:
		NEED(cuMemsetD8_v2(addr, value, a->bytes));
		break;
	case 2:
		NEED(cuMemsetD8_v2(source, value, a->bytes));
		NEED(cuCtxSynchronize());
		NEED(cuMemcpyDtoD_v2(addr, source, a->bytes));
		break;
	case 3:
		NEED(cuMemcpyHtoD_v2_ptds(addr, pageable, a->bytes));
		break;
	case 4:
		NEED(cuMemsetD8_v2_ptds(addr, value, a->bytes));
		break;
	case 5:
		NEED(spin(LEGACY, addr, a->bytes, value, SPIN_NS));
		break;
	case 6:
		NEED(spin(PER_THREAD, addr, a->bytes, value, SPIN_NS));
		break;
	case 7:
		NEED(spin(blocking, addr, a->bytes, value, SPIN_NS));
		break;
	default:
		NEED(spin(apart, addr, a->bytes, value, SPIN_NS));
		break;
	}
	memset(pageable, 0x55, a->bytes);
}

enum wait {
	NOTHING,
	QUERY_LEGACY,
	SYNC_LEGACY,
	QUERY_BOTH,
	EVENT_LEGACY,
	SET_NOW,
	SYNC_ALL,
	NR_WAITS,
};

static const char *const wait_names[NR_WAITS] = { "nothing",   "q.legacy", "s.legacy", "q.l+thread",
						  "ev.legacy", "set.now",  "ctx.sync" };

static void before_read(enum wait wait, uint64_t addr)
{
	switch (wait) {
	case QUERY_BOTH:
		while (cuStreamQuery(PER_THREAD) == NOT_READY)
			;
		__attribute__((fallthrough));
	case QUERY_LEGACY:
		while (cuStreamQuery(LEGACY) == NOT_READY)
			;
		break;
	case SYNC_LEGACY:
		NEED(cuStreamSynchronize(LEGACY));
		break;
	case EVENT_LEGACY:
		NEED(cuEventRecord(event, LEGACY));
		NEED(cuStreamWaitEvent(ours, event, 0));
		break;
	case SET_NOW:
		set_sync(addr);
		break;
	case SYNC_ALL:
		NEED(cuCtxSynchronize());
		break;
	default:
		break;
	}
}

/* How many tries read stale data. @busy: the default stream has work queued before. */
static unsigned int stale(const struct action *a, uint64_t addr, enum wait wait, bool busy)
{
	unsigned int wrong = 0;

	for (unsigned int i = 0; i < TRIES; i++) {
		unsigned char value = (unsigned char)(i % 250 + 1);
		bool bad = false;

		/* Set on memory that was never set before, each time. */
		if (wait == SET_NOW)
			NEED(cuMemAlloc_v2(&addr, LARGE));
		NEED(cuCtxSynchronize());
		if (busy)
			NEED(spin(LEGACY, source, 4, 0, SPIN_NS));
		act(a, addr, value);
		before_read(wait, addr);
		NEED(cuMemcpyDtoHAsync_v2(pinned, addr, a->bytes, ours));
		NEED(cuStreamSynchronize(ours));
		for (size_t j = 0; j < a->bytes && !bad; j++)
			bad = pinned[j] != value;
		wrong += bad;
		NEED(cuCtxSynchronize());
		if (wait == SET_NOW)
			NEED(cuMemFree_v2(addr));
	}
	return wrong;
}

void print_stale(const char *name, uint64_t addr, bool busy)
{
	if (!source)
		NEED(cuMemAlloc_v2(&source, LARGE));
	printf("\nstale reads of %d: %s, default stream %s\n%-32s", TRIES, name,
	       busy ? "busy 0.1 ms before" : "idle before", "");
	for (int w = 0; w < NR_WAITS; w++)
		printf(" %10s", wait_names[w]);
	printf("\n");
	for (size_t i = 0; i < NR_ACTIONS; i++) {
		printf("%-32s", actions[i].name);
		for (int w = 0; w < NR_WAITS; w++)
			printf(" %10u", stale(&actions[i], addr, (enum wait)w, busy));
		printf("\n");
		fflush(stdout);
	}
}
