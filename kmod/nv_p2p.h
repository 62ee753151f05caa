/* SPDX-License-Identifier: MIT */
/*
 * The interface by which NVIDIA's open kernel modules lend GPU memory to other drivers, as far as
 * it is used here. Written from its documented behaviour; the real one is nv-p2p.h of those
 * modules.
 *
 * Rules that matter (all of them, with their sources: docs/kmod.md):
 * - Address and length are multiples of 64 KiB, and lie in one allocation of the calling process.
 * - The callback runs when the memory is freed, with locks of the driver held that get and put take
 *   as well: never call those from it. It may even run before get returns. After it has returned,
 *   the driver frees the page table itself; put then does nothing and returns 0.
 * - Put finds a pin only in the process that made it. Elsewhere it does nothing, returns 0, and the
 *   callback stays registered.
 * - Pins of the persistent kind have no callback, and the memory lives until put, from anywhere.
 * - Freeing the page table by nvidia_p2p_free_page_table() has no effect.
 */
#ifndef PEERLANE_NV_P2P_H
#define PEERLANE_NV_P2P_H

#include <linux/types.h>

#define NV_P2P_PAGE_BYTES 65536U
/* Major version in the upper half; both layouts begin in the same way. */
#define NV_P2P_TABLE_V1 0x00010002U
#define NV_P2P_TABLE_V2 0x00020000U
#define NV_P2P_MAJOR(version) ((version) >> 16)

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

/**
 * struct nvidia_p2p_page - one page of GPU memory
 * @physical_address: in the GPU's BAR
 * @registers: not used any more
 */
struct nvidia_p2p_page {
	u64 physical_address;
	u32 registers[6];
};

/**
 * struct nvidia_p2p_page_table - the pages of a pin
 * @version: NV_P2P_TABLE_*
 * @page_size: enum nvidia_p2p_page_size_type
 * @pages: one pointer for each
 * @entries: how many
 * @gpu_uuid: 16 bytes
 * @flags: from version 2 on
 */
struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;
	u32 flags;
};

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *),
			 void *data);
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags);
int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags);
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

#endif
