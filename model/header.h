/* SPDX-License-Identifier: MIT */
/* The header of a safetensors file: tensors and metadata, read from its text and checked as a whole. */
#ifndef PL_MODEL_HEADER_H
#define PL_MODEL_HEADER_H

#include <peerlane/model.h>

#include <stdbool.h>

/* As in safetensors' own reader. */
#define PL_HEADER_MAX 100000000u
#define PL_MAX_DIMS 64u
/* Before the name of a tensor, the key of its checksum. */
#define PL_SUM_KEY "peerlane.xxh3:"

struct pl_tensor {
	const char *name;
	enum peerlane_dtype dtype;
	uint64_t begin, end; /* of its data, from the start of all data */
	bool has_sum;
	uint64_t sum;
	unsigned int nr_dims;
	uint64_t shape[]; /* and then the name */
};

struct pl_pair {
	char *key, *value;
};

struct pl_header {
	struct pl_tensor **tensors; /* in the order of their data */
	struct pl_tensor **by_name;
	size_t nr;
	struct pl_pair *metadata;
	size_t nr_metadata;
};

/* Reads @bytes of @text, the header of @file with @data_bytes behind it. -EUCLEAN names the fault. */
int pl_header_parse(const char *file, const char *text, size_t bytes, uint64_t data_bytes,
		    struct pl_header *out);
void pl_header_fini(struct pl_header *h);

/* By name, or NULL. */
struct pl_tensor *pl_header_find(const struct pl_header *h, const char *name);
/* The one that has the byte @at of the data, or NULL. */
const struct pl_tensor *pl_header_at(const struct pl_header *h, uint64_t at);

/* Size of elements of @dtype in this shape. -EOVERFLOW; -EINVAL not a whole number of bytes. */
int pl_shape_bytes(enum peerlane_dtype dtype, const uint64_t *shape, unsigned int nr_dims,
		   uint64_t *bytes);

#endif
