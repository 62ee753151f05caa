/* SPDX-License-Identifier: MIT */
/* Names of NVMe controllers on the command line, and what is wrong with one. */
#include "nvme_address.h"

#include "host.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Does @text have this form? h stands for a hexadecimal digit. */
static bool has_form(const char *text, const char *form)
{
	if (strlen(text) != strlen(form))
		return false;
	for (size_t i = 0; form[i]; i++)
		if (form[i] == 'h' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i])
			return false;
	return true;
}

static bool is_pci(const char *text)
{
	return has_form(text, "hhhh:hh:hh.h");
}

bool pl_nvme_address_find(const char *device, char *pci, size_t size)
{
	unsigned int number;
	char tail;

	if (!strncmp(device, "/dev/", 5))
		device += 5;
	if (is_pci(device)) {
		snprintf(pci, size, "%s", device);
		for (char *c = pci; *c; c++)
			*c = (char)tolower((unsigned char)*c);
		return pl_host_exists("/sys/bus/pci/devices/%s", pci);
	}
	if (sscanf(device, "peerlane-nvme%u%c", &number, &tail) == 1)
		return pl_host_link(pci, size, "/sys/class/misc/%s/device", device) && is_pci(pci);
	/* "nvme0", and whatever follows as long as it is no digit: its disks and partitions. */
	if (sscanf(device, "nvme%u", &number) != 1)
		return false;
	return pl_host_link(pci, size, "/sys/class/nvme/nvme%u/device", number) && is_pci(pci);
}

bool pl_nvme_address_is_name(const char *device)
{
	unsigned int number;

	if (!strncmp(device, "/dev/", 5))
		device += 5;
	return is_pci(device) || sscanf(device, "nvme%u", &number) == 1 ||
	       sscanf(device, "peerlane-nvme%u", &number) == 1;
}

/* There is such a device: who has it? @by: the transport that was named, or "". */
static bool explain_driver(const char *pci, const char *by, char *why, size_t size)
{
	char class[32], driver[64];
	const char *transport;

	pl_host_line(class, sizeof(class), "/sys/bus/pci/devices/%s/class", pci);
	pl_host_link(driver, sizeof(driver), "/sys/bus/pci/devices/%s/driver", pci);
	transport = !strcmp(driver, "peerlane_nvme") ? "kmod"
		    : !strcmp(driver, "vfio-pci")    ? "vfio"
						     : NULL;
	if (strcmp(class, PL_NVME_CLASS) != 0)
		snprintf(why, size, "this PCI device is not an NVMe controller");
	else if (transport && !strcmp(transport, by))
		return false;
	else if (transport)
		snprintf(why, size, "the driver %s has it: write %s:%s", driver, transport, pci);
	else if (!strcmp(driver, "nvme"))
		snprintf(why, size,
			 "not bound: the kernel uses it as a disk; 'peerlane nvme bind %s' takes "
			 "it away from there",
			 pci);
	else
		snprintf(why, size, "not bound: %s%s has it; 'peerlane nvme bind %s' takes it",
			 driver[0] ? "the driver " : "no driver", driver, pci);
	return true;
}

bool pl_nvme_address_explain(const char *address, char *why, size_t size)
{
	const char *by = !strncmp(address, "kmod:", 5)	 ? "kmod"
			 : !strncmp(address, "vfio:", 5) ? "vfio"
							 : "";
	const char *device = address + (by[0] ? 5 : 0);
	char pci[64];

	if (!by[0] && (!strncmp(address, "sim:", 4) || !strncmp(address, "sim-unix:", 9) ||
		       !strncmp(address, "served:", 7)))
		return false;
	if (pl_nvme_address_find(device, pci, sizeof(pci)))
		return explain_driver(pci, by, why, size);
	if (pl_nvme_address_is_name(device))
		snprintf(why, size,
			 "no such NVMe controller; 'peerlane nvme list' shows those there are");
	else if (has_form(device, "hh:hh.h"))
		snprintf(why, size, "the PCI domain is missing: write %s:0000:%s",
			 by[0] ? by : "kmod", device);
	else
		snprintf(why, size,
			 "no such form of address: write kmod:PCI or vfio:PCI (as "
			 "kmod:0000:01:00.0), served:SOCKET or sim:");
	return true;
}
