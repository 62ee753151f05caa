// SPDX-License-Identifier: MIT
/*
 * Whether the drive below a file can reach the memory of a pin, and why not.
 */
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>

#include "consumer.h"
#include "core.h"

u32 pl_pci_number(struct pci_dev *pdev)
{
	return (u32)pci_domain_nr(pdev->bus) << 16 | (u32)pdev->bus->number << 8 | pdev->devfn;
}

/* The block device that a file is, or lies on. */
static struct block_device *device_below(struct file *file)
{
	struct inode *inode = file_inode(file);

	if (S_ISBLK(inode->i_mode))
		return I_BDEV(file->f_mapping->host);
	if (S_ISREG(inode->i_mode) || S_ISDIR(inode->i_mode))
		return inode->i_sb->s_bdev;
	return NULL;
}

/* The PCI device that does the DMA for a disk; @real tells a device from a layer above others. */
static struct pci_dev *controller_of(struct gendisk *disk, bool *real)
{
	struct device *dev = disk_to_dev(disk)->parent;

	*real = dev;
	/* A disk that was pulled has no place in the tree any more, though its file is open. */
	if (!device_is_registered(disk_to_dev(disk)))
		return NULL;
	for (; dev; dev = dev->parent)
		if (dev_is_pci(dev))
			return to_pci_dev(dev);
	return NULL;
}

/* Does ACS of a port below a switch send requests between its ports up to the root? */
static bool redirects(struct pci_dev *port)
{
	int pos = pci_find_ext_capability(port, PCI_EXT_CAP_ID_ACS);
	u16 control = 0;

	if (!pos || pci_read_config_word(port, pos + PCI_ACS_CTRL, &control))
		return false;
	return control & (PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC);
}

/*
 * The way between two devices as far as the PCI tree tells: hops to the nearest bridge above both,
 * and whether that is in a switch or the traffic goes up to the host bridge.
 */
static u32 walk(struct pci_dev *a, struct pci_dev *b, s32 *hops)
{
	struct pci_dev *above_a, *above_b;
	s32 up_a = 0, up_b;
	bool acs = false, acs_b;

	for (above_a = a; above_a; above_a = pci_upstream_bridge(above_a), up_a++) {
		acs_b = false;
		up_b = 0;
		for (above_b = b; above_b; above_b = pci_upstream_bridge(above_b), up_b++) {
			if (above_a == above_b) {
				*hops = up_a + up_b;
				return acs || acs_b ? PEERLANE_REASON_ACS : PEERLANE_REASON_SWITCH;
			}
			if (above_b != b)
				acs_b |= redirects(above_b);
		}
		if (above_a != a)
			acs |= redirects(above_a);
	}
	*hops = -1;
	return PEERLANE_REASON_HOST_BRIDGE;
}

/**
 * peerlane_iommu_flags() - is there an IOMMU between a device and memory?
 * @dev: the device
 *
 * Return: PEERLANE_ROUTE_IOMMU and _TRANSLATED, as they apply.
 */
u32 peerlane_iommu_flags(struct device *dev)
{
	struct iommu_domain *domain;

	if (!device_iommu_mapped(dev))
		return 0;
	domain = iommu_get_domain_for_dev(dev);
	if (domain && (domain->type & __IOMMU_DOMAIN_PAGING))
		return PEERLANE_ROUTE_IOMMU | PEERLANE_ROUTE_TRANSLATED;
	return PEERLANE_ROUTE_IOMMU;
}
EXPORT_SYMBOL_GPL(peerlane_iommu_flags);

static void judge(struct pl_pin *pin, struct block_device *bdev, struct pci_dev *pdev,
		  struct peerlane_route *route)
{
	struct pl_bar *bar = pin->bar;
	u32 way;
	int kernel_distance;

	route->flags = peerlane_iommu_flags(&pdev->dev);
	way = walk(bar->pdev, pdev, &route->distance);
	route->verdict = PEERLANE_ROUTE_NO;
	if (bar->kind != PEERLANE_PAGES_GENERIC) {
		kernel_distance = pci_p2pdma_distance(bar->pdev, &pdev->dev, false);
		route->distance = kernel_distance;
		if (kernel_distance < 0) {
			route->reason = PEERLANE_REASON_TOPOLOGY;
		} else if (!pl_queue_p2pdma(bdev)) {
			route->reason = PEERLANE_REASON_QUEUE;
		} else {
			route->verdict = PEERLANE_ROUTE_YES;
			route->reason = way;
		}
		return;
	}
	if (pl_swiotlb_forced(&pdev->dev)) {
		route->reason = PEERLANE_REASON_SWIOTLB;
	} else if (!(route->flags & PEERLANE_ROUTE_TRANSLATED) &&
		   bar->start + bar->bytes - 1 > dma_get_mask(&pdev->dev)) {
		route->reason = PEERLANE_REASON_DMA_MASK;
	} else {
		route->verdict = PEERLANE_ROUTE_TEST;
		route->reason = way;
	}
}

/* Fill the outputs of @route, whose inputs are checked. */
int pl_route(struct pl_pin *pin, struct peerlane_route *route)
{
	struct block_device *bdev;
	struct pci_dev *pdev;
	struct file *file;
	bool real, live;

	file = fget(route->fd);
	if (!file)
		return -EBADF;
	route->verdict = PEERLANE_ROUTE_NO;
	route->flags = 0;
	route->distance = -1;
	route->device_pci = 0;
	route->device_major = 0;
	route->device_minor = 0;
	down_read(&pin->sem);
	live = pin->live;
	up_read(&pin->sem);
	route->gpu_pci = pl_pci_number(pin->bar->pdev);
	bdev = device_below(file);
	if (!live) {
		route->reason = PEERLANE_REASON_REVOKED;
	} else if (!bdev) {
		route->reason = PEERLANE_REASON_NO_DEVICE;
	} else {
		route->device_major = MAJOR(bdev->bd_dev);
		route->device_minor = MINOR(bdev->bd_dev);
		pdev = controller_of(bdev->bd_disk, &real);
		if (pdev) {
			route->device_pci = pl_pci_number(pdev);
			judge(pin, bdev, pdev, route);
		} else {
			route->reason = real ? PEERLANE_REASON_NOT_PCI : PEERLANE_REASON_VIRTUAL;
		}
	}
	fput(file);
	return 0;
}
