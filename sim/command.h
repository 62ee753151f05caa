/* SPDX-License-Identifier: MIT */
/* One command from the queue to its completion. */
#ifndef SIM_COMMAND_H
#define SIM_COMMAND_H

#include "ctrl.h"

/* A "status" that says: no completion now. Not a status of the specification. */
#define PL_SN_LATER 0x10000u

/* Take a command that was just fetched; conflict says that its id is in use. */
void pl_sn_command(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		   bool conflict);
/* Carry a command out and complete it. */
void pl_sn_execute(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe);

/* Commands of either set: they return a status, or PL_SN_LATER. */
unsigned int pl_sn_admin(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
			 uint32_t *result);
unsigned int pl_sn_nvm(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);

/* Are the fields zero that the specification reserves for this opcode? */
bool pl_sn_reserved_clear(const struct pl_nvme_sqe *sqe, bool is_admin);

#endif
