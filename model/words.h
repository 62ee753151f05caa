/* SPDX-License-Identifier: MIT */
/* Names from files, made fit to stand in a message. */
#ifndef PL_MODEL_WORDS_H
#define PL_MODEL_WORDS_H

#include <stdbool.h>

struct pl_words {
	char text[84];
};

/* @name without control characters, cut to what a message has room for. */
struct pl_words pl_words_name(const char *name);
/* The same for the last component of a path. */
struct pl_words pl_words_file(const char *path);

/* Whether it is well-formed UTF-8. json-c lets some pass that is not. */
bool pl_words_is_utf8(const char *text);

#endif
