// SPDX-License-Identifier: MIT
/* The table of mapped memory. All of it is guarded by the controller's lock. */
#include "dma.h"

#include "simnvme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void pl_sn_dma_fini(struct pl_sn_dma *dma)
{
	free(dma->table);
	memset(dma, 0, sizeof(*dma));
}

/* Index of the first mapping that ends behind an address. */
static size_t lower(const struct pl_sn_dma *dma, uint64_t iova)
{
	size_t low = 0, high = dma->nr;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (dma->table[mid].iova + (dma->table[mid].bytes - 1) < iova)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

int pl_sn_dma_add(struct pl_sn_dma *dma, const struct pl_sn_mapping *mapping)
{
	size_t at;

	if (!mapping->bytes || (mapping->iova | mapping->bytes) % PL_SN_DMA_PAGE ||
	    mapping->iova + (mapping->bytes - 1) < mapping->iova || !mapping->access ||
	    mapping->access & ~(PL_SIMNVME_READ | PL_SIMNVME_WRITE))
		return -EINVAL;
	at = lower(dma, mapping->iova);
	if (at < dma->nr && dma->table[at].iova <= mapping->iova + (mapping->bytes - 1))
		return -EEXIST;
	if (dma->nr == dma->room) {
		size_t room = dma->room ? 2 * dma->room : 16;
		struct pl_sn_mapping *table = realloc(dma->table, room * sizeof(*table));

		if (!table)
			return -ENOMEM;
		dma->table = table;
		dma->room = room;
	}
	memmove(&dma->table[at + 1], &dma->table[at], (dma->nr - at) * sizeof(*dma->table));
	dma->table[at] = *mapping;
	dma->nr++;
	dma->turns++;
	return 0;
}

static void take_out(struct pl_sn_dma *dma, size_t at, struct pl_sn_mapping *removed)
{
	if (removed)
		*removed = dma->table[at];
	dma->nr--;
	memmove(&dma->table[at], &dma->table[at + 1], (dma->nr - at) * sizeof(*dma->table));
	dma->turns++;
	dma->last = 0;
}

int pl_sn_dma_remove(struct pl_sn_dma *dma, uint64_t iova, uint64_t bytes, uint64_t owner,
		     struct pl_sn_mapping *removed)
{
	size_t at = lower(dma, iova);

	if (at == dma->nr || dma->table[at].iova != iova || dma->table[at].bytes != bytes ||
	    dma->table[at].owner != owner)
		return -ENOENT;
	take_out(dma, at, removed);
	return 0;
}

bool pl_sn_dma_remove_owned(struct pl_sn_dma *dma, uint64_t owner, struct pl_sn_mapping *removed)
{
	for (size_t at = 0; at < dma->nr; at++)
		if (dma->table[at].owner == owner) {
			take_out(dma, at, removed);
			return true;
		}
	return false;
}

const struct pl_sn_mapping *pl_sn_dma_find(struct pl_sn_dma *dma, uint64_t iova)
{
	const struct pl_sn_mapping *m;
	size_t at;

	if (dma->last < dma->nr) {
		m = &dma->table[dma->last];
		if (iova - m->iova < m->bytes)
			return m;
	}
	at = lower(dma, iova);
	if (at == dma->nr || iova < dma->table[at].iova)
		return NULL;
	dma->last = at;
	return &dma->table[at];
}

void *pl_sn_dma_at(struct pl_sn_dma *dma, uint64_t iova, unsigned int access, uint64_t *bytes,
		   bool *cmb)
{
	const struct pl_sn_mapping *m = pl_sn_dma_find(dma, iova);
	uint64_t offset;

	if (!m || (m->access & access) != access) {
		dma->faults++;
		return NULL;
	}
	offset = iova - m->iova;
	*bytes = m->bytes - offset;
	if (cmb)
		*cmb = m->cmb;
	return m->memory + offset;
}

bool pl_sn_dma_read(struct pl_sn_dma *dma, uint64_t iova, void *to, size_t bytes, bool *cmb)
{
	uint8_t *out = to;

	while (bytes) {
		uint64_t here;
		const void *from = pl_sn_dma_at(dma, iova, PL_SIMNVME_READ, &here, cmb);

		if (!from)
			return false;
		if (here > bytes)
			here = bytes;
		memcpy(out, from, here);
		out += here;
		iova += here;
		bytes -= here;
	}
	return true;
}
