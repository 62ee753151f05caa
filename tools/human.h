/* SPDX-License-Identifier: MIT */
/* Sizes, counts and times as people write and read them. */
#ifndef PL_HUMAN_H
#define PL_HUMAN_H

#include <stddef.h>
#include <stdint.h>

struct pl_human {
	char text[48];
};

/*
 * "4096", "4K", "1.5G", "2MiB", "10MB". A bare letter and KiB, MiB... count in 1024, KB, MB...
 * in 1000. Returns 0, -EINVAL for no size, -ERANGE for one that is too large.
 */
int pl_human_parse(const char *text, uint64_t *bytes);

/* "1.5 GiB" for sentences. */
struct pl_human pl_human_size(uint64_t bytes);

/* "16M" for tables; the exact number where no letter fits. */
struct pl_human pl_human_short(uint64_t bytes);

/* "1 file", "2 files". */
struct pl_human pl_human_nr(uint64_t nr, const char *noun);

/* "4024", "12.3 k", "4.02 M": a count with three figures or more; k, M and G are of 1000. */
struct pl_human pl_human_count(double count);

/* "512 ns", "16.4 us", "16.8 ms", "2.15 s". */
struct pl_human pl_human_time(double ns);

#endif
