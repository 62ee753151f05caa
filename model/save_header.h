/* SPDX-License-Identifier: MIT */
/* The header of a file to be written. */
#ifndef PL_MODEL_SAVE_HEADER_H
#define PL_MODEL_SAVE_HEADER_H

#include <peerlane/model.h>

/* A tensor to be written: what the caller said of it, and its place. */
struct pl_outgoing {
	const struct peerlane_model_source *source;
	uint64_t bytes;
	uint64_t begin; /* from the start of all data */
	uint64_t sum;
};

/*
 * The first bytes of the file, up to its data, for free(): the length, the header and its padding. @list is in
 * the order of the data. The text is read back as any other header: what a reader would refuse is refused
 * here. @path is for messages.
 */
int pl_save_header(const char *path, const struct pl_outgoing *list, size_t nr,
		   const struct peerlane_model_save_options *opt, char **out, size_t *bytes);

#endif
