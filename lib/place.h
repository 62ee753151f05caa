/* SPDX-License-Identifier: MIT */
/* Pieces that were read ahead of time, on their way from their lanes to the GPU, in the order of the file. */
#ifndef PL_PLACE_H
#define PL_PLACE_H

#include "convoy.h"
#include "job.h"
#include "piece.h"

/* Copies at a time. More would keep lanes that could be filled again. */
#define PL_PLACE_COPIES 6u
_Static_assert(PL_PLACE_COPIES % (PL_RUNS - 1) == 0,
	       "those at a time on a stream have marks of their own");

struct pl_place {
	struct peerlane *ctx;
	const struct pl_seg *seg;
	struct pl_place_copy {
		struct pl_piece *piece;
		struct pl_ride ride;	  /* with those of other threads, by: */
		struct pl_convoy *convoy; /* NULL: alone */
		struct pl_lane_queue *queue;
		struct pl_mark *mark;
		int err; /* of beginning the copy */
	} copies[PL_PLACE_COPIES];
	unsigned int first, nr; /* index of the first, modulo; how many */
	size_t at;		/* what was begun, from the start of the segment */
	size_t placed;		/* what is in place without a gap */
	size_t by_device;	/* of that, what the device read */
	bool stop;		/* no more are begun */
	int err;		/* -ETIMEDOUT: the GPU may still be writing */
};

/* Begins with the copy of the next piece; false if there is none, or there are enough for now. */
bool pl_place_begin(struct pl_place *p);
/* Waits for the first of the copies and lets its piece go. What comes after one that failed does not count. */
void pl_place_end(struct pl_place *p);

#endif
