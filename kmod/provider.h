/* SPDX-License-Identifier: MIT */
/*
 * What a provider of GPU memory and the core agree on. A provider is a module that can pin GPU
 * memory by its GPU address; the core does everything else.
 */
#ifndef PEERLANE_PROVIDER_H
#define PEERLANE_PROVIDER_H

#include <linux/list.h>
#include <linux/types.h>

struct module;

/**
 * struct peerlane_lease - GPU memory that a provider lends to the core
 * @address: GPU virtual address, a multiple of the provider's page size
 * @length: bytes, a multiple of the provider's page size
 * @persistent: the user does not want to know when the memory is freed
 * @private: the provider's own
 */
struct peerlane_lease {
	u64 address;
	u64 length;
	bool persistent;
	void *private;
};

/**
 * struct peerlane_provider - a provider of GPU memory
 * @name: for messages
 * @owner: its module, which cannot go while it lends anything
 * @page_bytes: size of its pages, a power of two and at least PAGE_SIZE
 * @available: is the GPU's driver there, and can it pin persistently? Without that it cannot pin here
 * @pin: lend @lease: the memory stays, whoever frees it, until @unpin. On success it has called
 *	peerlane_lease_adopt(). Unless @lease is persistent, peerlane_lease_revoked() is called when the
 *	memory is freed, perhaps before this returns. -ENODEV: it was freed meanwhile
 * @unwatch: once for each successful @pin that is not persistent: when this returns,
 *	peerlane_lease_revoked() is not running and is not called any more. In any process, or in none
 * @unpin: after @unwatch: take the memory back and forget @lease. It may fail and is then called again,
 *	unless @last. In any process, or in none
 * @id: number, given by the core
 * @node: the core's
 *
 * All of these calls may sleep, and no lock is held in them but pl_pin.end_lock of the pin itself. The
 * GPU's driver takes its locks in them, and holds them when it says that memory was freed: so
 * peerlane_lease_revoked() never calls back into the provider.
 */
struct peerlane_provider {
	const char *name;
	struct module *owner;
	u32 page_bytes;
	bool (*available)(bool *persistent);
	int (*pin)(struct peerlane_lease *lease);
	void (*unwatch)(struct peerlane_lease *lease);
	int (*unpin)(struct peerlane_lease *lease, bool last);
	u32 id;
	struct list_head node;
};

int peerlane_provider_register(struct peerlane_provider *provider);
void peerlane_provider_unregister(struct peerlane_provider *provider);

/*
 * Called by @pin once the memory is pinned: @read puts the physical addresses of all pages where it
 * is told to, or says what is wrong with @table. After an error the provider undoes the pin.
 */
int peerlane_lease_adopt(struct peerlane_lease *lease,
			 int (*read)(const void *table, u64 *physical, u32 nr_pages),
			 const void *table);

/* Called when the memory was freed. The core stops all use of it soon, and gives it back. Does not sleep. */
void peerlane_lease_revoked(struct peerlane_lease *lease);

#endif
