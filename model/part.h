/* SPDX-License-Identifier: MIT */
/* Where the bytes of a part are in its file. */
#ifndef PL_MODEL_PART_H
#define PL_MODEL_PART_H

#include "model.h"

/* @count pieces of @chunk bytes, @stride apart, the first at @offset. */
struct pl_span {
	const struct pl_shard *shard;
	unsigned int file;
	uint64_t offset;
	uint64_t chunk, stride, count; /* @count 0: there are none */
	unsigned int align;	       /* size of an element, 1 where that is no whole byte */
};

/* Checks part @i of @parts, sets its bytes and says where they are. -EINVAL names it. */
int pl_part_span(const struct peerlane_model *m, struct peerlane_model_part *parts, size_t i,
		 struct pl_span *out);

/* A part and its place, for sorting. */
struct pl_placed {
	struct pl_span span;
	size_t part;
};

/* All parts in the order of files and positions, for free(). */
int pl_parts_place(const struct peerlane_model *m, struct peerlane_model_part *parts, size_t nr,
		   struct pl_placed **out);

#endif
