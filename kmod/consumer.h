/* SPDX-License-Identifier: MIT */
/*
 * What peerlane.ko and a module agree on that lets a device of its own work on pinned GPU memory.
 *
 * Order of locks: that of use.c, then the consumer's own. So peerlane_use_begin() and
 * peerlane_use_end() must not be called with a lock held that leave() or stop() takes; and stop() must
 * not wait for anybody who is in one of them for the same use.
 */
#ifndef PEERLANE_CONSUMER_H
#define PEERLANE_CONSUMER_H

#include <linux/list.h>
#include <linux/types.h>

struct device;
struct pl_pin;

/**
 * struct peerlane_use - a range of a pin that a device works on
 * @leave: the memory will be taken away: asks whoever works on it to end that. Does not wait for them,
 *	but may sleep. Called before @stop, perhaps more than once, and not after peerlane_use_end() has
 *	returned
 * @stop: the memory goes away: returns when the device does not touch it any more and will not again.
 *	Waits for whoever was asked until @deadline, in jiffies, and then stops the device itself. Called
 *	at most once, and not after peerlane_use_end() has returned. May sleep
 * @pages: physical address of each 64 KiB page of the range; good until stop() or the end
 * @nr_pages: how many
 * @page_kind: PEERLANE_PAGES_*
 * @first: where in the first page the range begins
 * @pin: the core's
 * @node: the core's
 * @stopping: the core's: stop() is under way
 */
struct peerlane_use {
	void (*leave)(struct peerlane_use *use);
	void (*stop)(struct peerlane_use *use, unsigned long deadline);
	const u64 *pages;
	u32 nr_pages;
	u32 page_kind;
	u32 first;
	struct pl_pin *pin;
	struct list_head node;
	bool stopping;
};

/*
 * Begin to use @bytes of a pin, @offset bytes behind the address that was pinned. @fd is a /dev/peerlane of
 * the caller, @handle a pin of it. The memory stays, whatever its owner does with the handle, until
 * peerlane_use_end(), or until the GPU's driver takes it back and @use->stop() was called, which may be
 * before this returns.
 *
 * Return: 0; -EBADF not a /dev/peerlane, -EPROTO no HELLO was said, -ENOENT no such pin, -EINVAL a range
 * outside of it, -ENODEV its memory is gone.
 */
int peerlane_use_begin(struct peerlane_use *use, int fd, u32 handle, u64 offset, u64 bytes);

/* The device does not touch the memory any more. Also after stop(); waits for one that is under way. */
void peerlane_use_end(struct peerlane_use *use);

/* PEERLANE_ROUTE_IOMMU and _TRANSLATED, as they apply to a device. */
u32 peerlane_iommu_flags(struct device *dev);

#endif
