/* SPDX-License-Identifier: MIT */
/* SGLs: memory described to a controller by its contiguous runs. */
#ifndef PL_NVME_SGL_H
#define PL_NVME_SGL_H

#include <peerlane/nvme_spec.h>

#include "pages.h"

/**
 * pl_nvme_sgl_build() - describe memory by an SGL
 * @data: memory
 * @offset: where in it the data begin
 * @bytes: of data, not 0, less than 4 GiB; they are there
 * @page: segments of descriptors do not cross pages of so many bytes
 * @lists: memory for segments, with a CPU address; not used for data in one run
 * @list_offset: where in it, a multiple of 16 as an address
 * @list_bytes: room there
 * @out: receives the first descriptor
 *
 * Return: 0; -ENOBUFS the segments have no room.
 */
int pl_nvme_sgl_build(const struct pl_nvme_pages *data, size_t offset, size_t bytes, size_t page,
		      const struct pl_nvme_pages *lists, size_t list_offset, size_t list_bytes,
		      union pl_nvme_dptr *out);

#endif
