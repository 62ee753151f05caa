// SPDX-License-Identifier: MIT
/* Virtual memory management of the fake libcuda: addresses, physical memory, mappings. */
#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>

#define GRANULARITY ((size_t)2 << 20)

struct reservation {
	struct reservation *next;
	uintptr_t addr;
	size_t bytes;
};

struct physical {
	struct physical *next;
	char *host;
	size_t bytes;
	int dev;
	unsigned int mappings;
	bool released;
};

static struct reservation *reservations;
static struct physical *physicals;

static struct physical *find_physical(uint64_t handle)
{
	struct physical *p;

	for (p = physicals; p && (uintptr_t)p != handle; p = p->next)
		;
	return p && !p->released ? p : NULL;
}

/* Frees physical memory that has neither handle nor mapping. */
static void put(struct physical *p)
{
	struct physical **at = &physicals;

	if (!p->released || p->mappings)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	munmap(p->host, p->bytes);
	free(p);
}

int cuMemGetAllocationGranularity(size_t *bytes, const struct cu_alloc_prop *prop, int option)
{
	int result = fake_begin(__func__, NULL);

	(void)prop;
	(void)option;
	if (result)
		return result;
	*bytes = GRANULARITY;
	return fake_end(CU_OK);
}

int cuMemAddressReserve(uint64_t *addr, size_t bytes, size_t align, uint64_t wish, uint64_t flags)
{
	struct reservation *r;
	int result = fake_begin(__func__, NULL);

	(void)wish;
	if (result)
		return result;
	if (!bytes || bytes % GRANULARITY || align > GRANULARITY || flags)
		return fake_end(CU_INVALID_VALUE);
	r = calloc(1, sizeof(*r));
	if (!r)
		return fake_end(CU_OUT_OF_MEMORY);
	r->bytes = bytes;
	r->addr = fake_reserve(bytes + GRANULARITY);
	if (!r->addr) {
		free(r);
		return fake_end(CU_OUT_OF_MEMORY);
	}
	r->addr = (r->addr + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
	r->next = reservations;
	reservations = r;
	*addr = r->addr;
	return fake_end(CU_OK);
}

/* The address space stays taken, so that a stale address is noticed. */
int cuMemAddressFree(uint64_t addr, size_t bytes)
{
	struct reservation **at = &reservations, *r;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	while (*at && ((*at)->addr != addr || (*at)->bytes != bytes))
		at = &(*at)->next;
	r = *at;
	if (!r)
		return fake_end(CU_INVALID_VALUE);
	*at = r->next;
	free(r);
	return fake_end(CU_OK);
}

int cuMemCreate(uint64_t *handle, size_t bytes, const struct cu_alloc_prop *prop, uint64_t flags)
{
	struct physical *p;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (!bytes || bytes % GRANULARITY || flags || prop->type != 1 || prop->location.type != 1 ||
	    prop->location.id < 0 || prop->location.id >= fake_nr_gpus())
		return fake_end(CU_INVALID_VALUE);
	p = calloc(1, sizeof(*p));
	if (!p)
		return fake_end(CU_OUT_OF_MEMORY);
	p->bytes = bytes;
	p->dev = prop->location.id;
	p->host = fake_back(bytes);
	if (!p->host) {
		free(p);
		return fake_end(CU_OUT_OF_MEMORY);
	}
	p->next = physicals;
	physicals = p;
	*handle = (uintptr_t)p;
	return fake_end(CU_OK);
}

int cuMemRelease(uint64_t handle)
{
	struct physical *p;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	p = find_physical(handle);
	if (!p)
		return fake_end(CU_INVALID_VALUE);
	p->released = true;
	put(p);
	return fake_end(CU_OK);
}

static bool reserved(uint64_t addr, size_t bytes)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (addr >= r->addr && addr + bytes <= r->addr + r->bytes)
			return true;
	return false;
}

int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
	struct fake_range *range;
	struct physical *p;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	p = find_physical(handle);
	if (!p || offset || flags || bytes != p->bytes || !reserved(addr, bytes) ||
	    fake_range_find(addr) || fake_range_find(addr + bytes - 1))
		return fake_end(CU_INVALID_VALUE);
	range = fake_range_add(FAKE_MAPPED, (uintptr_t)addr, bytes, p->host, NULL);
	if (!range)
		return fake_end(CU_OUT_OF_MEMORY);
	range->dev = p->dev;
	range->physical = p;
	range->usable = false;
	p->mappings++;
	return fake_end(CU_OK);
}

/* The mapping at @addr that ends before @end, or NULL. */
static struct fake_range *mapping(uint64_t addr, uint64_t end)
{
	struct fake_range *r = fake_range_find(addr);

	return r && r->kind == FAKE_MAPPED && r->addr == addr && r->addr + r->bytes <= end ? r
											   : NULL;
}

int cuMemSetAccess(uint64_t addr, size_t bytes, const struct cu_access *list, size_t nr)
{
	uint64_t end = addr + bytes;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	while (addr < end) {
		struct fake_range *r = mapping(addr, end);

		if (!r)
			return fake_end(CU_INVALID_VALUE);
		r->usable = nr && list[0].flags == 3;
		addr += r->bytes;
	}
	return fake_end(CU_OK);
}

int cuMemUnmap(uint64_t addr, size_t bytes)
{
	uint64_t end = addr + bytes;
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	fake_wait_memory(addr, bytes, false);
	while (addr < end) {
		struct fake_range *r = mapping(addr, end);
		struct physical *p;

		if (!r)
			return fake_end(CU_INVALID_VALUE);
		p = r->physical;
		addr += r->bytes;
		fake_range_remove(r);
		p->mappings--;
		put(p);
	}
	return fake_end(CU_OK);
}

void fake_physical_report(struct fake_report *report)
{
	int nr = 0;

	for (struct reservation *r = reservations; r; r = r->next)
		nr++;
	fake_report_add(report, nr, "reserved address ranges");
	nr = 0;
	for (struct physical *p = physicals; p; p = p->next)
		nr++;
	fake_report_add(report, nr, "pieces of physical memory");
}
