// SPDX-License-Identifier: MIT
/*
 * Access control (ACS) of the ports above a drive and the GPU: whether it sends their transfers up to
 * the root is seen when it is switched.
 */
#include <linux/pci_regs.h>
#include <limits.h>

#include "engine.h"

/* The configuration space of the port above the drive. */
static int port_above(const char *serial)
{
	char pci[32], name[PATH_MAX], *real;
	int fd;

	drive_pci(serial, pci, sizeof(pci));
	snprintf(name, sizeof(name), "/sys/bus/pci/devices/%s/../config", pci);
	real = realpath(name, NULL);
	expect(real);
	printf("port %s\n", real);
	fd = open(real, O_RDWR | O_CLOEXEC);
	expect(fd >= 0);
	free(real);
	return fd;
}

static off_t find_acs(int port)
{
	uint32_t head = 0;

	for (off_t at = 256; at; at = PCI_EXT_CAP_NEXT(head)) {
		expect(pread(port, &head, 4, at) == 4);
		if (PCI_EXT_CAP_ID(head) == PCI_EXT_CAP_ID_ACS)
			return at;
	}
	fail("the port has no ACS");
}

static struct peerlane_route ask(struct memory *memory, int drive)
{
	struct peerlane_route route = { .handle = memory->pin.handle, .fd = drive };

	expect(ioctl(memory->dev, PEERLANE_IOC_ROUTE, &route) == 0);
	printf("verdict %u reason %u distance %d\n", route.verdict, route.reason, route.distance);
	return route;
}

int test_route_acs(void)
{
	int drive = drive_open("raid0", O_RDONLY | O_DIRECT), port = port_above("raid0");
	int far = drive_open("raid1", O_RDONLY | O_DIRECT);
	off_t acs = find_acs(port) + PCI_ACS_CTRL;
	uint16_t before, redirect = PCI_ACS_RR | PCI_ACS_CR;
	struct memory memory;

	memory_open(&memory, MIB, 0);
	expect(pread(port, &before, 2, acs) == 2);
	expect(!(before & redirect));
	expect(ask(&memory, drive).reason == PEERLANE_REASON_SWITCH);
	expect(ask(&memory, drive).distance == 4);
	expect(ask(&memory, far).reason == PEERLANE_REASON_HOST_BRIDGE);
	expect(pwrite(port, &redirect, 2, acs) == 2);
	expect(ask(&memory, drive).reason == PEERLANE_REASON_ACS);
	expect(ask(&memory, drive).verdict != PEERLANE_ROUTE_NO);
	expect(ask(&memory, far).reason == PEERLANE_REASON_HOST_BRIDGE);
	expect(pwrite(port, &before, 2, acs) == 2);
	expect(ask(&memory, drive).reason == PEERLANE_REASON_SWITCH);
	memory_close(&memory);
	say_direct(0);
	return 0;
}
