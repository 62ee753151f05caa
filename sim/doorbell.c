// SPDX-License-Identifier: MIT
/* Doorbells. Values are taken out of the registers, so that each write is seen once. */
#include "doorbell.h"

#include "event.h"

static _Atomic uint32_t *reg_of(struct pl_simnvme *c, uint32_t qid, bool is_cq)
{
	uint32_t dstrd = c->config.dstrd;

	return (_Atomic uint32_t *)(c->bar + (is_cq ? PL_NVME_DOORBELL_CQ(qid, dstrd)
						    : PL_NVME_DOORBELL_SQ(qid, dstrd)));
}

void pl_sn_doorbell_init(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t qid, bool is_cq)
{
	*db = (struct pl_sn_doorbell){ .reg = reg_of(c, qid, is_cq) };
	atomic_store(db->reg, PL_SN_DOORBELL_IDLE);
	if (c->shadow)
		pl_sn_doorbell_shadow(c, db, qid, is_cq);
}

void pl_sn_doorbell_shadow(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t qid,
			   bool is_cq)
{
	uint32_t dstrd = c->config.dstrd;
	size_t at = is_cq ? PL_NVME_SHADOW_CQ(qid, dstrd) : PL_NVME_SHADOW_SQ(qid, dstrd);

	/* One page each: queues beyond it have none. */
	if (at + sizeof(uint32_t) > c->page_bytes)
		return;
	db->shadow = c->shadow + at;
	db->event = c->event + at;
	db->shadow_seen = 0;
	/* Hosts may leave the admin queue to the registers; they show it by writing the shadow. */
	db->by_shadow = qid != 0;
}

static _Atomic uint32_t *cell(struct pl_simnvme *c, uint64_t address, unsigned int access)
{
	uint64_t bytes;

	return pl_sn_dma_at(&c->dma, address, access, &bytes, NULL);
}

/* Read the shadow: true if it differs from what it was. */
static bool take_shadow(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t *value)
{
	const _Atomic uint32_t *shadow = cell(c, db->shadow, PL_SIMNVME_READ);
	uint32_t now;

	if (!shadow)
		return false;
	/* Pairs with the host's store after it wrote the queue's entries. */
	now = atomic_load_explicit(shadow, memory_order_acquire);
	if (now == db->shadow_seen)
		return false;
	db->shadow_seen = now;
	db->by_shadow = true;
	*value = now;
	return true;
}

bool pl_sn_doorbell_take(struct pl_simnvme *c, struct pl_sn_doorbell *db, bool look,
			 uint32_t *value)
{
	uint32_t now = atomic_load_explicit(db->reg, memory_order_relaxed);
	bool written = now != PL_SN_DOORBELL_IDLE;

	if (written) {
		/* Pairs with the host's store after it wrote the queue's entries. */
		now = atomic_exchange_explicit(db->reg, PL_SN_DOORBELL_IDLE, memory_order_acquire);
		c->counters.doorbells++;
	}
	if (__builtin_expect(db->shadow != 0, 0)) {
		/* With shadows a write of the register only says: look. */
		if ((look || written || c->config.dbbuf == PL_SN_DBBUF_POLL || !db->by_shadow) &&
		    take_shadow(c, db, value))
			return true;
		if (db->by_shadow)
			return false;
	}
	*value = now;
	return written;
}

void pl_sn_doorbell_want(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t value)
{
	_Atomic uint32_t *event;

	if (!db->event || c->config.dbbuf == PL_SN_DBBUF_POLL)
		return;
	event = cell(c, db->event, PL_SIMNVME_WRITE);
	if (!event)
		return;
	/* The host writes the shadow and then reads this; we do it the other way round. */
	atomic_store_explicit(event, value, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
}

static bool stray(struct pl_simnvme *c, uint32_t qid, bool is_cq)
{
	_Atomic uint32_t *reg = reg_of(c, qid, is_cq);

	if (atomic_load_explicit(reg, memory_order_relaxed) == PL_SN_DOORBELL_IDLE)
		return false;
	atomic_store(reg, PL_SN_DOORBELL_IDLE);
	return true;
}

void pl_sn_doorbell_scan(struct pl_simnvme *c)
{
	for (uint32_t qid = 0; qid <= c->config.queues; qid++) {
		if ((!c->sqs[qid] && stray(c, qid, false)) ||
		    (!c->cqs[qid] && stray(c, qid, true))) {
			c->counters.doorbells++;
			c->counters.bad_doorbells++;
			pl_sn_event_doorbell(c, PL_NVME_EVENT_ERROR_DB_REGISTER);
		}
	}
}

void pl_sn_doorbell_reset(struct pl_simnvme *c)
{
	for (uint32_t qid = 0; qid <= c->config.queues; qid++) {
		atomic_store_explicit(reg_of(c, qid, false), PL_SN_DOORBELL_IDLE,
				      memory_order_relaxed);
		atomic_store_explicit(reg_of(c, qid, true), PL_SN_DOORBELL_IDLE,
				      memory_order_relaxed);
	}
}
