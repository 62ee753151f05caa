/* SPDX-License-Identifier: MIT */
/*
 * Writes into the page cache through a mapping of the file that stays with its handle. write(2)
 * holds the inode's lock while it copies, so one core's speed is the limit, and a small one spends
 * more time on the way to the page than in it. The kernel does the copying (process_vm_readv), so
 * a page that cannot be had, because the disk is full or the file was truncated, is a short count
 * and not a signal.
 */
#ifndef PL_WMAP_H
#define PL_WMAP_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct peerlane_file;
struct pl_wmap;

/* Windows of one file that are mapped at a time. */
#define PL_WMAPS 8

/* The mappings of a file. */
struct pl_wmaps {
	pthread_mutex_t lock; /* guards the list; a window in use stays by its own count */
	struct pl_wmap *list[PL_WMAPS];
	bool times_refused; /* the times cannot be set: see pl_wmap_touch(); atomic */
	bool refused;	    /* the system does not let us map or copy: not tried again; atomic */
};

/* A byte written through a mapping. File NULL: none. */
struct pl_touch {
	struct peerlane_file *file;
	off_t at;
};

void pl_wmaps_init(struct pl_wmaps *maps);
/* With @forked nothing is unmapped: the child of a fork does not have the mappings. */
void pl_wmaps_fini(struct pl_wmaps *maps, bool forked);

/* Whether a descriptor open for both, of a file on a file system of type @magic, may be written
 * by mapping at all. */
bool pl_wmap_possible(int fd, unsigned long magic);
/* Whether (nearly all of) a write of @bytes at @offset would go through a mapping now. If so, the
 * mapping is made ready for it: the pieces are to be written with @shared. */
bool pl_wmap_fits(struct peerlane_file *file, off_t offset, size_t bytes);
/* Maps what is about to be written so, while the data is still on its way: those who write it need not. The file's
 * content stays as it is, but its pages count as written from then on. */
void pl_wmap_prepare(struct peerlane_file *file, off_t offset, size_t bytes);
/* Bytes written from the start; the rest is for the caller to write the plain way. With @shared it
 * is a piece of a write that several threads share. */
size_t pl_wmap_write(struct peerlane_file *file, const void *mem, size_t bytes, off_t offset,
		     bool shared);
/* Moves the file's times, as write(2) would have: a store into a mapping does so only when the
 * page was clean, and then some time. Once after any number of writes, before they are reported. */
void pl_wmap_touch(const struct pl_touch *touch);

#endif
