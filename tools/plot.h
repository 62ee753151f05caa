/* SPDX-License-Identifier: MIT */
/* A picture of what a bench measured. */
#ifndef PL_PLOT_H
#define PL_PLOT_H

#include "series.h"

/*
 * Writes an SVG: GB/s against call size, a line for each number of threads, and the limit.
 * Returns 0 or a negative errno.
 */
int pl_plot_write(const struct pl_series *s, const char *path);

#endif
