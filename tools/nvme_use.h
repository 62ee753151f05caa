/* SPDX-License-Identifier: MIT */
/* What an NVMe controller is used for, which must be so no longer before its driver is changed. */
#ifndef PL_NVME_USE_H
#define PL_NVME_USE_H

#include <stdbool.h>
#include <stddef.h>

#define PL_NVME_DISKS_MAX 256

/* Disks that are held: nobody can mount them or make them part of something meanwhile. */
struct pl_nvme_use {
	const char *pci; /* of the controller */
	int fds[PL_NVME_DISKS_MAX];
	int nr;
	bool used;
	char why[512]; /* if used: by what, as in "nvme0n1p1 is mounted on /home" */
};

/*
 * Looks at every disk and partition of the controller and holds the disks. Undone by
 * pl_nvme_use_end(), in any case.
 */
void pl_nvme_use_begin(struct pl_nvme_use *use, const char *pci);
void pl_nvme_use_end(struct pl_nvme_use *use);

#endif
