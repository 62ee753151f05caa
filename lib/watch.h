/* SPDX-License-Identifier: MIT */
/*
 * Tells whether files were written to by anybody. A write that is under way shows when it ends, also one that began
 * long before; stores into a mapping and the opening of a file do not show. One watcher serves all files of a
 * context: a user may have only so many.
 */
#ifndef PL_WATCH_H
#define PL_WATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pl_watch; /* of a file; files that are one on the disk share it */

struct pl_watcher {
	pthread_mutex_t lock; /* guards all below */
	int fd;		      /* negative: none yet, or none to be had */
	struct pl_watch *watches;
};

void pl_watcher_init(struct pl_watcher *w);
/* With all watches; also in a forked child, whose copy of the descriptor it closes. */
void pl_watcher_fini(struct pl_watcher *w);

/* NULL where the system has none to give. */
struct pl_watch *pl_watch_get(struct pl_watcher *w, int fd);
void pl_watch_put(struct pl_watcher *w, struct pl_watch *watch);
/* A number that is another one after a write. */
uint64_t pl_watch_changes(struct pl_watcher *w, struct pl_watch *watch);

#endif
