// SPDX-License-Identifier: MIT
/* Queues: fetching commands, posting completions. */
#include "queue.h"

#include "command.h"
#include "doorbell.h"
#include "event.h"
#include "held.h"
#include "regs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *pl_sn_ring_at(struct pl_simnvme *c, struct pl_sn_ring *ring, uint32_t index,
		    unsigned int access)
{
	uint64_t at = (uint64_t)index << ring->shift, entry = (uint64_t)1 << ring->shift;
	uint64_t address, bytes;

	if (__builtin_expect(ring->seen_turns == c->dma.turns && at >= ring->seen_at &&
				     at - ring->seen_at + entry <= ring->seen_bytes,
			     1))
		return ring->seen + (at - ring->seen_at);
	address = ring->base + at;
	if (ring->pages)
		address = ring->pages[at / ring->page_bytes] + at % ring->page_bytes;
	ring->seen = pl_sn_dma_at(&c->dma, address, access, &bytes, NULL);
	if (!ring->seen) {
		ring->seen_bytes = 0;
		return NULL;
	}
	if (ring->pages && bytes > ring->page_bytes - at % ring->page_bytes)
		bytes = ring->page_bytes - at % ring->page_bytes;
	ring->seen_at = at;
	ring->seen_bytes = bytes;
	ring->seen_turns = c->dma.turns;
	return ring->seen;
}

int pl_sn_cq_create(struct pl_simnvme *c, uint32_t qid, const struct pl_sn_ring *ring)
{
	struct pl_sn_cq *cq = calloc(1, sizeof(*cq));

	if (!cq) {
		free(ring->pages);
		return -ENOMEM;
	}
	cq->qid = qid;
	cq->ring = *ring;
	cq->phase = PL_NVME_CQE_PHASE;
	cq->last = &cq->first;
	pl_sn_doorbell_init(c, &cq->db, qid, true);
	c->cqs[qid] = cq;
	c->nr_io_queues += qid != 0;
	return 0;
}

int pl_sn_sq_create(struct pl_simnvme *c, uint32_t qid, struct pl_sn_cq *cq,
		    const struct pl_sn_ring *ring)
{
	struct pl_sn_sq *sq = calloc(1, sizeof(*sq));

	if (!sq) {
		free(ring->pages);
		return -ENOMEM;
	}
	sq->qid = qid;
	sq->cq = cq;
	sq->ring = *ring;
	cq->nr_sqs++;
	pl_sn_doorbell_init(c, &sq->db, qid, false);
	pl_sn_doorbell_want(c, &sq->db, 0);
	c->sqs[qid] = sq;
	c->order[c->nr_order++] = qid;
	c->nr_io_queues += qid != 0;
	return 0;
}

void pl_sn_cq_delete(struct pl_simnvme *c, struct pl_sn_cq *cq)
{
	while (cq->first) {
		struct pl_sn_waiting *w = cq->first;

		cq->first = w->next;
		free(w);
	}
	c->cqs[cq->qid] = NULL;
	c->nr_io_queues -= cq->qid != 0;
	free(cq->ring.pages);
	free(cq);
}

static void forget_sq(struct pl_simnvme *c, struct pl_sn_sq *sq)
{
	for (struct pl_sn_waiting *w = sq->cq->first; w; w = w->next)
		if (w->sq == sq) {
			w->cqe.sqhd = (uint16_t)sq->head;
			w->sq = NULL;
		}
	for (uint32_t i = 0; i < c->nr_order; i++)
		if (c->order[i] == sq->qid) {
			c->nr_order--;
			memmove(&c->order[i], &c->order[i + 1],
				(c->nr_order - i) * sizeof(*c->order));
			break;
		}
	sq->cq->nr_sqs--;
	c->sqs[sq->qid] = NULL;
	c->nr_io_queues -= sq->qid != 0;
	free(sq->ring.pages);
	free(sq);
}

void pl_sn_sq_delete(struct pl_simnvme *c, struct pl_sn_sq *sq)
{
	pl_sn_held_abort_queue(c, sq);
	forget_sq(c, sq);
}

void pl_sn_queues_clear(struct pl_simnvme *c)
{
	pl_sn_held_clear(c);
	while (c->nr_order)
		forget_sq(c, c->sqs[c->order[0]]);
	for (uint32_t qid = 0; qid <= c->config.queues; qid++)
		if (c->cqs[qid])
			pl_sn_cq_delete(c, c->cqs[qid]);
	c->next_order = 0;
}

/* Entries that can be written before the queue is full. */
static uint32_t room(const struct pl_sn_cq *cq)
{
	uint32_t used = cq->tail >= cq->head ? cq->tail - cq->head
					     : cq->tail + cq->ring.entries - cq->head;

	return cq->ring.entries - 1 - used;
}

/* Write an entry; there is room. */
static void put(struct pl_simnvme *c, struct pl_sn_cq *cq, struct pl_nvme_cqe *cqe,
		uint16_t xor_phase)
{
	struct pl_nvme_cqe *to = pl_sn_ring_at(c, &cq->ring, cq->tail, PL_SIMNVME_WRITE);

	if (!to) {
		pl_sn_regs_fatal(c);
		return;
	}
	to->result = cqe->result;
	to->dw1 = 0;
	to->sqhd = cqe->sqhd;
	to->sqid = cqe->sqid;
	to->cid = cqe->cid;
	/* The phase makes the rest valid: pairs with the host's load of it. */
	__atomic_store_n(&to->status, (uint16_t)(cqe->status | (cq->phase ^ xor_phase)),
			 __ATOMIC_RELEASE);
	if (++cq->tail == cq->ring.entries) {
		cq->tail = 0;
		cq->phase ^= PL_NVME_CQE_PHASE;
	}
	c->counters.completions++;
}

static void post_waiting(struct pl_simnvme *c, struct pl_sn_cq *cq)
{
	while (cq->first && room(cq)) {
		struct pl_sn_waiting *w = cq->first;

		cq->first = w->next;
		if (!cq->first)
			cq->last = &cq->first;
		cq->nr_waiting--;
		if (w->sq)
			w->cqe.sqhd = (uint16_t)w->sq->head;
		put(c, cq, &w->cqe, w->xor_phase);
		free(w);
	}
}

static void post(struct pl_simnvme *c, struct pl_sn_sq *sq, struct pl_nvme_cqe *cqe,
		 uint16_t xor_phase)
{
	struct pl_sn_cq *cq = sq->cq;
	struct pl_sn_waiting *w;

	if (!cq->first && room(cq)) {
		put(c, cq, cqe, xor_phase);
		return;
	}
	w = malloc(sizeof(*w));
	if (!w) {
		pl_sn_regs_fatal(c);
		return;
	}
	*w = (struct pl_sn_waiting){ .cqe = *cqe, .sq = sq, .xor_phase = xor_phase };
	*cq->last = w;
	cq->last = &w->next;
	cq->nr_waiting++;
}

/* Errors that the same command will meet again. */
static bool is_lasting(unsigned int status)
{
	switch (status) {
	case PL_NVME_SC_DATA_TRANSFER:
	case PL_NVME_SC_INTERNAL:
	case PL_NVME_SC_ABORTED:
	case PL_NVME_SC_SQ_DELETED:
		return false;
	default:
		return true;
	}
}

static void corrupt(const struct pl_sn_rule *rule, struct pl_nvme_cqe *cqe, uint16_t *xor_phase)
{
	uint16_t value = (uint16_t)rule->value;

	switch (rule->field) {
	case PL_SN_FIELD_CID:
		cqe->cid ^= value;
		break;
	case PL_SN_FIELD_SQID:
		cqe->sqid ^= value;
		break;
	case PL_SN_FIELD_SQHD:
		cqe->sqhd ^= value;
		break;
	case PL_SN_FIELD_PHASE:
		*xor_phase = PL_NVME_CQE_PHASE;
		break;
	case PL_SN_FIELD_STATUS:
		cqe->status ^= (uint16_t)(value & ~PL_NVME_CQE_PHASE);
		break;
	case PL_SN_FIELD_RESULT:
		cqe->result ^= (uint32_t)rule->value;
		break;
	}
}

void pl_sn_complete(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		    unsigned int status, uint32_t result)
{
	const struct pl_sn_rule *rule = c->rule;
	struct pl_nvme_cqe cqe = {
		.result = result,
		.sqhd = (uint16_t)sq->head,
		.sqid = (uint16_t)sq->qid,
		.cid = sqe->cid,
		.status = PL_NVME_CQE_STATUS(status),
	};
	uint16_t xor_phase = 0;

	if (status) {
		/* What failed is in the log of errors, which "more" says. */
		bool told = rule && rule->action == PL_SN_STATUS;
		bool dnr = told ? rule->dnr : is_lasting(status), more = told ? rule->more : true;

		cqe.status |=
			(uint16_t)((dnr ? PL_NVME_CQE_DNR : 0) | (more ? PL_NVME_CQE_MORE : 0));
		c->counters.errors++;
		pl_sn_event_error(c, sq->qid, sqe, cqe.status);
	}
	sq->active[sqe->cid / 64] &= ~((uint64_t)1 << sqe->cid % 64);
	if (rule && rule->action == PL_SN_CORRUPT)
		corrupt(rule, &cqe, &xor_phase);
	post(c, sq, &cqe, xor_phase);
	if (rule && rule->action == PL_SN_DUPLICATE)
		post(c, sq, &cqe, 0);
}

static void take_head(struct pl_simnvme *c, struct pl_sn_cq *cq, bool look)
{
	uint32_t value, moved, used;

	if (pl_sn_doorbell_take(c, &cq->db, look, &value)) {
		used = cq->ring.entries - 1 - room(cq);
		moved = value >= cq->head ? value - cq->head : value + cq->ring.entries - cq->head;
		/* Only entries that are there can be given back, and at least one by a register. */
		if (value >= cq->ring.entries || moved > used || (!moved && !cq->db.shadow)) {
			c->counters.bad_doorbells++;
			pl_sn_event_doorbell(c, PL_NVME_EVENT_ERROR_DB_VALUE);
		} else {
			cq->head = value;
			cq->stalled = false;
		}
	}
	if (cq->first)
		post_waiting(c, cq);
}

void pl_sn_cq_serve(struct pl_simnvme *c, struct pl_sn_cq *cq)
{
	take_head(c, cq, false);
}

static void take_tail(struct pl_simnvme *c, struct pl_sn_sq *sq, bool look)
{
	uint32_t n = sq->ring.entries, value, moved, used;

	if (!pl_sn_doorbell_take(c, &sq->db, look, &value))
		return;
	used = sq->tail >= sq->head ? sq->tail - sq->head : sq->tail + n - sq->head;
	moved = value >= sq->tail ? value - sq->tail : value + n - sq->tail;
	/* No more than were free, but at least one by a register. */
	if (value >= n || moved > n - 1 - used || (!moved && !sq->db.shadow)) {
		c->counters.bad_doorbells++;
		pl_sn_event_doorbell(c, PL_NVME_EVENT_ERROR_DB_VALUE);
		return;
	}
	sq->tail = value;
	/* What was written before the doorbell holds for these commands. */
	if (c->config.cmb)
		pl_sn_regs_cmb(c);
}

/* Copy entries out of the queue: the host may write them again as soon as it sees the head move. */
static unsigned int fetch(struct pl_simnvme *c, struct pl_sn_sq *sq, struct pl_nvme_sqe *to,
			  unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		const struct pl_nvme_sqe *from =
			pl_sn_ring_at(c, &sq->ring, sq->head, PL_SIMNVME_READ);

		if (!from) {
			pl_sn_regs_fatal(c);
			return i;
		}
		to[i] = *from;
		if (++sq->head == sq->ring.entries)
			sq->head = 0;
	}
	return nr;
}

/* How many of these can be completed. None counts as one stall until there is room again. */
static uint32_t limit(struct pl_simnvme *c, struct pl_sn_cq *cq, uint32_t nr)
{
	if (cq->stalled)
		return 0;
	if (cq->first || !room(cq)) {
		/* Ask to be told, and look once more: the host may have moved before it could see that. */
		pl_sn_doorbell_want(c, &cq->db, cq->head);
		take_head(c, cq, true);
		if (cq->first || !room(cq)) {
			cq->stalled = true;
			c->counters.cq_stalls++;
			return 0;
		}
	}
	return nr < room(cq) ? nr : room(cq);
}

unsigned int pl_sn_sq_serve(struct pl_simnvme *c, struct pl_sn_sq *sq)
{
	struct pl_nvme_sqe batch[PL_SN_BATCH];
	bool conflict[PL_SN_BATCH];
	uint32_t nr, most = sq->qid ? PL_SN_BATCH : 1;

	pl_sn_cq_serve(c, sq->cq);
	take_tail(c, sq, false);
	nr = sq->tail >= sq->head ? sq->tail - sq->head : sq->tail + sq->ring.entries - sq->head;
	if (!nr)
		return 0;
	nr = limit(c, sq->cq, nr < most ? nr : most);
	nr = fetch(c, sq, batch, nr);
	/* All of these are outstanding at the same time. */
	for (uint32_t i = 0; i < nr; i++) {
		uint64_t bit = (uint64_t)1 << batch[i].cid % 64,
			 *word = &sq->active[batch[i].cid / 64];

		conflict[i] = *word & bit;
		*word |= bit;
	}
	for (uint32_t i = 0; i < nr && !c->removed && !(c->csts & PL_NVME_CSTS_CFS); i++)
		pl_sn_command(c, sq, &batch[i], conflict[i]);
	if (nr && sq->db.shadow) {
		/* Seen all there was? Then the next write is to be told, unless it has come already. */
		pl_sn_doorbell_want(c, &sq->db, sq->tail);
		take_tail(c, sq, true);
	}
	return nr;
}
