// SPDX-License-Identifier: MIT
/* PRP lists and the pieces of memory that commands name. sgl.c has the other kind of list. */
#include "data.h"

#include "sgl.h"

#include <stdlib.h>
#include <string.h>

unsigned int pl_sn_data_add(struct pl_simnvme *c, uint64_t address, uint64_t bytes,
			    enum pl_sn_way way)
{
	uint32_t use = way == PL_SN_TO_HOST ? PL_NVME_CMBSZ_RDS : PL_NVME_CMBSZ_WDS;
	unsigned int access = way == PL_SN_TO_HOST ? PL_SIMNVME_WRITE : PL_SIMNVME_READ;

	while (bytes) {
		struct pl_sn_seg *last = c->nr_segs ? &c->segs[c->nr_segs - 1] : NULL;
		uint64_t here;
		bool cmb;
		uint8_t *memory = pl_sn_dma_at(&c->dma, address, access, &here, &cmb);

		if (!memory)
			return PL_NVME_SC_DATA_TRANSFER;
		if (cmb && !(c->config.cmb_use & use))
			return PL_NVME_SC_INVALID_CMB;
		if (here > bytes)
			here = bytes;
		if (last && last->memory && last->memory + last->bytes == memory) {
			last->bytes += here;
		} else {
			if (!pl_sn_data_room(c))
				return PL_NVME_SC_INTERNAL;
			c->segs[c->nr_segs++] = (struct pl_sn_seg){ memory, here };
		}
		address += here;
		bytes -= here;
	}
	return PL_NVME_SC_SUCCESS;
}

bool pl_sn_data_room(struct pl_simnvme *c)
{
	size_t room = c->room_segs ? 2 * c->room_segs : 64;
	struct pl_sn_seg *segs;

	if (c->nr_segs < c->room_segs)
		return true;
	segs = realloc(c->segs, room * sizeof(*segs));
	if (!segs)
		return false;
	c->segs = segs;
	c->room_segs = room;
	return true;
}

/* Goes through a PRP list, entry by entry. */
struct prp_list {
	uint64_t at;   /* address of the next entry */
	uint64_t left; /* pages to come */
};

/* The next entry of a list. The last one of a page leads to the next page, if more are to come. */
static unsigned int next_prp(struct pl_simnvme *c, struct prp_list *list, uint64_t *entry)
{
	uint64_t page = c->page_bytes;
	bool cmb = false;

	for (;;) {
		if (!pl_sn_dma_read(&c->dma, list->at, entry, sizeof(*entry), &cmb))
			return PL_NVME_SC_DATA_TRANSFER;
		if (cmb && !(c->config.cmb_use & PL_NVME_CMBSZ_LISTS))
			return PL_NVME_SC_INVALID_CMB;
		if (*entry & (page - 1))
			return PL_NVME_SC_PRP_OFFSET;
		if ((list->at & (page - 1)) != page - sizeof(*entry) || list->left == 1)
			break;
		/* Its offset is zero, so the page it leads to holds more than this. */
		list->at = *entry;
	}
	list->at += sizeof(*entry);
	list->left--;
	return PL_NVME_SC_SUCCESS;
}

static unsigned int find_list(struct pl_simnvme *c, uint64_t prp2, uint64_t bytes,
			      enum pl_sn_way way)
{
	uint64_t page = c->page_bytes;
	struct prp_list list = { prp2, (bytes + page - 1) / page };

	/* The list itself may begin anywhere in a page, but at a whole entry. */
	if (prp2 & 7)
		return PL_NVME_SC_PRP_OFFSET;
	while (bytes) {
		uint64_t entry, here = bytes < page ? bytes : page;
		unsigned int status = next_prp(c, &list, &entry);

		if (!status)
			status = pl_sn_data_add(c, entry, here, way);
		if (status)
			return status;
		bytes -= here;
	}
	return PL_NVME_SC_SUCCESS;
}

static unsigned int find_prp(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, uint64_t bytes,
			     enum pl_sn_way way)
{
	uint64_t prp1 = sqe->dptr.prp.prp1, prp2 = sqe->dptr.prp.prp2, page = c->page_bytes;
	uint64_t first = page - (prp1 & (page - 1));
	unsigned int status;

	if (prp1 & 3)
		return PL_NVME_SC_PRP_OFFSET;
	if (first > bytes)
		first = bytes;
	status = pl_sn_data_add(c, prp1, first, way);
	bytes -= first;
	if (status || !bytes)
		return status;
	if (bytes > page)
		return find_list(c, prp2, bytes, way);
	if (prp2 & (page - 1))
		return PL_NVME_SC_PRP_OFFSET;
	return pl_sn_data_add(c, prp2, bytes, way);
}

unsigned int pl_sn_data_find(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, uint64_t bytes,
			     enum pl_sn_way way)
{
	c->nr_segs = 0;
	if (sqe->flags & PL_NVME_PSDT_MASK)
		return pl_sn_sgl_find(c, sqe, bytes, way);
	return find_prp(c, sqe, bytes, way);
}

bool pl_sn_data_too_long(const struct pl_simnvme *c, uint64_t bytes)
{
	/* MDTS counts the smallest pages the controller has, not those in use; 0 is no limit. */
	uint32_t shift = 12 + c->config.mpsmin + c->config.mdts;

	return c->config.mdts && shift < 64 && bytes > (uint64_t)1 << shift;
}

void pl_sn_data_to_host(struct pl_simnvme *c, const void *data, uint64_t bytes)
{
	const uint8_t *from = data;

	for (size_t i = 0; bytes; i++) {
		uint64_t here = c->segs[i].bytes < bytes ? c->segs[i].bytes : bytes;

		if (c->segs[i].memory)
			memcpy(c->segs[i].memory, from, here);
		from += here;
		bytes -= here;
	}
}

void pl_sn_data_from_host(struct pl_simnvme *c, void *data, uint64_t bytes)
{
	uint8_t *to = data;

	for (size_t i = 0; bytes; i++) {
		uint64_t here = c->segs[i].bytes < bytes ? c->segs[i].bytes : bytes;

		memcpy(to, c->segs[i].memory, here);
		to += here;
		bytes -= here;
	}
}

bool pl_sn_data_equal(struct pl_simnvme *c, const void *data, uint64_t bytes)
{
	const uint8_t *with = data;

	for (size_t i = 0; bytes; i++) {
		uint64_t here = c->segs[i].bytes < bytes ? c->segs[i].bytes : bytes;

		if (memcmp(with, c->segs[i].memory, here) != 0)
			return false;
		with += here;
		bytes -= here;
	}
	return true;
}

unsigned int pl_sn_data_reply(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, const void *data,
			      uint64_t bytes)
{
	unsigned int status = pl_sn_data_find(c, sqe, bytes, PL_SN_TO_HOST);

	if (!status)
		pl_sn_data_to_host(c, data, bytes);
	return status;
}

unsigned int pl_sn_data_pages(struct pl_simnvme *c, uint64_t prp1, uint64_t *pages, uint64_t nr)
{
	struct prp_list list = { prp1, nr };

	for (uint64_t i = 0; i < nr; i++) {
		unsigned int status = next_prp(c, &list, &pages[i]);

		if (status)
			return status;
	}
	return PL_NVME_SC_SUCCESS;
}
