/* SPDX-License-Identifier: MIT */
/* PRPs: memory described to a controller by its pages. The rules are in peerlane/nvme_spec.h. */
#ifndef PL_NVME_PRP_H
#define PL_NVME_PRP_H

#include <peerlane/nvme_spec.h>

#include "pages.h"

/**
 * pl_nvme_prp_lists_bytes() - room for the list of one command, wherever its data begin
 * @max_bytes: most bytes of the command
 * @page: bytes of a controller page
 *
 * Return: bytes: 0 if no list is ever needed, a power of two up to a page, or whole pages. A list that
 * begins at a multiple of this, in memory at a page, needs no more.
 */
size_t pl_nvme_prp_lists_bytes(size_t max_bytes, size_t page);

/**
 * pl_nvme_prp_fill() - write a list of all pages of some memory
 * @data: memory
 * @offset: where in it, at a controller page
 * @end: where in it the pages end
 * @page: bytes of a controller page
 * @lists: memory for the list, with a CPU address
 * @list_offset: where in it, a multiple of 8 as an address
 * @list_bytes: room there
 *
 * Return: 0; -ENOBUFS the list has no room.
 */
int pl_nvme_prp_fill(const struct pl_nvme_pages *data, size_t offset, size_t end, size_t page,
		     const struct pl_nvme_pages *lists, size_t list_offset, size_t list_bytes);

/* As pl_nvme_prp_build(), for data in more than two pages. */
int pl_nvme_prp_list(const struct pl_nvme_pages *data, size_t offset, size_t bytes, size_t page,
		     const struct pl_nvme_pages *lists, size_t list_offset, size_t list_bytes,
		     union pl_nvme_dptr *out);

/**
 * pl_nvme_prp_build() - describe memory by PRPs
 * @data: memory
 * @offset: where in it the data begin; the address there is a multiple of 4
 * @bytes: of data, not 0; they are there
 * @page: bytes of a controller page, at most that of @data and @lists
 * @lists: memory for a list, with a CPU address; not used for data in one or two pages
 * @list_offset: where in it, a multiple of 8 as an address
 * @list_bytes: room there
 * @out: receives the PRPs
 *
 * Return: 0; -ENOBUFS the list has no room.
 */
static inline int pl_nvme_prp_build(const struct pl_nvme_pages *data, size_t offset, size_t bytes,
				    size_t page, const struct pl_nvme_pages *lists,
				    size_t list_offset, size_t list_bytes, union pl_nvme_dptr *out)
{
	size_t first;
	uint64_t bus = pl_nvme_bus(data, offset);

	first = page - (bus & (page - 1));
	if (bytes <= first) {
		out->prp.prp1 = bus;
		out->prp.prp2 = 0;
		return 0;
	}
	if (bytes - first <= page) {
		out->prp.prp1 = bus;
		out->prp.prp2 = pl_nvme_bus(data, offset + first);
		return 0;
	}
	return pl_nvme_prp_list(data, offset, bytes, page, lists, list_offset, list_bytes, out);
}

#endif
