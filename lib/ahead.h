/* SPDX-License-Identifier: MIT */
/*
 * Reading ahead of a program that reads a file from front to back in calls of moderate size, by one thread or by
 * several in turns: the next pieces are on their way into pinned memory while the present ones go to the GPU, from
 * the device by O_DIRECT, so that it never waits for the program, or from the page cache by the workers, so that
 * the bus does not. What was read ahead is used only if it is certain that nobody has changed the file since: see
 * steady.h.
 */
#ifndef PL_AHEAD_H
#define PL_AHEAD_H

#include "piece.h"
#include "steady.h"
#include "worker.h"

struct peerlane_file;
struct pl_seg;

#define PL_AHEAD_PIECES 48u

/* Of a file. */
struct pl_ahead {
	/* Guards all below but the crew, readers, tickets and pieces' states. */
	pthread_mutex_t lock;
	off_t next;	      /* the end of what was read in this run; -1: nothing */
	off_t tail;	      /* the end of what was asked for */
	unsigned int run;     /* reads that went on, in a row */
	unsigned int need;    /* of those before anything is asked for */
	unsigned int turns;   /* runs that have ended */
	unsigned int crowded; /* hints without room since a piece was last used */
	bool refused;	      /* there is no io_uring for it */
	/* The file as it was before the first of the pieces was asked for. */
	struct pl_steady steady;
	bool stale; /* it was changed since: nothing is asked for until all pieces are gone */
	struct pl_piece pieces[PL_AHEAD_PIECES];
	struct pl_crew crew;  /* those who fill pieces */
	unsigned int readers; /* calls that are under way; atomic */
	/* The pieces that were queued, in this order, and how many of those were looked at; atomic. */
	uint8_t queue[PL_AHEAD_PIECES];
	uint32_t nr_queued, nr_taken;
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
/*
 * A read of @bytes at @offset is to come, by a stream that is served: it is read ahead if it can be, without a call
 * of the driver. -EAGAIN: there is no room now.
 */
int pl_ahead_hint(struct peerlane_file *file, off_t offset, size_t bytes);

/* Why a sequence of reads such as @seg would not be read ahead now; NULL if it would. */
const char *pl_ahead_why(const struct pl_seg *seg);

/* ahead_fill.c, for ahead.c: the piece is for those who fill, of whom @nr more have something to do. */
void pl_ahead_queue(struct pl_ahead *ahead, struct pl_piece *piece);
void pl_ahead_call(struct peerlane_file *file, unsigned int nr);
/* One who waits for a copy fills a piece meanwhile, if that is better than to wait. */
void pl_ahead_help(struct peerlane_file *file);

/* For flight.c: claims the piece of these bytes, if it comes from the page cache; and what to do with it if the file has
 * changed, or if it did not come. */
struct pl_piece *pl_ahead_claim(struct peerlane_file *file, off_t offset, size_t bytes);
void pl_ahead_stale(struct peerlane_file *file, struct pl_piece *piece);
/* For place.c: the piece that begins at @offset and is no longer than @most, full and as a read now would give it;
 * @pinned: a kernel will read it. NULL: there is none; *@stale: nor any other that could be used. */
struct pl_piece *pl_ahead_take(struct peerlane_file *file, off_t offset, size_t most, bool pinned,
			       bool *stale);

#endif
