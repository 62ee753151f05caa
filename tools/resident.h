/* SPDX-License-Identifier: MIT */
/* How much of a file the page cache holds. */
#ifndef PL_RESIDENT_H
#define PL_RESIDENT_H

#include <stdint.h>

/* Bytes of the first file_bytes of fd that are in memory; -1 if the kernel does not tell. */
int64_t pl_resident_bytes(int fd, uint64_t file_bytes);

#endif
