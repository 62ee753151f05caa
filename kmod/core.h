/* SPDX-License-Identifier: MIT */
/*
 * What the parts of peerlane.ko know of each other.
 *
 * Order of locks, outermost first: mmap_lock, pl_pin.sem, the locks of frames.c and use.c. None of
 * them is held while a provider is called, except pl_pin.sem while it is inside
 * peerlane_lease_adopt().
 */
#ifndef PEERLANE_CORE_H
#define PEERLANE_CORE_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/xarray.h>
#include <uapi/peerlane.h>

#include "compat.h"
#include "provider.h"

#define pr_name "peerlane: "

/* A frame is a GPU page as the core sees it: 64 KiB of physical address space. */
#define PL_FRAME_SHIFT 16
#define PL_FRAME_BYTES (1UL << PL_FRAME_SHIFT)
#define PL_FRAME_PAGES (PL_FRAME_BYTES >> PAGE_SHIFT)

/* Each handle has a window of this many bytes of the file's offsets. */
#define PL_WINDOW_SHIFT 40
#define PL_HANDLE_MAX ((1U << 22) - 1)
#define PL_MAX_PIN_BYTES (1ULL << 38)
#define PL_MAX_PINS 4096U

/* counters.c */
enum pl_counter {
	PL_FILES,
	PL_PINS,
	PL_PINNED_BYTES,
	PL_MAPPINGS,
	PL_LINGERING,
	PL_PAGE_BYTES,
	PL_USES,
	PL_NR_PIN,
	PL_NR_PIN_FAILED,
	PL_NR_UNPIN,
	PL_NR_REVOKE,
	PL_NR_MMAP,
	PL_NR_FAULT,
	PL_NR_SIGBUS,
	PL_NR_OVERDUE,
	PL_NR_COUNTERS,
};

void pl_count(enum pl_counter which, s64 by);
void pl_counters_read(struct peerlane_counters *out);

/**
 * struct pl_file - one open /dev/peerlane
 * @pins: handle to struct pl_pin; only live handles
 * @nr_pins: handles, those being made included
 * @greeted: HELLO was said
 */
struct pl_file {
	struct xarray pins;
	atomic_t nr_pins;
	bool greeted;
};

/**
 * struct pl_bar - one BAR of a GPU that has page structures
 * @ref: holders: the list of bar.c, each pin
 * @node: in the list of bar.c
 * @pdev: the GPU, referenced
 * @index: which BAR
 * @start: physical address
 * @bytes: size
 * @kind: PEERLANE_PAGES_*; does not change
 * @closing: the GPU loses its driver: nothing is pinned any more
 * @group: P2PDMA pages of ours: their devres group
 * @pool: the whole of their pool, taken so that nobody else gets pages of it
 * @pgmap: generic pages
 */
struct pl_bar {
	struct kref ref;
	struct list_head node;
	struct pci_dev *pdev;
	int index;
	u64 start;
	u64 bytes;
	u32 kind;
	bool closing;
	void *group;
	void *pool;
	struct dev_pagemap *pgmap;
};

/* bar.c: called with the lock of frames.c held, but for the two that count references. */
struct pl_bar *pl_bar_find(u64 physical);
int pl_bar_check_pages(struct pl_bar *bar, u64 physical, u64 bytes);
void pl_bars_remove_pages(struct device *dev);
struct pl_bar *pl_bar_close(struct device *dev);
void pl_bars_forget(struct device *dev);
void pl_bar_get(struct pl_bar *bar);
void pl_bar_put(struct pl_bar *bar);
u64 pl_bar_features(void);

/**
 * struct pl_pin - a pinned range of GPU memory
 * @ref: holders: the handle, the provider while it may revoke, each mapping
 * @rcu: for readers of the table of all pins
 * @lease: what the provider knows
 * @provider: who pinned it
 * @inode: of /dev/peerlane, referenced: its address space has the mappings
 * @node: among those that linger
 * @sem: guards @live and @revoked; held for reading while a page is put into a mapping
 * @live: memory is there and may be mapped
 * @revoked: the provider took or takes the memory back; it must not be asked to unpin
 * @gone: the provider's callback has done its work
 * @attached: @frames are registered in frames.c, which guards this and @released
 * @released: so many of them are not any more
 * @frames: physical address of each frame; written once, before @live
 * @nr_frames: how many
 * @bar: of all of them, referenced
 * @handle: number
 * @flags: as given by the user
 * @address: as given by the user
 * @length: as given by the user
 * @skip_bytes: @address - start of the first frame
 * @nr_mappings: mappings now
 * @making: mappings that the kernel may not have made known yet; of map.c
 * @making_lock: guards it; taken with the lock of a process or @sem held
 * @stopped: when @live ended
 * @uses: of devices of other modules; guarded by use.c
 * @nr_uses: how many
 */
struct pl_pin {
	struct kref ref;
	struct rcu_head rcu;
	struct peerlane_lease lease;
	struct peerlane_provider *provider;
	struct inode *inode;
	struct list_head node;
	struct rw_semaphore sem;
	bool live;
	bool revoked;
	struct completion gone;
	bool attached;
	u32 released;
	u64 *frames;
	u32 nr_frames;
	struct pl_bar *bar;
	u32 handle;
	u32 flags;
	u64 address;
	u64 length;
	u64 skip_bytes;
	atomic_t nr_mappings;
	struct list_head making;
	struct mutex making_lock;
	unsigned long stopped;
	struct list_head uses;
	atomic_t nr_uses;
};

/* frames.c */
int pl_frames_attach(struct pl_pin *pin);
bool pl_frames_release(struct pl_pin *pin, bool unmapped);
bool pl_frames_shared(struct pl_pin *pin);
void pl_frames_mark(struct pl_pin *pin, bool mark);
bool pl_frames_marked(struct pl_pin *pin);
struct pl_bar *pl_frames_close(struct device *dev);
void pl_frames_remove(struct device *dev);
void pl_frames_forget(struct device *dev);

/* pin.c */
struct pl_pin *pl_pin_create(struct pl_file *file, struct inode *inode,
			     const struct peerlane_pin *request);
int pl_pin_retire(struct pl_pin *pin, unsigned int wait_ms);
void pl_pin_get(struct pl_pin *pin);
void pl_pin_put(struct pl_pin *pin);
struct pl_pin *pl_pin_find(struct pl_file *file, u32 handle);
u64 pl_pin_bytes(const struct pl_pin *pin);
u64 pl_pin_offset(const struct pl_pin *pin);
void pl_pins_fini(void);
unsigned int pl_unpin_wait_ms(void);
void pl_pins_stop(struct pl_bar *bar);

/* use.c */
void pl_uses_stop(struct pl_pin *pin);

/* map.c */
int pl_map(struct pl_file *file, struct vm_area_struct *vma);
void pl_map_empty(struct pl_pin *pin);
bool pl_map_settle(struct pl_pin *pin);
void pl_map_forget(struct pl_pin *pin);

/* route.c */
int pl_route(struct pl_pin *pin, struct peerlane_route *route);
u32 pl_pci_number(struct pci_dev *pdev);

/* provider.c */
struct peerlane_provider *pl_provider_next(struct peerlane_provider *after);
void pl_provider_put(struct peerlane_provider *provider);
u32 pl_providers_count(bool *persistent);

/* file.c */
extern const struct file_operations pl_file_ops;

#endif
