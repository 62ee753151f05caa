/* SPDX-License-Identifier: MIT */
/*
 * A pair of rings, and the commands outstanding on them: the innermost part of the hot path, the same
 * for the admin queue and I/O queues. Used by one thread at a time.
 *
 * Flow control: at most depth - 1 commands are outstanding. An entry of the SQ is in use only while its
 * command is outstanding, and each takes one entry of the CQ, so neither ring can overflow, whatever
 * the controller says about its head.
 *
 * Trust: everything that the controller writes is read once and checked. A command id has the slot in its
 * lower bits and a generation above, so a completion that comes twice, late or with a made-up id finds
 * no slot and is counted, not believed.
 */
#ifndef PL_NVME_RING_H
#define PL_NVME_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/nvme_spec.h>

#include "mmio.h"

/* One command that is, or can be, outstanding. */
struct pl_nvme_slot {
	uint64_t user;
	void *owner;	  /* the queue's: what it is a part of, or NULL */
	uint32_t tick;	  /* of the queue when it was submitted */
	uint16_t cid;	  /* while outstanding, else PL_NVME_CID_NONE */
	uint16_t next;	  /* id of the next command in this slot */
	uint8_t aborting; /* the controller was asked to abort it, for its time was over */
	uint8_t kind;	  /* the admin queue's */
};

/* A doorbell, with its shadow where the controller reads that. */
struct pl_nvme_doorbell {
	volatile uint32_t *reg;
	volatile uint32_t *shadow;	/* NULL: none */
	const volatile uint32_t *event; /* NULL: the register is written as well, always */
};

struct pl_nvme_ring {
	struct pl_nvme_sqe *sq;
	const volatile struct pl_nvme_cqe *cq;
	struct pl_nvme_slot *slots;
	uint16_t *unused; /* stack of slots */
	struct pl_nvme_doorbell sq_db;
	struct pl_nvme_doorbell cq_db;
	uint32_t depth;
	uint32_t nr_slots;  /* depth - 1 */
	uint32_t nr_unused; /* on the stack */
	uint32_t slot_mask; /* of the slot in a command id; more than any slot's index */
	uint32_t tail;	    /* of the SQ: next entry to write */
	uint32_t rung;	    /* the tail that the controller knows */
	uint32_t head;	    /* of the CQ: next entry to read */
	uint32_t phase;	    /* that a new entry has */
	uint16_t qid;
	bool in_device; /* the SQ or lists are memory of a device, perhaps write-combining */
	uint64_t
		nr_bad; /* completions that made no sense; written by the owner, read by any thread */
};

/**
 * pl_nvme_ring_init() - set a ring up for the first time
 * @r: zeroed, but for sq, cq, doorbells, qid and in_device
 * @depth: entries, 2 to 65536
 *
 * Return: 0; -ENOMEM.
 */
int pl_nvme_ring_init(struct pl_nvme_ring *r, uint32_t depth);
void pl_nvme_ring_fini(struct pl_nvme_ring *r);

/* As after a reset of the controller: rings empty, CQ zeroed. No command is outstanding. */
void pl_nvme_ring_restart(struct pl_nvme_ring *r);

static inline uint32_t pl_nvme_ring_outstanding(const struct pl_nvme_ring *r)
{
	return r->nr_slots - r->nr_unused;
}

/* Take a slot; there is one. Its command id is slot->cid. */
static inline struct pl_nvme_slot *pl_nvme_slot_take(struct pl_nvme_ring *r)
{
	struct pl_nvme_slot *slot = &r->slots[r->unused[--r->nr_unused]];

	slot->cid = slot->next;
	return slot;
}

/* Give a slot back; ids of its earlier commands are no longer good. */
static inline void pl_nvme_slot_give(struct pl_nvme_ring *r, struct pl_nvme_slot *slot)
{
	slot->next = (uint16_t)(slot->cid + r->slot_mask + 1);
	slot->cid = PL_NVME_CID_NONE;
	slot->aborting = 0;
	r->unused[r->nr_unused++] = (uint16_t)(slot - r->slots);
}

/* The entry to write the next command to; pl_nvme_ring_push() then counts it. */
static inline struct pl_nvme_sqe *pl_nvme_ring_entry(struct pl_nvme_ring *r)
{
	return &r->sq[r->tail];
}

static inline void pl_nvme_ring_push(struct pl_nvme_ring *r)
{
	if (++r->tail == r->depth)
		r->tail = 0;
}

static inline void pl_nvme_ring_bell(struct pl_nvme_doorbell *db, uint32_t old, uint32_t value)
{
	uint16_t event;

	/* Pairs with the controller's reading of the doorbell before it reads what was queued. */
	pl_nvme_wmb();
	if (db->shadow) {
		__atomic_store_n(db->shadow, value, __ATOMIC_RELEASE);
		if (!db->event)
			goto ring;
		/* Pairs with the controller's barrier between its event index and the shadow. */
		pl_nvme_mb();
		event = (uint16_t)__atomic_load_n(db->event, __ATOMIC_ACQUIRE);
		/* Only if the controller asked to be told about a value on the way to this one. */
		if ((uint16_t)(value - event) > (uint16_t)(value - old))
			return;
	}
ring:
	__atomic_store_n(db->reg, value, __ATOMIC_RELEASE);
}

/* Tell the controller about all commands that were pushed. */
static inline void pl_nvme_ring_submit(struct pl_nvme_ring *r)
{
	if (r->tail == r->rung)
		return;
	if (r->in_device)
		pl_nvme_mb();
	pl_nvme_ring_bell(&r->sq_db, r->rung, r->tail);
	r->rung = r->tail;
}

/*
 * Take the next completion that makes sense: true, and its slot, which is still taken, and a copy of it.
 * After the last one, tell the controller by pl_nvme_ring_ack() with the head from before the first.
 * *budget bounds how many entries are looked at, lest a controller that writes without end keeps us.
 */
static inline __attribute__((always_inline)) bool pl_nvme_ring_next(struct pl_nvme_ring *r,
								    uint32_t *budget,
								    struct pl_nvme_slot **slot,
								    struct pl_nvme_cqe *copy)
{
	while (*budget) {
		const volatile struct pl_nvme_cqe *cqe = &r->cq[r->head];
		uint32_t index;

		/* Pairs with the controller's writing of the status after all the rest. */
		copy->status = __atomic_load_n(&cqe->status, __ATOMIC_ACQUIRE);
		if ((copy->status & PL_NVME_CQE_PHASE) != r->phase)
			return false;
		pl_nvme_rmb();
		copy->cid = cqe->cid;
		copy->sqid = cqe->sqid;
		copy->sqhd = cqe->sqhd;
		copy->result = cqe->result;
		--*budget;
		if (++r->head == r->depth) {
			r->head = 0;
			r->phase ^= PL_NVME_CQE_PHASE;
		}
		index = copy->cid & r->slot_mask;
		/* No slot has the index slot_mask, so PL_NVME_CID_NONE never matches a free one. */
		if (__builtin_expect(index < r->nr_slots && r->slots[index].cid == copy->cid &&
					     copy->sqid == r->qid && copy->sqhd < r->depth,
				     1)) {
			*slot = &r->slots[index];
			return true;
		}
		__atomic_store_n(&r->nr_bad, r->nr_bad + 1, __ATOMIC_RELAXED);
	}
	return false;
}

static inline void pl_nvme_ring_ack(struct pl_nvme_ring *r, uint32_t from)
{
	if (r->head != from)
		pl_nvme_ring_bell(&r->cq_db, from, r->head);
}

#endif
