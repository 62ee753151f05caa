/* SPDX-License-Identifier: MIT */
/* The memory a controller may reach: a table from bus addresses to memory, as an IOMMU has. */
#ifndef SIM_DMA_H
#define SIM_DMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Mappings are whole pages of this. */
#define PL_SN_DMA_PAGE 4096u

struct pl_sn_mapping {
	uint64_t iova;
	uint64_t bytes;
	uint8_t *memory;
	unsigned int access; /* PL_SIMNVME_* */
	bool cmb;	     /* the controller's own memory */
	uint64_t owner;	     /* 0, or the client that made it */
};

struct pl_sn_dma {
	struct pl_sn_mapping *table; /* by address */
	size_t nr, room;
	size_t last;	/* the one that was found last */
	uint64_t turns; /* changes of the table: what was looked up before is void */
	uint64_t faults;
};

void pl_sn_dma_fini(struct pl_sn_dma *dma);

/* Enter one: 0, -EINVAL, -EEXIST, -ENOMEM. */
int pl_sn_dma_add(struct pl_sn_dma *dma, const struct pl_sn_mapping *mapping);
/* Take one out, and copy it to removed if that is not NULL: -ENOENT if there is none like it. */
int pl_sn_dma_remove(struct pl_sn_dma *dma, uint64_t iova, uint64_t bytes, uint64_t owner,
		     struct pl_sn_mapping *removed);
/* Take out any one of an owner: false when there is none left. */
bool pl_sn_dma_remove_owned(struct pl_sn_dma *dma, uint64_t owner, struct pl_sn_mapping *removed);

/* The mapping of an address, or NULL. No fault is counted. */
const struct pl_sn_mapping *pl_sn_dma_find(struct pl_sn_dma *dma, uint64_t iova);
/*
 * Memory at an address for an access, and how many bytes of it follow. NULL, and a fault counted, if there
 * is none. cmb may be NULL.
 */
void *pl_sn_dma_at(struct pl_sn_dma *dma, uint64_t iova, unsigned int access, uint64_t *bytes,
		   bool *cmb);
/* Copy from the host, over as many mappings as it takes: false on a fault. */
bool pl_sn_dma_read(struct pl_sn_dma *dma, uint64_t iova, void *to, size_t bytes, bool *cmb);

#endif
