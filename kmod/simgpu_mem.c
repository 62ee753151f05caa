// SPDX-License-Identifier: MIT
/*
 * The memory of the test GPU: pages of the lower half of its BAR are handed out in a scattered order,
 * and not again soon; others only on demand.
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

/* The next page of the lower half; there is one. */
static u32 page_take(void)
{
	u32 page;

	do {
		page = (sim.cursor++ * STEP) & (sim.nr_pages / 2 - 1);
	} while (test_bit(page, sim.used));
	set_bit(page, sim.used);
	sim.nr_free--;
	return page;
}

/* A page of a place in the upper half: the next one of the next of its pieces. */
static int page_take_at(const struct sim_place *place, u32 nr, u32 *page)
{
	u32 per_piece = SIM_PIECE_BYTES / SIMGPU_PAGE_BYTES;
	u32 at, i;

	at = sim.nr_pages / 2 + place->pieces[nr % place->nr] * per_piece;
	for (i = 0; i < per_piece; i++) {
		*page = at + i;
		if (!test_and_set_bit(*page, sim.used))
			return 0;
	}
	return -ENOMEM;
}

static void pages_give(struct sim_alloc *alloc, u32 nr)
{
	while (nr--) {
		clear_bit(alloc->pages[nr], sim.used);
		if (alloc->pages[nr] < sim.nr_pages / 2)
			sim.nr_free++;
	}
}

static int pages_take(struct sim_alloc *alloc)
{
	u32 i, where = SIMGPU_PLACE_LOWER;
	int err = 0;

	sim_fault(SIMGPU_FAULT_PLACE, &where);
	if (where >= SIMGPU_NR_PLACES)
		return -EINVAL;
	if (!sim_places[where].nr && alloc->nr_pages > sim.nr_free)
		return -ENOMEM;
	for (i = 0; i < alloc->nr_pages && !err; i++) {
		if (!sim_places[where].nr)
			alloc->pages[i] = page_take();
		else
			err = page_take_at(&sim_places[where], i, &alloc->pages[i]);
	}
	if (err)
		pages_give(alloc, i - 1);
	return err;
}

int sim_alloc(struct file *owner, u64 bytes, u64 *address)
{
	struct sim_alloc *alloc;
	u64 nr;
	int err;

	if (!bytes || bytes > sim.bytes)
		return -EINVAL;
	nr = DIV_ROUND_UP_ULL(bytes, SIMGPU_PAGE_BYTES);
	alloc = kvzalloc(struct_size(alloc, pages, nr), GFP_KERNEL);
	if (!alloc)
		return -ENOMEM;
	INIT_LIST_HEAD(&alloc->pins);
	alloc->owner = owner;
	alloc->tgid = current->tgid;
	alloc->nr_pages = (u32)nr;
	err = pages_take(alloc);
	if (err) {
		kvfree(alloc);
		return err;
	}
	/* A gap after each, so that a range across two is never valid. */
	alloc->address = sim.next_address;
	sim.next_address += (nr + 1) * SIMGPU_PAGE_BYTES;
	list_add_tail(&alloc->node, &sim.allocs);
	*address = alloc->address;
	return 0;
}

/* The pages go back, unless a persistent pin keeps them. */
void sim_alloc_release(struct sim_alloc *alloc)
{
	if (!alloc->freed || alloc->nr_persistent)
		return;
	pages_give(alloc, alloc->nr_pages);
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
