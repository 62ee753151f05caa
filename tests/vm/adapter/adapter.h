/* SPDX-License-Identifier: MIT */
/*
 * Read before each file of the kernel's soft-RoCE driver (-include): it becomes an adapter that maps
 * memory by the DMA functions of a PCI device, as real ones do, and copies what lies at the
 * addresses those give.
 */
#ifndef LAB_ADAPTER_H
#define LAB_ADAPTER_H

#include <linux/string.h>
#include <rdma/ib_verbs.h>

int lab_register(struct ib_device *adapter, const char *name);
void *lab_dma_to_ptr(u64 address);
void *lab_copy(void *to, const void *from, size_t bytes);

#ifndef LAB_INSIDE
#undef memcpy
#define memcpy(to, from, bytes) lab_copy(to, from, bytes)
#define ib_virt_dma_to_ptr(address) lab_dma_to_ptr(address)
#define ib_virt_dma_to_page(address) virt_to_page(lab_dma_to_ptr(address))
#define ib_register_device(adapter, name, none) lab_register(adapter, name)
#endif

#endif
