/* SPDX-License-Identifier: MIT */
/* What bench files hold: words that depend on their place. */
#ifndef PL_PATTERN_H
#define PL_PATTERN_H

#include "session.h"

#include <stdbool.h>

/*
 * 64-bit word i of a file is a hash of i, repeating after a period. So a piece of any place lies
 * ready in an image of one period and one piece. The period is a prime number of 64 KiB: pieces
 * start as aligned in the image as in the file, and data that went to a place a power of two away
 * is found out.
 */
#define PL_PATTERN_PERIOD (1031ull << 16)

/* The hash: the finaliser of splitmix64. */
uint64_t pl_pattern_hash(uint64_t x);

struct pl_pattern {
	size_t bytes;
	char *host;
	void *gpu; /* NULL until copied there */
	struct pl_session *session;
};

/* Makes an image that serves pieces of up to piece_bytes. Returns 0 or -ENOMEM. */
int pl_pattern_init(struct pl_pattern *p, size_t piece_bytes);
/* Copies it to GPU memory. Returns 0 or a negative errno, which was said on standard error. */
int pl_pattern_upload(struct pl_pattern *p, struct pl_session *s);
void pl_pattern_fini(struct pl_pattern *p);

/* Where in the image the piece at a file offset starts. */
size_t pl_pattern_start(uint64_t offset);

/* Whether a file was made by bench: begins with the pattern and holds it, or nothing, elsewhere. */
bool pl_pattern_owns(const struct pl_pattern *p, int fd, uint64_t file_bytes);

/*
 * Writes the pattern to the first bytes of a file with plain writes. Returns 0; -ECANCELED after
 * a signal; another negative errno.
 */
int pl_pattern_fill(const struct pl_pattern *p, int fd, uint64_t bytes);

/* Reads it back with plain reads. As pl_compare_files(). */
int pl_pattern_check(const struct pl_pattern *p, int fd, uint64_t bytes, uint64_t *where);

#endif
