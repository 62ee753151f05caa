/* SPDX-License-Identifier: MIT */
/* The GPUs of this machine, as the PCI bus, the driver and the library see them. */
#ifndef PL_GRAPHICS_H
#define PL_GRAPHICS_H

#include "report.h"
#include "session.h"

/* NVIDIA devices on the PCI bus and the kernel driver's version. */
void pl_graphics_report_pci(struct pl_report *r);
/* Whether CUDA works, and why not. Returns whether it does. */
int pl_graphics_report_cuda(struct pl_report *r);
/* The GPUs of an open context. */
void pl_graphics_report_session(struct pl_report *r, const struct pl_session *s);

#endif
