/* SPDX-License-Identifier: MIT */
/* Asks the kernel how much of a file range is in the page cache, the cheapest way it has. */
#ifndef PL_CACHE_H
#define PL_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of [offset, offset + bytes) in the page cache (a guess where the kernel only answers for
 * one byte); -1 if it does not tell. @fd must be open for reading through the page cache. */
int64_t pl_cache_resident(int fd, off_t offset, size_t bytes);
/* The same, and in @dirty how much of that waits to be written back; -1 if the kernel does not
 * tell. */
int64_t pl_cache_look(int fd, off_t offset, size_t bytes, int64_t *dirty);
/* Whether the byte there can be read without waiting for the device, which is so only once its page was
 * read, or the kernel does not tell. */
bool pl_cache_ready(int fd, off_t offset);

#endif
