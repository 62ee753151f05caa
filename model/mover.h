/* SPDX-License-Identifier: MIT */
/*
 * Moves many pieces between a file and memory with few requests: neighbours in both can become one, small ones
 * go to the engine in batches, large ones by themselves.
 */
#ifndef PL_MODEL_MOVER_H
#define PL_MODEL_MOVER_H

#include <peerlane/model.h>

struct pl_move {
	struct peerlane_file *file;
	char *addr;
	uint64_t bytes;
	uint64_t offset;
	/* Start of the piece of memory it is in. Two that have the same one, and not NULL, may be joined:
	 * addresses alone do not tell, since one allocation may begin where another ends. */
	const char *base;
	const void *arg; /* for the function that names a fault */
};

/* Records what went wrong with @move at @offset of its file: @err, and @why in words; or 0 if the file ended
 * there. Returns the errno to give back. */
typedef int (*pl_mover_fault_fn)(const struct pl_move *move, uint64_t offset, int err,
				 const char *why);

struct pl_mover {
	struct peerlane *ctx;
	enum peerlane_op op;
	pl_mover_fault_fn fault;
	peerlane_model_progress_fn progress;
	void *progress_arg;
	uint64_t total; /* for @progress */
	uint64_t done, nr_requests;
	/* --- */
	struct peerlane_batch *batch;
	struct pl_move last;   /* not yet given to anyone, may grow; none if it has no bytes */
	struct pl_move *moves; /* of the batch: queued or in flight */
	unsigned int *idle;    /* numbers of those that are neither */
	struct peerlane_io *queue;
	unsigned int nr_idle, nr_queued, in_flight;
	uint64_t queued_bytes;
};

/* The members above the line are the caller's, the rest zero. */
int pl_mover_init(struct pl_mover *m);
/* What is in flight is waited for. */
void pl_mover_fini(struct pl_mover *m);

/* Has it moved, now or later. */
int pl_mover_add(struct pl_mover *m, const struct pl_move *move);
/* Until all of it is done. */
int pl_mover_finish(struct pl_mover *m);
/* Counts what was done without it, and tells the caller; -ECANCELED if that does not want more. */
int pl_mover_tell(struct pl_mover *m, uint64_t bytes);

#endif
