/* SPDX-License-Identifier: MIT */
/* Doorbells: registers, and their shadows where the host set those up. */
#ifndef SIM_DOORBELL_H
#define SIM_DOORBELL_H

#include "ctrl.h"

/* Prepare the doorbell of a queue that is being made. */
void pl_sn_doorbell_init(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t qid, bool is_cq);
/* Give a queue the shadows that the host just set up. */
void pl_sn_doorbell_shadow(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t qid,
			   bool is_cq);
/*
 * The value last written, and true; or false if none was since the last call. A shadow counts only if
 * the register was written, too, or look is true, or the configuration has us look always.
 */
bool pl_sn_doorbell_take(struct pl_simnvme *c, struct pl_sn_doorbell *db, bool look,
			 uint32_t *value);
/* Say in the event index that a write beyond value is to be told by the register. */
void pl_sn_doorbell_want(struct pl_simnvme *c, struct pl_sn_doorbell *db, uint32_t value);
/* See whether doorbells of queues that do not exist were written. */
void pl_sn_doorbell_scan(struct pl_simnvme *c);
/* All doorbells as they are when nothing was written. */
void pl_sn_doorbell_reset(struct pl_simnvme *c);

#endif
