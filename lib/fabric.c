// SPDX-License-Identifier: MIT
/* How an NVMe drive is reached, and what follows from that. */
#include "fabric.h"

#include "error.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The transport of one controller; false if @dir is none, or one on PCI. */
static bool by_network(const char *dir, char *out, size_t bytes)
{
	char path[PATH_MAX];
	FILE *f;

	pl_text(path, sizeof(path), "%s/transport", dir);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(out, (int)bytes, f))
		out[0] = '\0';
	fclose(f);
	out[strcspn(out, "\n")] = '\0';
	return out[0] && strcmp(out, "pcie") != 0;
}

bool pl_fabric_each(const char *dir,
		    void (*seen)(void *arg, const char *controller, const char *transport),
		    void *arg)
{
	char path[PATH_MAX], below[PATH_MAX], transport[16];
	struct dirent *entry;
	bool found;
	DIR *subsystem;

	pl_text(path, sizeof(path), "%s/partition", dir);
	pl_text(path, sizeof(path), access(path, F_OK) ? "%s/device" : "%s/../device", dir);
	found = by_network(path, transport, sizeof(transport));
	if (found)
		seen(arg, path, transport);
	/* With several paths it is a subsystem, which has its controllers as entries. */
	subsystem = found ? NULL : opendir(path);
	while (subsystem && (entry = readdir(subsystem))) {
		if (strncmp(entry->d_name, "nvme", 4) != 0)
			continue;
		pl_text(below, sizeof(below), "%s/%s", path, entry->d_name);
		if (!by_network(below, transport, sizeof(transport)))
			continue;
		found = true;
		seen(arg, below, transport);
	}
	if (subsystem)
		closedir(subsystem);
	return found;
}

#define LOCAL "use a drive in this machine for p2p; "
#define MANUAL "see peerlane-kmod(7)"

static void explain_rdma(enum pl_fabric_way way, const char **why, const char **fix)
{
	switch (way) {
	case PL_FABRIC_SOFTWARE:
		*why = "the drive is reached by network (NVMe over RDMA in software, as "
		       "soft-RoCE): the CPU copies its data, so it goes through host memory";
		*fix = LOCAL "a real RDMA adapter spares the CPU its copy; " MANUAL;
		break;
	case PL_FABRIC_OLD:
		*why = "the drive is reached by network (NVMe over RDMA), and the peerlane module "
		       "is too old to be asked about its adapter";
		*fix = "install the peerlane module of this version";
		break;
	default:
		*why = "the drive is reached by network (NVMe over RDMA), and its adapter could "
		       "not be found, so nobody can say whether that reaches the GPU";
		*fix = "connect with host_traddr, an address that only one RDMA adapter "
		       "has; " MANUAL;
		break;
	}
}

void pl_fabric_explain(const char *transport, enum pl_fabric_way way, const char **why,
		       const char **fix)
{
	*fix = LOCAL MANUAL;
	if (!strcmp(transport, "tcp")) {
		*why = "the drive is reached by network (NVMe over TCP): the CPU copies its data "
		       "out of the packets, so it goes through host memory";
		*fix = LOCAL "NVMe over RDMA spares the CPU its copy; " MANUAL;
	} else if (!strcmp(transport, "rdma")) {
		explain_rdma(way, why, fix);
	} else if (!strcmp(transport, "loop")) {
		*why = "the drive is one of this machine's own NVMe target (transport loop)";
		*fix = "use the drive below it itself";
	} else {
		*why = "the drive is reached by network (NVMe over fabrics)";
	}
}
