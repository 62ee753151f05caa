/* SPDX-License-Identifier: MIT */
/* Checksums of memory, GPU or host: XXH3 of 64 bits. */
#ifndef PL_MODEL_SUM_H
#define PL_MODEL_SUM_H

#include <peerlane/peerlane.h>

/* What checksums need; one caller at a time. */
struct pl_summer {
	struct peerlane *ctx;
	char *mem;
	void *state;
};

int pl_summer_init(struct pl_summer *s, struct peerlane *ctx);
void pl_summer_fini(struct pl_summer *s);

/* The checksum of @bytes at @addr, which are copied to host memory piece by piece. */
int pl_summer_run(struct pl_summer *s, const void *addr, uint64_t bytes, uint64_t *sum);

#endif
