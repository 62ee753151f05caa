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

/* The BAR that is the GPU's memory, and the pieces in which the upper half of it is divided. */
#define SIM_BAR 2
#define SIM_PIECE_BYTES (2U << 20)
#define SIM_NR_PIECES 16

/**
 * struct sim_place - where programs get memory if they ask for it
 * @pieces: numbers of pieces of the upper half
 * @nr: how many; 0 for the lower half
 */
struct sim_place {
	u8 pieces[4];
	u8 nr;
};

extern const struct sim_place sim_places[SIMGPU_NR_PLACES];

/**
 * struct sim_gpu - the one test GPU
 * @lock: the driver's one lock, held in every call and in callbacks, as the real one's is
 * @pdev: its PCI device
 * @start: physical address of its memory
 * @bytes: size of its memory
 * @nr_pages: in pages
 * @nr_free: of the lower half, nobody has these
 * @used: one bit for each page
 * @cursor: where the search for a free page goes on, so that pages are not reused at once
 * @next_address: GPU address of the next allocation
 * @allocs: struct sim_alloc
 * @nr_pins: pins with callback
 * @nr_callbacks: callbacks so far
 * @open_lock: of the next three; taken before @lock, and never together with it
 * @nr_open: files
 * @removing: the device is going
 * @group: P2PDMA pages of ours
 * @faults: what goes wrong, and how often
 */
struct sim_gpu {
	struct mutex lock;
	struct pci_dev *pdev;
	u64 start;
	u64 bytes;
	u32 nr_pages;
	u32 nr_free;
	unsigned long *used;
	u32 cursor;
	u64 next_address;
	struct list_head allocs;
	u64 nr_pins;
	u64 nr_callbacks;
	struct mutex open_lock;
	int nr_open;
	bool removing;
	void *group;
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
/* Without it. */
bool sim_kept(void);
u64 sim_physical(const struct sim_alloc *alloc, u32 page);
int sim_parts_map(void);
void sim_parts_unmap(void);

/* Without any lock. */
int sim_pages_open(int by);
int sim_pages_device(bool removing);

#endif
