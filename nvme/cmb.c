// SPDX-License-Identifier: MIT
/* The controller's own memory, for submission queues. */
#include "ctrl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int window(struct peerlane_nvme *nvme, unsigned int index, struct pl_nvme_window *out)
{
	if (!index) {
		*out = nvme->t->bar0;
		return 0;
	}
	if (index == 1 || index > 5 || !nvme->t->ops->window)
		return -EOPNOTSUPP;
	return nvme->t->ops->window(nvme->t, index, out);
}

void pl_nvme_cmb_find(struct peerlane_nvme *nvme)
{
	uint32_t sz, loc, page = 1u << nvme->page_shift;
	struct pl_nvme_window w;
	uint64_t unit, at, bytes;

	if (PL_NVME_CAP_CMBS(nvme->cap))
		pl_nvme_write64(nvme->bar, PL_NVME_REG_CMBMSC, PL_NVME_CMBMSC_CRE);
	sz = pl_nvme_read32(nvme->bar, PL_NVME_REG_CMBSZ);
	loc = pl_nvme_read32(nvme->bar, PL_NVME_REG_CMBLOC);
	if (!(sz & PL_NVME_CMBSZ_SQS) || PL_NVME_CMBSZ_SZU(sz) > PL_NVME_CMBSZ_SZU_MAX ||
	    window(nvme, PL_NVME_CMBLOC_BIR(loc), &w) || !w.bus)
		return;
	/* Neither product overflows: 20 bits of a unit of up to 36. */
	unit = PL_NVME_CMB_UNIT(sz);
	at = PL_NVME_CMBLOC_OFST(loc) * unit;
	bytes = PL_NVME_CMBSZ_SZ(sz) * unit;
	if (at >= w.bytes || (w.bus + at) % page)
		return;
	if (bytes > w.bytes - at)
		bytes = w.bytes - at;
	nvme->cmb_used = calloc(bytes / page + 1, 1);
	if (!nvme->cmb_used)
		return;
	nvme->nr_cmb_pages = bytes / page;
	nvme->cmb = w;
	nvme->cmb.ptr = (volatile char *)w.ptr + at;
	nvme->cmb.bytes = bytes;
	nvme->cmb.bus = w.bus + at;
}

/* Tell the controller at which address its memory is; older ones know by their BAR. */
void pl_nvme_cmb_start(struct peerlane_nvme *nvme)
{
	if (!nvme->nr_cmb_pages || !PL_NVME_CAP_CMBS(nvme->cap))
		return;
	pl_nvme_write64(nvme->bar, PL_NVME_REG_CMBMSC,
			nvme->cmb.bus | PL_NVME_CMBMSC_CRE | PL_NVME_CMBMSC_CMSE);
	if (pl_nvme_read32(nvme->bar, PL_NVME_REG_CMBSTS) & PL_NVME_CMBSTS_CBAI)
		nvme->nr_cmb_pages = 0;
}

int pl_nvme_cmb_take(struct peerlane_nvme *nvme, size_t bytes, size_t *offset)
{
	size_t nr = ((bytes - 1) >> nvme->page_shift) + 1, run = 0;

	if (!nvme->nr_cmb_pages)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < nvme->nr_cmb_pages; i++) {
		run = nvme->cmb_used[i] ? 0 : run + 1;
		if (run == nr) {
			*offset = (i + 1 - nr) << nvme->page_shift;
			memset(nvme->cmb_used + i + 1 - nr, 1, nr);
			return 0;
		}
	}
	return -ENOSPC;
}

void pl_nvme_cmb_give(struct peerlane_nvme *nvme, size_t offset, size_t bytes)
{
	memset(nvme->cmb_used + (offset >> nvme->page_shift), 0,
	       ((bytes - 1) >> nvme->page_shift) + 1);
}
