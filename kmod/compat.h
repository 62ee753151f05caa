/* SPDX-License-Identifier: MIT */
/*
 * Differences between kernels, and nowhere else. What a kernel has is found by compiling a probe
 * (probes/), not by its version: distributions move things back and forth.
 */
#ifndef PEERLANE_COMPAT_H
#define PEERLANE_COMPAT_H

#include <linux/blkdev.h>
#include <linux/cc_platform.h>
#include <linux/iommu.h>
#include <linux/memremap.h>
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

/* The dev_pagemap of a page, referenced; NULL if it has none or that is about to go. */
static inline struct dev_pagemap *pl_get_dev_pagemap(unsigned long pfn)
{
#ifdef PL_HAVE_GET_DEV_PAGEMAP
	return get_dev_pagemap(pfn);
#else
	return get_dev_pagemap(pfn, NULL);
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

/* Is a device kept from raising interrupts that are not its own? */
static inline bool pl_interrupts_isolated(struct device *dev, struct iommu_group *group)
{
#ifdef PL_HAVE_ISOLATED_MSI
	return iommu_group_has_isolated_msi(group);
#else
	return device_iommu_capable(dev, IOMMU_CAP_INTR_REMAP);
#endif
}

/*
 * Is memory encrypted by the processor (AMD's SME; SEV and TDX in guests)? Addresses of memory then
 * have a bit that says so, and the kernel takes ordinary pages of a device for memory.
 */
static inline bool pl_memory_encrypted(void)
{
	return cc_platform_has(CC_ATTR_MEM_ENCRYPT);
}

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
