/* SPDX-License-Identifier: MIT */
/* Index files: which tensor is in which shard. */
#ifndef PL_MODEL_INDEX_H
#define PL_MODEL_INDEX_H

#include <stddef.h>

struct pl_index_entry {
	char *tensor;
	unsigned int shard; /* in @shards */
};

struct pl_index {
	struct pl_index_entry *entries; /* by name */
	size_t nr;
	char **shards; /* names, relative to the folder of the index; each once, in order */
	unsigned int nr_shards;
};

/* Reads @bytes of @text, the content of @file. -EUCLEAN names the fault. */
int pl_index_parse(const char *file, const char *text, size_t bytes, struct pl_index *out);
void pl_index_fini(struct pl_index *index);

#endif
