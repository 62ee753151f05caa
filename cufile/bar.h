/* SPDX-License-Identifier: MIT */
/* The window through which other devices reach a GPU's memory. */
#ifndef PL_CF_BAR_H
#define PL_CF_BAR_H

#include <stddef.h>

struct peerlane;

/* Size of the window in KiB; 0 for a GPU that has none or says nothing of it. */
size_t pl_cf_bar_kb(struct peerlane *ctx, int gpu);
/* The same from a PCI device's "resource" file. */
size_t pl_cf_bar_read(const char *path);

#endif
