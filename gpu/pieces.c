// SPDX-License-Identifier: MIT
/* Addresses of pieces of memory for a controller, with the PRP lists that the longer ones need. */
#include "pieces.h"

#include <errno.h>

/* A list is no longer than a page and crosses none, so it needs no link to another. */
static size_t list_bytes(size_t bytes, size_t page)
{
	const size_t entries = (bytes + page - 1) / page - 1;
	size_t room = 16;

	if (entries < 2)
		return 0;
	while (room < entries * 8)
		room *= 2;
	return room;
}

static int fill_one(const struct peerlane_nvme_map *map, size_t at, size_t bytes, size_t page,
		    struct pld_dma *out, uint64_t *list)
{
	uint64_t address;
	int err;

	*out = (struct pld_dma){ 0 };
	err = peerlane_nvme_map_address(map, at, &out->first, NULL);
	if (err)
		return err;
	if ((out->first & (page - 1)) + bytes > page && out->first & (page - 1))
		return -EINVAL;
	for (size_t k = 1; k * page < bytes; k++) {
		err = peerlane_nvme_map_address(map, at + k * page, &address, NULL);
		if (err)
			return err;
		if (k == 1)
			out->second = address;
		if (list)
			list[k - 1] = address;
	}
	return 0;
}

int pl_pieces_fill(struct peerlane_nvme *nvme, const struct peerlane_nvme_map *map, size_t nr,
		   size_t bytes, size_t page_bytes, struct pld_dma *out,
		   struct peerlane_nvme_map **lists)
{
	const size_t each = list_bytes(bytes, page_bytes);
	struct peerlane_nvme_map *made = NULL;
	void *memory = NULL;
	int err = 0;

	if (each > page_bytes)
		return -EINVAL;
	if (each)
		err = peerlane_nvme_map_alloc(nvme, nr * each, &memory, &made);
	for (size_t i = 0; i < nr && !err; i++) {
		char *list = each ? (char *)memory + i * each : NULL;

		err = fill_one(map, i * bytes, bytes, page_bytes, &out[i], (uint64_t *)list);
		if (!err && each)
			err = peerlane_nvme_map_address(made, i * each, &out[i].list, NULL);
	}
	if (err)
		peerlane_nvme_unmap(made);
	else
		*lists = made;
	return err;
}
