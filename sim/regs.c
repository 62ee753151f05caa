// SPDX-License-Identifier: MIT
/* Registers live in shared memory: nothing tells of a write, so the controller compares. */
#include "regs.h"

#include "doorbell.h"
#include "event.h"
#include "feature.h"
#include "queue.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Unit of the CMB's place and size. */
#define CMB_UNIT 4096u
#define CC_RESERVED 0xfe00000eu
/*
 * While the controller is enabled and not ready, a host that gives up may clear CC.EN and set it again at
 * once: nothing makes it wait in between. This reserved bit, which the host's writes clear, shows
 * that it wrote. It is there only in that state.
 */
#define CC_MARK 0x80000000u
/* Fields that may only be written while the controller is disabled. */
#define CC_FIXED                                                                                   \
	(PL_NVME_CC_CSS_MASK << PL_NVME_CC_CSS_SHIFT |                                             \
	 PL_NVME_CC_MPS_MASK << PL_NVME_CC_MPS_SHIFT |                                             \
	 PL_NVME_CC_AMS_MASK << PL_NVME_CC_AMS_SHIFT)

static _Atomic uint32_t *reg(struct pl_simnvme *c, uint32_t at)
{
	return (_Atomic uint32_t *)(c->bar + at);
}

static uint32_t get32(struct pl_simnvme *c, uint32_t at)
{
	return atomic_load_explicit(reg(c, at), memory_order_acquire);
}

/* Hosts may write 64 bits in two halves: so they are read that way. */
static uint64_t get64(struct pl_simnvme *c, uint32_t at)
{
	return get32(c, at) | (uint64_t)get32(c, at + 4) << 32;
}

static void set32(struct pl_simnvme *c, uint32_t at, uint32_t value)
{
	atomic_store_explicit(reg(c, at), value, memory_order_release);
}

static void set_csts(struct pl_simnvme *c, uint32_t csts)
{
	c->csts = csts;
	set32(c, PL_NVME_REG_CSTS, csts);
}

static uint64_t make_cap(const struct pl_sn_config *config)
{
	return config->mqes | (uint64_t)config->cqr << PL_NVME_CAP_CQR_SHIFT |
	       (uint64_t)config->to << PL_NVME_CAP_TO_SHIFT |
	       (uint64_t)config->dstrd << PL_NVME_CAP_DSTRD_SHIFT |
	       (uint64_t)PL_NVME_CSS_NVM << PL_NVME_CAP_CSS_SHIFT |
	       (uint64_t)config->mpsmin << PL_NVME_CAP_MPSMIN_SHIFT |
	       (uint64_t)config->mpsmax << PL_NVME_CAP_MPSMAX_SHIFT |
	       (uint64_t)(config->cmb != 0) << PL_NVME_CAP_CMBS_SHIFT;
}

int pl_sn_regs_init(struct pl_simnvme *c)
{
	void *bar;

	c->bar_fd = memfd_create("simnvme-bar0", MFD_CLOEXEC);
	if (c->bar_fd < 0)
		return -errno;
	c->cmb_at = PL_NVME_DOORBELL_SQ(c->config.queues + 1, c->config.dstrd);
	c->cmb_at = (c->cmb_at + CMB_UNIT - 1) / CMB_UNIT * CMB_UNIT;
	c->bar_bytes = c->cmb_at + c->config.cmb;
	if (ftruncate(c->bar_fd, (off_t)c->bar_bytes))
		goto err_close;
	bar = mmap(NULL, c->bar_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->bar_fd, 0);
	if (bar == MAP_FAILED)
		goto err_close;
	c->bar = bar;
	c->cap = make_cap(&c->config);
	set32(c, PL_NVME_REG_CAP, (uint32_t)c->cap);
	set32(c, PL_NVME_REG_CAP + 4, (uint32_t)(c->cap >> 32));
	set32(c, PL_NVME_REG_VS, PL_NVME_VS(1, 4, 0));
	if (c->config.cmb) {
		set32(c, PL_NVME_REG_CMBLOC, (uint32_t)(c->cmb_at / CMB_UNIT) << 12);
		set32(c, PL_NVME_REG_CMBSZ,
		      c->config.cmb_use | (uint32_t)(c->config.cmb / CMB_UNIT) << 12);
	}
	pl_sn_doorbell_reset(c);
	return 0;

err_close:
	close(c->bar_fd);
	c->bar_fd = -1;
	return -ENOMEM;
}

void pl_sn_regs_fini(struct pl_simnvme *c)
{
	if (c->bar)
		munmap(c->bar, c->bar_bytes);
	if (c->bar_fd >= 0)
		close(c->bar_fd);
	c->bar = NULL;
	c->bar_fd = -1;
}

bool pl_sn_regs_ready(const struct pl_simnvme *c)
{
	return !c->removed && c->sqs[0] && !c->shut_down &&
	       (c->csts & (PL_NVME_CSTS_RDY | PL_NVME_CSTS_CFS)) == PL_NVME_CSTS_RDY;
}

void pl_sn_regs_fatal(struct pl_simnvme *c)
{
	set_csts(c, c->csts | PL_NVME_CSTS_CFS);
}

void pl_sn_regs_remove(struct pl_simnvme *c)
{
	c->removed = true;
	for (size_t at = 0; at < c->cmb_at; at += sizeof(uint32_t))
		atomic_store_explicit((_Atomic uint32_t *)(c->bar + at), UINT32_MAX,
				      memory_order_relaxed);
}

static void mark_cc(struct pl_simnvme *c)
{
	uint32_t cc = c->cc;

	c->cc_marked = atomic_compare_exchange_strong(reg(c, PL_NVME_REG_CC), &cc, cc | CC_MARK);
}

static void unmark_cc(struct pl_simnvme *c)
{
	uint32_t cc = c->cc | CC_MARK;

	if (c->cc_marked)
		atomic_compare_exchange_strong(reg(c, PL_NVME_REG_CC), &cc, c->cc);
	c->cc_marked = false;
}

static void violation(struct pl_simnvme *c)
{
	c->counters.bad_registers++;
}

/* Can the controller work with what the host put into the registers? */
static bool usable(struct pl_simnvme *c)
{
	uint32_t mps = c->cc >> PL_NVME_CC_MPS_SHIFT & PL_NVME_CC_MPS_MASK;
	uint32_t css = c->cc >> PL_NVME_CC_CSS_SHIFT & PL_NVME_CC_CSS_MASK;
	uint32_t ams = c->cc >> PL_NVME_CC_AMS_SHIFT & PL_NVME_CC_AMS_MASK;
	uint32_t nr_sq = (c->aqa >> PL_NVME_AQA_ASQS_SHIFT & PL_NVME_AQA_MASK) + 1;
	uint32_t nr_cq = (c->aqa >> PL_NVME_AQA_ACQS_SHIFT & PL_NVME_AQA_MASK) + 1;

	if (css || ams || mps < c->config.mpsmin || mps > c->config.mpsmax || nr_sq < 2 ||
	    nr_cq < 2)
		return false;
	c->page_bytes = 4096u << mps;
	return !((c->asq | c->acq) & (c->page_bytes - 1));
}

static int make_admin_queues(struct pl_simnvme *c)
{
	struct pl_sn_ring sq = {
		.base = c->asq,
		.entries = (c->aqa >> PL_NVME_AQA_ASQS_SHIFT & PL_NVME_AQA_MASK) + 1,
		.shift = PL_NVME_IOSQES,
		.page_bytes = c->page_bytes,
		.seen_turns = UINT64_MAX,
	};
	struct pl_sn_ring cq = {
		.base = c->acq,
		.entries = (c->aqa >> PL_NVME_AQA_ACQS_SHIFT & PL_NVME_AQA_MASK) + 1,
		.shift = PL_NVME_IOCQES,
		.page_bytes = c->page_bytes,
		.seen_turns = UINT64_MAX,
	};
	int rc = pl_sn_cq_create(c, 0, &cq);

	return rc ? rc : pl_sn_sq_create(c, 0, c->cqs[0], &sq);
}

static void enable(struct pl_simnvme *c)
{
	const struct pl_sn_rule *rule = pl_sn_faults_moment(&c->faults, PL_SN_ON_ENABLE);
	uint64_t later = c->config.ready;

	c->aqa = get32(c, PL_NVME_REG_AQA);
	c->asq = get64(c, PL_NVME_REG_ASQ);
	c->acq = get64(c, PL_NVME_REG_ACQ);
	if (c->aqa & ~(PL_NVME_AQA_MASK << PL_NVME_AQA_ASQS_SHIFT |
		       PL_NVME_AQA_MASK << PL_NVME_AQA_ACQS_SHIFT))
		violation(c);
	if (!usable(c) || make_admin_queues(c)) {
		violation(c);
		pl_sn_regs_fatal(c);
		return;
	}
	if (rule && rule->action == PL_SN_STUCK_READY)
		return;
	if (rule && rule->action == PL_SN_FATAL) {
		pl_sn_regs_fatal(c);
		return;
	}
	if (rule && rule->action == PL_SN_REMOVE) {
		pl_sn_regs_remove(c);
		return;
	}
	if (rule && rule->action == PL_SN_DELAY)
		later += rule->steps;
	c->ready_at = c->turn + later;
}

/* What clearing CC.EN does to everything but CSTS. AQA, ASQ, ACQ and CMBMSC stay. */
static void clear_state(struct pl_simnvme *c)
{
	pl_sn_queues_clear(c);
	pl_sn_event_clear(c);
	pl_sn_feature_reset(c);
	pl_sn_doorbell_reset(c);
	c->shadow = 0;
	c->event = 0;
	c->ready_at = 0;
	c->shut_down = false;
}

static void disable(struct pl_simnvme *c)
{
	const struct pl_sn_rule *rule = pl_sn_faults_moment(&c->faults, PL_SN_ON_DISABLE);
	uint32_t csts = 0;

	if (!(c->csts & (PL_NVME_CSTS_RDY | PL_NVME_CSTS_CFS)))
		violation(c);
	clear_state(c);
	c->counters.resets++;
	if (rule && rule->action == PL_SN_REMOVE) {
		pl_sn_regs_remove(c);
		return;
	}
	if (rule && rule->action == PL_SN_STUCK_READY)
		csts |= c->csts & PL_NVME_CSTS_RDY;
	if (rule && rule->action == PL_SN_FATAL)
		csts |= PL_NVME_CSTS_CFS;
	set_csts(c, csts);
}

void pl_sn_regs_reset(struct pl_simnvme *c)
{
	if (c->removed)
		return;
	clear_state(c);
	c->counters.resets++;
	c->cc = 0;
	c->cc_marked = false;
	for (uint32_t at = PL_NVME_REG_INTMS; at <= PL_NVME_REG_ACQ + 4; at += sizeof(uint32_t))
		set32(c, at, 0);
	set32(c, PL_NVME_REG_CMBMSC, 0);
	set32(c, PL_NVME_REG_CMBMSC + 4, 0);
	pl_sn_regs_cmb(c);
	set_csts(c, 0);
}

static void shut_down(struct pl_simnvme *c)
{
	const struct pl_sn_rule *rule = pl_sn_faults_moment(&c->faults, PL_SN_ON_SHUTDOWN);

	set_csts(c, (c->csts & ~(PL_NVME_CSTS_SHST_MASK << PL_NVME_CSTS_SHST_SHIFT)) |
			    PL_NVME_SHST_OCCURRING << PL_NVME_CSTS_SHST_SHIFT);
	c->counters.shutdowns++;
	c->shut_down = true;
	if (rule && rule->action == PL_SN_REMOVE) {
		pl_sn_regs_remove(c);
		return;
	}
	if (rule && rule->action == PL_SN_FATAL) {
		pl_sn_regs_fatal(c);
		return;
	}
	for (uint32_t i = 0; i < c->config.nr_ns; i++)
		pl_sn_ns_sync(&c->ns[i], 0, c->ns[i].nr_blocks);
	set_csts(c, (c->csts & ~(PL_NVME_CSTS_SHST_MASK << PL_NVME_CSTS_SHST_SHIFT)) |
			    PL_NVME_SHST_COMPLETE << PL_NVME_CSTS_SHST_SHIFT);
}

static void take_cc(struct pl_simnvme *c, uint32_t cc)
{
	uint32_t old = c->cc, shn = cc >> PL_NVME_CC_SHN_SHIFT & PL_NVME_CC_SHN_MASK;
	bool was = old & PL_NVME_CC_EN, is = cc & PL_NVME_CC_EN;

	c->cc = cc;
	if (cc & CC_RESERVED)
		violation(c);
	if (is && !was) {
		if (c->csts & PL_NVME_CSTS_RDY) {
			/* Enabled before the last reset was over. */
			violation(c);
			pl_sn_regs_fatal(c);
		} else {
			enable(c);
			/* Not ready in this very turn? */
			if (!c->removed && c->ready_at != c->turn)
				mark_cc(c);
		}
	} else if (was && !is) {
		disable(c);
	} else if (is && (cc ^ old) & CC_FIXED) {
		violation(c);
		pl_sn_regs_fatal(c);
	}
	if (shn && shn != (old >> PL_NVME_CC_SHN_SHIFT & PL_NVME_CC_SHN_MASK) && !c->removed)
		shut_down(c);
}

void pl_sn_regs_serve(struct pl_simnvme *c)
{
	uint32_t cc = get32(c, PL_NVME_REG_CC);

	if (c->cc_marked && cc & CC_MARK) {
		cc &= ~CC_MARK;
	} else if (c->cc_marked) {
		c->cc_marked = false;
		/* Written, and enabled as before: it was disabled meanwhile. */
		if (cc & PL_NVME_CC_EN)
			take_cc(c, cc & ~PL_NVME_CC_EN);
	}
	if (cc != c->cc)
		take_cc(c, cc);
	if (c->ready_at && c->turn >= c->ready_at && !c->removed && !(c->csts & PL_NVME_CSTS_CFS)) {
		c->ready_at = 0;
		c->counters.enables++;
		unmark_cc(c);
		set_csts(c, c->csts | PL_NVME_CSTS_RDY);
	}
}

/*
 * The CMB is reachable by CMSE and an address. CMBLOC and CMBSZ are shown even without CRE: a host
 * reads them right after it wrote that, and we could not know in time.
 */
void pl_sn_regs_cmb(struct pl_simnvme *c)
{
	uint64_t cmbmsc = get64(c, PL_NVME_REG_CMBMSC);
	struct pl_sn_mapping cmb = {
		.iova = cmbmsc & PL_NVME_CMBMSC_CBA_MASK,
		.bytes = c->config.cmb,
		.memory = c->bar + c->cmb_at,
		.access = PL_SIMNVME_READ | PL_SIMNVME_WRITE,
		.cmb = true,
	};

	if (cmbmsc == c->cmbmsc)
		return;
	if (c->cmb_mapped)
		pl_sn_dma_remove(&c->dma, c->cmbmsc & PL_NVME_CMBMSC_CBA_MASK, c->config.cmb, 0,
				 NULL);
	c->cmbmsc = cmbmsc;
	c->cmb_mapped = cmbmsc & PL_NVME_CMBMSC_CMSE && !pl_sn_dma_add(&c->dma, &cmb);
	set32(c, PL_NVME_REG_CMBSTS,
	      cmbmsc & PL_NVME_CMBMSC_CMSE && !c->cmb_mapped ? PL_NVME_CMBSTS_CBAI : 0);
}

/* Put a register back that the host must not write. */
static void keep32(struct pl_simnvme *c, uint32_t at, uint32_t value)
{
	if (get32(c, at) == value)
		return;
	violation(c);
	set32(c, at, value);
}

void pl_sn_regs_scan(struct pl_simnvme *c)
{
	if (c->removed) {
		for (uint32_t at = 0; at < PL_NVME_REG_CRTO; at += sizeof(uint32_t))
			set32(c, at, UINT32_MAX);
		return;
	}
	keep32(c, PL_NVME_REG_CAP, (uint32_t)c->cap);
	keep32(c, PL_NVME_REG_CAP + 4, (uint32_t)(c->cap >> 32));
	keep32(c, PL_NVME_REG_VS, PL_NVME_VS(1, 4, 0));
	keep32(c, PL_NVME_REG_CSTS, c->csts);
	if (c->config.cmb)
		pl_sn_regs_cmb(c);
	if (c->cc & PL_NVME_CC_EN && c->sqs[0]) {
		keep32(c, PL_NVME_REG_AQA, c->aqa);
		keep32(c, PL_NVME_REG_ASQ, (uint32_t)c->asq);
		keep32(c, PL_NVME_REG_ASQ + 4, (uint32_t)(c->asq >> 32));
		keep32(c, PL_NVME_REG_ACQ, (uint32_t)c->acq);
		keep32(c, PL_NVME_REG_ACQ + 4, (uint32_t)(c->acq >> 32));
	}
}
