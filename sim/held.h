/* SPDX-License-Identifier: MIT */
/* Commands that were fetched and are not carried out yet. */
#ifndef SIM_HELD_H
#define SIM_HELD_H

#include "ctrl.h"

/* Keep a command: 0 or -ENOMEM. until is a turn, window how many to gather. */
int pl_sn_held_add(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		   enum pl_sn_held_as as, uint64_t until, uint64_t window);
/* Carry out those whose time has come. */
void pl_sn_held_run(struct pl_simnvme *c);
/* Complete one as aborted: false if there is none. */
bool pl_sn_held_abort(struct pl_simnvme *c, uint32_t qid, uint16_t cid);
/* Complete all of a queue because it is deleted. */
void pl_sn_held_abort_queue(struct pl_simnvme *c, struct pl_sn_sq *sq);
/* Take the oldest request for an event: false if there is none. */
bool pl_sn_held_event_request(struct pl_simnvme *c, struct pl_nvme_sqe *sqe);
/* Forget all. */
void pl_sn_held_clear(struct pl_simnvme *c);

#endif
