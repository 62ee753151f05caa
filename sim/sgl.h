/* SPDX-License-Identifier: MIT */
/* SGL lists. */
#ifndef SIM_SGL_H
#define SIM_SGL_H

#include "data.h"

/* As pl_sn_data_find(), for a command whose data pointer is an SGL. */
unsigned int pl_sn_sgl_find(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, uint64_t bytes,
			    enum pl_sn_way way);

/* Add memory to the pieces of a command: a status. */
unsigned int pl_sn_data_add(struct pl_simnvme *c, uint64_t address, uint64_t bytes,
			    enum pl_sn_way way);
/* See that one more piece fits. */
bool pl_sn_data_room(struct pl_simnvme *c);

#endif
