/* SPDX-License-Identifier: MIT */
/* Submission and completion queues: memory, doorbells, fetching and completing. */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include "ctrl.h"

/* Where an entry of a ring is, for an access; NULL if that memory is not mapped. */
void *pl_sn_ring_at(struct pl_simnvme *c, struct pl_sn_ring *ring, uint32_t index,
		    unsigned int access);

/* Make a queue and enter it; it takes ring.pages over, even on failure. 0 or -ENOMEM. */
int pl_sn_cq_create(struct pl_simnvme *c, uint32_t qid, const struct pl_sn_ring *ring);
int pl_sn_sq_create(struct pl_simnvme *c, uint32_t qid, struct pl_sn_cq *cq,
		    const struct pl_sn_ring *ring);
/* Delete one. Of a submission queue, commands under way complete as aborted; those not fetched vanish. */
void pl_sn_cq_delete(struct pl_simnvme *c, struct pl_sn_cq *cq);
void pl_sn_sq_delete(struct pl_simnvme *c, struct pl_sn_sq *sq);
/* Delete all, without completions. */
void pl_sn_queues_clear(struct pl_simnvme *c);

/* Take what lies in a submission queue, as far as there is room to complete it: number of commands. */
unsigned int pl_sn_sq_serve(struct pl_simnvme *c, struct pl_sn_sq *sq);
/* Look at a completion queue's doorbell, and post what waited for room. */
void pl_sn_cq_serve(struct pl_simnvme *c, struct pl_sn_cq *cq);

/* Complete a command: status is type << 8 | code. */
void pl_sn_complete(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		    unsigned int status, uint32_t result);

#endif
