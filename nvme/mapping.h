/* SPDX-License-Identifier: MIT */
/*
 * A mapping as the transports of real devices keep it: what the driver sees, in a list of those that
 * close() has to end.
 */
#ifndef PL_NVME_MAPPING_H
#define PL_NVME_MAPPING_H

#include "transport.h"

#include <pthread.h>

/* A place in the list; its head is one too. */
struct pl_nvme_link {
	struct pl_nvme_link *prev, *next;
};

struct pl_nvme_node {
	struct pl_nvme_link link;
	struct pl_nvme_mapping m;
	uint64_t token; /* the transport's: handle, or address for the IOMMU */
	size_t span;	/* the transport's: bytes mapped for the IOMMU */
	size_t owned;	/* bytes at m.cpu that are unmapped from the process with it */
	uint64_t pages[];
};

/* The mappings of a transport. */
struct pl_nvme_nodes {
	pthread_mutex_t lock;
	struct pl_nvme_link head;
};

void pl_nvme_nodes_init(struct pl_nvme_nodes *nodes);
void pl_nvme_nodes_fini(struct pl_nvme_nodes *nodes);

/* With room for so many pages, in no list. NULL: no memory. Freed by free(). */
struct pl_nvme_node *pl_nvme_node_new(size_t nr_pages);
void pl_nvme_nodes_add(struct pl_nvme_nodes *nodes, struct pl_nvme_node *node);
void pl_nvme_nodes_remove(struct pl_nvme_nodes *nodes, struct pl_nvme_node *node);
/* Take out any one; NULL when there is none. */
struct pl_nvme_node *pl_nvme_nodes_pop(struct pl_nvme_nodes *nodes);
struct pl_nvme_node *pl_nvme_node_of(const struct pl_nvme_mapping *mapping);

#endif
