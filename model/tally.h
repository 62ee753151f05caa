/* SPDX-License-Identifier: MIT */
/* What a load or a save has done, for struct peerlane_model_stats. */
#ifndef PL_MODEL_TALLY_H
#define PL_MODEL_TALLY_H

#include <peerlane/model.h>

struct pl_tally {
	struct peerlane *ctx;
	enum peerlane_op op;
	struct timespec began;
	uint64_t path_bytes[PEERLANE_PATH_NR];
};

void pl_tally_begin(struct pl_tally *t, struct peerlane *ctx, enum peerlane_op op);
/* Fills @out, which may be NULL. */
void pl_tally_end(const struct pl_tally *t, uint64_t bytes, uint64_t file_bytes,
		  uint64_t nr_requests, struct peerlane_model_stats *out);

#endif
