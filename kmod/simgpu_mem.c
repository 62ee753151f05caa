// SPDX-License-Identifier: MIT
/*
 * The memory of the test GPU: pages are handed out in a scattered order, and not again soon.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "simgpu_dev.h"

/* Any odd number: with a power of two of pages every one comes once. */
#define STEP 2654435761U

u64 sim_physical(const struct sim_alloc *alloc, u32 page)
{
	return sim.start + (u64)alloc->pages[page] * SIMGPU_PAGE_BYTES;
}

static u32 page_take(void)
{
	u32 page;

	do {
		page = (sim.cursor++ * STEP) & (sim.nr_pages - 1);
	} while (test_bit(page, sim.used));
	set_bit(page, sim.used);
	sim.nr_free--;
	return page;
}

int sim_alloc(struct file *owner, u64 bytes, u64 *address)
{
	struct sim_alloc *alloc;
	u64 nr;
	u32 i;

	if (!bytes || bytes > sim.bytes)
		return -EINVAL;
	nr = DIV_ROUND_UP_ULL(bytes, SIMGPU_PAGE_BYTES);
	if (nr > sim.nr_free)
		return -ENOMEM;
	alloc = kvzalloc(struct_size(alloc, pages, nr), GFP_KERNEL);
	if (!alloc)
		return -ENOMEM;
	INIT_LIST_HEAD(&alloc->pins);
	alloc->owner = owner;
	alloc->tgid = current->tgid;
	alloc->nr_pages = (u32)nr;
	/* A gap after each, so that a range across two is never valid. */
	alloc->address = sim.next_address;
	sim.next_address += (nr + 1) * SIMGPU_PAGE_BYTES;
	for (i = 0; i < nr; i++)
		alloc->pages[i] = page_take();
	list_add_tail(&alloc->node, &sim.allocs);
	*address = alloc->address;
	return 0;
}

/* The pages go back, unless a persistent pin keeps them. */
void sim_alloc_release(struct sim_alloc *alloc)
{
	u32 i;

	if (!alloc->freed || alloc->nr_persistent)
		return;
	for (i = 0; i < alloc->nr_pages; i++)
		clear_bit(alloc->pages[i], sim.used);
	sim.nr_free += alloc->nr_pages;
	list_del(&alloc->node);
	kvfree(alloc);
}

static void free_one(struct sim_alloc *alloc)
{
	alloc->freed = true;
	sim_revoke(alloc);
	sim_alloc_release(alloc);
}

int sim_free(struct file *owner, u64 address)
{
	struct sim_alloc *alloc;

	list_for_each_entry(alloc, &sim.allocs, node) {
		if (alloc->address == address && alloc->owner == owner && !alloc->freed) {
			free_one(alloc);
			return 0;
		}
	}
	return -EINVAL;
}

void sim_free_all(struct file *owner)
{
	struct sim_alloc *alloc, *next;

	list_for_each_entry_safe(alloc, next, &sim.allocs, node)
		if (alloc->owner == owner && !alloc->freed)
			free_one(alloc);
}

/* The allocation of the calling process in which a whole range lies. */
struct sim_alloc *sim_find(u64 address, u64 bytes)
{
	struct sim_alloc *alloc;
	u64 length;

	list_for_each_entry(alloc, &sim.allocs, node) {
		length = (u64)alloc->nr_pages * SIMGPU_PAGE_BYTES;
		if (!alloc->freed && alloc->tgid == current->tgid && address >= alloc->address &&
		    bytes <= length && address - alloc->address <= length - bytes)
			return alloc;
	}
	return NULL;
}
