/* SPDX-License-Identifier: MIT */
/* The inside of an I/O queue pair. It belongs to one thread at a time. */
#ifndef PL_NVME_QUEUE_H
#define PL_NVME_QUEUE_H

#include "ctrl.h"

/* What a queue is doing; all but LIVE go with a generation of 0. */
enum pl_nvme_queue_state {
	PL_NVME_QUEUE_LIVE,
	PL_NVME_QUEUE_DRAINING, /* the controller was stopped: take the completions that it left */
	PL_NVME_QUEUE_LOSING,	/* report all the others as lost */
	PL_NVME_QUEUE_DOWN,	/* nothing is outstanding, the controller does not know it */
};

/* An I/O of more than one command. */
struct pl_nvme_big {
	struct pl_nvme_big *next;
	struct peerlane_nvme_io io; /* what is not yet submitted */
	struct peerlane_nvme_completion cpl;
	uint32_t nr_live; /* commands outstanding */
	uint32_t most;	  /* blocks of a command */
};

struct peerlane_nvme_queue {
	/* The hot part. */
	struct pl_nvme_ring ring;
	struct peerlane_nvme *nvme;
	uint32_t generation; /* in which it is live and ours to drive, or 0 */
	uint32_t tick;	     /* counts while it is polled, for time-outs */
	uint32_t polls;
	size_t page_bytes;	    /* of the controller */
	size_t max_bytes;	    /* of a command */
	size_t list_bytes;	    /* for each slot */
	struct pl_nvme_pages lists; /* from lists_offset on */
	size_t lists_offset;
	size_t align_mask; /* bits that an offset into memory must not have */
	bool use_sgl;
	struct pl_nvme_big *waiting; /* with commands left to submit, oldest first */
	struct pl_nvme_big **waiting_end;

	/* The rest. */
	enum pl_nvme_queue_state state;
	int error;		   /* why it is down for good, or 0 */
	uint32_t known_generation; /* in which the controller knows it */
	int lost_err;		   /* of commands that are lost */
	uint32_t tried_generation; /* in which creating it failed */
	uint32_t lost_slot;	   /* next to report */
	uint64_t tick_at_ns;	   /* of the last tick */
	uint64_t tick_ns;	   /* between ticks */
	uint32_t tick_limit;	   /* a command this old is late */
	struct pl_nvme_big *bigs;  /* all of them */
	struct pl_nvme_big *unused_bigs;
	uint32_t nr_bigs;     /* in use */
	uint32_t nr_big_live; /* their commands outstanding */
	struct peerlane_nvme_queue *next;
	struct peerlane_nvme_queue **link;

	/* Memory. */
	struct peerlane_nvme_map *sq_map;
	struct peerlane_nvme_map *cq_map;
	size_t sq_offset;
	size_t cq_offset;
	struct peerlane_nvme_map *own;		   /* what the driver allocated for it */
	const struct peerlane_nvme_map *lists_map; /* what the caller gave for the lists, or NULL */
	size_t cmb_offset;
	size_t cmb_bytes; /* 0: not there */
	/* Of a queue that is not contiguous: a list of its pages. */
	uint64_t sq_list;
	uint64_t cq_list;
};

/* I/O that was submitted and not reported. */
static inline uint32_t pl_nvme_queue_outstanding(const struct peerlane_nvme_queue *q)
{
	return pl_nvme_ring_outstanding(&q->ring) - q->nr_big_live + q->nr_bigs;
}

/* queue.c */

/* Make it known to the controller, with the lock held. */
int pl_nvme_queue_start(struct peerlane_nvme_queue *q);

/* io.c */

/* Submit what waits for slots. */
void pl_nvme_queue_pump(struct peerlane_nvme_queue *q);
/* A command of it has ended: true if all of it has, and then what the caller is told. */
bool pl_nvme_big_ended(struct peerlane_nvme_queue *q, struct pl_nvme_big *b,
		       struct peerlane_nvme_completion *cpl);
/* One that waits and has no command outstanding ends with an error. */
void pl_nvme_big_drop(struct peerlane_nvme_queue *q, struct pl_nvme_big *b);

/* poll.c */

/* A queue that is not live: move on; 0 if it is live then, -EAGAIN, or why it is down. */
int pl_nvme_queue_revive(struct peerlane_nvme_queue *q);

/* watch.c */

/* Once in a while: time-outs, and the state of the controller. */
void pl_nvme_queue_watch(struct peerlane_nvme_queue *q);
void pl_nvme_queue_watch_init(struct peerlane_nvme_queue *q);

#endif
