// SPDX-License-Identifier: MIT
/* One command: faults first, then what it asks for. */
#include "command.h"

#include "held.h"
#include "queue.h"
#include "regs.h"

static void keep(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		 const struct pl_sn_rule *rule)
{
	enum pl_sn_held_as as = rule->action == PL_SN_HOLD    ? PL_SN_HELD
				: rule->action == PL_SN_DELAY ? PL_SN_DELAYED
							      : PL_SN_GATHERED;

	if (pl_sn_held_add(c, sq, sqe, as, c->turn + rule->steps, rule->window))
		pl_sn_complete(c, sq, sqe, PL_NVME_SC_INTERNAL, 0);
}

/* Carry a command out as a rule of the fault script says. */
static void misbehave(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		      const struct pl_sn_rule *rule)
{
	switch (rule->action) {
	case PL_SN_DROP:
	case PL_SN_STUCK_READY:
		return;
	case PL_SN_HOLD:
	case PL_SN_DELAY:
	case PL_SN_REORDER:
		keep(c, sq, sqe, rule);
		return;
	case PL_SN_FATAL:
		pl_sn_regs_fatal(c);
		return;
	case PL_SN_REMOVE:
		pl_sn_regs_remove(c);
		return;
	case PL_SN_STATUS:
		c->rule = rule;
		pl_sn_complete(c, sq, sqe, rule->code, 0);
		break;
	case PL_SN_CORRUPT:
	case PL_SN_DUPLICATE:
	case PL_SN_TORN:
		c->rule = rule;
		pl_sn_execute(c, sq, sqe);
		break;
	}
	c->rule = NULL;
}

void pl_sn_command(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		   bool conflict)
{
	const struct pl_sn_rule *rule;

	if (sq->qid)
		c->counters.io_commands++;
	else
		c->counters.admin_commands++;
	if (__builtin_expect(conflict, 0)) {
		pl_sn_complete(c, sq, sqe, PL_NVME_SC_CID_CONFLICT, 0);
		/* The other one is still there. */
		sq->active[sqe->cid / 64] |= (uint64_t)1 << sqe->cid % 64;
		return;
	}
	rule = c->faults.nr ? pl_sn_faults_command(&c->faults, sq->qid, sqe) : NULL;
	if (rule)
		misbehave(c, sq, sqe, rule);
	else
		pl_sn_execute(c, sq, sqe);
}

/* What every command must observe. */
static unsigned int check_flags(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, bool is_admin)
{
	unsigned int psdt = sqe->flags & PL_NVME_PSDT_MASK;

	/* No fused commands are supported. */
	if (sqe->flags & PL_NVME_FUSE_MASK)
		return PL_NVME_SC_INVALID_FIELD;
	if (c->config.strict && sqe->flags & PL_NVME_FLAGS_RESERVED)
		return PL_NVME_SC_INVALID_FIELD;
	/* Admin commands describe memory by PRP; others by SGL where the controller has it. */
	if (psdt != PL_NVME_PSDT_PRP && (is_admin || !c->config.sgl || psdt != PL_NVME_PSDT_SGL))
		return PL_NVME_SC_INVALID_FIELD;
	return PL_NVME_SC_SUCCESS;
}

void pl_sn_execute(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe)
{
	unsigned int status = PL_NVME_SC_SUCCESS;
	uint32_t result = 0;

	if (__builtin_expect(sqe->flags != 0, 0))
		status = check_flags(c, sqe, !sq->qid);
	if (!status && c->config.strict && !pl_sn_reserved_clear(sqe, !sq->qid))
		status = PL_NVME_SC_INVALID_FIELD;
	if (!status)
		status = sq->qid ? pl_sn_nvm(c, sqe) : pl_sn_admin(c, sq, sqe, &result);
	if (status != PL_SN_LATER)
		pl_sn_complete(c, sq, sqe, status, result);
}
