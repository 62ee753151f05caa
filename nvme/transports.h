/* SPDX-License-Identifier: MIT */
/* The transports but those of sim/, for the table in transport.c. */
#ifndef PL_NVME_TRANSPORTS_H
#define PL_NVME_TRANSPORTS_H

#include "transport.h"

/* Controllers of the kernel module peerlane_nvme: "kmod:0000:01:00.0", "kmod:peerlane-nvme0". */
extern const struct pl_nvme_transport_ops pl_nvme_transport_kmod;

/* Controllers that vfio-pci has, behind an IOMMU: "vfio:0000:01:00.0". */
extern const struct pl_nvme_transport_ops pl_nvme_transport_vfio;

/* Controllers that another process serves: "served:PATH" of its Unix socket. */
extern const struct pl_nvme_transport_ops pl_nvme_transport_served;

#endif
