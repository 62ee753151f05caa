/* SPDX-License-Identifier: MIT */
/* A picture of how often which times were seen. */
#ifndef PL_HISTOGRAM_H
#define PL_HISTOGRAM_H

#include "latency.h"

#include <stdio.h>

#define PL_HISTOGRAM_ROWS 20

/* Times from the least to what one in a thousand passes, in rows; the last holds all above. */
struct pl_histogram {
	unsigned int nr_rows;
	uint64_t total, most; /* entries of all rows, and of the fullest */
	struct {
		double from_us, to_us; /* to_us is 0 in a last row without an end */
		uint64_t count;
	} rows[PL_HISTOGRAM_ROWS + 1];
};

void pl_histogram_make(struct pl_histogram *h, const struct pl_latency *l);
/* As bars of text. */
void pl_histogram_print(const struct pl_histogram *h, FILE *out);
/* As an SVG under a title. Returns 0 or a negative errno. */
int pl_histogram_plot(const struct pl_histogram *h, const char *title, const char *path);

#endif
