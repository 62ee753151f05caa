// SPDX-License-Identifier: MIT
/* Admin commands that create and delete queues. */
#include "admin.h"

#include "data.h"
#include "queue.h"

#include <stdlib.h>

/* See that the memory of a queue may be used, and fill its ring: a status. */
static unsigned int make_ring(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, uint32_t shift,
			      uint32_t use, struct pl_sn_ring *ring)
{
	uint64_t prp1 = sqe->dptr.prp.prp1;
	uint32_t entries = (sqe->cdw10 >> PL_NVME_QUEUE_SIZE_SHIFT) + 1;
	uint64_t bytes = (uint64_t)entries << shift;
	const struct pl_sn_mapping *first, *last;
	uint64_t nr_pages;
	unsigned int status;

	*ring = (struct pl_sn_ring){
		.base = prp1,
		.entries = entries,
		.shift = shift,
		.page_bytes = c->page_bytes,
		.seen_turns = UINT64_MAX,
	};
	if (sqe->cdw11 & PL_NVME_QUEUE_PC) {
		if (prp1 & (c->page_bytes - 1))
			return PL_NVME_SC_PRP_OFFSET;
		if (prp1 + bytes < prp1)
			return PL_NVME_SC_INVALID_FIELD;
		/* In the controller's memory all of it or nothing, and only if that is for queues. */
		first = pl_sn_dma_find(&c->dma, prp1);
		last = pl_sn_dma_find(&c->dma, prp1 + bytes - 1);
		if ((first && first->cmb) != (last && last->cmb) ||
		    (first && first->cmb && !(c->config.cmb_use & use)))
			return PL_NVME_SC_INVALID_CMB;
		return PL_NVME_SC_SUCCESS;
	}
	if (c->config.cqr)
		return PL_NVME_SC_INVALID_FIELD;
	if (prp1 & 7)
		return PL_NVME_SC_PRP_OFFSET;
	nr_pages = (bytes + c->page_bytes - 1) / c->page_bytes;
	ring->pages = calloc(nr_pages, sizeof(*ring->pages));
	if (!ring->pages)
		return PL_NVME_SC_INTERNAL;
	status = pl_sn_data_pages(c, prp1, ring->pages, nr_pages);
	if (status) {
		free(ring->pages);
		ring->pages = NULL;
	}
	return status;
}

static uint32_t entry_size(const struct pl_simnvme *c, unsigned int shift)
{
	return c->cc >> shift & 0xf;
}

/* At least two entries, at most what CAP.MQES says. */
static bool size_fits(const struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t last = sqe->cdw10 >> PL_NVME_QUEUE_SIZE_SHIFT;

	return last && last <= c->config.mqes;
}

unsigned int pl_sn_create_cq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t qid = sqe->cdw10 & 0xffff;
	struct pl_sn_ring ring;
	unsigned int status;

	if (!qid || qid > c->features.nr_cqs || c->cqs[qid])
		return PL_NVME_SC_INVALID_QID;
	if (!size_fits(c, sqe) || entry_size(c, PL_NVME_CC_IOCQES_SHIFT) != PL_NVME_IOCQES)
		return PL_NVME_SC_INVALID_QUEUE_SIZE;
	if (sqe->cdw11 & PL_NVME_CQ_IEN && sqe->cdw11 >> PL_NVME_CQ_IV_SHIFT >= c->config.vectors)
		return PL_NVME_SC_INVALID_VECTOR;
	status = make_ring(c, sqe, PL_NVME_IOCQES, PL_NVME_CMBSZ_CQS, &ring);
	if (status)
		return status;
	return pl_sn_cq_create(c, qid, &ring) ? PL_NVME_SC_INTERNAL : PL_NVME_SC_SUCCESS;
}

unsigned int pl_sn_create_sq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t qid = sqe->cdw10 & 0xffff, cqid = sqe->cdw11 >> PL_NVME_SQ_CQID_SHIFT;
	struct pl_sn_ring ring;
	unsigned int status;

	if (!qid || qid > c->features.nr_sqs || c->sqs[qid])
		return PL_NVME_SC_INVALID_QID;
	if (!size_fits(c, sqe) || entry_size(c, PL_NVME_CC_IOSQES_SHIFT) != PL_NVME_IOSQES)
		return PL_NVME_SC_INVALID_QUEUE_SIZE;
	/* An id that no completion queue can have is one thing, one that no queue has is another. */
	if (!cqid || cqid > c->features.nr_cqs)
		return PL_NVME_SC_INVALID_QID;
	if (!c->cqs[cqid])
		return PL_NVME_SC_CQ_INVALID;
	status = make_ring(c, sqe, PL_NVME_IOSQES, PL_NVME_CMBSZ_SQS, &ring);
	if (status)
		return status;
	return pl_sn_sq_create(c, qid, c->cqs[cqid], &ring) ? PL_NVME_SC_INTERNAL
							    : PL_NVME_SC_SUCCESS;
}

unsigned int pl_sn_delete_cq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t qid = sqe->cdw10 & 0xffff;

	if (!qid || qid > c->config.queues || !c->cqs[qid])
		return PL_NVME_SC_INVALID_QID;
	if (c->cqs[qid]->nr_sqs)
		return PL_NVME_SC_INVALID_QUEUE_DELETION;
	pl_sn_cq_delete(c, c->cqs[qid]);
	return PL_NVME_SC_SUCCESS;
}

unsigned int pl_sn_delete_sq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t qid = sqe->cdw10 & 0xffff;

	if (!qid || qid > c->config.queues || !c->sqs[qid])
		return PL_NVME_SC_INVALID_QID;
	pl_sn_sq_delete(c, c->sqs[qid]);
	return PL_NVME_SC_SUCCESS;
}
