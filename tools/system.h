/* SPDX-License-Identifier: MIT */
/* What of this machine decides how data can move: kernel, limits, IOMMU, modules, GPUs. */
#ifndef PL_SYSTEM_H
#define PL_SYSTEM_H

#include "report.h"

/* Kernel, its interfaces, processors, limits, container. */
void pl_system_report(struct pl_report *r);
/* IOMMU and bounce buffers. */
void pl_system_report_iommu(struct pl_report *r);
/* Kernel modules that matter. */
void pl_system_report_modules(struct pl_report *r);

#endif
