/* SPDX-License-Identifier: MIT */
/*
 * Addresses that a device behind an IOMMU may use: which are free. First fit; neighbours that are
 * free are one range again.
 */
#ifndef PL_NVME_IOVA_H
#define PL_NVME_IOVA_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* From first to last, both included. */
struct pl_iova_range {
	uint64_t first;
	uint64_t last;
};

struct pl_iova {
	pthread_mutex_t lock;
	struct pl_iova_range *ranges; /* free ones, rising, apart from each other */
	size_t nr;
	size_t room;
	size_t nr_used; /* allocations */
};

/* With these ranges free, in rising order and apart. 0 or -ENOMEM. */
int pl_iova_init(struct pl_iova *iova, const struct pl_iova_range *ranges, size_t nr);
void pl_iova_fini(struct pl_iova *iova);

/* @bytes, not 0, at a multiple of @align, a power of two. 0, -ENOSPC or -ENOMEM. */
int pl_iova_alloc(struct pl_iova *iova, uint64_t bytes, uint64_t align, uint64_t *out);

/* Undo pl_iova_alloc(), whole. Does not fail. */
void pl_iova_free(struct pl_iova *iova, uint64_t start, uint64_t bytes);

#endif
