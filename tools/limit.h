/* SPDX-License-Identifier: MIT */
/* What a transfer is compared with: the rate of copies between pinned host memory and the GPU. */
#ifndef PL_LIMIT_H
#define PL_LIMIT_H

#include "session.h"

#include <json-c/json.h>

struct pl_limit {
	double rate;	  /* bytes a second; 0: there is none */
	char source[400]; /* how it was found, or why there is none */
};

/*
 * Measures it. The simulator has none: its memory is host memory, so no bus bounds a transfer.
 */
void pl_limit_measure(struct pl_limit *l, const struct pl_session *s, enum peerlane_op dir);
/* The user's own, in GB/s. */
void pl_limit_given(struct pl_limit *l, double gb_per_s);
/* None, and the reason. */
void pl_limit_none(struct pl_limit *l, const char *why);

/* Adds "limit" to an object: "gb_per_s" where there is one, and "source". */
void pl_limit_add_json(const struct pl_limit *l, struct json_object *o);

#endif
