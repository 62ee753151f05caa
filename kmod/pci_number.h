/* SPDX-License-Identifier: MIT */
/*
 * PCI addresses as user space gets and gives them: a number, and of domains above 0xffff (those of
 * VMD) the upper half beside it.
 */
#ifndef PEERLANE_PCI_NUMBER_H
#define PEERLANE_PCI_NUMBER_H

#include <linux/types.h>

static inline __u32 pl_pci_join(__u32 domain, __u32 bus, __u32 devfn, __u32 *domain_high)
{
	*domain_high = domain >> 16;
	return domain << 16 | bus << 8 | devfn;
}

static inline __u32 pl_pci_domain(__u32 number, __u32 domain_high)
{
	return domain_high << 16 | number >> 16;
}

#endif
