/* SPDX-License-Identifier: MIT */
/* A DMA map: memory with the addresses that one controller knows it by. */
#ifndef PL_NVME_MAP_H
#define PL_NVME_MAP_H

#include "pages.h"
#include "transport.h"

struct peerlane_nvme;

struct peerlane_nvme_map {
	struct pl_nvme_pages v;
	struct peerlane_nvme *nvme;
	const struct pl_nvme_mapping *mapping;
	uint64_t *joined; /* pages made of smaller ones, or NULL */
	bool allocated;	  /* by the transport */
	bool gpu;	  /* memory of a GPU */
	bool lost;	  /* ...that may be gone: never to be given to the controller again */
	struct peerlane_nvme_map *next;
	struct peerlane_nvme_map **link; /* what points to this one */
};

/**
 * pl_nvme_pages_join() - describe a mapping by pages that are at least controller pages
 * @mapping: what the transport said
 * @page_shift: of controller pages
 * @out: receives the description
 * @joined: receives the pages if they had to be made anew, to be freed with it; else NULL
 *
 * Return: 0; -EOPNOTSUPP pages are smaller and do not lie together; -EPROTO the transport's description is
 * no good; -ENOMEM.
 */
int pl_nvme_pages_join(const struct pl_nvme_mapping *mapping, unsigned int page_shift,
		       struct pl_nvme_pages *out, uint64_t **joined);

/* As the public functions, with the controller's lock held. */
int pl_nvme_map_alloc_locked(struct peerlane_nvme *nvme, size_t bytes,
			     struct peerlane_nvme_map **out);
void pl_nvme_unmap_locked(struct peerlane_nvme_map *map);
/* The controller was stopped because memory of a GPU went away: all maps of such memory are lost. */
void pl_nvme_maps_lose(struct peerlane_nvme *nvme);

#endif
