// SPDX-License-Identifier: MIT
/*
 * Page structures for the BAR of a GPU: made by the kernel's PCI P2PDMA where it has that, those the
 * GPU's driver made already, or generic device pages in granules as they are needed.
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
#define GRANULE_SHIFT 21
#define GRANULE_BYTES (1ULL << GRANULE_SHIFT)

/**
 * struct pl_granule - a run of generic pages
 * @pgmap: the kernel's
 * @first: its number in the BAR
 */
struct pl_granule {
	struct dev_pagemap pgmap;
	unsigned long first;
};

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
	bar->kind = PEERLANE_PAGES_GENERIC;
	return 0;
}

static struct pl_bar *bar_create(u64 physical)
{
	struct pl_bar *bar;
	int err;

	bar = kzalloc(sizeof(*bar), GFP_KERNEL);
	if (!bar)
		return ERR_PTR(-ENOMEM);
	xa_init(&bar->granules);
	bar->pdev = device_of(physical, &bar->index);
	if (!bar->pdev) {
		err = -ENXIO;
		goto err_free;
	}
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
			return bar;
	return bar_create(physical);
}

/* Generic pages for the granules [first, first + nr) of a BAR, none of which has any. */
static int granules_add(struct pl_bar *bar, unsigned long first, unsigned long nr)
{
	u64 start = bar->start + ((u64)first << GRANULE_SHIFT);
	struct pl_granule *granule;
	unsigned long i;
	struct page *page;
	void *mapped;
	int err;

	for (i = 0; i < nr; i++) {
		page = page_of(start + ((u64)i << GRANULE_SHIFT));
		if (page && is_zone_device_page(page))
			return -EBUSY;
	}
	granule = kzalloc(sizeof(*granule), GFP_KERNEL);
	if (!granule)
		return -ENOMEM;
	granule->first = first;
	granule->pgmap.type = MEMORY_DEVICE_GENERIC;
	granule->pgmap.range.start = start;
	granule->pgmap.range.end = start + ((u64)nr << GRANULE_SHIFT) - 1;
	granule->pgmap.nr_range = 1;
	for (i = 0; i < nr; i++) {
		err = xa_err(xa_store(&bar->granules, first + i, granule, GFP_KERNEL));
		if (err)
			goto err_erase;
	}
	mapped = memremap_pages(&granule->pgmap, dev_to_node(&bar->pdev->dev));
	if (IS_ERR(mapped)) {
		err = PTR_ERR(mapped);
		goto err_erase;
	}
	pl_count(PL_PAGE_BYTES, (s64)nr << GRANULE_SHIFT);
	return 0;

err_erase:
	while (i--)
		xa_erase(&bar->granules, first + i);
	kfree(granule);
	return err;
}

static int add_generic(struct pl_bar *bar, u64 physical, u64 bytes)
{
	unsigned long at = (unsigned long)((physical - bar->start) >> GRANULE_SHIFT);
	unsigned long last = (unsigned long)((physical - bar->start + bytes - 1) >> GRANULE_SHIFT);
	unsigned long nr;
	int err;

	if (!IS_ALIGNED(bar->start | bar->bytes, GRANULE_BYTES))
		return -EOPNOTSUPP;
	while (at <= last) {
		if (xa_load(&bar->granules, at)) {
			at++;
			continue;
		}
		for (nr = 1; at + nr <= last && !xa_load(&bar->granules, at + nr); nr++)
			;
		err = granules_add(bar, at, nr);
		if (err)
			return err;
		at += nr;
	}
	return 0;
}

/* See that [physical, physical + bytes), which lies in the BAR, has page structures. */
int pl_bar_add_pages(struct pl_bar *bar, u64 physical, u64 bytes)
{
	struct page *page;
	u64 at;

	if (bar->kind == PEERLANE_PAGES_GENERIC)
		return add_generic(bar, physical, bytes);
	for (at = physical; at < physical + bytes; at += PL_FRAME_BYTES) {
		page = page_of(at);
		if (!page || !is_zone_device_page(page) || !is_pci_p2pdma_page(page))
			return -ENXIO;
	}
	return 0;
}

static void granules_destroy(struct pl_bar *bar)
{
	struct pl_granule *granule;
	unsigned long at, i, nr;

	xa_for_each(&bar->granules, at, granule) {
		nr = (unsigned long)(range_len(&granule->pgmap.range) >> GRANULE_SHIFT);
		memunmap_pages(&granule->pgmap);
		pl_count(PL_PAGE_BYTES, -((s64)nr << GRANULE_SHIFT));
		for (i = 0; i < nr; i++)
			xa_erase(&bar->granules, granule->first + i);
		kfree(granule);
	}
	xa_destroy(&bar->granules);
}

static void bar_destroy(struct pl_bar *bar)
{
	list_del(&bar->node);
	granules_destroy(bar);
	if (bar->pool) {
		pci_free_p2pmem(bar->pdev, bar->pool, bar->bytes);
		pl_count(PL_PAGE_BYTES, -(s64)bar->bytes);
	}
	if (bar->group)
		devres_release_group(&bar->pdev->dev, bar->group);
	pci_dev_put(bar->pdev);
	kfree(bar);
}

/* Nothing is pinned and nothing in use: forget all BARs. */
void pl_bars_destroy(void)
{
	struct pl_bar *bar, *next;

	list_for_each_entry_safe(bar, next, &bars, node)
		bar_destroy(bar);
}
