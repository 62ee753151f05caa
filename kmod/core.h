/* SPDX-License-Identifier: MIT */
/*
 * What the parts of peerlane.ko know of each other.
 *
 * Order of locks, outermost first:
 *   the GPU's device lock, pl_pin.end_lock, the locks of the GPU's driver (in calls of a provider),
 *   mmap_lock, pl_pin.sem, pl_pin.making_lock, the lock of frames.c.
 *   That of use.c is taken with none of these held but the device lock.
 * The GPU's driver holds its locks when it says that memory was freed. No lock of ours that is held while
 * something is waited for is taken then.
 */
#ifndef PEERLANE_CORE_H
#define PEERLANE_CORE_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/workqueue.h>
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

struct pl_pin;

/**
 * struct pl_section - a part of a BAR that has page structures of ours
 * @node: in the BAR's list, the newest first
 * @start: physical address
 * @bytes: size
 * @lost: somebody else has some of the pages, so none can be used
 * @group: P2PDMA pages: their devres group
 * @pool: the whole of their pool, taken so that nobody else gets pages of it
 * @pgmap: generic pages
 */
struct pl_section {
	struct list_head node;
	u64 start;
	u64 bytes;
	bool lost;
	void *group;
	void *pool;
	struct dev_pagemap *pgmap;
};

/**
 * struct pl_bar - one BAR of a GPU
 * @ref: holders: the list of bar.c, each pin, the work while it is under way
 * @node: in the list of bar.c
 * @pdev: the GPU, referenced
 * @index: which BAR
 * @start: physical address
 * @bytes: size
 * @kind: PEERLANE_PAGES_*, 0 as long as there are no pages; then it does not change
 * @closing: nothing is pinned any more
 * @unbinding: because the GPU loses its driver
 * @sections: struct pl_section; guarded by the lock of the device
 * @foreign: pages that the GPU's driver made; valid while @nr_foreign
 * @nr_foreign: pins that hold a reference to it
 * @watch: looks whether the driver wants them back
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
	bool unbinding;
	struct list_head sections;
	struct dev_pagemap *foreign;
	u32 nr_foreign;
	struct delayed_work watch;
};

/* bar.c: called with pl_frames_lock held, but for those that count references, _device, and _unwatch. */
struct pci_dev *pl_bar_device(u64 physical);
struct pl_bar *pl_bar_find(struct pci_dev *pdev, u64 physical);
int pl_bar_hold_foreign(struct pl_pin *pin, struct pl_bar *bar);
void pl_bar_drop_foreign(struct pl_pin *pin);
struct pl_bar *pl_bar_close(struct device *dev);
struct pl_bar *pl_bar_unlist(struct device *dev);
void pl_bar_unwatch(struct pl_bar *bar);
void pl_bar_get(struct pl_bar *bar);
void pl_bar_put(struct pl_bar *bar);
int pl_bars_init(void);
void pl_bars_fini(void);

/* section.c: called with the lock of the GPU's device held. */
int pl_sections_cover(struct pl_bar *bar, const u64 *frames, u32 nr);
void pl_sections_remove(struct pl_bar *bar);
u64 pl_bar_features(void);

/**
 * struct pl_pin - a pinned range of GPU memory
 * @ref: holders: the handle, each mapping, each use, the worker that ends it
 * @rcu: for readers of the table of all pins
 * @lease: what the provider knows
 * @provider: who pinned it; its module is held until @ended
 * @inode: of /dev/peerlane, referenced: its address space has the mappings
 * @provider_id: its number
 * @sem: guards @live; held for reading while a page is put into a mapping
 * @live: memory is there and may be mapped
 * @revoked: its owner freed the memory, and a worker will stop it; set without a lock
 * @end_lock: guards what follows, up to @overdue; held while the provider is called
 * @made: PIN is done with it
 * @watched: the provider tells when the memory is freed
 * @ended: the memory was given back
 * @lingering: stopped, and left to the worker
 * @overdue: ...for so long that it was reported
 * @end_work: the worker's
 * @tick_ms: the worker's: when it looks again
 * @foreign: holds a reference to the pages of the GPU's driver; guarded by frames.c
 * @attached: @frames are registered in frames.c, which guards this and @released
 * @released: so many of them are not any more
 * @frames: physical address of each frame; written once, before @live
 * @nr_frames: how many
 * @bar: of all of them, referenced; written before @live; guarded by frames.c
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
	u32 provider_id;
	struct inode *inode;
	struct rw_semaphore sem;
	bool live;
	bool revoked;
	struct mutex end_lock;
	bool made;
	bool watched;
	bool ended;
	bool lingering;
	bool overdue;
	struct delayed_work end_work;
	unsigned int tick_ms;
	bool foreign;
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
extern struct mutex pl_frames_lock;
int pl_frames_attach(struct pl_pin *pin);
bool pl_frames_release(struct pl_pin *pin, bool unmapped);
struct pl_bar *pl_frames_close(struct device *dev);
void pl_frames_forget(struct device *dev);

/* pin.c */
struct pl_pin *pl_pin_create(struct pl_file *file, struct inode *inode,
			     const struct peerlane_pin *request);
bool pl_pin_live(struct pl_pin *pin);
void pl_pin_get(struct pl_pin *pin);
void pl_pin_put(struct pl_pin *pin);
struct pl_pin *pl_pin_find(struct pl_file *file, u32 handle);
struct pl_pin *pl_pin_next(unsigned long *handle);
u64 pl_pin_bytes(const struct pl_pin *pin);
u64 pl_pin_offset(const struct pl_pin *pin);
void pl_pins_fini(void);

/* pin_end.c */
void pl_end_init(struct pl_pin *pin);
void pl_end_allow(struct pl_pin *pin);
void pl_end_void(struct pl_pin *pin);
int pl_pin_retire(struct pl_pin *pin, unsigned int wait_ms);
void pl_pins_stop(struct pl_bar *bar);
unsigned int pl_unpin_wait_ms(void);
int pl_ends_init(void);
void pl_ends_fini(void);

/* use.c */
void pl_uses_stop(struct pl_pin *pin);

/* map.c */
int pl_map(struct pl_file *file, struct vm_area_struct *vma);
void pl_map_empty(struct pl_pin *pin);
bool pl_map_settle(struct pl_pin *pin);
void pl_map_forget(struct pl_pin *pin);

/* route.c */
int pl_route(struct pl_pin *pin, struct peerlane_route *route);
u32 pl_pci_number(struct pci_dev *pdev, u32 *domain_high);

/* provider.c */
struct peerlane_provider *pl_provider_next(struct peerlane_provider *after);
void pl_provider_put(struct peerlane_provider *provider);
u32 pl_providers_count(bool *persistent);

/* file.c */
extern const struct file_operations pl_file_ops;

#endif
