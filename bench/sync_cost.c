// SPDX-License-Identifier: MIT
/*
 * Measures synchronous CUDA calls that are followed by I/O on another stream: how often the I/O
 * reads stale data, which memory takes SYNC_MEMOPS, what waiting for the default stream costs, and
 * what stream capture does to those calls. No arguments.
 * Exit: 0 measured, 1 failed, 77 without a GPU.
 */
#include "sync_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ------------------------------------------------------------------ memory */

enum kind {
	PLAIN,
	PLAIN_SECOND,
	POOL,
	VMM,
	MANAGED,
	IPC,
	PINNED,
	NR_KINDS,
};

static const char *const kind_names[NR_KINDS] = {
	"cuMemAlloc",	     "cuMemAlloc, other context",
	"cuMemAllocAsync",   "cuMemCreate + cuMemMap",
	"cuMemAllocManaged", "IPC import",
	"cuMemHostAlloc",
};

static struct ipc handle;

static uint64_t alloc_vmm(size_t bytes)
{
	struct prop prop = { .type = 1, .location = { 1, 0 } };
	struct access access = { .location = { 1, 0 }, .flags = 3 };
	uint64_t addr, h;
	size_t unit;

	NEED(cuMemGetAllocationGranularity(&unit, &prop, 0));
	bytes = (bytes + unit - 1) / unit * unit;
	NEED(cuMemAddressReserve(&addr, bytes, 0, 0, 0));
	NEED(cuMemCreate(&h, bytes, &prop, 0));
	NEED(cuMemMap(addr, bytes, 0, h, 0));
	NEED(cuMemSetAccess(addr, bytes, &access, 1));
	return addr;
}

static uint64_t alloc(enum kind kind)
{
	uint64_t addr = 0;
	void *host;

	switch (kind) {
	case PLAIN:
		NEED(cuMemAlloc_v2(&addr, LARGE));
		break;
	case PLAIN_SECOND:
		NEED(cuCtxPushCurrent_v2(second));
		NEED(cuMemAlloc_v2(&addr, LARGE));
		NEED(cuCtxPopCurrent_v2(NULL));
		break;
	case POOL:
		NEED(cuMemAllocAsync(&addr, LARGE, LEGACY));
		NEED(cuCtxSynchronize());
		break;
	case VMM:
		return alloc_vmm(LARGE);
	case MANAGED:
		NEED(cuMemAllocManaged(&addr, LARGE, 1));
		break;
	case IPC:
		if (cuIpcOpenMemHandle_v2(&addr, handle, 1))
			return 0;
		break;
	default:
		NEED(cuMemHostAlloc(&host, LARGE, 1));
		return (uintptr_t)host;
	}
	return addr;
}

/* The other process: makes memory, hands its name on, and lives until its input ends. */
static void lend(int in, int out)
{
	struct ipc h;
	uint64_t addr;
	char end;

	NEED(cuInit(0));
	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	NEED(cuCtxSetCurrent(primary));
	NEED(cuMemAlloc_v2(&addr, LARGE));
	NEED(cuIpcGetMemHandle(&h, addr));
	if (write(out, &h, sizeof(h)) == sizeof(h))
		while (read(in, &end, 1) > 0)
			;
	exit(0);
}

static uint64_t some; /* an address */

/* As the library asks: context, type, managed, ordinal, start, size, pool; then sync, id. */
static int get_many(unsigned int nr, uint64_t *room)
{
	int what[] = { 1, 2, 8, 9, 11, 12, 17, PTR_SYNC_MEMOPS, PTR_BUFFER_ID };
	void *where[9];

	for (int i = 0; i < 9; i++)
		where[i] = &room[i];
	return cuPointerGetAttributes(nr, what, where, some);
}

static void print_kinds(void)
{
	printf("\nSYNC_MEMOPS by kind of memory: value before; result set in the middle of it with "
	       "the "
	       "primary context,\nno context, the other context; value after, at the start; buffer "
	       "id\n");
	for (int k = 0; k < NR_KINDS; k++) {
		uint64_t addr = alloc((enum kind)k);
		unsigned int before = 9, after = 9;
		unsigned long long id = 0;
		uint64_t room[9] = { 0 };
		int r[3], rb, ra, many;

		if (!addr) {
			printf("%-28s not to be had\n", kind_names[k]);
			continue;
		}
		rb = cuPointerGetAttribute(&before, PTR_SYNC_MEMOPS, addr);
		r[0] = set_sync(addr + LARGE / 2);
		NEED(cuCtxSetCurrent(NULL));
		r[1] = set_sync(addr + LARGE / 2);
		NEED(cuCtxSetCurrent(second));
		r[2] = set_sync(addr + LARGE / 2);
		NEED(cuCtxSetCurrent(primary));
		ra = cuPointerGetAttribute(&after, PTR_SYNC_MEMOPS, addr);
		some = addr;
		many = get_many(9, room);
		cuPointerGetAttribute(&id, PTR_BUFFER_ID, addr);
		printf("%-28s before %u (%d); set %d %d %d; after %u (%d); id %llu; by list %u "
		       "(%d)\n",
		       kind_names[k], before, rb, r[0], r[1], r[2], after, ra, id,
		       (unsigned int)room[7], many);
	}
}

/* ------------------------------------------------------------------ costs */

static void c_query(void)
{
	cuStreamQuery(LEGACY);
}

static void c_query_thread(void)
{
	cuStreamQuery(PER_THREAD);
}

static void c_sync(void)
{
	cuStreamSynchronize(LEGACY);
}

static void c_event(void)
{
	cuEventRecord(event, LEGACY);
	cuEventQuery(event);
}

static void c_event_wait(void)
{
	cuEventRecord(event, LEGACY);
	cuStreamWaitEvent(ours, event, 0);
}

static void c_ctx_sync(void)
{
	cuCtxSynchronize();
}

static void c_set(void)
{
	set_sync(some);
}

static void c_id(void)
{
	unsigned long long id;

	cuPointerGetAttribute(&id, PTR_BUFFER_ID, some);
}

static void c_get_sync(void)
{
	unsigned int on;

	cuPointerGetAttribute(&on, PTR_SYNC_MEMOPS, some);
}

static void c_get7(void)
{
	uint64_t room[9];

	get_many(7, room);
}

static void c_get8(void)
{
	uint64_t room[9];

	get_many(8, room);
}

static void c_get9(void)
{
	uint64_t room[9];

	get_many(9, room);
}

static void c_enter(void)
{
	unsigned long long id;

	cuCtxGetId(primary, &id);
	cuCtxPushCurrent_v2(primary);
	cuCtxPopCurrent_v2(NULL);
}

/* What the library does for a request that waits, where nothing is to be waited for. */
static void c_wait(void)
{
	unsigned long long id;
	int mode = 2, status;

	cuCtxGetId(primary, &id);
	cuCtxPushCurrent_v2(primary);
	cuThreadExchangeStreamCaptureMode(&mode);
	cuStreamIsCapturing(LEGACY, &status);
	cuStreamQuery(LEGACY);
	cuStreamIsCapturing(PER_THREAD, &status);
	cuStreamQuery(PER_THREAD);
	cuThreadExchangeStreamCaptureMode(&mode);
	cuCtxPopCurrent_v2(NULL);
}

static void c_copy(void)
{
	cuMemcpyHtoDAsync_v2(some, pinned, 4096, ours);
	while (cuStreamQuery(ours) == NOT_READY)
		;
}

static void c_copy_asked(void)
{
	cuStreamQuery(LEGACY);
	c_copy();
}

static void c_copy_synced(void)
{
	cuStreamSynchronize(LEGACY);
	c_copy();
}

static void c_copy_evented(void)
{
	c_event_wait();
	c_copy();
}

static int fd; /* of a file that is cached */

static void c_read(void)
{
	if (pread(fd, pinned, 4096, 0) == 4096)
		c_copy();
}

static void c_read_waited(void)
{
	c_wait();
	c_read();
}

static const struct cost {
	const char *name;
	void (*call)(void);
} costs[] = {
	{ "cuStreamQuery(legacy)", c_query },
	{ "cuStreamQuery(per thread)", c_query_thread },
	{ "cuStreamSynchronize(legacy)", c_sync },
	{ "cuEventRecord(legacy) + cuEventQuery", c_event },
	{ "cuEventRecord(legacy) + cuStreamWaitEvent", c_event_wait },
	{ "cuCtxSynchronize", c_ctx_sync },
	{ "cuPointerSetAttribute(sync), repeated", c_set },
	{ "cuPointerGetAttribute(buffer id)", c_id },
	{ "cuPointerGetAttribute(sync)", c_get_sync },
	{ "cuPointerGetAttributes(7)", c_get7 },
	{ "cuPointerGetAttributes(8, with sync)", c_get8 },
	{ "cuPointerGetAttributes(9, with sync and id)", c_get9 },
	{ "cuCtxGetId + push + pop", c_enter },
	{ "both default streams, as the library asks", c_wait },
	{ "4 KiB pinned copy, polled", c_copy },
	{ "the same behind cuStreamQuery(legacy)", c_copy_asked },
	{ "the same behind cuStreamSynchronize(legacy)", c_copy_synced },
	{ "the same behind an event of the default stream", c_copy_evented },
};

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median_ns(void (*call)(void))
{
	double runs[15];

	for (int i = 0; i < 2000; i++)
		call();
	NEED(cuCtxSynchronize());
	for (int r = 0; r < 15; r++) {
		uint64_t t = now_ns();

		for (int i = 0; i < 1000; i++)
			call();
		runs[r] = (double)(now_ns() - t) / 1000;
		NEED(cuCtxSynchronize());
	}
	qsort(runs, 15, sizeof(runs[0]), by_size);
	return runs[7];
}

static void print_costs(const char *beside)
{
	printf("\ncost, ns (median of 15 x 1000), %s\n", beside);
	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++)
		printf("%-48s %8.0f\n", costs[i].name, median_ns(costs[i].call));
	fflush(stdout);
}

/* The figure that decides whether requests should wait by default: under 1.03 they may. */
static void print_ratio(void)
{
	char name[] = "/tmp/sync-cost-XXXXXX";
	double read_ns, waited_ns;

	fd = mkstemp(name);
	if (fd < 0 || unlink(name) || pwrite(fd, pinned, 4096, 0) != 4096)
		return;
	read_ns = median_ns(c_read);
	waited_ns = median_ns(c_read_waited);
	printf("\n4 KiB cached read by a bare loop: %.0f ns; behind both default streams: %.0f ns, "
	       "ratio %.3f\n",
	       read_ns, waited_ns, waited_ns / read_ns);
	close(fd);
}

static void print_first_set(void)
{
	double runs[TRIES];

	for (int i = 0; i < TRIES; i++) {
		uint64_t addr, t;

		NEED(cuMemAlloc_v2(&addr, LARGE));
		t = now_ns();
		set_sync(addr);
		runs[i] = (double)(now_ns() - t);
		NEED(cuMemFree_v2(addr));
	}
	qsort(runs, TRIES, sizeof(runs[0]), by_size);
	printf("\ncuPointerSetAttribute(sync), first: median %.0f ns, 0.95 %.0f ns\n",
	       runs[TRIES / 2], runs[TRIES * 95 / 100]);
}

/* ------------------------------------------------------------------ start and end */

int main(void)
{
	int to[2], from[2];
	void *more[32];
	uint64_t addr;
	pid_t child;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!load_cuda()) {
		printf("skipped: no CUDA driver\n");
		return 77;
	}
	if (pipe(to) || pipe(from))
		return 1;
	child = fork();
	if (!child) {
		close(to[1]);
		lend(to[0], from[1]);
	}
	close(from[1]);
	start_cuda();
	if (read(from[0], &handle, sizeof(handle)) != sizeof(handle))
		printf("no memory from another process\n");
	print_kinds();
	NEED(cuMemAlloc_v2(&some, LARGE));
	print_first_set();
	print_costs("2 streams of the program");
	for (int i = 0; i < 32; i++)
		NEED(cuStreamCreateWithPriority(&more[i], i & 1, 0));
	print_costs("34 streams of the program");
	print_ratio();
	for (int i = 0; i < 32; i++)
		NEED(cuStreamDestroy_v2(more[i]));
	print_capture(blocking, "a blocking stream", 0, some);
	print_capture(apart, "a stream apart", 0, some);
	print_capture(blocking, "a blocking stream", 1, some);
	addr = alloc(PLAIN);
	print_stale("memory as allocated", addr, false);
	print_stale("memory as allocated", addr, true);
	NEED(set_sync(addr));
	print_stale("with SYNC_MEMOPS", addr, false);
	print_stale("with SYNC_MEMOPS", addr, true);
	print_stale("memory of a pool", alloc(POOL), false);
	print_stale("memory of a pool", alloc(POOL), true);
	close(to[1]);
	waitpid(child, NULL, 0);
	return 0;
}
