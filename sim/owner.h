/* SPDX-License-Identifier: MIT */
/* Clients as owners of mappings, and of the queues that lie in them. */
#ifndef SIM_OWNER_H
#define SIM_OWNER_H

#include "ctrl.h"

/* Map part of a file for a client: as pl_simnvme_client_map(). */
int pl_sn_owner_map(struct pl_simnvme *c, uint64_t owner, uint64_t iova, int fd, uint64_t offset,
		    uint64_t bytes, unsigned int access);
int pl_sn_owner_unmap(struct pl_simnvme *c, uint64_t owner, uint64_t iova, uint64_t bytes);
/*
 * What the client had mapped is not used any more, says who granted it: unmap all. Unlike below nothing else
 * is done, so that a queue which is still there, or a command, is seen as the fault that it is.
 */
void pl_sn_owner_revoke(struct pl_simnvme *c, uint64_t owner);
/* The client is gone: delete its queues, reset if one was the admin's, unmap all it had. */
void pl_sn_owner_gone(struct pl_simnvme *c, uint64_t owner);

#endif
