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
 * @persistent: the memory must stay until the core gives it back
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
 * @available: can it pin now, and persistently? May sleep
 * @pin: lend @lease; on success it has called peerlane_lease_adopt(). May sleep; no lock is held
 * @unpin: called once for each successful @pin: take the memory of @lease back, unless it was
 *	revoked, and forget it. May sleep; no lock is held
 * @id: number, given by the core
 * @node: the core's
 *
 * Locks: the GPU's driver may hold its own locks while it revokes, and takes them when asked to
 * pin or unpin. So the core never holds a lock across @pin or @unpin that revoking needs, and
 * revoking never calls back into the provider.
 */
struct peerlane_provider {
	const char *name;
	struct module *owner;
	u32 page_bytes;
	bool (*available)(bool *persistent);
	int (*pin)(struct peerlane_lease *lease);
	void (*unpin)(struct peerlane_lease *lease, bool revoked);
	u32 id;
	struct list_head node;
};

int peerlane_provider_register(struct peerlane_provider *provider);
void peerlane_provider_unregister(struct peerlane_provider *provider);

/*
 * Called by @pin once the memory is pinned: @read puts the physical addresses of all pages where it
 * is told to, or says what is wrong with @table. It is not called when the memory was revoked
 * meanwhile: the answer is -ENODEV, and the provider must not touch what the GPU's driver gave it.
 * After any other error the provider undoes the pin.
 */
int peerlane_lease_adopt(struct peerlane_lease *lease,
			 int (*read)(const void *table, u64 *physical, u32 nr_pages),
			 const void *table);

/*
 * Called when the GPU's driver takes the memory back. Returns when no mapping is left and no
 * device works on the memory any more. May sleep.
 */
void peerlane_lease_revoked(struct peerlane_lease *lease);

#endif
