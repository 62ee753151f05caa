/* SPDX-License-Identifier: MIT */
/* Drives that are reached by a network (NVMe over TCP, RDMA...), as sysfs tells. */
#ifndef PL_FABRIC_H
#define PL_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Calls @seen for each controller by which the drive is reached over a network, with its directory and
 * its transport: "tcp", "rdma", "loop"... The drive's disk or partition is @dir of sysfs
 * (/sys/dev/block/MAJOR:MINOR). False where there is none: it is no NVMe drive, or one on PCI.
 */
bool pl_fabric_each(const char *dir,
		    void (*seen)(void *arg, const char *controller, const char *transport),
		    void *arg);

/* An RDMA adapter. */
struct pl_fabric_adapter {
	char name[64];
	bool software; /* the CPU copies its data: soft-RoCE, siw, and drivers that do so themselves */
	uint64_t pci; /* if not: domain << 16 | bus << 8 | device << 3 | function */
};

/* The adapter by which @controller (a directory of sysfs, which is at @sys) is reached; false if that
 * cannot be told. */
bool pl_fabric_adapter(const char *sys, const char *controller, struct pl_fabric_adapter *out);

/* Parts of it: where the controller is, and from which address it is reached ("" if not given)... */
bool pl_fabric_address(const char *controller, char *to, char *from, size_t bytes);
/* ...the network interface that leads there... */
bool pl_fabric_interface(const char *to, const char *from, char *name, size_t bytes);
/* ...and the only adapter that works with that. */
bool pl_fabric_adapter_of(const char *sys, const char *interface, struct pl_fabric_adapter *out);

enum pl_fabric_way {
	PL_FABRIC_UNKNOWN,  /* the adapter was not found */
	PL_FABRIC_SOFTWARE, /* it is software */
	PL_FABRIC_OLD,	    /* it is none, but the module is too old to be asked about it */
};

/* Why no device writes GPU memory with the data of a drive behind @transport, and what to do; @way is for
 * "rdma" only. */
void pl_fabric_explain(const char *transport, enum pl_fabric_way way, const char **why,
		       const char **fix);

#endif
