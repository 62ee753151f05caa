/* SPDX-License-Identifier: MIT */
/* What NVMe controllers answer, in words. */
#ifndef PL_NVME_STATUS_H
#define PL_NVME_STATUS_H

#include <peerlane/nvme.h>

struct pl_status_text {
	char text[128];
};

/* "Unrecovered Read Error (status 0x281), do not retry", or what the driver itself says of it. */
struct pl_status_text pl_status_of(const struct peerlane_nvme_completion *cpl);

#endif
