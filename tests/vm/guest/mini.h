/* SPDX-License-Identifier: MIT */
/*
 * A minimal NVMe driver over a transport: one admin queue and one queue pair, which a person can follow
 * with the specification beside it. It shares nothing with the library's driver but the wire types and
 * the transports, so it says which of the two is wrong.
 */
#ifndef MINI_H
#define MINI_H

#include <peerlane/nvme_spec.h>
#include <transport.h>
#include <transports.h>

#include "guest.h"

/* Entries of each queue. */
#define MINI_DEPTH 16u

struct mini_queue {
	volatile struct pl_nvme_sqe *sq;
	volatile struct pl_nvme_cqe *cq;
	uint64_t sq_bus, cq_bus;
	uint32_t tail, head;
	unsigned int phase, id;
};

struct mini {
	struct pl_nvme_transport *t;
	const struct pl_nvme_mapping *memory; /* queues, a data page, lists */
	struct mini_queue admin, io;
	uint32_t stride;
	uint16_t next_cid;
	char serial[21];
};

/* Open and enable the controller, identify it, create the queue pair. */
void mini_open(struct mini *m, const struct pl_nvme_transport_ops *ops, const char *address);
/* Enable it again after a reset, with the same memory. */
void mini_enable(struct mini *m);
/* An admin command ends, and the controller is not told that this was seen: its interrupt stays, until it is. */
void mini_raise(struct mini *m);
void mini_lower(struct mini *m);
/* Disable and close. */
void mini_close(struct mini *m);

/* Submit a read or write of @bytes, at most 512 KiB, and do not wait for it. */
void mini_submit(struct mini *m, bool write, uint64_t offset, const struct pl_nvme_mapping *map,
		 size_t at, size_t bytes);
/* Wait for one completion of the queue pair; its status. */
unsigned int mini_wait(struct mini *m);
/* Move @bytes, in pieces; fails the test when a command fails. */
void mini_move(struct mini *m, bool write, uint64_t offset, const struct pl_nvme_mapping *map,
	       size_t at, size_t bytes);
uint32_t mini_reg(struct mini *m, uint32_t reg);

#endif
