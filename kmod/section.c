// SPDX-License-Identifier: MIT
/*
 * Page structures for parts of a GPU's BAR: made by the kernel's PCI P2PDMA where it has that,
 * otherwise generic device pages.
 *
 * Not for the whole BAR: it may be hundreds of gigabytes, and 1/64 of that would be taken from
 * the host's memory; and the GPU's driver maps parts of it itself, some write-combined and some
 * uncached, and the kernel refuses pages for a range that has both. But not for less than can be
 * had either: newer kernels end a request where the next page has another dev_pagemap, and a
 * direct read that ends early is finished through the page cache. So the largest is tried first.
 *
 * All here is called with the lock of the GPU's device held.
 */
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>

#include "core.h"

static char *pages = "auto";
module_param(pages, charp, 0444);
MODULE_PARM_DESC(pages, "kind of pages to make: auto (default), p2pdma or generic");

/* The least that the kernel gives page structures to, in size and alignment. */
#define GRANULE_BYTES (2ULL << 20)
#define MAX_SECTION_MIB (1U << 20)

static unsigned int section_mib = 1024;

static int section_mib_set(const char *text, const struct kernel_param *param)
{
	unsigned int mib;
	int err = kstrtouint(text, 0, &mib);

	if (err)
		return err;
	if (!is_power_of_2(mib) || mib < GRANULE_BYTES >> 20 || mib > MAX_SECTION_MIB)
		return -EINVAL;
	WRITE_ONCE(section_mib, mib);
	return 0;
}

static const struct kernel_param_ops section_mib_ops = {
	.set = section_mib_set,
	.get = param_get_uint,
};
module_param_cb(section_mib, &section_mib_ops, &section_mib, 0644);
MODULE_PARM_DESC(section_mib,
		 "MiB of a BAR that get page structures at a time if possible, a power of two");

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

static int make_p2pdma(struct pl_bar *bar, struct pl_section *section)
{
	struct device *dev = &bar->pdev->dev;
	int err;

	/* There is no call to remove the pages, but a group of device resources can be released. */
	section->group = devres_open_group(dev, NULL, GFP_KERNEL);
	if (!section->group)
		return -ENOMEM;
	err = pci_p2pdma_add_resource(bar->pdev, bar->index, section->bytes,
				      section->start - bar->start);
	devres_close_group(dev, section->group);
	if (err) {
		devres_release_group(dev, section->group);
		return err;
	}
	section->pool = pci_alloc_p2pmem(bar->pdev, section->bytes);
	if (section->pool && virt_to_phys(section->pool) != section->start) {
		pci_free_p2pmem(bar->pdev, section->pool, section->bytes);
		section->pool = NULL;
	}
	/*
	 * Somebody has taken some of it already, by sysfs. The pool never forgets memory, so the
	 * pages have to stay; but they are not ours to use.
	 */
	section->lost = !section->pool;
	return 0;
}

static int make_generic(struct pl_bar *bar, struct pl_section *section)
{
	struct dev_pagemap *pgmap;
	void *mapped;

	if (pl_memory_encrypted()) {
		dev_notice_once(&bar->pdev->dev,
				pr_name "no generic pages: memory is encrypted (SME, SEV or TDX), "
					"and the kernel would take them for a part of it\n");
		return -EOPNOTSUPP;
	}
	pgmap = kzalloc(sizeof(*pgmap), GFP_KERNEL);
	if (!pgmap)
		return -ENOMEM;
	pgmap->type = MEMORY_DEVICE_GENERIC;
	pgmap->range.start = section->start;
	pgmap->range.end = section->start + section->bytes - 1;
	pgmap->nr_range = 1;
	mapped = memremap_pages(pgmap, dev_to_node(&bar->pdev->dev));
	if (IS_ERR(mapped)) {
		kfree(pgmap);
		return PTR_ERR(mapped);
	}
	section->pgmap = pgmap;
	return 0;
}

/* Pages of the kind that the BAR has, or gets by this. */
static int make_kind(struct pl_bar *bar, struct pl_section *section)
{
	u64 features = pl_bar_features();
	int err = -EOPNOTSUPP;

	if (bar->kind == PEERLANE_PAGES_P2PDMA ||
	    (!bar->kind && (features & PEERLANE_FEATURE_P2PDMA))) {
		err = make_p2pdma(bar, section);
		if (!err)
			bar->kind = PEERLANE_PAGES_P2PDMA;
		if (bar->kind || err != -EOPNOTSUPP)
			return err;
	}
	if (!(features & PEERLANE_FEATURE_GENERIC))
		return err;
	err = make_generic(bar, section);
	if (!err)
		bar->kind = PEERLANE_PAGES_GENERIC;
	return err;
}

/* Has somebody else made pages for a part of the range? */
static bool has_pages(u64 start, u64 end)
{
	unsigned long pfn;
	u64 at;

	for (at = start; at < end; at += GRANULE_BYTES) {
		pfn = PHYS_PFN(at);
		/* In sections of the kernel's that are from its start, every page looks valid. */
		if (pfn_valid(pfn) && !early_section(__pfn_to_section(pfn)))
			return true;
	}
	return false;
}

static int make(struct pl_bar *bar, u64 start, u64 end)
{
	struct pl_section *section;
	int err;

	/* The kernel would warn, and forget whose pages they are. */
	if (has_pages(start, end))
		return -EBUSY;
	section = kzalloc(sizeof(*section), GFP_KERNEL);
	if (!section)
		return -ENOMEM;
	section->start = start;
	section->bytes = end - start;
	err = make_kind(bar, section);
	if (err) {
		kfree(section);
		return err;
	}
	list_add(&section->node, &bar->sections);
	pl_count(PL_PAGE_BYTES, section->bytes);
	pci_info(bar->pdev, pr_name "BAR %d, %llu MiB at %llu MiB: %s pages\n", bar->index,
		 section->bytes >> 20, (start - bar->start) >> 20,
		 bar->kind == PEERLANE_PAGES_GENERIC ? "generic" : "P2PDMA");
	return 0;
}

/* What the kernel answers when memory types conflict. */
static bool refused(int err)
{
	return err == -EBUSY || err == -EINVAL;
}

/*
 * Pages for sorted frames in [@start, @end), which has none: for the whole of it, or else for what
 * lies between the first and the last frame, or else for each half by itself.
 */
static int cover(struct pl_bar *bar, const u64 *frames, u32 nr, u64 start, u64 end)
{
	u64 first = round_down(frames[0], GRANULE_BYTES);
	u64 last = round_up(frames[nr - 1] + 1, GRANULE_BYTES);
	u64 middle = first + round_down((last - first) / 2, GRANULE_BYTES);
	int err = make(bar, start, end);
	u32 left = 0;

	if (!refused(err))
		return err;
	if (first != start || last != end)
		return cover(bar, frames, nr, first, last);
	if (last - first == GRANULE_BYTES)
		return err;
	/* The first frame lies before the middle, the last behind it. */
	while (frames[left] < middle)
		left++;
	err = cover(bar, frames, left, first, middle);
	return err ?: cover(bar, frames + left, nr - left, middle, last);
}

/* The largest range around an address without pages of ours. */
static void room_around(struct pl_bar *bar, u64 at, u64 *start, u64 *end)
{
	struct pl_section *section;

	*start = bar->start;
	*end = bar->start + bar->bytes;
	list_for_each_entry(section, &bar->sections, node) {
		if (section->start > at)
			*end = min(*end, section->start);
		else
			*start = max(*start, section->start + section->bytes);
	}
}

/* Pages for sorted frames that have none: neighbouring parts of the usual size become one. */
static int cover_all(struct pl_bar *bar, const u64 *frames, u32 nr)
{
	u64 unit = (u64)READ_ONCE(section_mib) << 20;
	u64 low, high, start, end;
	u32 i = 0, first;
	int err = 0;

	while (i < nr && !err) {
		first = i;
		room_around(bar, frames[i], &low, &high);
		start = max(round_down(frames[i], unit), low);
		do
			end = min(round_up(frames[i] + 1, unit), high);
		while (++i < nr && frames[i] < high && round_down(frames[i], unit) <= end);
		err = cover(bar, frames + first, i - first, start, end);
	}
	return err;
}

static struct pl_section *section_of(struct pl_bar *bar, u64 at, struct pl_section *hint)
{
	if (hint && at - hint->start < hint->bytes)
		return hint;
	list_for_each_entry(hint, &bar->sections, node)
		if (at - hint->start < hint->bytes)
			return hint;
	return NULL;
}

static int compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

/* Put down those of the frames that have no pages, sorted; -EBUSY if one cannot be used. */
static int missing(struct pl_bar *bar, const u64 *frames, u32 nr, u64 **out, u32 *nr_out)
{
	struct pl_section *section = NULL;
	u32 i;

	*nr_out = 0;
	*out = kvmalloc_array(nr, sizeof(**out), GFP_KERNEL_ACCOUNT);
	if (!*out)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		section = section_of(bar, frames[i], section);
		if (section && section->lost)
			return -EBUSY;
		if (!section)
			(*out)[(*nr_out)++] = frames[i];
	}
	sort(*out, *nr_out, sizeof(**out), compare, NULL);
	return 0;
}

/**
 * pl_sections_cover() - see that frames have page structures
 * @bar: in which they lie
 * @frames: their physical addresses
 * @nr: how many
 *
 * Return: 0; -EBUSY the memory is mapped in ways that conflict; -EOPNOTSUPP; -ENOMEM.
 */
int pl_sections_cover(struct pl_bar *bar, const u64 *frames, u32 nr)
{
	u64 *list;
	int err;
	u32 left;

	if (!IS_ALIGNED(bar->start | bar->bytes, GRANULE_BYTES))
		return -EOPNOTSUPP;
	err = missing(bar, frames, nr, &list, &left);
	if (!err)
		err = cover_all(bar, list, left);
	kvfree(list);
	if (!refused(err))
		return err;
	dev_warn_ratelimited(&bar->pdev->dev, pr_name
			     "no page structures for GPU memory in BAR %d: %d. Its driver maps memory next to it "
			     "with conflicting memory types; for NVIDIA's, set: options nvidia "
			     "NVreg_RegistryDwords=\"RmForceDisableIomapWC=1\"\n",
			     bar->index, err);
	return -EBUSY;
}

/* Nothing uses the pages any more: take them away. */
void pl_sections_remove(struct pl_bar *bar)
{
	struct pl_section *section, *next;

	/* The pool of them all goes with the oldest, and must be whole then. */
	list_for_each_entry(section, &bar->sections, node)
		if (section->pool)
			pci_free_p2pmem(bar->pdev, section->pool, section->bytes);
	/* The newest is the first of the list. */
	list_for_each_entry_safe(section, next, &bar->sections, node) {
		if (section->group)
			devres_release_group(&bar->pdev->dev, section->group);
		if (section->pgmap)
			memunmap_pages(section->pgmap);
		kfree(section->pgmap);
		pl_count(PL_PAGE_BYTES, -(s64)section->bytes);
		list_del(&section->node);
		kfree(section);
	}
}
