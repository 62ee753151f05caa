/* SPDX-License-Identifier: MIT */
/* Registers: what the host writes there, and what the controller answers. */
#ifndef SIM_REGS_H
#define SIM_REGS_H

#include "ctrl.h"

/* Make BAR0: 0 or a negative errno. */
int pl_sn_regs_init(struct pl_simnvme *c);
void pl_sn_regs_fini(struct pl_simnvme *c);

/* See what the host did to CC, and go on with what is under way. Cheap if nothing happened. */
void pl_sn_regs_serve(struct pl_simnvme *c);
/* See whether the host wrote what it must not. */
void pl_sn_regs_scan(struct pl_simnvme *c);
/* See what it wrote to CMBMSC; only where there is a CMB. */
void pl_sn_regs_cmb(struct pl_simnvme *c);
/* Is the controller enabled, ready and alive? */
bool pl_sn_regs_ready(const struct pl_simnvme *c);

/* CSTS.CFS: only a reset helps. */
void pl_sn_regs_fatal(struct pl_simnvme *c);
/* The device is gone: everything reads as ones. */
void pl_sn_regs_remove(struct pl_simnvme *c);
/* A reset from outside: all registers as at first. */
void pl_sn_regs_reset(struct pl_simnvme *c);

#endif
