// SPDX-License-Identifier: MIT
/* Features, the number of queues among them. */
#include "ctrl.h"

#include <errno.h>

int pl_nvme_set_nr_queues(struct peerlane_nvme *nvme)
{
	uint32_t ask = nvme->nr_queues_asked - 1, cqs, sqs, nr;
	size_t doorbells = nvme->t->bar0.bytes - PL_NVME_REG_DOORBELLS;
	struct peerlane_nvme_completion cpl;
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_SET_FEATURES,
		.cdw10 = PL_NVME_FEAT_NR_QUEUES,
		.cdw11 = ask << PL_NVME_NR_QUEUES_CQ_SHIFT | ask,
	};
	int rc = pl_nvme_admin_locked(nvme, &sqe, &cpl);

	if (rc)
		return rc;
	cqs = (cpl.result >> PL_NVME_NR_QUEUES_CQ_SHIFT) + 1;
	sqs = (cpl.result & PL_NVME_NR_QUEUES_MASK) + 1;
	nr = cqs < sqs ? cqs : sqs;
	/* It may grant more than was asked for; queues need doorbells that are mapped. */
	if (nr > nvme->nr_queues_asked)
		nr = nvme->nr_queues_asked;
	doorbells /= (size_t)8 << nvme->dstrd;
	if (nr >= doorbells)
		nr = doorbells ? (uint32_t)doorbells - 1 : 0;
	nvme->nr_queues = nr;
	return 0;
}

int peerlane_nvme_get_feature(struct peerlane_nvme *nvme, unsigned int feature, unsigned int select,
			      uint32_t nsid, uint32_t *value)
{
	struct peerlane_nvme_completion cpl;
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_GET_FEATURES,
		.nsid = nsid,
		.cdw10 = feature | select << PL_NVME_FEAT_SEL_SHIFT,
	};
	int rc;

	if (!value || feature > 0xff || select > PL_NVME_FEAT_SEL_SUPPORTED)
		return -EINVAL;
	rc = peerlane_nvme_admin(nvme, &sqe, NULL, 0, &cpl);
	if (!rc)
		*value = cpl.result;
	return rc;
}

int peerlane_nvme_set_feature(struct peerlane_nvme *nvme, unsigned int feature, uint32_t nsid,
			      uint32_t value)
{
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_SET_FEATURES,
		.nsid = nsid,
		.cdw10 = feature,
		.cdw11 = value,
	};

	if (feature > 0xff)
		return -EINVAL;
	return peerlane_nvme_admin(nvme, &sqe, NULL, 0, NULL);
}
