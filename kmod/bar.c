// SPDX-License-Identifier: MIT
/*
 * Page structures for the BAR of a GPU: made by the kernel's PCI P2PDMA where it has that, those
 * the GPU's driver made already, or generic device pages.
 *
 * Always for the whole BAR, under one dev_pagemap: newer kernels end a request where the next page
 * has another one, and a direct read that ends early is finished through the page cache.
 *
 * They go when the GPU loses its driver, and with them all pins of its memory.
 */
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core.h"

static char *pages = "auto";
module_param(pages, charp, 0444);
MODULE_PARM_DESC(pages, "kind of pages to make: auto (default), p2pdma or generic");

/* The least that the kernel gives page structures to, in size and alignment. */
#define GRANULE_BYTES (2ULL << 20)

static LIST_HEAD(bars);

/* What kinds of pages can be made here, as features. */
u64 pl_bar_features(void)
{
	u64 features = 0;

	if (IS_ENABLED(CONFIG_PCI_P2PDMA) && strcmp(pages, "generic"))
		features |= PEERLANE_FEATURE_P2PDMA;
	if (strcmp(pages, "p2pdma"))
		features |= PEERLANE_FEATURE_GENERIC;
	return features;
}

static bool contains(u64 start, u64 bytes, u64 physical)
{
	return physical >= start && physical - start < bytes;
}

/* The PCI device and BAR in which @physical lies; the device is referenced. */
static struct pci_dev *device_of(u64 physical, int *index)
{
	struct pci_dev *pdev = NULL;
	int i;

	while ((pdev = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, pdev))) {
		for (i = 0; i < PCI_STD_NUM_BARS; i++) {
			if ((pci_resource_flags(pdev, i) & IORESOURCE_MEM) &&
			    contains(pci_resource_start(pdev, i), pci_resource_len(pdev, i),
				     physical)) {
				*index = i;
				return pdev;
			}
		}
	}
	return NULL;
}

/* The page structure of an address, NULL if it has none. */
static struct page *page_of(u64 physical)
{
	unsigned long pfn = (unsigned long)(physical >> PAGE_SHIFT);

	return pfn_valid(pfn) ? pfn_to_page(pfn) : NULL;
}

static int make_p2pdma(struct pl_bar *bar)
{
	struct device *dev = &bar->pdev->dev;
	int err;

	/* There is no call to remove the pages, but a group of device resources can be released. */
	bar->group = devres_open_group(dev, NULL, GFP_KERNEL);
	if (!bar->group)
		return -ENOMEM;
	err = pci_p2pdma_add_resource(bar->pdev, bar->index, 0, 0);
	devres_close_group(dev, bar->group);
	if (err)
		goto err_release;
	bar->pool = pci_alloc_p2pmem(bar->pdev, bar->bytes);
	if (!bar->pool) {
		err = -EBUSY;
		goto err_release;
	}
	bar->kind = PEERLANE_PAGES_P2PDMA;
	pl_count(PL_PAGE_BYTES, bar->bytes);
	return 0;

err_release:
	devres_release_group(dev, bar->group);
	bar->group = NULL;
	return err;
}

static int make_generic(struct pl_bar *bar)
{
	void *mapped;

	if (!IS_ALIGNED(bar->start | bar->bytes, GRANULE_BYTES))
		return -EOPNOTSUPP;
	bar->pgmap = kzalloc(sizeof(*bar->pgmap), GFP_KERNEL);
	if (!bar->pgmap)
		return -ENOMEM;
	bar->pgmap->type = MEMORY_DEVICE_GENERIC;
	bar->pgmap->range.start = bar->start;
	bar->pgmap->range.end = bar->start + bar->bytes - 1;
	bar->pgmap->nr_range = 1;
	mapped = memremap_pages(bar->pgmap, dev_to_node(&bar->pdev->dev));
	if (IS_ERR(mapped)) {
		kfree(bar->pgmap);
		bar->pgmap = NULL;
		return PTR_ERR(mapped);
	}
	bar->kind = PEERLANE_PAGES_GENERIC;
	pl_count(PL_PAGE_BYTES, bar->bytes);
	return 0;
}

/* Decide what kind of pages a BAR gets, once. */
static int choose_kind(struct pl_bar *bar)
{
	struct page *page = page_of(bar->start);
	int err = -EOPNOTSUPP;

	if (page && is_zone_device_page(page)) {
		if (!is_pci_p2pdma_page(page))
			return -EBUSY;
		bar->kind = PEERLANE_PAGES_FOREIGN;
		return 0;
	}
	if (pl_bar_features() & PEERLANE_FEATURE_P2PDMA) {
		err = make_p2pdma(bar);
		if (!err)
			return 0;
		pci_notice(bar->pdev, pr_name "no P2PDMA pages for BAR %d: %d\n", bar->index, err);
	}
	if (!(pl_bar_features() & PEERLANE_FEATURE_GENERIC) || err != -EOPNOTSUPP)
		return err;
	return make_generic(bar);
}

static struct pl_bar *bar_create(u64 physical)
{
	struct pl_bar *bar;
	int err;

	bar = kzalloc(sizeof(*bar), GFP_KERNEL);
	if (!bar)
		return ERR_PTR(-ENOMEM);
	kref_init(&bar->ref);
	bar->pdev = device_of(physical, &bar->index);
	if (!bar->pdev) {
		err = -ENXIO;
		goto err_free;
	}
	/* Without its driver it has no memory to give; what is made now would be in the way of one. */
	err = -ENXIO;
	if (!READ_ONCE(bar->pdev->dev.driver))
		goto err_put;
	bar->start = pci_resource_start(bar->pdev, bar->index);
	bar->bytes = pci_resource_len(bar->pdev, bar->index);
	err = choose_kind(bar);
	if (err)
		goto err_put;
	list_add(&bar->node, &bars);
	pci_info(bar->pdev, pr_name "BAR %d, %llu MiB: %s pages\n", bar->index, bar->bytes >> 20,
		 bar->kind == PEERLANE_PAGES_GENERIC ? "generic" :
		 bar->kind == PEERLANE_PAGES_P2PDMA  ? "P2PDMA" : "the driver's P2PDMA");
	return bar;

err_put:
	pci_dev_put(bar->pdev);
err_free:
	kfree(bar);
	return ERR_PTR(err);
}

/* The BAR of an address; made known when it is not yet. */
struct pl_bar *pl_bar_find(u64 physical)
{
	struct pl_bar *bar;

	list_for_each_entry(bar, &bars, node)
		if (contains(bar->start, bar->bytes, physical))
			return bar->closing ? ERR_PTR(-ENXIO) : bar;
	return bar_create(physical);
}

/* See that [physical, physical + bytes), which lies in the BAR, has page structures. */
int pl_bar_check_pages(struct pl_bar *bar, u64 physical, u64 bytes)
{
	struct page *page;
	u64 at;

	for (at = physical; at < physical + bytes; at += PL_FRAME_BYTES) {
		page = page_of(at);
		if (!page || !is_zone_device_page(page))
			return -ENXIO;
		if (bar->kind != PEERLANE_PAGES_GENERIC && !is_pci_p2pdma_page(page))
			return -ENXIO;
	}
	return 0;
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

/* Nothing uses the pages any more: take them away. */
static void remove_pages(struct pl_bar *bar)
{
	if (bar->pgmap) {
		memunmap_pages(bar->pgmap);
		kfree(bar->pgmap);
		bar->pgmap = NULL;
		pl_count(PL_PAGE_BYTES, -(s64)bar->bytes);
	}
	if (bar->pool) {
		pci_free_p2pmem(bar->pdev, bar->pool, bar->bytes);
		bar->pool = NULL;
		pl_count(PL_PAGE_BYTES, -(s64)bar->bytes);
	}
	if (bar->group) {
		devres_release_group(&bar->pdev->dev, bar->group);
		bar->group = NULL;
	}
}

/* Pin nothing more in the BARs of a device; gives one that has not been asked for yet. */
struct pl_bar *pl_bar_close(struct device *dev)
{
	struct pl_bar *bar;

	list_for_each_entry(bar, &bars, node) {
		if (&bar->pdev->dev == dev && !bar->closing) {
			bar->closing = true;
			return bar;
		}
	}
	return NULL;
}

/* Nothing uses the pages of a device that is being closed: take them away. */
void pl_bars_remove_pages(struct device *dev)
{
	struct pl_bar *bar;

	list_for_each_entry(bar, &bars, node)
		if (&bar->pdev->dev == dev)
			remove_pages(bar);
}

/* Forget the BARs of a device, or of all devices; their pages are gone, or nothing uses them. */
void pl_bars_forget(struct device *dev)
{
	struct pl_bar *bar, *next;

	list_for_each_entry_safe(bar, next, &bars, node) {
		if (dev && &bar->pdev->dev != dev)
			continue;
		remove_pages(bar);
		list_del(&bar->node);
		pl_bar_put(bar);
	}
}
