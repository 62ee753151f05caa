// SPDX-License-Identifier: MIT
/*
 * BARs of GPUs, and the pages that a GPU's own driver made for one.
 *
 * A BAR is known from the first pin in it until the GPU loses its driver. Its page structures are
 * made part by part (section.c), unless the driver has made some already.
 *
 * Those of the driver go when it likes: nvidia-uvm takes them away when the last program closes its
 * device. All it waits for are references to their dev_pagemap, so each pin holds one, from
 * before its frames are attached until the last of them is released. Nobody is told that the
 * driver waits, so somebody has to look. It must not be the driver's own thread: that may be the
 * one of an exiting program that would close our file, or free the memory, only afterwards. So a work
 * item looks every now and then, and ends all pins in the BAR when the driver waits.
 */
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "core.h"

#define WATCH_TICK (HZ / 20)

static LIST_HEAD(bars);
static struct workqueue_struct *watchers;

static bool contains(u64 start, u64 bytes, u64 physical)
{
	return physical >= start && physical - start < bytes;
}

/* The BAR of a device in which @physical lies, or -1. */
static int index_in(struct pci_dev *pdev, u64 physical)
{
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++)
		if ((pci_resource_flags(pdev, i) & IORESOURCE_MEM) &&
		    contains(pci_resource_start(pdev, i), pci_resource_len(pdev, i), physical))
			return i;
	return -1;
}

/* The PCI device in one of whose BARs @physical lies, referenced; NULL if there is none. */
struct pci_dev *pl_bar_device(u64 physical)
{
	struct pci_dev *pdev = NULL;

	while ((pdev = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, pdev)))
		if (index_in(pdev, physical) >= 0)
			return pdev;
	return NULL;
}

static void bar_free(struct kref *ref)
{
	struct pl_bar *bar = container_of(ref, struct pl_bar, ref);

	pci_dev_put(bar->pdev);
	kfree(bar);
}

void pl_bar_get(struct pl_bar *bar)
{
	kref_get(&bar->ref);
}

void pl_bar_put(struct pl_bar *bar)
{
	if (bar)
		kref_put(&bar->ref, bar_free);
}

/* Take a BAR off the list, if it is there still. */
static void unlist(struct pl_bar *bar)
{
	if (list_empty(&bar->node))
		return;
	list_del_init(&bar->node);
	pl_bar_put(bar);
}

/* Look after the driver's pages; works until nothing is pinned in them any more. */
static void watch(struct work_struct *work)
{
	struct pl_bar *bar = container_of(to_delayed_work(work), struct pl_bar, watch);
	bool dying = false, again = false;

	mutex_lock(&pl_frames_lock);
	if (bar->nr_foreign) {
		dying = percpu_ref_is_dying(&bar->foreign->ref);
		if (dying)
			bar->closing = true;
		else
			again = queue_delayed_work(watchers, &bar->watch, WATCH_TICK);
	}
	mutex_unlock(&pl_frames_lock);
	if (dying) {
		pl_pins_stop(bar);
		/* The next one who pins looks anew. */
		mutex_lock(&pl_frames_lock);
		unlist(bar);
		mutex_unlock(&pl_frames_lock);
	}
	if (!again)
		pl_bar_put(bar);
}

static struct pl_bar *bar_create(struct pci_dev *pdev, u64 physical)
{
	int index = index_in(pdev, physical);
	struct pl_bar *bar;

	if (index < 0)
		return ERR_PTR(-ENXIO);
	bar = kzalloc(sizeof(*bar), GFP_KERNEL);
	if (!bar)
		return ERR_PTR(-ENOMEM);
	kref_init(&bar->ref);
	bar->pdev = pci_dev_get(pdev);
	bar->index = index;
	bar->start = pci_resource_start(pdev, index);
	bar->bytes = pci_resource_len(pdev, index);
	INIT_LIST_HEAD(&bar->sections);
	INIT_DELAYED_WORK(&bar->watch, watch);
	list_add(&bar->node, &bars);
	return bar;
}

/* The BAR of a device in which an address lies; made known when it is not yet. */
struct pl_bar *pl_bar_find(struct pci_dev *pdev, u64 physical)
{
	struct pl_bar *bar;

	list_for_each_entry(bar, &bars, node) {
		if (bar->closing || !contains(bar->start, bar->bytes, physical))
			continue;
		if (bar->kind != PEERLANE_PAGES_FOREIGN || bar->nr_foreign)
			return bar;
		/* The driver's pages, and nothing is pinned in them: they may be gone. */
		unlist(bar);
		break;
	}
	return bar_create(pdev, physical);
}

/* Can a pin use the driver's pages? All its frames must have them. */
static int check_foreign(struct pl_pin *pin, struct pl_bar *bar, struct dev_pagemap *pgmap)
{
	u32 i;

	if (pgmap->type != MEMORY_DEVICE_PCI_P2PDMA || pgmap->nr_range != 1)
		return -EBUSY;
	if (bar->nr_foreign && bar->foreign != pgmap)
		return -EBUSY;
	for (i = 0; i < pin->nr_frames; i++)
		if (!contains(pgmap->range.start, range_len(&pgmap->range), pin->frames[i]) ||
		    !contains(pgmap->range.start, range_len(&pgmap->range),
			      pin->frames[i] + PL_FRAME_BYTES - 1))
			return -ENXIO;
	return 0;
}

/*
 * Hold pages that the GPU's driver made, if there are any: pin->foreign then. Until it is dropped
 * they stay, whatever the driver does.
 */
int pl_bar_hold_foreign(struct pl_pin *pin, struct pl_bar *bar)
{
	struct dev_pagemap *pgmap;
	int err;

	if (bar->kind && bar->kind != PEERLANE_PAGES_FOREIGN)
		return 0;
	/* A reference cannot be had once the driver waits for them. */
	pgmap = pl_get_dev_pagemap(PHYS_PFN(pin->frames[0]));
	if (!pgmap)
		return bar->kind ? -EBUSY : 0;
	err = check_foreign(pin, bar, pgmap);
	if (err) {
		put_dev_pagemap(pgmap);
		return err;
	}
	bar->kind = PEERLANE_PAGES_FOREIGN;
	bar->foreign = pgmap;
	pin->foreign = true;
	/* It may be under way still, for pins that have ended meanwhile. */
	if (!bar->nr_foreign++ && queue_delayed_work(watchers, &bar->watch, WATCH_TICK))
		pl_bar_get(bar);
	return 0;
}

void pl_bar_drop_foreign(struct pl_pin *pin)
{
	struct pl_bar *bar = pin->bar;

	if (!pin->foreign)
		return;
	pin->foreign = false;
	bar->nr_foreign--;
	put_dev_pagemap(bar->foreign);
}

/* Pin nothing more in the BARs of a device; gives one that was not given yet, referenced. */
struct pl_bar *pl_bar_close(struct device *dev)
{
	struct pl_bar *bar;

	list_for_each_entry(bar, &bars, node) {
		if (&bar->pdev->dev == dev && !bar->unbinding) {
			bar->unbinding = true;
			bar->closing = true;
			pl_bar_get(bar);
			return bar;
		}
	}
	return NULL;
}

/* Take one BAR of a device, or of any, off the list; the caller gets the list's reference. */
struct pl_bar *pl_bar_unlist(struct device *dev)
{
	struct pl_bar *bar;

	list_for_each_entry(bar, &bars, node) {
		if (!dev || &bar->pdev->dev == dev) {
			list_del_init(&bar->node);
			return bar;
		}
	}
	return NULL;
}

/* Without the lock: nothing is pinned in a BAR any more, and nobody looks after it from now on. */
void pl_bar_unwatch(struct pl_bar *bar)
{
	if (cancel_delayed_work_sync(&bar->watch))
		pl_bar_put(bar);
}

int pl_bars_init(void)
{
	/* For long waits, and as many at a time as there are GPUs. */
	watchers = alloc_workqueue("peerlane_watch", WQ_UNBOUND, 0);
	return watchers ? 0 : -ENOMEM;
}

void pl_bars_fini(void)
{
	destroy_workqueue(watchers);
}
