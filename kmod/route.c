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
#include "pci_number.h"

u32 pl_pci_number(struct pci_dev *pdev, u32 *domain_high)
{
	return pl_pci_join((u32)pci_domain_nr(pdev->bus), pdev->bus->number, pdev->devfn,
			   domain_high);
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

/* Is this an RDMA adapter? Or is one below it: those of sub-functions are. */
static int is_rdma(struct device *dev, void *deeper)
{
	if (dev->class && !strcmp(dev->class->name, "infiniband"))
		return 1;
	return deeper ? device_for_each_child(dev, NULL, is_rdma) : 0;
}

/*
 * The adapter that the caller says reaches the disk, with a reference; NULL if it names none, or
 * something else. Who names the wrong one deceives only itself: the verdict opens no way that O_DIRECT
 * into the mapping has not got anyway.
 */
static struct pci_dev *adapter_of(const struct peerlane_route *route)
{
	u32 number = route->adapter_pci;
	struct pci_dev *pdev;
	bool deeper = true;

	if (!number && !route->adapter_domain_high)
		return NULL;
	pdev = pci_get_domain_bus_and_slot((int)pl_pci_domain(number, route->adapter_domain_high),
					   number >> 8 & 0xff, number & 0xff);
	if (pdev && !device_for_each_child(&pdev->dev, &deeper, is_rdma)) {
		pci_dev_put(pdev);
		return NULL;
	}
	return pdev;
}

/*
 * One path of a drive with several controllers (NVMe multipath): a hidden disk of its own, which
 * nobody can open. Of the disk nvme1n2 they are nvme1c*n2.
 */
struct paths {
	struct gendisk *head;
	struct pl_pin *pin;
	struct block_device *bdev;
	struct pci_dev *adapter; /* of paths that are not on PCI, or NULL */
	struct peerlane_route *route; /* the worst of all */
	unsigned int nr;
};

static bool is_path(const char *name, const char *head)
{
	unsigned int subsystem, controller, disk, head_subsystem, head_disk;
	char more;

	return sscanf(head, "nvme%un%u%c", &head_subsystem, &head_disk, &more) == 2 &&
	       sscanf(name, "nvme%uc%un%u%c", &subsystem, &controller, &disk, &more) == 3 &&
	       subsystem == head_subsystem && disk == head_disk;
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

/*
 * The kernel allows the transfer; does it also give the right address? Up to the host bridge that comes
 * from the DMA functions, which may mark it as one of encrypted memory, as not all kernels take care of that.
 */
static bool vouched(u32 way)
{
	return way == PEERLANE_REASON_SWITCH || !pl_memory_encrypted();
}

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
			route->verdict = vouched(way) ? PEERLANE_ROUTE_YES : PEERLANE_ROUTE_TEST;
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

static int judge_path(struct device *dev, void *data)
{
	struct paths *paths = data;
	struct peerlane_route route = *paths->route;
	struct pci_dev *pdev;

	if (!is_path(dev_name(dev), paths->head->disk_name))
		return 0;
	for (dev = dev->parent; dev && !dev_is_pci(dev); dev = dev->parent)
		;
	pdev = dev ? to_pci_dev(dev) : paths->adapter;
	route.verdict = PEERLANE_ROUTE_NO;
	route.reason = PEERLANE_REASON_NOT_PCI;
	if (pdev) {
		route.device_pci = pl_pci_number(pdev, &route.device_domain_high);
		judge(paths->pin, paths->bdev, pdev, &route);
	}
	if (!paths->nr++ || route.verdict < paths->route->verdict)
		*paths->route = route;
	return 0;
}

/* A disk that stands for several paths: the drive may use any of them. False if it is none. */
static bool judge_paths(struct pl_pin *pin, struct block_device *bdev, struct pci_dev *adapter,
			struct peerlane_route *route)
{
	struct paths paths = { .head = bdev->bd_disk,
			       .pin = pin,
			       .bdev = bdev,
			       .adapter = adapter,
			       .route = route };

	class_for_each_device(disk_to_dev(bdev->bd_disk)->class, NULL, &paths, judge_path);
	return paths.nr;
}

/* What there is to say of a disk that is not below a PCI device. */
static void judge_other(struct pl_pin *pin, struct block_device *bdev, bool real,
			struct pci_dev *adapter, struct peerlane_route *route)
{
	if (strncmp(bdev->bd_disk->disk_name, "nvme", 4) ||
	    !device_is_registered(disk_to_dev(bdev->bd_disk)))
		adapter = NULL;
	if (real && judge_paths(pin, bdev, adapter, route))
		return;
	if (real && adapter) {
		route->device_pci = pl_pci_number(adapter, &route->device_domain_high);
		judge(pin, bdev, adapter, route);
	} else if (real) {
		route->reason = PEERLANE_REASON_NOT_PCI;
	} else if (pin->bar->kind != PEERLANE_PAGES_GENERIC && !pl_queue_p2pdma(bdev)) {
		route->reason = PEERLANE_REASON_QUEUE;
	} else {
		route->reason = PEERLANE_REASON_VIRTUAL;
	}
}

/* The same of any block device. */
static void judge_device(struct pl_pin *pin, struct block_device *bdev,
			 struct peerlane_route *route)
{
	struct pci_dev *adapter, *pdev;
	bool real;

	route->device_major = MAJOR(bdev->bd_dev);
	route->device_minor = MINOR(bdev->bd_dev);
	pdev = controller_of(bdev->bd_disk, &real);
	if (pdev) {
		route->device_pci = pl_pci_number(pdev, &route->device_domain_high);
		judge(pin, bdev, pdev, route);
		return;
	}
	adapter = adapter_of(route);
	judge_other(pin, bdev, real, adapter, route);
	pci_dev_put(adapter);
}

/* Fill the outputs of @route, whose inputs are checked. */
int pl_route(struct pl_pin *pin, struct peerlane_route *route)
{
	struct block_device *bdev;
	struct file *file;
	bool live;

	file = fget(route->fd);
	if (!file)
		return -EBADF;
	route->verdict = PEERLANE_ROUTE_NO;
	route->flags = 0;
	route->distance = -1;
	route->device_pci = 0;
	route->device_domain_high = 0;
	route->device_major = 0;
	route->device_minor = 0;
	live = pl_pin_live(pin);
	route->gpu_pci = pl_pci_number(pin->bar->pdev, &route->gpu_domain_high);
	bdev = device_below(file);
	if (!live)
		route->reason = PEERLANE_REASON_REVOKED;
	else if (!bdev)
		route->reason = PEERLANE_REASON_NO_DEVICE;
	else
		judge_device(pin, bdev, route);
	fput(file);
	return 0;
}
