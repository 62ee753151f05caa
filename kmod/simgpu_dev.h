/* SPDX-License-Identifier: MIT */
/*
 * What the parts of simgpu.ko know of each other.
 */
#ifndef SIMGPU_DEV_H
#define SIMGPU_DEV_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/types.h>

#include "nv_p2p.h"
#include "simgpu.h"

/**
 * struct sim_alloc - memory of a program
 * @node: among all
 * @pins: struct sim_pin of it
 * @owner: the open file
 * @tgid: the process
 * @address: GPU address
 * @nr_pages: how many
 * @nr_persistent: pins that keep it although it was freed
 * @freed: no program has it any more
 * @pages: numbers of its pages in the BAR
 */
struct sim_alloc {
	struct list_head node;
	struct list_head pins;
	struct file *owner;
	pid_t tgid;
	u64 address;
	u32 nr_pages;
	u32 nr_persistent;
	bool freed;
	u32 pages[];
};

/**
 * struct sim_gpu - the one test GPU
 * @lock: the driver's one lock, held in every call and in callbacks, as the real one's is
 * @pdev: its PCI device
 * @start: physical address of its memory
 * @bytes: size of its memory
 * @memory: the same, for the CPU
 * @nr_pages: in pages
 * @nr_free: of which nobody has
 * @used: one bit for each page
 * @cursor: where the search for a free page goes on, so that pages are not reused at once
 * @next_address: GPU address of the next allocation
 * @allocs: struct sim_alloc
 * @nr_pins: pins with callback
 * @nr_callbacks: callbacks so far
 * @faults: what goes wrong, and how often
 */
struct sim_gpu {
	struct mutex lock;
	struct pci_dev *pdev;
	u64 start;
	u64 bytes;
	void __iomem *memory;
	u32 nr_pages;
	u32 nr_free;
	unsigned long *used;
	u32 cursor;
	u64 next_address;
	struct list_head allocs;
	u64 nr_pins;
	u64 nr_callbacks;
	struct {
		u32 value;
		u32 times;
	} faults[SIMGPU_NR_FAULTS];
};

extern struct sim_gpu sim;

/* All with sim.lock held. */
int sim_alloc(struct file *owner, u64 bytes, u64 *address);
int sim_free(struct file *owner, u64 address);
void sim_free_all(struct file *owner);
struct sim_alloc *sim_find(u64 address, u64 bytes);
void sim_alloc_release(struct sim_alloc *alloc);
void sim_revoke(struct sim_alloc *alloc);
bool sim_fault(u32 what, u32 *value);
u64 sim_physical(const struct sim_alloc *alloc, u32 page);

#endif
