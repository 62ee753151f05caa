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

bool pl_fabric_transport(const char *dir, char *out, size_t bytes)
{
	char path[PATH_MAX], below[PATH_MAX];
	struct dirent *entry;
	bool found;
	DIR *subsystem;

	pl_text(path, sizeof(path), "%s/partition", dir);
	pl_text(path, sizeof(path), access(path, F_OK) ? "%s/device" : "%s/../device", dir);
	found = by_network(path, out, bytes);
	/* With several paths it is a subsystem, which has its controllers as entries. */
	subsystem = found ? NULL : opendir(path);
	while (subsystem && !found && (entry = readdir(subsystem))) {
		if (strncmp(entry->d_name, "nvme", 4) != 0)
			continue;
		pl_text(below, sizeof(below), "%s/%s", path, entry->d_name);
		found = by_network(below, out, bytes);
	}
	if (subsystem)
		closedir(subsystem);
	return found;
}

bool pl_fabric_software(const char *dir)
{
	char path[PATH_MAX];
	struct dirent *entry;
	unsigned int nr = 0, nr_real = 0;
	DIR *adapters = opendir(dir);

	while (adapters && (entry = readdir(adapters))) {
		if (entry->d_name[0] == '.')
			continue;
		pl_text(path, sizeof(path), "%s/%s/device/subsystem", dir, entry->d_name);
		nr++;
		nr_real += !access(path, F_OK);
	}
	if (adapters)
		closedir(adapters);
	return nr && !nr_real;
}

#define LOCAL "use a drive in this machine for p2p; "
#define MANUAL "see peerlane-kmod(7)"

void pl_fabric_explain(const char *transport, bool software, const char **why, const char **fix)
{
	*fix = LOCAL MANUAL;
	if (!strcmp(transport, "tcp")) {
		*why = "the drive is reached by network (NVMe over TCP): the CPU copies its data "
		       "out of the packets, so it goes through host memory";
		*fix = LOCAL "NVMe over RDMA spares the CPU its copy; " MANUAL;
	} else if (!strcmp(transport, "rdma") && software) {
		*why = "the drive is reached by network (NVMe over RDMA in software, as "
		       "soft-RoCE): "
		       "the CPU copies its data, so it goes through host memory";
		*fix = LOCAL "a real RDMA adapter spares the CPU its copy; " MANUAL;
	} else if (!strcmp(transport, "rdma")) {
		*why = "the drive is reached by network (NVMe over RDMA): its adapter writes host "
		       "memory, and the GPU's copy engine takes the data from there";
	} else if (!strcmp(transport, "loop")) {
		*why = "the drive is one of this machine's own NVMe target (transport loop)";
		*fix = "use the drive below it itself";
	} else {
		*why = "the drive is reached by network (NVMe over fabrics)";
	}
}
