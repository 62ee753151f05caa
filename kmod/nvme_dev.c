// SPDX-License-Identifier: MIT
/*
 * peerlane_nvme.ko: NVMe controllers that programs drive themselves.
 *
 * The driver has no list of devices: it takes only those whose driver_override names it.
 */
#include <linux/delay.h>
#include <linux/idr.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "nvme.h"

#define NAME "peerlane_nvme"

/* Of NVMe, as far as stopping a controller needs it. */
#define REG_CAP 0x00
#define REG_CC 0x14
#define REG_CSTS 0x1c
#define CC_ENABLE 0x1U
#define CSTS_READY 0x1U
#define CAP_TIMEOUT(cap) ((u32)((cap) >> 24) & 0xff)
/* Registers and the first doorbells. */
#define BAR0_LEAST 0x2000U

static DEFINE_IDA(ids);
static atomic64_t counters[NV_NR_COUNTERS];

void nv_count(enum nv_counter which, s64 by)
{
	atomic64_add(by, &counters[which]);
}

static void dev_free(struct kref *ref)
{
	struct nv_dev *dev = container_of(ref, struct nv_dev, ref);

	ida_free(&ids, dev->id);
	kfree(dev->misc.name);
	kfree(dev);
}

void nv_dev_put(struct nv_dev *dev)
{
	kref_put(&dev->ref, dev_free);
}

/* Clear the enable bit and wait until the controller says that it has stopped. */
static int disable(struct nv_dev *dev)
{
	u32 cc = readl(dev->regs + REG_CC), csts;
	unsigned long end;

	/* All ones: it does not answer, so it does nothing. */
	if (cc == U32_MAX)
		return 0;
	end = jiffies + (CAP_TIMEOUT(readq(dev->regs + REG_CAP)) + 1) * (HZ / 2);
	if (cc & CC_ENABLE)
		writel(cc & ~CC_ENABLE, dev->regs + REG_CC);
	for (;;) {
		csts = readl(dev->regs + REG_CSTS);
		if (csts == U32_MAX || !(csts & CSTS_READY))
			return 0;
		if (time_after(jiffies, end))
			return -EIO;
		usleep_range(100, 1000);
	}
}

/*
 * Programs poll, and nobody here answers interrupts: of a line that other devices share, the kernel
 * would see interrupts without end, and switch it off. The driver that had the controller before
 * leaves the line enabled when it goes.
 */
static void silence(struct pci_dev *pdev)
{
	pci_intx(pdev, 0);
}

/* It may reach memory from now on. The lock is held. */
void nv_start(struct nv_dev *dev)
{
	dev->stopped = false;
	silence(dev->pdev);
	pci_set_master(dev->pdev);
}

/*
 * No transfer from now on. The lock is held. First the controller is stopped, which ends what it has
 * begun; then it is cut off from the bus, so that a program which enables it again does no harm. The
 * registers are taken from the program while that goes on.
 */
int nv_quiesce(struct nv_dev *dev)
{
	u16 command;
	int err;

	if (dev->file)
		nv_window_empty(dev->file);
	err = disable(dev);
	pci_clear_master(dev->pdev);
	/* What comes back has pushed everything that was under way before it. */
	pci_read_config_word(dev->pdev, PCI_COMMAND, &command);
	if (err) {
		pci_warn(dev->pdev, "the controller does not stop; resetting it\n");
		err = pci_try_reset_function(dev->pdev);
		/* The reset has put back what was saved before it. */
		pci_clear_master(dev->pdev);
	}
	return err;
}

/* Stop until a reset, or until the next one opens it. The lock is held. */
int nv_stop(struct nv_dev *dev)
{
	int err;

	err = nv_quiesce(dev);
	WRITE_ONCE(dev->stopped, true);
	/* Nobody need wait for clients any more: they reach nothing. */
	wake_up_all(&dev->leave);
	return err;
}

/* Begin anew, with the mappings there are. The lock is held. */
int nv_reset(struct nv_dev *dev)
{
	int err;

	err = nv_quiesce(dev);
	if (err)
		return -EIO;
	/* Not every device can do this; it is stopped in any case. */
	err = pci_try_reset_function(dev->pdev);
	if (err == -EAGAIN)
		return err;
	nv_start(dev);
	return 0;
}

/*
 * How much of BAR 0 is for programs: not the interrupt table, if that lies behind the first
 * doorbells. Interrupts are off, so this is for tidiness more than for need.
 */
static u64 registers_bytes(struct pci_dev *pdev)
{
	u64 bytes = pci_resource_len(pdev, 0);
	u32 places[2] = {};
	int i;

	if (pdev->msix_cap) {
		pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_TABLE, &places[0]);
		pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_PBA, &places[1]);
		for (i = 0; i < 2; i++) {
			u64 at = round_down(places[i] & PCI_MSIX_TABLE_OFFSET, PAGE_SIZE);

			if (!(places[i] & PCI_MSIX_TABLE_BIR) && at >= BAR0_LEAST)
				bytes = min(bytes, at);
		}
	}
	return round_down(bytes, PAGE_SIZE);
}

static int dev_windows(struct nv_dev *dev, struct pci_dev *pdev)
{
	int i;

	if (!(pci_resource_flags(pdev, 0) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, 0) < BAR0_LEAST)
		return -ENODEV;
	for (i = 0; i < NV_NR_BARS; i++) {
		if (!(pci_resource_flags(pdev, i) & IORESOURCE_MEM) ||
		    !PAGE_ALIGNED(pci_resource_start(pdev, i)))
			continue;
		dev->start[i] = pci_resource_start(pdev, i);
		dev->bytes[i] = round_down(pci_resource_len(pdev, i), PAGE_SIZE);
	}
	dev->bytes[0] = registers_bytes(pdev);
	dev->regs = pci_iomap_range(pdev, 0, 0, NV_REGS_BYTES);
	return dev->regs ? 0 : -ENOMEM;
}

static struct nv_dev *dev_alloc(struct pci_dev *pdev)
{
	struct nv_dev *dev;

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return NULL;
	dev->id = ida_alloc(&ids, GFP_KERNEL);
	if (dev->id < 0) {
		kfree(dev);
		return NULL;
	}
	kref_init(&dev->ref);
	mutex_init(&dev->lock);
	INIT_LIST_HEAD(&dev->mapped);
	xa_init_flags(&dev->clients, XA_FLAGS_ALLOC1);
	init_waitqueue_head(&dev->leave);
	dev->pdev = pdev;
	dev->pci = (u32)pci_domain_nr(pdev->bus) << 16 | pci_dev_id(pdev);
	dev->misc.minor = MISC_DYNAMIC_MINOR;
	dev->misc.fops = &nv_file_ops;
	dev->misc.parent = &pdev->dev;
	dev->misc.mode = 0600;
	dev->misc.name = kasprintf(GFP_KERNEL, "peerlane-nvme%d", dev->id);
	if (!dev->misc.name) {
		nv_dev_put(dev);
		return NULL;
	}
	return dev;
}

static int nv_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct nv_dev *dev;
	int err;

	if (pdev->class != PCI_CLASS_STORAGE_EXPRESS)
		return -ENODEV;
	dev = dev_alloc(pdev);
	if (!dev)
		return -ENOMEM;
	err = pci_enable_device_mem(pdev);
	if (err)
		goto err_put;
	silence(pdev);
	err = pci_request_mem_regions(pdev, NAME);
	if (err)
		goto err_disable;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		goto err_regions;
	/* Pieces may be as long as they are. */
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	err = dev_windows(dev, pdev);
	if (err)
		goto err_regions;
	err = nv_quiesce(dev);
	if (err)
		goto err_unmap;
	pci_set_drvdata(pdev, dev);
	err = misc_register(&dev->misc);
	if (err)
		goto err_unmap;
	return 0;

err_unmap:
	pci_iounmap(pdev, dev->regs);
err_regions:
	pci_release_mem_regions(pdev);
err_disable:
	pci_disable_device(pdev);
err_put:
	nv_dev_put(dev);
	return err;
}

/* The device goes, open or not. Programs find registers of all ones from now on. */
static void nv_remove(struct pci_dev *pdev)
{
	struct nv_dev *dev = pci_get_drvdata(pdev);
	struct nv_mapping *mapping, *next;

	/* Nobody opens it any more. */
	misc_deregister(&dev->misc);
	mutex_lock(&dev->lock);
	nv_quiesce(dev);
	dev->gone = true;
	if (dev->file)
		nv_window_empty(dev->file);
	list_for_each_entry_safe(mapping, next, &dev->mapped, node)
		nv_mapping_unmap(mapping);
	mutex_unlock(&dev->lock);
	pci_iounmap(pdev, dev->regs);
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
	nv_dev_put(dev);
}

static void stop(struct nv_dev *dev)
{
	mutex_lock(&dev->lock);
	nv_stop(dev);
	mutex_unlock(&dev->lock);
}

/* The machine goes down or starts another kernel: nothing may be written into its memory. */
static void nv_shutdown(struct pci_dev *pdev)
{
	stop(pci_get_drvdata(pdev));
}

/* The machine sleeps; the controller forgets what it was told. */
static int nv_suspend(struct device *device)
{
	stop(dev_get_drvdata(device));
	return 0;
}

static int nv_resume(struct device *device)
{
	silence(to_pci_dev(device));
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(nv_pm, nv_suspend, nv_resume);

/* After each reset of the function, whoever asked for it: it has put back what it found. */
static const struct pci_error_handlers nv_errors = {
	.reset_done = silence,
};

#define COUNTER(name, which)                                                                       \
	static ssize_t name##_show(struct device_driver *driver, char *text)                       \
	{                                                                                          \
		return sysfs_emit(text, "%lld\n", (s64)atomic64_read(&counters[which]));           \
	}                                                                                          \
	static DRIVER_ATTR_RO(name)

COUNTER(files, NV_FILES);
COUNTER(clients, NV_CLIENTS);
COUNTER(mappings, NV_MAPPINGS);
COUNTER(mapped_bytes, NV_MAPPED_BYTES);
COUNTER(locked_pages, NV_LOCKED_PAGES);
COUNTER(nr_stops, NV_STOPS);
COUNTER(nr_waits, NV_WAITS);

static struct attribute *nv_attrs[] = {
	&driver_attr_files.attr,
	&driver_attr_clients.attr,
	&driver_attr_mappings.attr,
	&driver_attr_mapped_bytes.attr,
	&driver_attr_locked_pages.attr,
	&driver_attr_nr_stops.attr,
	&driver_attr_nr_waits.attr,
	NULL,
};
ATTRIBUTE_GROUPS(nv);

static struct pci_driver nv_driver = {
	.name = NAME,
	.probe = nv_probe,
	.remove = nv_remove,
	.shutdown = nv_shutdown,
	.groups = nv_groups,
	.dev_groups = nv_dev_groups,
	.err_handler = &nv_errors,
	.driver.pm = pm_sleep_ptr(&nv_pm),
};

static int __init nvme_init(void)
{
	int err;

	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_hello) != 32);
	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_info) != 160);
	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_map) != 112);
	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_unmap) != 24);
	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_grant) != 32);
	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_revoke) != 24);
	BUILD_BUG_ON(sizeof(struct peerlane_nvmedev_leaving) != 16);
	err = nv_client_init();
	if (err)
		return err;
	err = pci_register_driver(&nv_driver);
	if (err)
		nv_client_exit();
	return err;
}

static void __exit nvme_exit(void)
{
	pci_unregister_driver(&nv_driver);
	nv_client_exit();
	ida_destroy(&ids);
}

module_init(nvme_init);
module_exit(nvme_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Peerlane: NVMe controllers for programs that drive them");
MODULE_VERSION("0.1.0");
