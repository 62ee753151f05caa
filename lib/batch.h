/* SPDX-License-Identifier: MIT */
/*
 * Batches and their groups. The requests of one submission that go in one direction are a group, and
 * become one job; those that no job can do are another.
 */
#ifndef PL_BATCH_H
#define PL_BATCH_H

#include "context.h"

/* The requests of one submission, by what becomes of them. */
enum pl_group_kind { PL_READS, PL_WRITES, PL_APART, PL_NR_GROUPS };

struct pl_group {
	struct pl_task task; /* first: workers are given it */
	struct peerlane_batch *batch;
	struct pl_group *next;
	bool started;	    /* by a worker or a waiting thread; under the batch's lock */
	unsigned int users; /* threads that may still touch it; freed at 0 */
	struct pl_job job;  /* not run if @apart */
	bool apart;
	unsigned int nr_begun; /* of those done apart; under the job's lock */
	uint32_t direct_locks; /* held while the job runs */
	unsigned int nr;
	struct pl_op *ops;
	struct pl_seg *segs;
	struct pl_buffer **bufs;
	const struct pl_buffer *checked; /* last one seen to be alive */
	/* Last file whose size was asked for, in this submission. */
	const struct peerlane_file *sized;
	int64_t size;
};

struct peerlane_batch {
	struct peerlane *ctx;
	unsigned int capacity;
	pthread_mutex_t lock; /* guards all below; taken inside a job's lock */
	pthread_cond_t done;
	unsigned int in_flight;
	uint32_t turns; /* counts reports of events; also read without the lock */
	unsigned int head, nr_events;
	struct peerlane_event *events; /* a ring of @capacity */
	size_t *p2p;		       /* another: bytes of each that went by p2p */
	struct pl_group *groups;
};

/* Sorts requests into groups; none when one is malformed. */
int pl_groups_make(struct peerlane_batch *b, const struct peerlane_io *io, unsigned int nr,
		   struct pl_group *groups[PL_NR_GROUPS]);
/* Gives a group to the workers. */
void pl_group_launch(struct peerlane_batch *b, struct pl_group *g);
/* Becomes the one who runs @g, or not. Batch lock held. */
bool pl_group_start(struct pl_group *g);
/* Runs all of it; only who started it may. */
void pl_group_run(struct pl_group *g);
/* Cancels what has not begun. Returns how many requests. */
unsigned int pl_group_cancel(struct pl_group *g);
/* One thread less has to do with @g. Batch lock held. */
void pl_group_put(struct peerlane_batch *b, struct pl_group *g);

#endif
