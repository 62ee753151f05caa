/* SPDX-License-Identifier: MIT */
/*
 * Entries of headers in the form that programs write: three members, once each, in any order; texts of ASCII
 * without escapes; short numbers. They are read here, which is much faster than by json-c. Every other
 * entry, and all that is wrong, is left to json-c.
 */
#ifndef PL_MODEL_PLAIN_H
#define PL_MODEL_PLAIN_H

#include "header.h"

struct pl_plain {
	const char *name; /* in the text, with no NUL behind it */
	size_t name_bytes;
	enum peerlane_dtype dtype;
	uint64_t shape[PL_MAX_DIMS];
	uint64_t nr_dims;
	uint64_t offsets[2];
};

/*
 * Reads the name and the value that begin at *@at and moves it behind them. False, and *@at is as it was: the
 * entry is not of this form, or its members do not fit each other.
 */
bool pl_plain_read(const char **at, const char *end, struct pl_plain *out);

#endif
