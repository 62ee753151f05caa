/* SPDX-License-Identifier: MIT */
/* What the tensors of a header must fulfil together. */
#ifndef PL_MODEL_HEADER_CHECK_H
#define PL_MODEL_HEADER_CHECK_H

#include "header.h"

/* -EUCLEAN, with words that name @file and the tensor. */
int pl_header_fault(const char *file, const char *tensor, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Orders the tensors by their data and by name, and sees that no name is there twice, and that
 * their data is one after the other and all of @data_bytes. */
int pl_header_check(const char *file, struct pl_header *h, uint64_t data_bytes);

#endif
