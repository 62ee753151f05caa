/* SPDX-License-Identifier: MIT */
/* Narrow slices: many short pieces close to each other, read with what lies between them. */
#ifndef PL_MODEL_GATHER_H
#define PL_MODEL_GATHER_H

#include "mover.h"
#include "part.h"

#include <stdbool.h>

/* Whether the pieces are so short and so close that reading each by itself is no use. */
bool pl_gather_suits(const struct pl_span *span);
/* Reads them, packed, to @addr; @m is told. Adds what was read of the file to *@file_bytes. */
int pl_gather_run(struct pl_mover *m, const struct pl_span *span, char *addr, uint64_t *file_bytes);

#endif
