/* SPDX-License-Identifier: MIT */
/* Bytes as hexadecimal numbers and as text. */
#include "hexdump.h"

#include <string.h>

static void print_line(FILE *out, const uint8_t *line, size_t bytes, uint64_t at)
{
	fprintf(out, "%08llx ", (unsigned long long)at);
	for (size_t i = 0; i < 16; i++) {
		if (i == 8)
			fputc(' ', out);
		if (i < bytes)
			fprintf(out, " %02x", line[i]);
		else
			fputs("   ", out);
	}
	fputs("  |", out);
	for (size_t i = 0; i < bytes; i++)
		fputc(line[i] >= ' ' && line[i] <= '~' ? line[i] : '.', out);
	fputs("|\n", out);
}

void pl_hexdump_print(struct pl_hexdump *h, FILE *out, const void *data, size_t bytes, uint64_t at)
{
	const uint8_t *line = data;

	for (size_t i = 0; i < bytes; i += 16) {
		size_t len = bytes - i < 16 ? bytes - i : 16;

		if (h->any && len == 16 && !memcmp(line + i, h->last, 16)) {
			if (!h->skipping)
				fputs("*\n", out);
			h->skipping = true;
			continue;
		}
		print_line(out, line + i, len, at + i);
		h->skipping = false;
		h->any = len == 16;
		if (h->any)
			memcpy(h->last, line + i, 16);
	}
}

void pl_hexdump_end(FILE *out, uint64_t at)
{
	fprintf(out, "%08llx\n", (unsigned long long)at);
}
