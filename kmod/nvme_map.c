// SPDX-License-Identifier: MIT
/*
 * Memory that a controller can reach: got hold of, given addresses, and let go of in the other order.
 */
#include <linux/capability.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <uapi/peerlane.h>

#include "nvme.h"

/* ------------------------------------------------------------------ pages */

/* Count pages as locked by the caller, who may be limited in that. */
static int charge(struct nv_mapping *mapping)
{
	u64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	s64 nr = mapping->nr_pages;

	if (atomic64_add_return(nr, &current->mm->pinned_vm) > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(nr, &current->mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(current->mm);
	mapping->mm = current->mm;
	nv_count(NV_LOCKED_PAGES, nr);
	return 0;
}

static void uncharge(struct nv_mapping *mapping)
{
	if (!mapping->mm)
		return;
	atomic64_sub(mapping->nr_pages, &mapping->mm->pinned_vm);
	mmdrop(mapping->mm);
	nv_count(NV_LOCKED_PAGES, -(s64)mapping->nr_pages);
}

/* Hold the caller's pages where they are. */
static int pages_pin(struct nv_mapping *mapping, u64 address)
{
	unsigned long at = address & PAGE_MASK;
	u32 done = 0;
	int got;

	while (done < mapping->nr_pages) {
		if (fatal_signal_pending(current))
			got = -EINTR;
		else
			got = pin_user_pages_fast(at + ((unsigned long)done << PAGE_SHIFT),
						  (int)min(mapping->nr_pages - done, 16384U),
						  FOLL_WRITE | FOLL_LONGTERM, mapping->pages + done);
		if (got <= 0) {
			unpin_user_pages(mapping->pages, done);
			mapping->kind = 0;
			return got ? got : -EFAULT;
		}
		done += (u32)got;
		cond_resched();
	}
	return 0;
}

static void pages_free(struct page **pages, u32 nr)
{
	while (nr)
		__free_page(pages[--nr]);
}

/* New pages in as few pieces as can be had, each of them a page of its own. */
static int pages_alloc(struct nv_mapping *mapping)
{
	unsigned int order = min(get_order(mapping->bytes), 9);
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	int node = dev_to_node(&mapping->dev->pdev->dev);
	u32 done = 0, i;

	while (done < mapping->nr_pages) {
		struct page *page;

		while (order && (1U << order) > mapping->nr_pages - done)
			order--;
		page = alloc_pages_node(node, gfp | (order ? __GFP_NORETRY : 0), order);
		if (!page && order) {
			order--;
			continue;
		}
		if (!page) {
			pages_free(mapping->pages, done);
			mapping->kind = 0;
			return -ENOMEM;
		}
		if (order)
			split_page(page, order);
		for (i = 0; i < 1U << order; i++)
			mapping->pages[done++] = page + i;
	}
	return 0;
}

static int hold_pages(struct nv_mapping *mapping, const struct peerlane_nvmedev_map *request)
{
	int err;

	mapping->first = request->address & ~PAGE_MASK;
	mapping->page_shift = PAGE_SHIFT;
	mapping->nr_pages =
		(u32)((mapping->first + mapping->bytes + PAGE_SIZE - 1) >> PAGE_SHIFT);
	mapping->pages = kvcalloc(mapping->nr_pages, sizeof(*mapping->pages), GFP_KERNEL_ACCOUNT);
	if (!mapping->pages)
		return -ENOMEM;
	err = charge(mapping);
	if (err)
		return err;
	mapping->kind = request->kind;
	if (mapping->kind == PEERLANE_NVMEDEV_HOST)
		return pages_pin(mapping, request->address);
	return pages_alloc(mapping);
}

static void release_pages_of(struct nv_mapping *mapping)
{
	/* The device may have written them. */
	if (mapping->kind == PEERLANE_NVMEDEV_HOST)
		unpin_user_pages_dirty_lock(mapping->pages, mapping->nr_pages, true);
	else if (mapping->kind == PEERLANE_NVMEDEV_ALLOC)
		pages_free(mapping->pages, mapping->nr_pages);
	uncharge(mapping);
	kvfree(mapping->pages);
}

/* ------------------------------------------------------------------ GPU memory */

/*
 * It goes away: the controller must not touch it any more, and nobody can tell which commands do. Of
 * a client, the owner can end all of them; else the controller stops.
 */
static void gpu_leave(struct peerlane_use *use)
{
	struct nv_mapping *mapping = container_of(use, struct nv_mapping, use);
	struct nv_dev *dev = mapping->dev;

	mutex_lock(&dev->lock);
	mapping->dead = true;
	if (mapping->mapped && mapping->client && !dev->stopped)
		nv_client_ask_to_leave(mapping->client);
	mutex_unlock(&dev->lock);
}

static void gpu_stop(struct peerlane_use *use, unsigned long deadline)
{
	struct nv_mapping *mapping = container_of(use, struct nv_mapping, use);
	struct nv_dev *dev = mapping->dev;

	if (mapping->client)
		nv_client_wait_left(mapping, deadline);
	mutex_lock(&dev->lock);
	if (mapping->mapped) {
		if (!dev->stopped) {
			nv_count(NV_STOPS, 1);
			if (nv_stop(dev))
				pci_warn(dev->pdev, "the controller does not stop\n");
		}
		nv_mapping_unmap(mapping);
	}
	mutex_unlock(&dev->lock);
}

static int hold_gpu(struct nv_mapping *mapping, const struct peerlane_nvmedev_map *request)
{
	int err;

	mapping->use.leave = gpu_leave;
	mapping->use.stop = gpu_stop;
	err = peerlane_use_begin(&mapping->use, request->fd, request->pin, request->pin_offset,
				 request->bytes);
	if (err)
		return err;
	mapping->kind = request->kind;
	mapping->using = true;
	mapping->first = mapping->use.first;
	mapping->page_shift = NV_GPU_PAGE_SHIFT;
	mapping->nr_pages = mapping->use.nr_pages;
	return 0;
}

/* ------------------------------------------------------------------ addresses */

/* Addresses of the table's pieces, page by page. */
static int read_table(struct nv_mapping *mapping)
{
	u64 page_bytes = 1ULL << mapping->page_shift, at;
	struct scatterlist *sg;
	u32 nr = 0;
	int i;

	for_each_sgtable_dma_sg(&mapping->table, sg, i) {
		if ((sg_dma_address(sg) | sg_dma_len(sg)) & (page_bytes - 1))
			return -EIO;
		for (at = 0; at < sg_dma_len(sg) && nr < mapping->nr_pages; at += page_bytes)
			mapping->bus[nr++] = sg_dma_address(sg) + at;
	}
	return nr == mapping->nr_pages ? 0 : -EIO;
}

static int map_table(struct nv_mapping *mapping, struct device *dev)
{
	int err;

	err = dma_map_sgtable(dev, &mapping->table, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
	if (err) {
		/* What the kernel says when two devices cannot reach each other. */
		err = err == -EREMOTEIO || err == -EINVAL ? -EOPNOTSUPP : err;
		goto err_free;
	}
	err = read_table(mapping);
	if (!err)
		return 0;
	dma_unmap_sgtable(dev, &mapping->table, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
err_free:
	sg_free_table(&mapping->table);
	return err;
}

static int map_pages(struct nv_mapping *mapping, struct device *dev)
{
	int err;

	err = sg_alloc_table_from_pages(&mapping->table, mapping->pages, mapping->nr_pages, 0,
					(size_t)mapping->nr_pages << PAGE_SHIFT, GFP_KERNEL);
	return err ? err : map_table(mapping, dev);
}

/* Peer-to-peer pages: the kernel knows whether and how the device reaches them. */
static int map_peer(struct nv_mapping *mapping, struct device *dev)
{
	struct scatterlist *sg;
	unsigned int i;
	int err;

	err = sg_alloc_table(&mapping->table, mapping->nr_pages, GFP_KERNEL);
	if (err)
		return err;
	for_each_sgtable_sg(&mapping->table, sg, i)
		sg_set_page(sg, pfn_to_page(PHYS_PFN(mapping->use.pages[i])),
			    1U << NV_GPU_PAGE_SHIFT, 0);
	return map_table(mapping, dev);
}

static void unmap_resource(struct nv_mapping *mapping, struct device *dev, u32 nr)
{
	while (nr)
		dma_unmap_resource(dev, mapping->bus[--nr], 1U << NV_GPU_PAGE_SHIFT,
				   DMA_BIDIRECTIONAL, 0);
}

/* Generic pages: addresses of device memory, which are never bounced. */
static int map_resource(struct nv_mapping *mapping, struct device *dev)
{
	u32 i;

	for (i = 0; i < mapping->nr_pages; i++) {
		mapping->bus[i] = dma_map_resource(dev, mapping->use.pages[i],
						   1U << NV_GPU_PAGE_SHIFT, DMA_BIDIRECTIONAL, 0);
		if (dma_mapping_error(dev, mapping->bus[i])) {
			unmap_resource(mapping, dev, i);
			return -EIO;
		}
		if (mapping->bus[i] & ((1U << NV_GPU_PAGE_SHIFT) - 1)) {
			unmap_resource(mapping, dev, i + 1);
			return -EIO;
		}
	}
	mapping->resource = true;
	return 0;
}

/* Give it addresses for the device. The lock is held. */
static int mapping_map(struct nv_mapping *mapping)
{
	struct device *dev;
	int err;

	if (mapping->dev->gone || mapping->dead)
		return -ENODEV;
	dev = &mapping->dev->pdev->dev;
	/* A bounced transfer copies when it is unmapped, and nobody says here when that is. */
	if (pl_swiotlb_forced(dev))
		return -EOPNOTSUPP;
	if (mapping->kind != PEERLANE_NVMEDEV_GPU)
		err = map_pages(mapping, dev);
	else if (mapping->use.page_kind == PEERLANE_PAGES_GENERIC)
		err = map_resource(mapping, dev);
	else
		err = map_peer(mapping, dev);
	if (err)
		return err;
	mapping->mapped = true;
	list_add_tail(&mapping->node, &mapping->dev->mapped);
	return 0;
}

/*
 * Take the addresses away, if it has any: the device does not use them any more. The lock is held. A
 * device that is gone has taken all of them.
 */
void nv_mapping_unmap(struct nv_mapping *mapping)
{
	struct device *dev = &mapping->dev->pdev->dev;

	if (!mapping->mapped)
		return;
	WRITE_ONCE(mapping->mapped, false);
	list_del(&mapping->node);
	if (mapping->resource) {
		unmap_resource(mapping, dev, mapping->nr_pages);
	} else {
		dma_unmap_sgtable(dev, &mapping->table, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
		sg_free_table(&mapping->table);
	}
	/* GPU memory that goes away waits for this; it goes on when the lock is free. */
	if (mapping->client)
		wake_up_all(&mapping->dev->leave);
}

/* Let go of memory that has no addresses any more. The lock is not held. */
void nv_mapping_free(struct nv_mapping *mapping)
{
	WARN_ON_ONCE(mapping->mapped);
	if (mapping->using)
		peerlane_use_end(&mapping->use);
	release_pages_of(mapping);
	kvfree(mapping->bus);
	nv_count(NV_MAPPINGS, -1);
	nv_count(NV_MAPPED_BYTES, -(s64)mapping->bytes);
	kfree(mapping);
}

/* Make a mapping of what @request asks for, which has been checked as far as one can without it. */
struct nv_mapping *nv_mapping_create(struct nv_file *file,
				     const struct peerlane_nvmedev_map *request)
{
	struct nv_dev *dev = file->dev;
	struct nv_mapping *mapping;
	int err;

	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL_ACCOUNT);
	if (!mapping)
		return ERR_PTR(-ENOMEM);
	mapping->dev = dev;
	mapping->client = file->bar0_bytes ? file : NULL;
	mapping->bytes = request->bytes;
	nv_count(NV_MAPPINGS, 1);
	nv_count(NV_MAPPED_BYTES, (s64)mapping->bytes);
	if (request->kind == PEERLANE_NVMEDEV_GPU)
		err = hold_gpu(mapping, request);
	else
		err = hold_pages(mapping, request);
	if (err)
		goto err_free;
	err = -EINVAL;
	if (mapping->nr_pages > request->nr_room)
		goto err_free;
	err = -ENOMEM;
	mapping->bus = kvcalloc(mapping->nr_pages, sizeof(*mapping->bus), GFP_KERNEL_ACCOUNT);
	if (!mapping->bus)
		goto err_free;
	mutex_lock(&dev->lock);
	err = mapping_map(mapping);
	mutex_unlock(&dev->lock);
	if (!err)
		return mapping;
err_free:
	nv_mapping_free(mapping);
	return ERR_PTR(err);
}
