/* SPDX-License-Identifier: MIT */
/* Drives that are reached by a network (NVMe over TCP, RDMA...), as sysfs tells. */
#ifndef PL_FABRIC_H
#define PL_FABRIC_H

#include <stdbool.h>
#include <stddef.h>

/*
 * How the drive is reached whose disk or partition is @dir of sysfs (/sys/dev/block/MAJOR:MINOR):
 * @out is "tcp", "rdma", "loop"... False where it is no NVMe drive, or one on PCI. Of a drive with
 * several paths (multipath) it is the first that is not on PCI.
 */
bool pl_fabric_transport(const char *dir, char *out, size_t bytes);
/*
 * Whether all RDMA adapters below @dir (/sys/class/infiniband) are software, such as soft-RoCE: they
 * have no device of a bus below them.
 */
bool pl_fabric_software(const char *dir);
/* Why no device writes GPU memory with the data of a drive behind @transport, and what to do. */
void pl_fabric_explain(const char *transport, bool software, const char **why, const char **fix);

#endif
