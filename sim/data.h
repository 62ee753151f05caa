/* SPDX-License-Identifier: MIT */
/* The data pointer of a command: PRP and SGL lists turned into pieces of the host's memory. */
#ifndef SIM_DATA_H
#define SIM_DATA_H

#include "ctrl.h"

enum pl_sn_way {
	PL_SN_TO_HOST,
	PL_SN_FROM_HOST,
};

/*
 * Find all of a command's memory and see that it may be used; c->segs holds the pieces then. Nothing
 * is copied. Returns a status.
 */
unsigned int pl_sn_data_find(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, uint64_t bytes,
			     enum pl_sn_way way);
/* Is that more than MDTS allows? */
bool pl_sn_data_too_long(const struct pl_simnvme *c, uint64_t bytes);
/* Copy the first bytes between the pieces found and data. */
void pl_sn_data_to_host(struct pl_simnvme *c, const void *data, uint64_t bytes);
void pl_sn_data_from_host(struct pl_simnvme *c, void *data, uint64_t bytes);
/* Are the pieces' bytes those of data? */
bool pl_sn_data_equal(struct pl_simnvme *c, const void *data, uint64_t bytes);
/* Find and copy to the host in one: a status. */
unsigned int pl_sn_data_reply(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, const void *data,
			      uint64_t bytes);

/* Pages of a queue that is not contiguous, out of the list at prp1: a status. */
unsigned int pl_sn_data_pages(struct pl_simnvme *c, uint64_t prp1, uint64_t *pages, uint64_t nr);

#endif
