/* SPDX-License-Identifier: MIT */
/*
 * Reading ahead of a program that reads a cold file from front to back in calls of moderate size:
 * the next pieces are on their way from the device, by O_DIRECT, while the present ones go to the
 * GPU, so that the device never waits for the program. What was read ahead is used only if it is
 * certain that nobody has changed the file since: see ahead.c.
 */
#ifndef PL_AHEAD_H
#define PL_AHEAD_H

#include "lane.h"

#include <sys/stat.h>

struct peerlane_file;
struct pl_seg;

#define PL_AHEAD_PIECES 4

struct pl_ahead_piece {
	struct pl_lane *lane;
	off_t offset;
	size_t bytes; /* wanted; the request is longer where O_DIRECT needs it */
};

/* Of a file; all guarded by the lock, which is only ever tried. */
struct pl_ahead {
	pthread_mutex_t lock;
	off_t next;	  /* where a read begins that goes on from the last */
	unsigned int run; /* reads that went on, in a row */
	bool refused;	  /* there is no io_uring for it */
	struct stat seen; /* the file as it was before the first piece was asked for */
	struct pl_ahead_piece pieces[PL_AHEAD_PIECES]; /* in the order of the file */
	unsigned int nr;
};

void pl_ahead_init(struct pl_ahead *ahead);
/* Before the file is closed; nobody reads it any more. Waits for what is on its way. */
void pl_ahead_fini(struct peerlane_file *file);

/*
 * Puts what was read ahead of @seg in place and asks for what comes after it. Returns the bytes in
 * place from the start, 0 when there was nothing; the rest is for the ordinary way, unless *@err is
 * set: after a time-out the GPU may still be writing there.
 */
size_t pl_ahead_read(struct peerlane *ctx, const struct pl_seg *seg, int *err);

#endif
