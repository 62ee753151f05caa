/* SPDX-License-Identifier: MIT */
/*
 * Writes into the page cache through a mapping of the file. write(2) holds the inode's lock
 * while it copies, so one core's speed is the limit; through a mapping many threads copy at once.
 * The kernel does the copying (process_vm_readv), so a page that cannot be had, because the
 * disk is full or the file was truncated, is a short count and not a signal.
 */
#ifndef PL_WMAP_H
#define PL_WMAP_H

#include "file.h"

struct pl_wmap;

/* For a write of @bytes at @offset; NULL when mapping would not pay or cannot be done. */
struct pl_wmap *pl_wmap_create(const struct peerlane_file *file, off_t offset, size_t bytes);
void pl_wmap_destroy(struct pl_wmap *w);

/* Bytes written from the start; the rest is for the caller to write the plain way. Each byte of
 * the range passes here at most once. */
size_t pl_wmap_write(struct pl_wmap *w, const void *mem, size_t bytes, off_t offset);

#endif
