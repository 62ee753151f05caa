// SPDX-License-Identifier: MIT
/*
 * Memory of the fake libcuda. The address of device memory cannot be touched by the CPU; the
 * content is elsewhere. Freed device addresses are never used again, and stay out of bounds.
 */
#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA ((size_t)1 << 30)

static struct fake_range *ranges;
static struct fake_range *dead; /* freed device memory */
static size_t used[FAKE_MAX_GPUS];

static size_t round_up(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

static uintptr_t map(size_t bytes, int prot)
{
	void *addr = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return addr == MAP_FAILED ? 0 : (uintptr_t)addr;
}

/* Side by side, as the driver often puts whole pages. */
uintptr_t fake_reserve(size_t bytes)
{
	static uintptr_t next, end;
	uintptr_t addr;

	if (bytes > end - next) {
		size_t arena = bytes > ARENA ? round_up(bytes) : ARENA;

		next = map(arena, PROT_NONE);
		end = next ? next + arena : 0;
	}
	addr = next;
	if (addr)
		next += round_up(bytes);
	return addr;
}

char *fake_back(size_t bytes)
{
	return (char *)map(round_up(bytes), PROT_READ | PROT_WRITE);
}

static struct fake_range *find(struct fake_range *list, uint64_t addr)
{
	struct fake_range *r;

	for (r = list; r && addr - r->addr >= r->bytes; r = r->next)
		;
	return r;
}

struct fake_range *fake_range_find(uint64_t addr)
{
	return find(ranges, addr);
}

bool fake_range_dead(uint64_t addr)
{
	return find(dead, addr);
}

bool fake_range_covers(uint64_t addr, size_t bytes)
{
	uint64_t end = addr + bytes;

	while (addr < end) {
		struct fake_range *r = fake_range_find(addr);

		if (!r || !r->usable)
			return false;
		addr = r->addr + r->bytes;
	}
	return true;
}

char *fake_range_host(uint64_t addr, bool known, size_t *bytes)
{
	struct fake_range *r = fake_range_find(addr);
	size_t left;

	if (!known)
		return (char *)(uintptr_t)addr;
	if (!r)
		return NULL;
	left = r->bytes - (addr - r->addr);
	if (left < *bytes)
		*bytes = left;
	return r->host + (addr - r->addr);
}

struct fake_range *fake_range_add(enum fake_kind kind, uintptr_t addr, size_t bytes, char *host,
				  struct fake_context *ctx)
{
	struct fake_range *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->kind = kind;
	r->addr = addr;
	r->bytes = bytes;
	r->host = host;
	r->ctx = ctx;
	r->dev = ctx ? ctx->dev : 0;
	r->usable = true;
	r->next = ranges;
	ranges = r;
	return r;
}

void fake_range_remove(struct fake_range *range)
{
	struct fake_range **at = &ranges;

	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	if (range->host == (char *)range->addr) {
		free(range);
		return;
	}
	range->next = dead;
	dead = range;
}

/* Frees a range of any kind but FAKE_MAPPED. */
static void release(struct fake_range *r)
{
	if (r->kind != FAKE_REGISTERED)
		munmap(r->host, round_up(r->bytes));
	if (r->kind == FAKE_DEVICE || r->kind == FAKE_POOL)
		used[r->dev] -= r->bytes;
	fake_range_remove(r);
}

unsigned int fake_ranges_drop(struct fake_context *ctx)
{
	struct fake_range *r = ranges, *next;
	unsigned int nr = 0;

	for (; r; r = next) {
		next = r->next;
		if (r->ctx == ctx) {
			release(r);
			nr++;
		}
	}
	return nr;
}

void fake_ranges_report(struct fake_report *report)
{
	static const char *const names[] = {
		[FAKE_DEVICE] = "device allocations",	  [FAKE_POOL] = "pool allocations",
		[FAKE_MANAGED] = "managed allocations",	  [FAKE_PINNED] = "pinned allocations",
		[FAKE_REGISTERED] = "host registrations", [FAKE_MAPPED] = "mappings",
	};

	for (unsigned int kind = FAKE_DEVICE; kind <= FAKE_MAPPED; kind++) {
		int nr = 0;

		for (struct fake_range *r = ranges; r; r = r->next)
			nr += r->kind == kind;
		fake_report_add(report, nr, names[kind]);
	}
}

/* Memory with a content of its own; lock held. */
static int alloc(enum fake_kind kind, struct fake_context *ctx, size_t bytes, uint64_t *out)
{
	bool visible = kind == FAKE_PINNED || kind == FAKE_MANAGED;
	struct fake_range *r;
	uintptr_t addr;
	char *host;

	if (!bytes)
		return CU_INVALID_VALUE;
	if (bytes > FAKE_GPU_BYTES || (!visible && bytes > FAKE_GPU_BYTES - used[ctx->dev]))
		return CU_OUT_OF_MEMORY;
	host = fake_back(bytes);
	if (!host)
		return CU_OUT_OF_MEMORY;
	addr = visible ? (uintptr_t)host : fake_reserve(bytes);
	r = addr ? fake_range_add(kind, addr, bytes, host, ctx) : NULL;
	if (!r) {
		munmap(host, round_up(bytes));
		return CU_OUT_OF_MEMORY;
	}
	if (!visible)
		used[r->dev] += bytes;
	if (kind == FAKE_POOL)
		r->ctx = NULL;
	*out = addr;
	return CU_OK;
}

int cuMemAlloc_v2(uint64_t *addr, size_t bytes)
{
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	return result ? result : fake_end(alloc(FAKE_DEVICE, ctx, bytes, addr));
}

int cuMemAllocManaged(uint64_t *addr, size_t bytes, unsigned int flags)
{
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	if (flags != CU_MEM_ATTACH_GLOBAL)
		return fake_end(CU_INVALID_VALUE);
	return fake_end(alloc(FAKE_MANAGED, ctx, bytes, addr));
}

int cuMemHostAlloc(void **addr, size_t bytes, unsigned int flags)
{
	struct fake_context *ctx;
	uint64_t out = 0;
	int result = fake_begin(__func__, &ctx);

	(void)flags;
	if (result)
		return result;
	result = alloc(FAKE_PINNED, ctx, bytes, &out);
	if (!result)
		*addr = (void *)(uintptr_t)out;
	return fake_end(result);
}

static struct fake_range *find_base(uint64_t addr, unsigned int kinds)
{
	struct fake_range *r = fake_range_find(addr);

	return r && r->addr == addr && kinds & 1u << r->kind ? r : NULL;
}

/* Frees the allocation at @addr when the work of its context is done, as the driver does. */
static int release_at(struct fake_context *ctx, uint64_t addr, unsigned int kinds)
{
	struct fake_range *r = find_base(addr, kinds);
	size_t bytes = r ? r->bytes : 0;

	if (!r)
		return CU_INVALID_VALUE;
	fake_wait_alone(r->ctx ? r->ctx : ctx);
	fake_wait_memory(addr, bytes, false);
	r = find_base(addr, kinds);
	if (!r)
		return CU_INVALID_VALUE;
	release(r);
	return CU_OK;
}

int cuMemFree_v2(uint64_t addr)
{
	struct fake_context *ctx;
	int result = fake_begin_undo(__func__, &ctx);

	if (result)
		return result;
	return fake_end(
		release_at(ctx, addr, 1u << FAKE_DEVICE | 1u << FAKE_POOL | 1u << FAKE_MANAGED));
}

int cuMemFreeHost(void *addr)
{
	struct fake_context *ctx;
	int result = fake_begin_undo(__func__, &ctx);

	return result ? result : fake_end(release_at(ctx, (uintptr_t)addr, 1u << FAKE_PINNED));
}

int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned int flags)
{
	uintptr_t page = (uintptr_t)addr - (uintptr_t)addr % round_up(1);
	struct fake_context *ctx;
	struct fake_range *r;
	unsigned char there;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	if (!addr || !bytes)
		return fake_end(CU_INVALID_VALUE);
	for (uintptr_t at = page; at < (uintptr_t)addr + bytes; at += round_up(1)) {
		/* mincore() fails where a page is not mapped. */
		if (mincore((void *)at, 1, &there))
			return fake_end(CU_INVALID_VALUE);
		if (fake_range_find(at))
			return fake_end(CU_ALREADY_REGISTERED);
	}
	r = fake_range_add(FAKE_REGISTERED, (uintptr_t)addr, bytes, addr, ctx);
	if (r)
		r->flags = flags;
	return fake_end(r ? CU_OK : CU_OUT_OF_MEMORY);
}

int cuMemHostUnregister(void *addr)
{
	struct fake_context *ctx;
	int result = fake_begin_undo(__func__, &ctx);

	if (result)
		return result;
	result = release_at(ctx, (uintptr_t)addr, 1u << FAKE_REGISTERED);
	return fake_end(result ? CU_NOT_REGISTERED : CU_OK);
}

int cuMemHostGetDevicePointer_v2(uint64_t *out, void *addr, unsigned int flags)
{
	struct fake_context *ctx;
	struct fake_range *r;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	r = fake_range_find((uintptr_t)addr);
	if (flags || !r || (r->kind != FAKE_PINNED && r->kind != FAKE_REGISTERED))
		return fake_end(CU_INVALID_VALUE);
	*out = (uintptr_t)addr;
	/* There are systems where what was registered has another address for the GPU. */
	if (r->kind == FAKE_REGISTERED && getenv("FAKE_CUDA_OTHER_ADDRESS"))
		*out += 1ull << 40;
	return fake_end(CU_OK);
}

int cuMemAllocAsync(uint64_t *addr, size_t bytes, void *stream)
{
	struct fake_context *ctx;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	if (!fake_stream_find(stream, ctx))
		return fake_end(CU_INVALID_HANDLE);
	return fake_end(alloc(FAKE_POOL, ctx, bytes, addr));
}

static int run_free(struct fake_op *op, bool live)
{
	struct fake_range *r = fake_range_find(op->dst);

	if (!live)
		return CU_OK;
	if (!r || r->addr != op->dst || r->kind != FAKE_POOL)
		return CU_ILLEGAL_ADDRESS;
	release(r);
	return CU_OK;
}

int cuMemFreeAsync(uint64_t addr, void *stream)
{
	struct fake_op op = { .run = run_free, .dst = addr };
	struct fake_context *ctx;
	struct fake_stream *s;
	struct fake_range *r;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	r = fake_range_find(addr);
	s = fake_stream_find(stream, ctx);
	if (!r || r->addr != addr || r->kind != FAKE_POOL)
		return fake_end(CU_INVALID_VALUE);
	return fake_end(s ? fake_queue(s, &op, NULL) : CU_INVALID_HANDLE);
}

/* One attribute of @r, or of memory that is not ours when it is NULL. */
static int attribute(const struct fake_range *r, uint64_t addr, int what, void *where)
{
	bool host = r && (r->kind == FAKE_PINNED || r->kind == FAKE_REGISTERED);
	bool managed = r && r->kind == FAKE_MANAGED;

	switch (what) {
	case CU_PTR_CONTEXT:
		*(void **)where = r ? r->ctx : NULL;
		return CU_OK;
	case CU_PTR_MEMORY_TYPE:
		*(unsigned int *)where = !r ? 0 : host ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
		return CU_OK;
	case CU_PTR_DEVICE_POINTER:
		*(uint64_t *)where = r ? addr : 0;
		return CU_OK;
	case CU_PTR_HOST_POINTER:
		*(void **)where = host || managed ? (void *)(uintptr_t)addr : NULL;
		return CU_OK;
	case CU_PTR_SYNC_MEMOPS:
		*(unsigned int *)where = r && r->sync;
		return CU_OK;
	case CU_PTR_IS_MANAGED:
		/* A boolean, one byte: finds the caller who did not clear a larger variable. */
		*(unsigned char *)where = managed;
		return CU_OK;
	case CU_PTR_DEVICE_ORDINAL:
		*(int *)where = r ? r->dev : -2;
		return CU_OK;
	case CU_PTR_RANGE_START:
		*(uint64_t *)where = r ? r->addr : 0;
		return CU_OK;
	case CU_PTR_RANGE_SIZE:
		*(size_t *)where = r ? r->bytes : 0;
		return CU_OK;
	case CU_PTR_POOL:
		*(void **)where = r && r->kind == FAKE_POOL ? &used[r->dev] : NULL;
		return CU_OK;
	default:
		return CU_INVALID_VALUE;
	}
}

/* Not for memory of pools and mappings. Waits for the synchronous calls before it. */
int cuPointerSetAttribute(const void *value, int what, uint64_t addr)
{
	struct fake_range *r;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	r = fake_range_find(addr);
	if (!r || what != CU_PTR_SYNC_MEMOPS)
		return fake_end(CU_INVALID_VALUE);
	if (r->kind == FAKE_POOL || r->kind == FAKE_MAPPED)
		return fake_end(CU_NOT_SUPPORTED);
	r->sync = *(const unsigned int *)value;
	fake_wait_memory(r->addr, r->bytes, true);
	return fake_end(CU_OK);
}

int cuPointerGetAttributes(unsigned int nr, const int *what, void **where, uint64_t addr)
{
	const struct fake_range *r;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	r = fake_range_find(addr);
	for (unsigned int i = 0; i < nr && !result; i++)
		result = attribute(r, addr, what[i], where[i]);
	return fake_end(result);
}
