// SPDX-License-Identifier: MIT
/* Setting up a pair of rings; what moves them is in ring.h. */
#include "ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int pl_nvme_ring_init(struct pl_nvme_ring *r, uint32_t depth)
{
	r->depth = depth;
	r->nr_slots = depth - 1;
	r->slot_mask = 1;
	while (r->slot_mask < r->nr_slots)
		r->slot_mask = r->slot_mask << 1 | 1;
	r->slots = calloc(r->nr_slots, sizeof(*r->slots));
	r->unused = calloc(r->nr_slots, sizeof(*r->unused));
	if (!r->slots || !r->unused) {
		pl_nvme_ring_fini(r);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < r->nr_slots; i++) {
		r->slots[i].cid = PL_NVME_CID_NONE;
		r->slots[i].next = (uint16_t)i;
		/* The first one on top. */
		r->unused[i] = (uint16_t)(r->nr_slots - 1 - i);
	}
	r->nr_unused = r->nr_slots;
	r->phase = PL_NVME_CQE_PHASE;
	return 0;
}

void pl_nvme_ring_fini(struct pl_nvme_ring *r)
{
	free(r->slots);
	free(r->unused);
	r->slots = NULL;
	r->unused = NULL;
}

void pl_nvme_ring_restart(struct pl_nvme_ring *r)
{
	struct pl_nvme_doorbell *db[] = { &r->sq_db, &r->cq_db };

	r->tail = 0;
	r->rung = 0;
	r->head = 0;
	r->phase = PL_NVME_CQE_PHASE;
	/* Entries of an earlier life must not look new. Nobody writes them now. */
	for (uint32_t i = 0; r->cq && i < r->depth; i++) {
		volatile struct pl_nvme_cqe *cqe = (volatile struct pl_nvme_cqe *)&r->cq[i];

		__atomic_store_n(&cqe->status, 0, __ATOMIC_RELEASE);
	}
	for (unsigned int i = 0; i < 2; i++)
		if (db[i]->event) {
			__atomic_store_n(db[i]->shadow, 0, __ATOMIC_RELEASE);
			__atomic_store_n((volatile uint32_t *)db[i]->event, 0, __ATOMIC_RELEASE);
		}
}
