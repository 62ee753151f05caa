/* SPDX-License-Identifier: MIT */
/* Features: get and set. */
#ifndef SIM_FEATURE_H
#define SIM_FEATURE_H

#include "ctrl.h"

/* As they are after a reset. */
void pl_sn_feature_reset(struct pl_simnvme *c);
/* The commands: they return a status. */
unsigned int pl_sn_feature_get(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			       uint32_t *result);
unsigned int pl_sn_feature_set(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			       uint32_t *result);

#endif
