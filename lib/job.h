/* SPDX-License-Identifier: MIT */
/*
 * A job: one or more requests in one direction, cut into units that pass through a lane.
 *
 * A unit is at most a slot of consecutive file bytes for one stretch of memory. On a read the
 * file side fills its slot and then the copy engine empties it; on a write the other way round.
 * The thread that runs the job and its helpers take units as they can; neighbouring slots that
 * are ready go to the copy engine as one copy, so many threads fill small pieces and the bus
 * still sees large ones. Memory the CPU may address needs no slot: the file side reads or writes
 * it in place.
 */
#ifndef PL_JOB_H
#define PL_JOB_H

#include "file.h"
#include "gpu.h"
#include "pool.h"
#include "worker.h"

struct pl_buffer;
struct pl_job;
struct pl_p2p_pin;
struct pl_p2p_route;

/* One request and its outcome. The fields below the line are guarded by the job's lock. */
struct pl_op {
	struct peerlane_file *file;
	size_t asked;	    /* bytes the caller asked for */
	size_t bytes;	    /* the same, cut at the end of the file for reads */
	unsigned int flags; /* PEERLANE_DURABLE: each write of it is */
	bool plain_write;   /* never by mapping */
	bool no_p2p;	    /* never between drive and GPU memory */
	bool buffered; /* a write to a file with O_DIRECT that goes through the page cache all the same */
	bool again;	/* of a batch: O_DIRECT was refused, and it is done once more */
	bool in_stream; /* a stream waits for it */
	uint64_t start_ns;
	/* Told of @op and those after it in the list once they have their outcome; may be NULL. */
	void (*done)(struct pl_job *job, struct pl_op *op);
	void *arg;
	void *cookie; /* of a batch */
	/* Of a stream that is served: does the copies of the one request of its job, which calls no
	 * driver. NULL: the lane has queues. */
	struct pl_lane_queue *queue;
	/* --- */
	unsigned int units_left;
	size_t stop; /* the bytes before it are in place, or may still get there */
	int err;     /* why the rest is not; 0 at the end of the file */
	int cuda;
	size_t p2p;    /* bytes that went between drive and GPU memory */
	size_t copied; /* bytes that went by a slot and the page cache */
	uint64_t end_ns;
	struct pl_op *next; /* that has ended and was not told of yet */
};

/* Consecutive file bytes for one stretch of memory. */
struct pl_seg {
	struct pl_op *op;
	char *addr;
	char *host; /* where the CPU may reach it; NULL: through a slot */
	char *p2p;  /* where drives may reach it, see p2p.h; NULL: nowhere */
	struct pl_p2p_pin *pin;
	struct pl_p2p_route *route;
	struct pl_buffer *buf; /* registered, in which it lies; or NULL */
	void *owner;	       /* GPU context of the copies */
	int gpu;	       /* ordinal */
	size_t bytes;
	size_t at;    /* position in the request */
	off_t offset; /* position in the file */
};

struct pl_unit {
	uint32_t seg;
	uint32_t bytes;
	size_t at; /* position in the segment */
};

enum pl_slot_state {
	PL_SLOT_FREE,
	PL_SLOT_BUSY,	 /* the file side works on it */
	PL_SLOT_READY,	 /* done by the first side, waits for the second */
	PL_SLOT_COPYING, /* the copy engine works on it */
};

struct pl_slot {
	uint8_t state; /* enum pl_slot_state */
	uint8_t run;   /* which run, while COPYING */
	uint8_t path;  /* enum peerlane_path it took */
	bool pushed;   /* on the ring of the thread that runs the job */
	bool p2p;      /* between file and GPU memory, not by the slot */
	uint32_t got;  /* bytes of the unit that are good */
	int err;       /* why not all; 0 at the end of the file */
};

/* Copies in flight that end together. */
struct pl_run {
	struct pl_mark *mark; /* NULL: not in use */
	void *owner;
	int err, cuda;
};

#define PL_JOB_INLINE 4

struct pl_job {
	struct pl_crew crew; /* first: helpers are given it */
	struct peerlane *ctx;
	enum peerlane_op op;
	struct pl_op *ops;
	struct pl_seg *segs;
	unsigned int nr_ops, nr_segs, nr_units;
	struct pl_unit *units;
	struct pl_lane *lane;	     /* NULL when no unit needs a slot */
	struct pl_lane_queue *queue; /* see struct pl_op */
	struct pl_slot *slots;
	unsigned int nr_slots;
	size_t unit_bytes; /* largest unit; a power of two */
	size_t grain;	   /* what small units may be widened to: a page, or what O_DIRECT needs */
	size_t stride;	   /* from slot to slot */
	bool small;	   /* units are whole segments, each with room to widen it for O_DIRECT */
	bool met_cold;	   /* a piece of it was not in the page cache; atomic */
	bool past_cache;   /* slots are filled past the CPU's caches, see nt_copy.h */
	bool ordered;	   /* one thread, in order (O_APPEND) */
	unsigned int max_helpers;
	size_t write_run; /* bytes of a write's next run: the first are short, to start the file side */
	size_t min_run; /* copies shorter than this wait for more, as long as more is coming */
	bool called;	/* helpers were called; only the thread that runs the job touches it */
	bool mapped; /* a write that threads share, since it goes through a mapping of the file */

	pthread_mutex_t lock;  /* guards all below, the slots, and the lower half of the ops */
	pthread_cond_t moved;  /* a slot came free or the job ended */
	unsigned int waiting;  /* threads that wait for it */
	unsigned int next;     /* first unit nobody has started */
	unsigned int low;      /* all units before it are finished */
	unsigned int prepared; /* all units before it need not be mapped any more, see party.c */
	unsigned int finished;
	struct pl_run runs[PL_RUNS];
	unsigned int nr_runs;
	struct pl_op *ended, **ended_end; /* requests to tell of, see pl_pipe_report() */
	unsigned int busy;		  /* slots in state BUSY */
	unsigned int ready;		  /* slots in state READY */
	size_t ready_bytes;
	uint64_t polled_ns;    /* when the runs were last looked at */
	bool issuing, polling; /* one thread at a time talks to the driver for each */
	bool cancelled;
	int gpu_err, gpu_cuda; /* a mark failed: no more copies are made */
	uint64_t moved_ns;     /* when anything last went forward */
	struct pl_touch touch; /* of the last unit that went through a mapping */

	struct pl_unit units_inline[PL_JOB_INLINE];
	struct pl_slot slots_inline[PL_JOB_INLINE];
};

/*
 * Prepares a job over requests and segments the caller keeps until pl_job_fini(). Every segment
 * is resolved, every request validated. -ENOMEM.
 */
int pl_job_init(struct pl_job *job, struct peerlane *ctx, enum peerlane_op op, struct pl_op *ops,
		unsigned int nr_ops, struct pl_seg *segs, unsigned int nr_segs);
void pl_job_fini(struct pl_job *job);

/* Runs it in the calling thread with helpers; when it returns every request has its outcome. */
void pl_job_run(struct pl_job *job);
/* Has the requests not yet started end with -ECANCELED. Returns how many were affected. */
unsigned int pl_job_cancel(struct pl_job *job);
/* Ends every request of a job that never ran. */
void pl_job_abort(struct pl_job *job, int err, int cuda);

/* The outcome as the caller sees it. */
ssize_t pl_op_result(const struct pl_op *op);

/* --- party.c: takes part in a job, as the one who runs it or as a helper --- */
void pl_party_run(struct pl_job *job, bool owner);

/* --- fill.c: the file side of one unit --- */
struct pl_fill {
	struct peerlane_file *file;
	unsigned int unit;
	char *mem;    /* where the unit's first byte is or goes */
	off_t offset; /* of the unit in the file */
	size_t bytes;
	bool direct;	     /* with O_DIRECT: */
	unsigned int before; /* then it starts this much earlier, */
	size_t span;	     /* and is this long, to be aligned */
	enum peerlane_path path;
	int p2p_err;   /* it failed by p2p and goes another way */
	bool durable;  /* RWF_DSYNC */
	bool may_map;  /* a write that may go through a mapping of the file */
	size_t mapped; /* bytes from the start that did */
	size_t got;    /* bytes of a read that came while its way was chosen */
};

/* Where the bytes of unit @u sit in its slot. */
char *pl_fill_slot(const struct pl_job *job, unsigned int u);
/* Chooses the way unit @u goes. */
void pl_fill_plan(struct pl_job *job, unsigned int u, struct pl_fill *fill);
/* Whether unit @u of a write can go straight from GPU memory. */
bool pl_fill_may_p2p(const struct pl_job *job, unsigned int u);
/* A unit that failed with @err by p2p takes another way from now on. */
void pl_fill_leave_p2p(struct pl_job *job, struct pl_fill *fill, int err);
/* The same for a unit that was already sent the direct way. */
void pl_fill_plan_direct(struct pl_job *job, unsigned int u, struct pl_fill *fill);
/* Joins the write of unit @u, planned as @next, to @fill if both go the plain way and touch. */
bool pl_fill_join(struct pl_fill *fill, const struct pl_fill *next);
/* Does the rest of a unit of which @got bytes are done. Sets *@err; returns the bytes done. */
size_t pl_fill_sync(struct pl_job *job, struct pl_fill *fill, size_t got, int *err);
/* Whether a read of @seg alone is one plain read into memory the CPU reaches: without a job. */
bool pl_fill_is_plain(const struct pl_seg *seg);
/* That read. As pl_op_result(); an error is also in @op. */
ssize_t pl_fill_plain(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *seg);
/* Reads all of [@offset, @offset + @bytes) through the page cache into pinned memory; false if it is not all there. */
bool pl_fill_ahead(const struct peerlane_file *file, char *mem, size_t bytes, off_t offset);
/* Whether a read of @seg alone, whole blocks, is one that the drive writes to GPU memory. */
bool pl_fill_is_p2p(const struct peerlane *ctx, const struct pl_seg *seg);
/* That read. All of it, or 0: then it is for a job, which finds out why. */
size_t pl_fill_p2p(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *seg);
/* What a whole direct request's result says of the unit. */
size_t pl_fill_got(const struct pl_fill *fill, size_t result);

#endif
