/* SPDX-License-Identifier: MIT */
/*
 * A piece of a file in a lane, read before anybody asked for it: by the device, if no page of it was in the page
 * cache, or by a worker, if all were. See ahead.h for who asks, and ahead.c for what may be done with it.
 */
#ifndef PL_PIECE_H
#define PL_PIECE_H

#include "lane.h"

struct peerlane_file;

enum pl_piece_state {
	PL_PIECE_NONE,	  /* to be had */
	PL_PIECE_ASKING,  /* somebody is about to ask for it */
	PL_PIECE_ASKED,	  /* on the lane's io_uring; only who claimed it looks */
	PL_PIECE_QUEUED,  /* whoever comes first fills it */
	PL_PIECE_FILLING, /* somebody does */
	PL_PIECE_FULL,
	PL_PIECE_BAD,  /* not to be used: an error, or the end of the file */
	PL_PIECE_LEFT, /* nobody wants it: who fills it lets it go */
};

struct pl_piece {
	uint8_t state; /* atomic */
	bool claimed;  /* by who asks or reads, who alone ends it then; guarded by the run's lock */
	bool told;     /* it is known that it will be read, not guessed; guarded as well */
	unsigned int turns; /* of the run when it was guessed */
	bool cached;
	struct pl_lane *lane;
	off_t offset;
	size_t bytes; /* wanted; a request to the device is longer where O_DIRECT needs it */
};

/* Nobody else's from now on. */
void pl_piece_reserve(struct pl_piece *p);
/* Asks the device for it; false if that cannot be. */
bool pl_piece_ask(struct pl_piece *p, struct peerlane_file *f);
/* Leaves it to whoever comes first to call pl_piece_fill(), which also those may who come late. */
void pl_piece_queue(struct pl_piece *p);
void pl_piece_fill(struct pl_piece *p, struct peerlane_file *f);
/* Waits, within the time-out, for its data. A piece that did not come is gone or bad. */
bool pl_piece_arrived(struct pl_piece *p, struct peerlane_file *f);
/* Lets it go, whatever its state; what is still on its way ends by itself. */
void pl_piece_drop(struct pl_piece *p, struct peerlane *ctx);

static inline enum pl_piece_state pl_piece_state(const struct pl_piece *p)
{
	return (enum pl_piece_state)__atomic_load_n(&p->state, __ATOMIC_ACQUIRE);
}

#endif
