// SPDX-License-Identifier: MIT
/* What a proxy accepts as a command: everything else gets the status that a controller would give. */
#include "proxy.h"

/* Bit 15 of the member status, without the phase. */
#define DNR (PL_NVME_CQE_DNR >> 1)

unsigned int pl_proxy_check(const struct pl_proxies *ps, const struct pl_proxy_queue *q,
			    const struct pl_nvme_sqe *sqe, struct pl_proxy_command *out)
{
	const struct peerlane_device *dev = ps->dev;
	const struct pl_shape *s = &dev->shape;
	const uint32_t nr = (sqe->cdw12 & 0xffff) + 1;
	const uint64_t lba = sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
	const struct pl_space *space;
	uint32_t bits;

	if (sqe->opcode != PL_NVME_READ && sqe->opcode != PL_NVME_WRITE &&
	    sqe->opcode != PL_NVME_FLUSH)
		return PL_NVME_SC_INVALID_OPCODE | DNR;
	if (sqe->flags)
		return PL_NVME_SC_INVALID_FIELD | DNR;
	if (!sqe->nsid || sqe->nsid > dev->nr_spaces)
		return PL_NVME_SC_INVALID_NS | DNR;
	/* The lower bits of the id are the slot. */
	bits = s->nr_slots < 2 ? 0 : 32 - (uint32_t)__builtin_clz(s->nr_slots - 1);
	out->slot = sqe->cid & ((1u << bits) - 1);
	if (out->slot >= s->nr_slots)
		return PL_NVME_SC_INVALID_FIELD | DNR;
	out->space = sqe->nsid - 1;
	out->offset = 0;
	out->bytes = 0;
	out->data = q->data + (size_t)out->slot * s->transfer_bytes;
	if (sqe->opcode == PL_NVME_FLUSH)
		return 0;
	space = &dev->spaces[out->space];
	if (nr > space->nr_blocks || lba > space->nr_blocks - nr)
		return PL_NVME_SC_LBA_RANGE | DNR;
	if (nr > s->transfer_bytes / space->block_bytes)
		return PL_NVME_SC_INVALID_FIELD | DNR;
	if (sqe->dptr.prp.prp1 != q->prp + (uint64_t)out->slot * s->transfer_bytes)
		return PL_NVME_SC_DATA_TRANSFER | DNR;
	if (sqe->opcode == PL_NVME_WRITE && space->read_only)
		return PL_NVME_SC_READ_ONLY_RANGE | DNR;
	out->offset = lba * space->block_bytes;
	out->bytes = nr * space->block_bytes;
	return 0;
}
