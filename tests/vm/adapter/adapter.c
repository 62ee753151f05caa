// SPDX-License-Identifier: MIT
/*
 * The DMA of the lab's RDMA adapter: the PCI device whose mappings it uses (QEMU's "edu", which no
 * driver wants), what lies at a DMA address, and how many bytes it moved to and from GPU memory.
 */
#include <linux/atomic.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>

#include "adapter.h"

#define EDU_VENDOR 0x1234
#define EDU_DEVICE 0x11e8

static struct pci_dev *pdev;
static atomic64_t gpu_bytes;

static int gpu_bytes_show(char *buffer, const struct kernel_param *parameter)
{
	return sprintf(buffer, "%lld\n", atomic64_read(&gpu_bytes));
}

static const struct kernel_param_ops gpu_bytes_ops = { .get = gpu_bytes_show };
module_param_cb(gpu_bytes, &gpu_bytes_ops, NULL, 0444);

int lab_register(struct ib_device *adapter, const char *name)
{
	int err;

	/* Kept for good: the adapter may be made again. */
	if (!pdev)
		pdev = pci_get_device(EDU_VENDOR, EDU_DEVICE, NULL);
	if (!pdev)
		return -ENODEV;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	adapter->dev.parent = &pdev->dev;
	return ib_register_device(adapter, name, &pdev->dev);
}

/* As the device would: through the IOMMU, if there is one. */
void *lab_dma_to_ptr(u64 address)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);
	phys_addr_t physical = address;

	if (domain)
		physical = iommu_iova_to_phys(domain, address);
	if (WARN(!physical, "no memory at DMA address %llx\n", address))
		return NULL;
	return phys_to_virt(physical);
}

static bool is_gpu(const void *at)
{
	return virt_addr_valid(at) && is_zone_device_page(virt_to_page(at));
}

void *lab_copy(void *to, const void *from, size_t bytes)
{
	if (is_gpu(to) || is_gpu(from))
		atomic64_add(bytes, &gpu_bytes);
	return memcpy(to, from, bytes);
}
