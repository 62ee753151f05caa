// SPDX-License-Identifier: MIT
/* What a status means: the one place where it becomes an errno. */
#include "ctrl.h"

#include <errno.h>

int peerlane_nvme_errno(unsigned int status)
{
	switch (status) {
	case PL_NVME_SC_SUCCESS:
		return 0;
	case PL_NVME_SC_INVALID_OPCODE:
		return -EOPNOTSUPP;
	case PL_NVME_SC_INVALID_FIELD:
	case PL_NVME_SC_INVALID_LOG_PAGE:
	case PL_NVME_SC_INVALID_QID:
	case PL_NVME_SC_INVALID_QUEUE_SIZE:
	case PL_NVME_SC_PRP_OFFSET:
		return -EINVAL;
	case PL_NVME_SC_LBA_RANGE:
		return -ERANGE;
	case PL_NVME_SC_INVALID_NS:
		return -ENXIO;
	case PL_NVME_SC_CAPACITY:
		return -ENOSPC;
	case PL_NVME_SC_COMPARE_FAILED:
	case PL_NVME_SC_GUARD_CHECK:
	case PL_NVME_SC_APP_TAG_CHECK:
	case PL_NVME_SC_REF_TAG_CHECK:
		return -EILSEQ;
	case PL_NVME_SC_READ_ERROR:
	case PL_NVME_SC_DEALLOCATED:
		return -ENODATA;
	case PL_NVME_SC_ACCESS_DENIED:
		return -EACCES;
	case PL_NVME_SC_WRITE_PROTECTED:
	case PL_NVME_SC_READ_ONLY_RANGE:
		return -EROFS;
	case PL_NVME_SC_NOT_READY:
		return -EAGAIN;
	case PL_NVME_SC_ABORTED:
	case PL_NVME_SC_SQ_DELETED:
		return -ECANCELED;
	default:
		return -EIO;
	}
}

void pl_nvme_complete(struct peerlane_nvme_completion *cpl, uint64_t user,
		      const struct pl_nvme_cqe *cqe)
{
	unsigned int status = PL_NVME_SC(PL_NVME_CQE_SCT(cqe->status), PL_NVME_CQE_SC(cqe->status));

	*cpl = (struct peerlane_nvme_completion){
		.user = user,
		.err = peerlane_nvme_errno(status),
		.result = cqe->result,
		.status = (uint16_t)status,
		.dnr = !!(cqe->status & PL_NVME_CQE_DNR),
		.more = !!(cqe->status & PL_NVME_CQE_MORE),
		.retry_delay = (uint8_t)PL_NVME_CQE_CRD(cqe->status),
	};
}

void pl_nvme_complete_lost(struct peerlane_nvme_completion *cpl, uint64_t user, int err)
{
	*cpl = (struct peerlane_nvme_completion){
		.user = user,
		.err = err,
		.status = PL_NVME_SC_PATH_HOST_ABORTED,
	};
}
