/* SPDX-License-Identifier: MIT */
/* What the parts of the tiny controller need of each other. */
#ifndef TESTS_NVME_FAKE_COMMANDS_H
#define TESTS_NVME_FAKE_COMMANDS_H

#include "fake.h"

/* Do a command, and say in @cqe how it went; false: it is not to be completed now. */
bool fake_admin(struct fake *f, const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe);
bool fake_io(struct fake *f, const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe);

/* Bytes of a page of the controller. */
static inline size_t fake_page(const struct fake *f)
{
	return (size_t)4096 << PL_NVME_CAP_MPSMIN(f->cap);
}

/* As fake_at(), for queues, which may also be in the controller's memory. */
char *fake_queue_at(struct fake *f, uint64_t bus, size_t bytes);

/* Set up a queue: at an address, or at the pages of a list. */
void fake_make_queue(struct fake *f, struct fake_queue *q, uint64_t bus, bool contiguous,
		     uint32_t depth, size_t size);
void fake_drop_queue(struct fake_queue *q);

#endif
