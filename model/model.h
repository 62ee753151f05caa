/* SPDX-License-Identifier: MIT */
/* A model: open files and a table of the tensors in them. */
#ifndef PL_MODEL_MODEL_H
#define PL_MODEL_MODEL_H

#include "shard.h"

struct pl_entry {
	const struct pl_tensor *tensor; /* of the shard's header */
	unsigned int file;		/* in @shards */
};

struct peerlane_model {
	struct peerlane *ctx;
	struct pl_shard *shards;
	unsigned int nr_shards;
	struct pl_entry *entries; /* by file, then by position in it */
	size_t *by_name;	  /* numbers of entries */
	size_t nr;
	struct peerlane_model_table table;
};

#endif
