/* SPDX-License-Identifier: MIT */
/* The block devices under a file system, down to the drives. */
#ifndef PL_DISK_H
#define PL_DISK_H

#include "report.h"

#include <sys/types.h>

/*
 * Adds the device and what it stands on: partitions to disks, md and dm to their parts. Tells
 * nothing but that for a file system without a block device.
 */
void pl_disk_report(struct pl_report *r, dev_t dev, const char *mount_source);

#endif
