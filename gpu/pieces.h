/* SPDX-License-Identifier: MIT */
/* Addresses of pieces of memory for a controller, with the PRP lists that the longer ones need. */
#ifndef PL_PIECES_H
#define PL_PIECES_H

#include <peerlane/device/queue.h>
#include <peerlane/nvme.h>

/* Pieces of @bytes each from the start of @map on, for a controller with pages of @page_bytes: fills @out
 * with @nr of them. The lists lie in host memory of @lists, which the caller unmaps; NULL: none is needed.
 * -EINVAL a piece crosses pages that it must not. */
int pl_pieces_fill(struct peerlane_nvme *nvme, const struct peerlane_nvme_map *map, size_t nr,
		   size_t bytes, size_t page_bytes, struct pld_dma *out,
		   struct peerlane_nvme_map **lists);

#endif
