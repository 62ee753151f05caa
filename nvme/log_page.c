// SPDX-License-Identifier: MIT
/* Log pages, fetched in pieces where they are long. */
#include "ctrl.h"

#include <errno.h>

static int fetch(struct peerlane_nvme *nvme, unsigned int page, uint32_t nsid, uint64_t offset,
		 void *data, size_t bytes, bool last)
{
	uint32_t dwords = (uint32_t)(bytes / 4 - 1); /* 0-based */
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_GET_LOG_PAGE,
		.nsid = nsid,
		.cdw10 = page | dwords << PL_NVME_LOG_NUMD_SHIFT,
		.cdw11 = dwords >> 16,
		.cdw12 = (uint32_t)offset,
		.cdw13 = (uint32_t)(offset >> 32),
	};

	/* The event is cleared by the last piece, or the page could change between them. */
	if (!last)
		sqe.cdw10 |= PL_NVME_LOG_RAE;
	return pl_nvme_admin_data(nvme, &sqe, data, bytes, NULL);
}

int peerlane_nvme_log_page(struct peerlane_nvme *nvme, unsigned int page, uint32_t nsid,
			   uint64_t offset, void *data, size_t bytes)
{
	size_t most, piece;
	int rc = 0;

	if (!nvme || !data || !bytes || bytes % 4 || offset % 4 || page > 0xff ||
	    bytes > UINT64_MAX - offset)
		return -EINVAL;
	most = nvme->t->ops->remote ? PL_NVME_REMOTE_BYTES : PL_NVME_ADMIN_BYTES;
	pthread_mutex_lock(&nvme->lock);
	if (nvme->max_transfer_bytes && nvme->max_transfer_bytes < most)
		most = nvme->max_transfer_bytes;
	if ((offset || bytes > most) && !(nvme->id.lpa & PL_NVME_LPA_EXTENDED))
		rc = -EOPNOTSUPP;
	for (; bytes && !rc; bytes -= piece, offset += piece) {
		piece = bytes < most ? bytes : most;
		rc = fetch(nvme, page, nsid, offset, data, piece, piece == bytes);
		data = (char *)data + piece;
	}
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}
