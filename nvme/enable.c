// SPDX-License-Identifier: MIT
/* The registers: what the controller is, enabling, disabling, shutting down. */
#include "ctrl.h"

#include <errno.h>

#define HALF_SECOND_NS 500000000u
#define CC_KNOWN 0x01fffff1u /* all but what is reserved */

/* How long the controller may take to get ready, or not ready. */
static uint64_t ready_ns(const struct peerlane_nvme *nvme)
{
	uint32_t halves = PL_NVME_CAP_TO(nvme->cap), crto;

	if (PL_NVME_CAP_CRWMS(nvme->cap)) {
		crto = PL_NVME_CRTO_CRWMT(pl_nvme_read32(nvme->bar, PL_NVME_REG_CRTO));
		if (crto > halves)
			halves = crto;
	}
	return (uint64_t)(halves ? halves : 1) * HALF_SECOND_NS;
}

/* Wait until the masked bits of CSTS have a value. */
static int wait_status(struct peerlane_nvme *nvme, uint32_t mask, uint32_t value,
		       uint64_t timeout_ns, bool heed_fatal)
{
	uint64_t start = pl_nvme_now_ns(nvme);
	unsigned int turns = 0;
	bool late = false;
	uint32_t csts;

	for (;;) {
		if (nvme->t->ops->gone(nvme->t))
			return -ENODEV;
		csts = pl_nvme_read32(nvme->bar, PL_NVME_REG_CSTS);
		if (csts == UINT32_MAX)
			return -ENODEV;
		if (heed_fatal && csts & PL_NVME_CSTS_CFS)
			return -EIO;
		if ((csts & mask) == value)
			return 0;
		/* One more look after the time is over: we may have been away. */
		if (late)
			return -ETIMEDOUT;
		late = pl_nvme_now_ns(nvme) - start > timeout_ns;
		pl_nvme_relax(nvme, &turns);
	}
}

int pl_nvme_ctrl_probe(struct peerlane_nvme *nvme)
{
	uint64_t cap;

	if (nvme->t->bar0.bytes < PL_NVME_REG_DOORBELLS + 8)
		return -EPROTO;
	if (nvme->t->ops->gone(nvme->t))
		return -ENODEV;
	cap = pl_nvme_read64(nvme->bar, PL_NVME_REG_CAP);
	if (cap == UINT64_MAX)
		return -ENODEV;
	if (!PL_NVME_CAP_MQES(cap) || PL_NVME_CAP_MPSMIN(cap) > PL_NVME_CAP_MPSMAX(cap))
		return -EPROTO;
	if (!(PL_NVME_CAP_CSS(cap) & PL_NVME_CSS_NVM))
		return -EOPNOTSUPP;
	nvme->cap = cap;
	nvme->page_shift = 12 + PL_NVME_CAP_MPSMIN(cap);
	nvme->dstrd = PL_NVME_CAP_DSTRD(cap);
	if (PL_NVME_DOORBELL_CQ(0, nvme->dstrd) + 4 > nvme->t->bar0.bytes)
		return -EPROTO;
	return 0;
}

int pl_nvme_ctrl_disable(struct peerlane_nvme *nvme)
{
	uint32_t cc;
	int rc;

	if (nvme->t->ops->gone(nvme->t))
		return -ENODEV;
	cc = pl_nvme_read32(nvme->bar, PL_NVME_REG_CC);
	if (cc == UINT32_MAX)
		return -ENODEV;
	if (cc & PL_NVME_CC_EN) {
		/* It must not be disabled while it is still getting ready; a fatal error ends that. */
		rc = wait_status(nvme, PL_NVME_CSTS_RDY, PL_NVME_CSTS_RDY, ready_ns(nvme), true);
		if (rc == -ENODEV)
			return rc;
		cc &= CC_KNOWN & ~(PL_NVME_CC_EN | PL_NVME_CC_SHN_MASK << PL_NVME_CC_SHN_SHIFT);
		pl_nvme_write32(nvme->bar, PL_NVME_REG_CC, cc);
	}
	return wait_status(nvme, PL_NVME_CSTS_RDY, 0, ready_ns(nvme), false);
}

static int enable(struct peerlane_nvme *nvme)
{
	uint32_t size = nvme->admin.depth - 1;
	const struct pl_nvme_pages *v = &nvme->admin_rings->v;
	size_t cq_at = (size_t)1 << nvme->page_shift;

	pl_nvme_admin_lost(nvme);
	pl_nvme_doorbells(nvme, &nvme->admin);
	pl_nvme_ring_restart(&nvme->admin);
	pl_nvme_write32(nvme->bar, PL_NVME_REG_AQA,
			size << PL_NVME_AQA_ASQS_SHIFT | size << PL_NVME_AQA_ACQS_SHIFT);
	pl_nvme_write64(nvme->bar, PL_NVME_REG_ASQ, pl_nvme_bus(v, 0));
	pl_nvme_write64(nvme->bar, PL_NVME_REG_ACQ, pl_nvme_bus(v, cq_at));
	pl_nvme_write32(nvme->bar, PL_NVME_REG_CC,
			PL_NVME_CC_EN | (nvme->page_shift - 12) << PL_NVME_CC_MPS_SHIFT |
				PL_NVME_IOSQES << PL_NVME_CC_IOSQES_SHIFT |
				PL_NVME_IOCQES << PL_NVME_CC_IOCQES_SHIFT);
	return wait_status(nvme, PL_NVME_CSTS_RDY, PL_NVME_CSTS_RDY, ready_ns(nvme), true);
}

int pl_nvme_ctrl_enable(struct peerlane_nvme *nvme)
{
	int rc = enable(nvme);

	if (!rc)
		rc = pl_nvme_identify_ctrl(nvme);
	if (!rc)
		rc = pl_nvme_set_nr_queues(nvme);
	if (!rc)
		rc = pl_nvme_dbbuf_start(nvme);
	if (rc)
		return rc;
	pl_nvme_cmb_start(nvme);
	pl_nvme_events_start(nvme);
	return 0;
}

void pl_nvme_ctrl_shutdown(struct peerlane_nvme *nvme)
{
	uint64_t timeout_ns = (uint64_t)nvme->id.rtd3e * 1000;
	uint32_t cc;

	if (nvme->t->ops->remote || nvme->t->ops->gone(nvme->t))
		return;
	cc = pl_nvme_read32(nvme->bar, PL_NVME_REG_CC);
	if (cc == UINT32_MAX || !(cc & PL_NVME_CC_EN))
		return;
	if (timeout_ns < ready_ns(nvme))
		timeout_ns = ready_ns(nvme);
	cc &= CC_KNOWN & ~(PL_NVME_CC_SHN_MASK << PL_NVME_CC_SHN_SHIFT);
	cc |= PL_NVME_SHN_NORMAL << PL_NVME_CC_SHN_SHIFT;
	pl_nvme_write32(nvme->bar, PL_NVME_REG_CC, cc);
	wait_status(nvme, PL_NVME_CSTS_SHST_MASK << PL_NVME_CSTS_SHST_SHIFT,
		    PL_NVME_SHST_COMPLETE << PL_NVME_CSTS_SHST_SHIFT, timeout_ns, true);
	/* Stops it also if it did not finish; nothing of ours is to be used any more. */
	if (pl_nvme_ctrl_disable(nvme) && nvme->t->ops->reset)
		nvme->t->ops->reset(nvme->t);
}
