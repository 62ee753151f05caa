/* SPDX-License-Identifier: MIT */
/*
 * Differences between kernels, and nowhere else. What a kernel has is found by compiling a probe
 * (probes/), not by its version: distributions move things back and forth.
 */
#ifndef PEERLANE_COMPAT_H
#define PEERLANE_COMPAT_H

#include <linux/blkdev.h>
#include <linux/mm.h>
#include <linux/swiotlb.h>

#include "probed.h"

static inline void pl_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef PL_HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static inline void pl_vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef PL_HAVE_VM_FLAGS_SET
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/* Are all transfers of the device bounced? */
#ifdef PL_HAVE_SWIOTLB_FORCE
#define PL_SWIOTLB_KNOWN true
static inline bool pl_swiotlb_forced(struct device *dev)
{
	return is_swiotlb_force_bounce(dev);
}
#else
#define PL_SWIOTLB_KNOWN false
static inline bool pl_swiotlb_forced(struct device *dev)
{
	return false;
}
#endif

/* Does the queue of a block device take P2PDMA pages? */
static inline bool pl_queue_p2pdma(struct block_device *bdev)
{
#ifdef PL_HAVE_QUEUE_P2PDMA
	return blk_queue_pci_p2pdma(bdev_get_queue(bdev));
#else
	return false;
#endif
}

#endif
