// SPDX-License-Identifier: MIT
/* The tiny controller: its commands. */
#include "fake_commands.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ memory of commands */

static int add(struct fake *f, struct fake_piece **pieces, size_t *nr, uint64_t bus, size_t bytes)
{
	/* Frame by frame, for the fake's memory is not contiguous where its bus is. */
	while (bytes) {
		size_t n = 4096 - (bus & 4095) < bytes ? 4096 - (bus & 4095) : bytes;
		char *ptr = fake_at(f, bus, n);

		if (!ptr)
			return -1;
		if (!(*nr & (*nr - 1))) /* full at 0 and at powers of two */
			*pieces = realloc(*pieces, (*nr ? 2 * *nr : 1) * sizeof(**pieces));
		(*pieces)[(*nr)++] = (struct fake_piece){ .ptr = ptr, .bytes = n };
		bus += n;
		bytes -= n;
	}
	return 0;
}

static int walk_prp(struct fake *f, uint64_t prp1, uint64_t prp2, size_t bytes,
		    struct fake_piece **pieces, size_t *nr)
{
	size_t page = fake_page(f), n = page - (prp1 & (page - 1));
	uint64_t list = prp2, entry;

	if (prp1 & 3)
		return -1;
	n = n < bytes ? n : bytes;
	if (add(f, pieces, nr, prp1, n))
		return -1;
	bytes -= n;
	if (!bytes)
		return prp2 ? -1 : 0;
	if (bytes <= page)
		return prp2 & (page - 1) ? -1 : add(f, pieces, nr, prp2, bytes);
	if (list & 7)
		return -1;
	while (bytes) {
		char *at = fake_at(f, list, 8);

		if (!at)
			return -1;
		memcpy(&entry, at, 8);
		if (entry & (page - 1))
			return -1;
		if ((list & (page - 1)) == page - 8 && bytes > page) {
			list = entry; /* the next page of the list */
			continue;
		}
		n = page < bytes ? page : bytes;
		if (add(f, pieces, nr, entry, n))
			return -1;
		list += 8;
		bytes -= n;
	}
	return 0;
}

static int walk_sgl(struct fake *f, struct pl_nvme_sgl sgl, size_t bytes,
		    struct fake_piece **pieces, size_t *nr)
{
	uint64_t at = 0, end = 0;

	for (;;) {
		unsigned int type = sgl.type >> 4;

		if (sgl.type & 15 || sgl.reserved[0] || sgl.reserved[1] || sgl.reserved[2])
			return -1;
		if (type == PL_NVME_SGL_DATA) {
			if (sgl.length > bytes || add(f, pieces, nr, sgl.addr, sgl.length))
				return -1;
			bytes -= sgl.length;
			if (at == end)
				return bytes ? -1 : 0;
		} else if ((type == PL_NVME_SGL_SEGMENT || type == PL_NVME_SGL_LAST_SEGMENT) &&
			   at == end && sgl.length && sgl.length % 16 == 0 && !(sgl.addr & 15)) {
			at = sgl.addr;
			end = at + sgl.length;
		} else {
			return -1;
		}
		if (!fake_at(f, at, 16))
			return -1;
		memcpy(&sgl, fake_at(f, at, 16), 16);
		at += 16;
	}
}

int fake_walk(struct fake *f, const struct pl_nvme_sqe *sqe, size_t bytes,
	      struct fake_piece **pieces, size_t *nr)
{
	*pieces = NULL;
	*nr = 0;
	if ((sqe->flags & PL_NVME_PSDT_MASK) == PL_NVME_PSDT_SGL) {
		f->nr_sgl++;
		return walk_sgl(f, sqe->dptr.sgl, bytes, pieces, nr);
	}
	return walk_prp(f, sqe->dptr.prp.prp1, sqe->dptr.prp.prp2, bytes, pieces, nr);
}

/* Copy to the memory of a command, or from it; or compare: false if that differs. */
static bool move(struct fake *f, const struct pl_nvme_sqe *sqe, char *data, size_t bytes, char how)
{
	struct fake_piece *pieces;
	bool same = true;
	size_t nr;

	if (fake_walk(f, sqe, bytes, &pieces, &nr)) {
		f->nr_bad++;
		free(pieces);
		return false;
	}
	for (size_t i = 0; i < nr; data += pieces[i++].bytes) {
		if (how == 'w')
			memcpy(data, pieces[i].ptr, pieces[i].bytes);
		else if (how == 'r')
			memcpy(pieces[i].ptr, data, pieces[i].bytes);
		else
			same = same && !memcmp(data, pieces[i].ptr, pieces[i].bytes);
	}
	free(pieces);
	return same;
}

/* ------------------------------------------------------------------ I/O */

bool fake_io(struct fake *f, const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe)
{
	uint64_t lba = sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
	size_t blocks = (size_t)(sqe->cdw12 & 0xffff) + 1, shift = sqe->nsid == 2 ? 12 : 9;
	size_t bytes = blocks << shift;
	struct pl_nvme_dsm_range range[256];
	unsigned int sc = 0;
	char *data;

	if (sqe->nsid < 1 || sqe->nsid > 2) {
		cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INVALID_NS) | PL_NVME_CQE_DNR;
		return true;
	}
	data = f->disk[sqe->nsid - 1];
	switch (sqe->opcode) {
	case PL_NVME_FLUSH:
		break;
	case PL_NVME_DSM:
		blocks = (sqe->cdw10 & 0xff) + 1;
		if (!move(f, sqe, (char *)range, blocks * 16, 'w'))
			sc = PL_NVME_SC_DATA_TRANSFER;
		for (size_t i = 0; !sc && sqe->cdw11 & PL_NVME_DSM_DEALLOCATE && i < blocks; i++) {
			if (range[i].first_block > 65536 ||
			    range[i].nr_blocks > 65536 - range[i].first_block) {
				sc = PL_NVME_SC_LBA_RANGE;
				break;
			}
			memset(data + (range[i].first_block << shift), 0,
			       (size_t)range[i].nr_blocks << shift);
			f->nr_deallocated++;
		}
		break;
	default:
		if (lba >= 65536 || blocks > 65536 - lba) {
			sc = PL_NVME_SC_LBA_RANGE;
			break;
		}
		data += lba << shift;
		if (f->id.mdts && f->id.mdts < 32 && bytes > (size_t)4096 << f->id.mdts)
			sc = PL_NVME_SC_INVALID_FIELD;
		else if (sqe->opcode == PL_NVME_READ)
			sc = move(f, sqe, data, bytes, 'r') ? 0 : PL_NVME_SC_DATA_TRANSFER;
		else if (sqe->opcode == PL_NVME_WRITE)
			sc = move(f, sqe, data, bytes, 'w') ? 0 : PL_NVME_SC_DATA_TRANSFER;
		else if (sqe->opcode == PL_NVME_COMPARE)
			sc = move(f, sqe, data, bytes, 'c') ? 0 : PL_NVME_SC_COMPARE_FAILED;
		else if (sqe->opcode == PL_NVME_WRITE_ZEROES)
			memset(data, 0, bytes);
		else
			sc = PL_NVME_SC_INVALID_OPCODE;
	}
	cqe->status = PL_NVME_CQE_STATUS(sc);
	return true;
}

/* ------------------------------------------------------------------ admin */

void fake_make_queue(struct fake *f, struct fake_queue *q, uint64_t bus, bool contiguous,
		     uint32_t depth, size_t size)
{
	size_t page = fake_page(f);
	size_t nr = (depth * size + page - 1) / page;
	struct pl_nvme_sqe list = { .dptr.prp.prp2 = bus };

	*q = (struct fake_queue){ .exists = true, .depth = depth, .phase = 1 };
	q->pages = calloc(nr, sizeof(*q->pages));
	for (size_t i = 0; i < nr; i++) {
		uint64_t at = bus + i * page;

		if (!contiguous) {
			char *entry = fake_at(f, list.dptr.prp.prp2, 8);

			if (entry && (list.dptr.prp.prp2 & (page - 1)) == page - 8 && i + 1 < nr) {
				memcpy(&list.dptr.prp.prp2, entry, 8);
				entry = fake_at(f, list.dptr.prp.prp2, 8);
			}
			if (entry)
				memcpy(&at, entry, 8);
			list.dptr.prp.prp2 += 8;
		}
		q->pages[i] = at;
		if (!fake_queue_at(f, at, 4096) || at & (page - 1))
			f->nr_bad++;
	}
}

static unsigned int queues(struct fake *f, const struct pl_nvme_sqe *sqe)
{
	unsigned int qid = sqe->cdw10 & 0xffff;
	uint32_t depth = (sqe->cdw10 >> 16) + 1, cqid = sqe->cdw11 >> 16;
	bool pc = sqe->cdw11 & PL_NVME_QUEUE_PC;

	if (!qid || qid >= FAKE_QUEUES ||
	    PL_NVME_DOORBELL_CQ(qid, PL_NVME_CAP_DSTRD(f->cap)) + 4 > sizeof(f->bar))
		return PL_NVME_SC_INVALID_QID;
	switch (sqe->opcode) {
	case PL_NVME_ADMIN_CREATE_CQ:
		if (f->cq[qid].exists)
			return PL_NVME_SC_INVALID_QID;
		fake_make_queue(f, &f->cq[qid], sqe->dptr.prp.prp1, pc, depth, 16);
		return 0;
	case PL_NVME_ADMIN_CREATE_SQ:
		if (f->sq[qid].exists)
			return PL_NVME_SC_INVALID_QID;
		if (cqid >= FAKE_QUEUES || !f->cq[cqid].exists)
			return PL_NVME_SC_CQ_INVALID;
		fake_make_queue(f, &f->sq[qid], sqe->dptr.prp.prp1, pc, depth, 64);
		f->sq[qid].cqid = cqid;
		return 0;
	case PL_NVME_ADMIN_DELETE_SQ:
		if (!f->sq[qid].exists)
			return PL_NVME_SC_INVALID_QID;
		fake_drop_queue(&f->sq[qid]);
		break;
	default:
		if (!f->cq[qid].exists || f->sq[qid].exists)
			return PL_NVME_SC_INVALID_QUEUE_DELETION;
		fake_drop_queue(&f->cq[qid]);
		break;
	}
	pl_nvme_write32(f->bar, PL_NVME_DOORBELL_SQ(qid, PL_NVME_CAP_DSTRD(f->cap)), 0);
	pl_nvme_write32(f->bar, PL_NVME_DOORBELL_CQ(qid, PL_NVME_CAP_DSTRD(f->cap)), 0);
	return 0;
}

static unsigned int identify(struct fake *f, const struct pl_nvme_sqe *sqe)
{
	static const struct pl_nvme_id_ns none;
	uint32_t list[1024] = { 0 };
	void *data;

	switch (sqe->cdw10 & 0xff) {
	case PL_NVME_CNS_CTRL:
		data = &f->id;
		break;
	case PL_NVME_CNS_NS:
		data = sqe->nsid && sqe->nsid <= 2 ? (void *)&f->ns[sqe->nsid - 1] : (void *)&none;
		break;
	case PL_NVME_CNS_NS_ACTIVE:
		for (uint32_t id = sqe->nsid + 1, i = 0; id <= 2; id++)
			list[i++] = id;
		data = list;
		break;
	default:
		return PL_NVME_SC_INVALID_FIELD;
	}
	return move(f, sqe, data, 4096, 'r') ? 0 : PL_NVME_SC_DATA_TRANSFER;
}

/* A log page that can be told from others: byte i of page p is p + i / 7. */
static unsigned int log_page(struct fake *f, const struct pl_nvme_sqe *sqe)
{
	size_t bytes = (((sqe->cdw10 >> 16) | (size_t)(sqe->cdw11 & 0xffff) << 16) + 1) * 4;
	uint64_t offset = sqe->cdw12 | (uint64_t)sqe->cdw13 << 32;
	char *data = malloc(bytes);
	unsigned int sc = 0;

	for (size_t i = 0; i < bytes; i++)
		data[i] = (char)((sqe->cdw10 & 0xff) + (offset + i) / 7);
	if ((sqe->cdw10 & 0xff) > PL_NVME_LOG_EFFECTS)
		sc = PL_NVME_SC_INVALID_LOG_PAGE;
	else if (!move(f, sqe, data, bytes, 'r'))
		sc = PL_NVME_SC_DATA_TRANSFER;
	free(data);
	return sc;
}

static bool wait_event(struct fake *f, const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe)
{
	for (unsigned int i = 0; i <= f->id.aerl && i < 8; i++)
		if (!f->events[i].waiting) {
			f->events[i] = (struct fake_event){ .cid = sqe->cid, .waiting = true };
			return false;
		}
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_EVENT_LIMIT);
	return true;
}

bool fake_event(struct fake *f, unsigned int type, unsigned int info, unsigned int page)
{
	struct pl_nvme_cqe cqe = {
		.result = type | info << PL_NVME_EVENT_INFO_SHIFT | page << PL_NVME_EVENT_LOG_SHIFT,
		.sqhd = (uint16_t)f->sq[0].head,
	};

	for (unsigned int i = 0; i < 8; i++)
		if (f->events[i].waiting) {
			f->events[i].waiting = false;
			cqe.cid = f->events[i].cid;
			fake_post(f, 0, &cqe);
			return true;
		}
	return false;
}

static unsigned int set_dbbuf(struct fake *f, uint64_t shadow, uint64_t event)
{
	if (!(f->id.oacs & PL_NVME_OACS_DBBUF))
		return PL_NVME_SC_INVALID_OPCODE;
	if (!shadow || !event || (shadow | event) & (fake_page(f) - 1))
		return PL_NVME_SC_INVALID_FIELD;
	if (!fake_at(f, shadow, 4) || !fake_at(f, event, 4))
		return PL_NVME_SC_DATA_TRANSFER;
	f->shadow = shadow;
	f->eventidx = event;
	return 0;
}

bool fake_admin(struct fake *f, const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe)
{
	unsigned int sc = 0, feature = sqe->cdw10 & 0xff;

	switch (sqe->opcode) {
	case PL_NVME_ADMIN_IDENTIFY:
		sc = identify(f, sqe);
		break;
	case PL_NVME_ADMIN_SET_FEATURES:
		f->features[feature] = feature == PL_NVME_FEAT_NR_QUEUES ? f->granted : sqe->cdw11;
		cqe->result = feature == PL_NVME_FEAT_NR_QUEUES ? f->granted : 0;
		break;
	case PL_NVME_ADMIN_GET_FEATURES:
		cqe->result = f->features[feature];
		break;
	case PL_NVME_ADMIN_GET_LOG_PAGE:
		sc = log_page(f, sqe);
		break;
	case PL_NVME_ADMIN_CREATE_CQ:
	case PL_NVME_ADMIN_CREATE_SQ:
	case PL_NVME_ADMIN_DELETE_CQ:
	case PL_NVME_ADMIN_DELETE_SQ:
		sc = queues(f, sqe);
		break;
	case PL_NVME_ADMIN_ABORT:
		f->nr_aborts++;
		cqe->result = PL_NVME_ABORT_NOT_DONE;
		break;
	case PL_NVME_ADMIN_ASYNC_EVENT:
		return wait_event(f, sqe, cqe);
	case PL_NVME_ADMIN_DBBUF:
		sc = set_dbbuf(f, sqe->dptr.prp.prp1, sqe->dptr.prp.prp2);
		break;
	default:
		sc = PL_NVME_SC_INVALID_OPCODE;
	}
	cqe->status = PL_NVME_CQE_STATUS(sc);
	return true;
}
