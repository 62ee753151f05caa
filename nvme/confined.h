/* SPDX-License-Identifier: MIT */
/* What keeps users without privilege from a controller of peerlane_nvme. */
#ifndef PL_NVME_CONFINED_H
#define PL_NVME_CONFINED_H

#include <stddef.h>

/* The attribute of a PCI device that tells it: "yes", or words for what is missing. */
#define PL_NVME_CONFINED "peerlane_confined"

/* What it takes to open the controller, why, and what helps; from the attribute's first line. */
void pl_nvme_confined_text(const char *words, char *text, size_t size);

#endif
