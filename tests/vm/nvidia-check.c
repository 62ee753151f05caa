// SPDX-License-Identifier: MIT
/*
 * Does kmod/nv_p2p.h say what NVIDIA's header says? Compiled by tests/vm/nvidia, never loaded.
 *
 * ours.h is our header with its types under names of their own (our_*, OUR_*), so that theirs can
 * be beside them. Its functions keep their names, and take pointers to the types of the real
 * header: a prototype that differs does not compile. calls.h names all of them; a function that
 * nvidia.ko does not export does not link.
 */
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/module.h>
#include <linux/types.h>

#include "nv-p2p.h"
#include "ours.h"

#define SAME_VALUE(name) static_assert((int)OUR_##name == (int)NVIDIA_##name)
#define SAME_PLACE(type, member)                                                                   \
	static_assert(offsetof(struct our_p2p_##type, member) ==                                   \
		      offsetof(struct nvidia_p2p_##type, member))
#define SAME_MEMBER(type, member)                                                                  \
	SAME_PLACE(type, member);                                                                  \
	static_assert(__same_type(((struct our_p2p_##type *)0)->member,                            \
				  ((struct nvidia_p2p_##type *)0)->member))

SAME_VALUE(P2P_PAGE_SIZE_4KB);
SAME_VALUE(P2P_PAGE_SIZE_64KB);
SAME_VALUE(P2P_PAGE_SIZE_128KB);
SAME_VALUE(P2P_PAGE_SIZE_COUNT);

SAME_MEMBER(page, physical_address);
/* A union there. */
SAME_PLACE(page, registers);
static_assert(sizeof(struct our_p2p_page) == sizeof(struct nvidia_p2p_page));

SAME_MEMBER(page_table, version);
SAME_MEMBER(page_table, page_size);
SAME_MEMBER(page_table, pages);
SAME_MEMBER(page_table, entries);
SAME_MEMBER(page_table, gpu_uuid);

/* A version that our modules would refuse at run time. */
#define THEIR_MAJOR NV_P2P_MAJOR(NVIDIA_P2P_PAGE_TABLE_VERSION)
#if NVIDIA_P2P_PAGE_TABLE_VERSION >= 0x00020000
static_assert(THEIR_MAJOR == NV_P2P_MAJOR(NV_P2P_TABLE_V2));
SAME_MEMBER(page_table, flags);
static_assert(sizeof(struct our_p2p_page_table) == sizeof(struct nvidia_p2p_page_table));
#else
static_assert(THEIR_MAJOR == NV_P2P_MAJOR(NV_P2P_TABLE_V1));
/* It ends where version 2 goes on. */
static_assert(sizeof(struct nvidia_p2p_page_table) == offsetof(struct our_p2p_page_table, flags));
#endif

#define CALL(name) (void *)name,
extern void *const calls[];
void *const calls[] = {
#include "calls.h"
};

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Peerlane: a comparison of two headers");
