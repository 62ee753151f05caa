// SPDX-License-Identifier: MIT
/* Doorbells, and their shadows in memory, which spare most writes of the registers. */
#include "ctrl.h"

#include <errno.h>

void pl_nvme_doorbells(struct peerlane_nvme *nvme, struct pl_nvme_ring *r)
{
	volatile char *bar = nvme->bar;
	size_t page = (size_t)1 << nvme->page_shift;
	size_t sq = PL_NVME_SHADOW_SQ(r->qid, nvme->dstrd);
	size_t cq = PL_NVME_SHADOW_CQ(r->qid, nvme->dstrd);

	r->sq_db = (struct pl_nvme_doorbell){
		.reg = (void *)(bar + PL_NVME_DOORBELL_SQ(r->qid, nvme->dstrd)),
	};
	r->cq_db = (struct pl_nvme_doorbell){
		.reg = (void *)(bar + PL_NVME_DOORBELL_CQ(r->qid, nvme->dstrd)),
	};
	/* Shadows are one page; queues beyond have none. The admin queue's are set by the start. */
	if (!nvme->has_dbbuf || !r->qid || cq + 4 > page)
		return;
	r->sq_db.shadow = (void *)(nvme->dbbuf->v.cpu + sq);
	r->sq_db.event = (void *)(nvme->dbbuf->v.cpu + page + sq);
	r->cq_db.shadow = (void *)(nvme->dbbuf->v.cpu + cq);
	r->cq_db.event = (void *)(nvme->dbbuf->v.cpu + page + cq);
}

/*
 * Controllers differ in whether the shadows are also those of the admin queue. So for that one both are
 * written, always, and the shadows are right before the controller first looks at them.
 */
static void shadow_admin(struct peerlane_nvme *nvme)
{
	struct pl_nvme_ring *r = &nvme->admin;
	char *shadows = nvme->dbbuf->v.cpu;

	r->sq_db.shadow = (void *)(shadows + PL_NVME_SHADOW_SQ(0, nvme->dstrd));
	r->cq_db.shadow = (void *)(shadows + PL_NVME_SHADOW_CQ(0, nvme->dstrd));
	__atomic_store_n(r->cq_db.shadow, r->head, __ATOMIC_RELEASE);
}

int pl_nvme_dbbuf_start(struct peerlane_nvme *nvme)
{
	size_t page = (size_t)1 << nvme->page_shift;
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_DBBUF };
	struct peerlane_nvme_completion cpl = { .err = 0 };
	int rc;

	nvme->has_dbbuf = false;
	if (nvme->flags & PEERLANE_NVME_NO_DBBUF || !(nvme->id.oacs & PL_NVME_OACS_DBBUF) ||
	    PL_NVME_SHADOW_CQ(0, nvme->dstrd) + 4 > page)
		return 0;
	if (!nvme->dbbuf) {
		rc = pl_nvme_map_alloc_locked(nvme, 2 * page, &nvme->dbbuf);
		if (rc)
			return rc;
	}
	shadow_admin(nvme);
	sqe.dptr.prp.prp1 = pl_nvme_bus(&nvme->dbbuf->v, 0);
	sqe.dptr.prp.prp2 = pl_nvme_bus(&nvme->dbbuf->v, page);
	rc = pl_nvme_admin_locked(nvme, &sqe, &cpl);
	nvme->has_dbbuf = !rc;
	if (!rc)
		return 0;
	/* Refused: then the registers do. The memory stays, for queues that still write there. */
	nvme->admin.sq_db.shadow = NULL;
	nvme->admin.cq_db.shadow = NULL;
	return cpl.err ? 0 : rc;
}
