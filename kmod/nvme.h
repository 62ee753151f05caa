/* SPDX-License-Identifier: MIT */
/*
 * What the parts of peerlane_nvme.ko know of each other.
 *
 * Order of locks, outermost first: mmap_lock, nv_dev.lock. The lock of use.c in peerlane.ko comes before
 * nv_dev.lock as well: with it held, owners are told that GPU memory goes away. So with nv_dev.lock held
 * neither memory of a process is touched, nor a use of GPU memory begun or ended.
 */
#ifndef PEERLANE_NVME_H
#define PEERLANE_NVME_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <uapi/peerlane_nvme.h>

#include "compat.h"
#include "consumer.h"

#define NV_NR_BARS 6
/* Each handle has a window of this many bytes of the file's offsets; below are the BARs. */
#define NV_WINDOW_SHIFT 40
#define NV_BAR_SHIFT 36
#define NV_MAX_MAP_BYTES (1ULL << 36)
#define NV_MAX_ALLOC_BYTES (1ULL << 26)
#define NV_MAX_MAPPINGS 65536U
#define NV_GPU_PAGE_SHIFT 16
#define NV_MAX_CLIENTS 1024U
/* Registers of NVMe; behind them are the doorbells. */
#define NV_REGS_BYTES 0x1000U

struct nv_file;

/**
 * struct nv_dev - one controller
 * @ref: holders: the driver while it is bound, the open file
 * @lock: guards what follows it
 * @file: the one open file
 * @clients: number to struct nv_file: descriptors that @file has granted and not revoked
 * @gone: the driver is not bound any more
 * @stopped: GPU memory went away, the machine slept, or @file is being closed: cut off from the bus, until
 *	a reset or the next open
 * @mapped: mappings that have addresses
 * @leave: the owner waits here for clients that leave, their GPU memory for the owner
 * @pdev: the device; not to be used once @gone
 * @regs: registers
 * @misc: /dev/peerlane-nvmeN
 * @id: N
 * @pci: its PCI address as a number
 * @start: physical address of each BAR
 * @bytes: of each BAR that may be mapped
 */
struct nv_dev {
	struct kref ref;
	struct mutex lock;
	struct nv_file *file;
	struct xarray clients;
	bool gone;
	bool stopped;
	struct list_head mapped;
	wait_queue_head_t leave;
	struct pci_dev *pdev;
	void __iomem *regs;
	struct miscdevice misc;
	int id;
	u32 pci;
	u64 start[NV_NR_BARS];
	u64 bytes[NV_NR_BARS];
};

/**
 * struct nv_file - an open /dev/peerlane-nvmeN, or a client's descriptor
 * @ref: holders: the open file; for a client's also nv_dev.clients, so what it has mapped can outlive it
 * @dev: referenced
 * @space: what is mapped of the file; a client's is that of the file that granted it
 * @inode: client: whose @space is, referenced
 * @bar0_bytes: client: of BAR 0 that it may map; 0: the file is no client's
 * @leaving: client: its GPU memory goes away, it is to be revoked; guarded by nv_dev.lock
 * @revoked: client: it has nothing any more; guarded by nv_dev.lock
 * @end: client: lets go of what it had mapped
 * @greeted: HELLO was said
 * @mappings: handle to struct nv_mapping
 * @nr_mappings: those being made included
 * @dead: what is seen instead of registers once the device is gone: the first page, all others
 */
struct nv_file {
	struct kref ref;
	struct nv_dev *dev;
	struct address_space *space;
	struct inode *inode;
	u64 bar0_bytes;
	bool leaving;
	bool revoked;
	struct work_struct end;
	bool greeted;
	struct xarray mappings;
	atomic_t nr_mappings;
	struct page *dead[2];
};

/**
 * struct nv_mapping - memory that the controller can reach
 * @kind: PEERLANE_NVMEDEV_*
 * @dev: whose; not referenced, the file has a reference
 * @client: whose, if it is a client's; it is there as long as this
 * @bytes: of memory
 * @first: where in the first page it begins
 * @page_shift: size of a page
 * @nr_pages: how many
 * @bus: address of each; written once
 * @pages: HOST and ALLOC: the memory
 * @mm: HOST: who is charged for it
 * @use: GPU: the memory
 * @using: @use was begun
 * @dead: GPU: the memory went away; guarded by nv_dev.lock
 * @mapped: the device has addresses for it; guarded by nv_dev.lock
 * @node: if so, in the device's list
 * @resource: those in @bus were made one by one; else by @table
 * @table: the addresses
 */
struct nv_mapping {
	u32 kind;
	struct nv_dev *dev;
	struct nv_file *client;
	u64 bytes;
	u64 first;
	u32 page_shift;
	u32 nr_pages;
	u64 *bus;
	struct page **pages;
	struct mm_struct *mm;
	struct peerlane_use use;
	bool using;
	bool dead;
	bool mapped;
	struct list_head node;
	bool resource;
	struct sg_table table;
};

/* nvme_dev.c */
enum nv_counter {
	NV_FILES,
	NV_CLIENTS,
	NV_MAPPINGS,
	NV_MAPPED_BYTES,
	NV_LOCKED_PAGES,
	NV_STOPS,
	NV_WAITS,
	NV_NR_COUNTERS,
};

void nv_count(enum nv_counter which, s64 by);
void nv_dev_put(struct nv_dev *dev);
int nv_quiesce(struct nv_dev *dev);
int nv_stop(struct nv_dev *dev);
void nv_start(struct nv_dev *dev);
int nv_reset(struct nv_dev *dev);

/* nvme_confine.c: without nv_dev.lock, while the driver is bound */
u32 nv_unconfined(struct nv_dev *dev);
extern const struct attribute_group *nv_dev_groups[];

/* nvme_map.c: mapping_unmap() with nv_dev.lock held, the others without. */
struct nv_mapping *nv_mapping_create(struct nv_file *file,
				     const struct peerlane_nvmedev_map *request);
void nv_mapping_unmap(struct nv_mapping *mapping);
void nv_mapping_free(struct nv_mapping *mapping);

/* nvme_window.c */
int nv_window_map(struct nv_file *file, struct vm_area_struct *vma);
void nv_window_empty(struct nv_file *file);

/* nvme_file.c: without nv_dev.lock */
extern const struct file_operations nv_file_ops;
struct nv_file *nv_file_alloc(struct nv_dev *dev, struct address_space *space);
void nv_file_put(struct nv_file *file);
void nv_file_unmap_all(struct nv_file *file);
long nv_file_call(struct nv_file *file, unsigned int command, void __user *user);

/* nvme_client.c: client_ask_to_leave() with nv_dev.lock held, the others without. */
int nv_client_grant(struct file *filp, void __user *argument);
int nv_client_revoke(struct nv_file *file, void __user *argument);
void nv_client_revoke_all(struct nv_dev *dev);
int nv_client_leaving(struct nv_file *file, void __user *argument);
__poll_t nv_client_poll(struct file *filp, struct poll_table_struct *table);
void nv_client_ask_to_leave(struct nv_file *client);
void nv_client_wait_left(struct nv_mapping *mapping, unsigned long deadline);
int nv_client_init(void);
void nv_client_exit(void);

#endif
