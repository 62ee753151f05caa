/* SPDX-License-Identifier: MIT */
/* Whether two files hold the same bytes. */
#ifndef PL_COMPARE_H
#define PL_COMPARE_H

#include <stdint.h>

/*
 * Compares the first bytes of two descriptors with plain reads. Returns 0 when they are the
 * same; -EBADMSG when not, and *where is a place they differ; -ECANCELED after a signal;
 * another negative errno when one could not be read.
 */
int pl_compare_files(int fd_a, int fd_b, uint64_t bytes, uint64_t *where);

#endif
