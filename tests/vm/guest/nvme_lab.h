/* SPDX-License-Identifier: MIT */
/*
 * What the tests of controllers that programs drive share: moving them between drivers with the tool,
 * and looking at what the module counts.
 */
#ifndef NVME_LAB_H
#define NVME_LAB_H

#include "mini.h"

/* PCI address of the drive with a serial number, while the kernel has it. */
struct pci {
	char text[16];
};
struct pci pci_of(const char *serial);

/* Run "peerlane nvme ..."; gives its exit status and prints and keeps what it said. */
int tool(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern char tool_said[4096];

/* Give a drive to programs, and back to the kernel, which must find it again. */
struct pci take_drive(const char *serial, const char *driver);
void give_back(struct pci pci, const char *serial);

/* The path of the device of a drive that was taken with "kmod"; opened, with HELLO said. */
void node_of(struct pci pci, char *path, size_t size);
int greeted(const char *path);

/* A counter of the module peerlane_nvme; -1 if it is not loaded. */
long long nvme_counter(const char *name);
/* Wait until the module holds nothing; fails the test when that does not happen. */
void nvme_wait_idle(void);

/* Pages that somebody in the kernel holds for a device. */
long long pages_held(void);

/* Pinned GPU memory as a transport takes it. */
struct pl_nvme_region region_of(const struct memory *memory, size_t at, size_t bytes);

#endif
