/* SPDX-License-Identifier: MIT */
/* What is to be on a drive: the bytes of a file, or a pattern. */
#ifndef PL_NVME_CONTENT_H
#define PL_NVME_CONTENT_H

#include "nvme_drive.h"

#include <stdio.h>

struct pl_content {
	const char *path; /* NULL: the pattern */
	unsigned int seed;
	FILE *file;
	uint64_t file_bytes;
	uint64_t block, nr_blocks;
	uint32_t block_bytes;
};

/* What the commands that need a content are told of it. */
struct pl_content_want {
	const char *input;   /* NULL: the pattern */
	const char *pattern; /* its number as text, or NULL */
	uint64_t block, count;
};

/* Options for them; @type has a member content. */
#define PL_CONTENT_OPTIONS(type)                                                                   \
	{ "block",                                                                                 \
	  PL_OPTION_SIZE,                                                                          \
	  offsetof(type, content.block),                                                           \
	  "N",                                                                                     \
	  "First block (default 0).",                                                              \
	  0,                                                                                       \
	  0 },                                                                                     \
		{ "count",                                                                         \
		  PL_OPTION_SIZE,                                                                  \
		  offsetof(type, content.count),                                                   \
		  "N",                                                                             \
		  "How many blocks (default: as many as the file fills, or all for a pattern).",   \
		  1,                                                                               \
		  0 },                                                                             \
		{ "input",                                                                         \
		  PL_OPTION_TEXT,                                                                  \
		  offsetof(type, content.input),                                                   \
		  "FILE",                                                                          \
		  "The data: this file. What it leaves of the last block is zeros.",               \
		  0,                                                                               \
		  0 },                                                                             \
	{                                                                                          \
		"pattern", PL_OPTION_TEXT, offsetof(type, content.pattern), "SEED",                \
			"The data: 64-bit words that depend on their place and on this number.",   \
			0, 0                                                                       \
	}

/* Checks the words: says what is wrong with them, and returns -EINVAL. */
int pl_content_check(const struct pl_content_want *want);
/*
 * Opens it and finds out which blocks it means; what is wrong was said. Returns 0 or a negative
 * errno.
 */
int pl_content_open(struct pl_content *c, const struct pl_content_want *want,
		    const struct pl_drive *d);
void pl_content_close(struct pl_content *c);

/* Makes the bytes from @at on, counted from the first block, in order. Says what failed. */
int pl_content_make(struct pl_content *c, char *data, uint64_t at, size_t bytes);

#endif
