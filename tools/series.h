/* SPDX-License-Identifier: MIT */
/* What a bench measured: one row for each call size and number of threads. */
#ifndef PL_SERIES_H
#define PL_SERIES_H

#include "limit.h"
#include "load.h"

struct pl_series_row {
	uint64_t call_bytes;
	unsigned int nr_threads;
	unsigned int nr_passes;
	double *rates;		      /* bytes a second of each pass, in the order they ran */
	struct pl_load_result median; /* the pass in the middle */
	struct pl_load_result plain;  /* seconds 0 where it was not measured */
	bool verified, interrupted;
};

struct pl_series {
	const char *op;
	const char *path;
	const char *cache; /* "cold", "cached" or "as found" */
	char gpu[320], fs[32], backend[16];
	uint64_t file_bytes, pass_bytes;
	unsigned int batch;
	bool plain, direct;
	struct pl_limit limit;
	struct pl_series_row *rows;
	unsigned int nr_rows;
};

double pl_series_rate(const struct pl_load_result *r);

/* Makes room for a row. NULL when out of memory. */
struct pl_series_row *pl_series_add(struct pl_series *s, unsigned int nr_passes);
void pl_series_fini(struct pl_series *s);

/* What "plain" calls are, in words. */
const char *pl_series_plain(const struct pl_series *s);

void pl_series_print_head(const struct pl_series *s);
void pl_series_print_row(const struct pl_series *s, const struct pl_series_row *row);
void pl_series_print_json(const struct pl_series *s, bool interrupted);

#endif
