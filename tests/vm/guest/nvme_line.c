// SPDX-License-Identifier: MIT
/*
 * A controller that shares its interrupt line with a drive of the kernel's: the line is the kernel's.
 */
#include <ctype.h>
#include <linux/pci_regs.h>

#include "nvme_lab.h"

/* Slots of one line: see the lab's layout. */
#define DRIVE "raid0"
#define NEIGHBOUR "raw0"
#define NR_READS 200

static long irq_of(struct pci pci)
{
	char path[96];
	long irq = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/irq", pci.text);
	file = fopen(path, "r");
	expect(file && fscanf(file, "%ld", &irq) == 1);
	fclose(file);
	return irq;
}

/* Interrupts of a line so far, on all processors. */
static long long interrupts(long irq)
{
	char line[1024], *at;
	long long sum = -1;
	FILE *file = fopen("/proc/interrupts", "r");

	expect(file);
	while (fgets(line, sizeof(line), file)) {
		if (strtol(line, &at, 10) != irq || *at != ':')
			continue;
		sum = 0;
		for (at++; isdigit((unsigned char)*(at += strspn(at, " ")));)
			sum += strtoll(at, &at, 10);
		break;
	}
	fclose(file);
	expect(sum >= 0);
	return sum;
}

static uint16_t config(struct pci pci, off_t at)
{
	uint16_t value;
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", pci.text);
	fd = open(path, O_RDONLY);
	expect(fd >= 0 && pread(fd, &value, 2, at) == 2);
	close(fd);
	return value;
}

/* The controller would interrupt all the time, and the neighbour is read: its interrupts and no others. */
static void share_line(struct mini *m, struct pci pci, long irq)
{
	int drive = drive_open(NEIGHBOUR, O_RDONLY | O_DIRECT);
	void *block = host_alloc(4096);
	long long before, after;

	mini_raise(m);
	expect(config(pci, PCI_STATUS) & PCI_STATUS_INTERRUPT);
	before = interrupts(irq);
	for (int i = 0; i < NR_READS; i++)
		expect(pread(drive, block, 4096, (off_t)i * 4096) == 4096);
	after = interrupts(irq);
	printf("%d reads, %lld interrupts\n", NR_READS, after - before);
	expect(after > before && after - before <= 2 * NR_READS);
	expect(config(pci, PCI_COMMAND) & PCI_COMMAND_INTX_DISABLE);
	/* QEMU would remember it over a reset. */
	mini_lower(m);
	free(block);
	close(drive);
}

int test_nvme_kmod_intx(void)
{
	long irq = irq_of(pci_of(NEIGHBOUR));
	struct pci pci = take_drive(DRIVE, "kmod");
	char path[96];
	struct mini m;

	/* Otherwise the slots are not those that share one. */
	expect(irq_of(pci) == irq);
	mini_open(&m, &pl_nvme_transport_kmod, pci.text);
	share_line(&m, pci, irq);
	/* Also after a reset by the program, and one by somebody else. */
	expect(m.t->ops->reset(m.t) == 0);
	mini_enable(&m);
	share_line(&m, pci, irq);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", pci.text);
	expect(echo(path, "1") == 0);
	mini_enable(&m);
	share_line(&m, pci, irq);
	mini_close(&m);
	nvme_wait_idle();
	/* The kernel has it back, and its interrupts work. */
	give_back(pci, DRIVE);
	expect(!(config(pci, PCI_COMMAND) & PCI_COMMAND_INTX_DISABLE));
	return 0;
}
