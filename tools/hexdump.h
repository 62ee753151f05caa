/* SPDX-License-Identifier: MIT */
/* Bytes as hexadecimal numbers and as text. */
#ifndef PL_HEXDUMP_H
#define PL_HEXDUMP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A dump in pieces; all zero at first. Lines like the one before are shown as one '*'. */
struct pl_hexdump {
	uint8_t last[16];
	bool any, skipping;
};

/* Prints @bytes, a multiple of 16 but for the last piece; @at is the number of the first. */
void pl_hexdump_print(struct pl_hexdump *h, FILE *out, const void *data, size_t bytes, uint64_t at);
/* Prints where it ended. */
void pl_hexdump_end(FILE *out, uint64_t at);

#endif
