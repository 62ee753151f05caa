// SPDX-License-Identifier: MIT
/* PRP lists, chained where one page does not hold them. */
#include "prp.h"

#include <errno.h>

size_t pl_nvme_prp_lists_bytes(size_t max_bytes, size_t page)
{
	size_t per_page = page / 8, entries, bytes = 8;

	/* At worst the data begin 4 bytes before the end of a page; that page is prp1. */
	entries = max_bytes > 4 ? (max_bytes - 4 + page - 1) / page : 0;
	if (entries <= 1)
		return 0;
	if (entries > per_page)
		/* Every page but the last gives one entry to the chain. */
		return ((entries - 1 + per_page - 2) / (per_page - 1)) * page;
	while (bytes < entries * 8)
		bytes *= 2;
	return bytes;
}

int pl_nvme_prp_fill(const struct pl_nvme_pages *data, size_t offset, size_t end, size_t page,
		     const struct pl_nvme_pages *lists, size_t list_offset, size_t list_bytes)
{
	size_t used = 0, room;

	if (list_bytes < 8)
		return -ENOBUFS;
	room = (page - (pl_nvme_bus(lists, list_offset) & (page - 1))) / 8;
	for (; offset < end; used += 8) {
		uint64_t *entry = (uint64_t *)(void *)(lists->cpu + list_offset + used);
		bool chain = room == 1 && end - offset > page;

		if (used + (chain ? 16 : 8) > list_bytes)
			return -ENOBUFS;
		if (chain) {
			/* The last entry of the page leads to the next one. */
			*entry = pl_nvme_bus(lists, list_offset + used + 8);
			room = page / 8;
		} else {
			*entry = pl_nvme_bus(data, offset);
			offset += page;
			room--;
		}
	}
	return 0;
}

int pl_nvme_prp_list(const struct pl_nvme_pages *data, size_t offset, size_t bytes, size_t page,
		     const struct pl_nvme_pages *lists, size_t list_offset, size_t list_bytes,
		     union pl_nvme_dptr *out)
{
	uint64_t first = pl_nvme_bus(data, offset);
	int rc = pl_nvme_prp_fill(data, offset + page - (first & (page - 1)), offset + bytes, page,
				  lists, list_offset, list_bytes);

	if (rc)
		return rc;
	out->prp.prp1 = first;
	out->prp.prp2 = pl_nvme_bus(lists, list_offset);
	return 0;
}
