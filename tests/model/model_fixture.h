/* SPDX-License-Identifier: MIT */
/* What tests of models share: files with headers of the test's own, and loads of them. */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include "sim/sim_fixture.h"

#include <peerlane/model.h>

/* Writes a file with this header, of any length and content, and @data_bytes of pattern @seed behind it, which
 * begins with byte 0 there. Returns its path. */
const char *mf_file(const char *name, const char *header, size_t data_bytes, unsigned int seed);
/* Writes @bytes of @text. Returns its path. */
const char *mf_text(const char *name, const void *text, size_t bytes);

/* A header being made: tensors one after the other. */
struct mf_header {
	char *text;
	size_t len, room;
	uint64_t bytes; /* data so far */
};
void mf_begin(struct mf_header *h);
void mf_tensor(struct mf_header *h, const char *name, const char *dtype, const uint64_t *shape,
	       unsigned int nr_dims, uint64_t bytes);
/* Ends the header, with @padding spaces, and writes the file. */
const char *mf_end(struct mf_header *h, const char *name, unsigned int padding, unsigned int seed);

/* The model opens. */
struct peerlane_model *mf_open(struct peerlane *ctx, const char *path);
/* It does not: the code is @err and the words have each of @words in them, parted by |. */
#define mf_refused(ctx, path, err, words) mf_check_refused(ctx, path, err, words, __LINE__)
void mf_check_refused(struct peerlane *ctx, const char *path, int err, const char *words, int line);
/* The last error has each of @words, parted by |. */
void mf_words(int err, const char *words, int line);

struct peerlane_tensor mf_get(const struct peerlane_model *m, const char *name);
/* A part that is the whole of a tensor. */
struct peerlane_model_part mf_whole(const struct peerlane_model *m, const char *name);
/* One for each tensor; for free(). */
struct peerlane_model_part *mf_all(const struct peerlane_model *m, size_t *nr);
/* The memory of a whole part has the bytes of the file, whose data is pattern @seed. */
void mf_assert_part(struct peerlane *ctx, const struct peerlane_model *m,
		    const struct peerlane_model_part *p, unsigned int seed);

#endif
