/* SPDX-License-Identifier: MIT */
/* Names of NVMe controllers on the command line, and what is wrong with one. */
#ifndef PL_NVME_ADDRESS_H
#define PL_NVME_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#define PL_NVME_CLASS "0x010802"

/* The PCI address of a controller that is named by it, or as nvme0, nvme0n1 or peerlane-nvme0. */
bool pl_nvme_address_find(const char *device, char *pci, size_t size);

/* Is it such a name, whether there is a controller of it or not? */
bool pl_nvme_address_is_name(const char *device);

/*
 * Why no controller can be opened as @address: the form is wrong, it is missing, or another driver
 * has it. False: none of these, or not an address of PCI.
 */
bool pl_nvme_address_explain(const char *address, char *why, size_t size);

#endif
