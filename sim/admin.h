/* SPDX-License-Identifier: MIT */
/* Admin commands that have a file of their own. All return a status. */
#ifndef SIM_ADMIN_H
#define SIM_ADMIN_H

#include "ctrl.h"

unsigned int pl_sn_create_cq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);
unsigned int pl_sn_create_sq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);
unsigned int pl_sn_delete_cq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);
unsigned int pl_sn_delete_sq(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);

unsigned int pl_sn_identify(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);
unsigned int pl_sn_log_page(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe);

#endif
