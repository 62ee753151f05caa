// SPDX-License-Identifier: MIT
/* Admin commands. */
#include "admin.h"

#include "command.h"
#include "doorbell.h"
#include "event.h"
#include "feature.h"
#include "held.h"
#include "queue.h"

static unsigned int abort_command(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
				  uint32_t *result)
{
	uint32_t qid = sqe->cdw10 & 0xffff;
	uint16_t cid = (uint16_t)(sqe->cdw10 >> PL_NVME_ABORT_CID_SHIFT);

	if (qid > c->config.queues || !c->sqs[qid])
		return PL_NVME_SC_INVALID_FIELD;
	*result = pl_sn_held_abort(c, qid, cid) ? 0 : PL_NVME_ABORT_NOT_DONE;
	return PL_NVME_SC_SUCCESS;
}

static unsigned int request_event(struct pl_simnvme *c, struct pl_sn_sq *sq,
				  const struct pl_nvme_sqe *sqe)
{
	if (c->nr_event_requests > c->config.aerl)
		return PL_NVME_SC_EVENT_LIMIT;
	if (pl_sn_held_add(c, sq, sqe, PL_SN_EVENT_REQUEST, 0, 0))
		return PL_NVME_SC_INTERNAL;
	pl_sn_event_deliver(c);
	return PL_SN_LATER;
}

static unsigned int set_dbbuf(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint64_t shadow = sqe->dptr.prp.prp1, event = sqe->dptr.prp.prp2;
	uint64_t bytes;

	if (c->config.dbbuf == PL_SN_DBBUF_NONE)
		return PL_NVME_SC_INVALID_OPCODE;
	if (!shadow || !event || (shadow | event) & (c->page_bytes - 1))
		return PL_NVME_SC_INVALID_FIELD;
	if (!pl_sn_dma_at(&c->dma, shadow, PL_SIMNVME_READ, &bytes, NULL) ||
	    !pl_sn_dma_at(&c->dma, event, PL_SIMNVME_WRITE, &bytes, NULL))
		return PL_NVME_SC_DATA_TRANSFER;
	c->shadow = shadow;
	c->event = event;
	for (uint32_t qid = 0; qid <= c->config.queues; qid++) {
		if (c->sqs[qid]) {
			pl_sn_doorbell_shadow(c, &c->sqs[qid]->db, qid, false);
			pl_sn_doorbell_want(c, &c->sqs[qid]->db, c->sqs[qid]->tail);
		}
		if (c->cqs[qid])
			pl_sn_doorbell_shadow(c, &c->cqs[qid]->db, qid, true);
	}
	return PL_NVME_SC_SUCCESS;
}

/* Commands that mean no namespace must not name one. */
static bool names_too_much(const struct pl_nvme_sqe *sqe)
{
	switch (sqe->opcode) {
	case PL_NVME_ADMIN_DELETE_SQ:
	case PL_NVME_ADMIN_CREATE_SQ:
	case PL_NVME_ADMIN_DELETE_CQ:
	case PL_NVME_ADMIN_CREATE_CQ:
	case PL_NVME_ADMIN_ABORT:
	case PL_NVME_ADMIN_ASYNC_EVENT:
	case PL_NVME_ADMIN_DBBUF:
		return sqe->nsid != 0;
	default:
		return false;
	}
}

unsigned int pl_sn_admin(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
			 uint32_t *result)
{
	if (names_too_much(sqe))
		return PL_NVME_SC_INVALID_FIELD;
	switch (sqe->opcode) {
	case PL_NVME_ADMIN_DELETE_SQ:
		return pl_sn_delete_sq(c, sqe);
	case PL_NVME_ADMIN_CREATE_SQ:
		return pl_sn_create_sq(c, sqe);
	case PL_NVME_ADMIN_GET_LOG_PAGE:
		return pl_sn_log_page(c, sqe);
	case PL_NVME_ADMIN_DELETE_CQ:
		return pl_sn_delete_cq(c, sqe);
	case PL_NVME_ADMIN_CREATE_CQ:
		return pl_sn_create_cq(c, sqe);
	case PL_NVME_ADMIN_IDENTIFY:
		return pl_sn_identify(c, sqe);
	case PL_NVME_ADMIN_ABORT:
		return abort_command(c, sqe, result);
	case PL_NVME_ADMIN_SET_FEATURES:
		return pl_sn_feature_set(c, sqe, result);
	case PL_NVME_ADMIN_GET_FEATURES:
		return pl_sn_feature_get(c, sqe, result);
	case PL_NVME_ADMIN_ASYNC_EVENT:
		return request_event(c, sq, sqe);
	case PL_NVME_ADMIN_DBBUF:
		return set_dbbuf(c, sqe);
	default:
		/* Keep alive, format, firmware, security and the rest are not supported. */
		return PL_NVME_SC_INVALID_OPCODE;
	}
}
