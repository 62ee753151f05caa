// SPDX-License-Identifier: MIT
/*
 * The passage of units through slots.
 *
 *   read:   FREE -> BUSY (file side fills it) -> READY -> COPYING (to the GPU)   -> FREE
 *   write:  FREE -> COPYING (from the GPU)    -> READY -> BUSY (to the file)     -> FREE
 *
 * Unit u uses slot u modulo the number of slots, so a unit starts only when the unit that had
 * the slot before is finished. Everything here runs under the job's lock except the reads,
 * writes and driver calls themselves. Any participant may issue copies and poll for their end;
 * the two flags keep it to one at a time.
 */
#include "context.h"
#include "job.h"
#include "pipe.h"

#include <errno.h>

/* Most bytes of one run of copies, unless it has to be longer: large enough to hide the cost of a copy, small
 * enough to keep slots coming back. */
#define RUN_BYTES (8ul << 20)
#define RUN_COPIES 128
/* Copies in flight at a time; more only makes them shorter. */
#define RUNS_IN_FLIGHT 2
_Static_assert(RUNS_IN_FLIGHT < PL_RUNS, "the last mark is for copies that are no run, see fill.c");
/* Small units taken at once, at least. */
#define MIN_TAKE 4u
/* Small units that make a run worth while. */
#define SMALL_RUN 64

struct pl_slot *pl_pipe_slot(struct pl_job *job, unsigned int u)
{
	return &job->slots[u % job->nr_slots];
}

struct pl_seg *pl_pipe_seg(struct pl_job *job, unsigned int u)
{
	return &job->segs[job->units[u].seg];
}

/* Position of a unit in its request. */
static size_t at_of(struct pl_job *job, unsigned int u)
{
	return pl_pipe_seg(job, u)->at + job->units[u].at;
}

void pl_pipe_moved(struct pl_job *job)
{
	if (job->waiting)
		pthread_cond_broadcast(&job->moved);
}

void pl_pipe_finish(struct pl_job *job, unsigned int u, size_t got, int err, int cuda)
{
	struct pl_op *op = pl_pipe_seg(job, u)->op;
	struct pl_slot *slot = pl_pipe_slot(job, u);

	if (got < job->units[u].bytes && at_of(job, u) + got < op->stop) {
		op->stop = at_of(job, u) + got;
		op->err = err;
		op->cuda = cuda;
	}
	if (got)
		pl_stats_path(&job->ctx->stats, job->op, slot->path, got);
	if (slot->path == PEERLANE_PATH_P2P)
		op->p2p += got;
	else if (slot->path == PEERLANE_PATH_COPY)
		op->copied += got;
	slot->state = PL_SLOT_FREE;
	job->finished++;
	/* A slot is taken again only after all units before are past: see the top of the file. */
	while (job->low < job->next && pl_pipe_slot(job, job->low)->state == PL_SLOT_FREE)
		job->low++;
	if (--op->units_left || !op->done)
		return;
	op->end_ns = job->moved_ns;
	*job->ended_end = op;
	job->ended_end = &op->next;
}

void pl_pipe_report(struct pl_job *job)
{
	struct pl_op *list = job->ended;

	if (!list)
		return;
	job->ended = NULL;
	job->ended_end = &job->ended;
	pthread_mutex_unlock(&job->lock);
	list->done(job, list);
	pthread_mutex_lock(&job->lock);
}

/* Whether unit @u can no longer count: its request has already stopped before it. */
static bool pointless(struct pl_job *job, unsigned int u)
{
	return at_of(job, u) >= pl_pipe_seg(job, u)->op->stop;
}

/* Ends units at the front that can no longer count, before they start. */
static void skip_pointless(struct pl_job *job)
{
	while (job->next < job->nr_units && pl_pipe_slot(job, job->next)->state == PL_SLOT_FREE &&
	       (job->cancelled || job->gpu_err || pointless(job, job->next))) {
		job->next++;
		pl_pipe_finish(job, job->next - 1, 0, job->gpu_err ? job->gpu_err : -ECANCELED,
			       job->gpu_cuda);
	}
}

/* Units of a write whose memory the CPU or the drive can read need no copy first. */
static void admit_mapped(struct pl_job *job)
{
	struct pl_slot *slot;

	for (;;) {
		skip_pointless(job);
		if (job->next == job->nr_units ||
		    pl_pipe_slot(job, job->next)->state != PL_SLOT_FREE)
			return;
		slot = pl_pipe_slot(job, job->next);
		slot->p2p = pl_fill_may_p2p(job, job->next);
		if (!slot->p2p && !pl_pipe_seg(job, job->next)->host)
			return;
		slot->state = PL_SLOT_READY;
		job->next++;
	}
}

/* How many units to take at once: of small ones an even share, for each take costs the lock. */
static unsigned int fair_take(const struct pl_job *job)
{
	unsigned int share = (job->nr_units + job->max_helpers) / (job->max_helpers + 1);

	/* One thread writes alone: the more at once the better. */
	if (job->op == PEERLANE_WRITE)
		return job->small || !job->max_helpers ? PL_TAKE : 1;
	if (!job->small)
		return 1;
	if (share < MIN_TAKE)
		return MIN_TAKE;
	return share < PL_TAKE ? share : PL_TAKE;
}

/* Takes units for the file side. Returns how many are in @list. */
unsigned int pl_pipe_take(struct pl_job *job, unsigned int *list)
{
	unsigned int max = fair_take(job), n = 0, u;

	if (job->op == PEERLANE_READ) {
		while (n < max) {
			skip_pointless(job);
			u = job->next;
			if (u == job->nr_units || pl_pipe_slot(job, u)->state != PL_SLOT_FREE)
				break;
			pl_pipe_slot(job, u)->state = PL_SLOT_BUSY;
			job->busy++;
			list[n++] = u;
			job->next++;
		}
		return n;
	}
	admit_mapped(job);
	for (u = job->low; u < job->next && n < max; u++) {
		struct pl_slot *slot = pl_pipe_slot(job, u);

		if (slot->state != PL_SLOT_READY) {
			/* In order means: not past one whose copy has not come yet. */
			if (job->ordered && slot->state != PL_SLOT_FREE)
				break;
			continue;
		}
		if (pointless(job, u)) {
			pl_pipe_finish(job, u, 0, -ECANCELED, 0);
			continue;
		}
		slot->state = PL_SLOT_BUSY;
		list[n++] = u;
	}
	return n;
}

/* The file side is done with unit @u. Lock held. */
void pl_pipe_filled(struct pl_job *job, unsigned int u, enum peerlane_path path, size_t got,
		    int err)
{
	struct pl_slot *slot = pl_pipe_slot(job, u);

	slot->path = (uint8_t)path;
	if (job->op == PEERLANE_READ)
		job->busy--;
	job->moved_ns = pl_now_ns();
	if (job->op == PEERLANE_WRITE || pl_pipe_seg(job, u)->host || path == PEERLANE_PATH_P2P ||
	    !got) {
		pl_pipe_finish(job, u, got, err, 0);
		pl_pipe_moved(job);
		return;
	}
	if (job->gpu_err) {
		pl_pipe_finish(job, u, 0, job->gpu_err, job->gpu_cuda);
		return;
	}
	slot->got = (uint32_t)got;
	slot->err = err;
	slot->state = PL_SLOT_READY;
	job->ready++;
	job->ready_bytes += got;
}

/* --- the copy side --- */

struct batch {
	struct pl_copy list[RUN_COPIES];
	unsigned int nr;
	size_t bytes;
	void *owner;
};

static size_t max_run(const struct pl_job *job)
{
	return job->min_run > RUN_BYTES ? job->min_run : RUN_BYTES;
}

/* Adds unit @u to @b, joined to the copy before it where both sides touch. */
static bool batch_add(struct pl_job *job, struct batch *b, unsigned int u, size_t bytes)
{
	struct pl_seg *seg = pl_pipe_seg(job, u);
	char *gpu = seg->addr + job->units[u].at;
	char *host = pl_fill_slot(job, u);

	if (b->nr && seg->owner != b->owner)
		return false;
	if (b->bytes && b->bytes + bytes > max_run(job))
		return false;
	if (b->nr) {
		struct pl_copy *c = &b->list[b->nr - 1];
		char *dst = job->op == PEERLANE_READ ? gpu : host;
		const char *src = job->op == PEERLANE_READ ? host : gpu;

		if ((char *)c->dst + c->bytes == dst && (const char *)c->src + c->bytes == src) {
			c->bytes += bytes;
			b->bytes += bytes;
			return true;
		}
	}
	if (b->nr == RUN_COPIES)
		return false;
	b->list[b->nr].dst = job->op == PEERLANE_READ ? gpu : host;
	b->list[b->nr].src = job->op == PEERLANE_READ ? host : gpu;
	b->list[b->nr++].bytes = bytes;
	b->bytes += bytes;
	b->owner = seg->owner;
	return true;
}

/* Collects units whose slots are full, for a read. */
static void gather_read(struct pl_job *job, struct batch *b, uint8_t run)
{
	for (unsigned int u = job->low; u < job->next; u++) {
		struct pl_slot *slot = pl_pipe_slot(job, u);

		if (slot->state != PL_SLOT_READY)
			continue;
		if (!batch_add(job, b, u, slot->got))
			break;
		job->ready--;
		job->ready_bytes -= slot->got;
		slot->state = PL_SLOT_COPYING;
		slot->run = run;
	}
}

/* Collects units whose slots are free, for a write. Each run may be twice as long as the one
 * before: the file side starts soon, and soon the copies are long. */
static void gather_write(struct pl_job *job, struct batch *b, uint8_t run)
{
	size_t limit = job->write_run > 2 * job->unit_bytes ? job->write_run : 2 * job->unit_bytes;
	unsigned int u;

	for (;;) {
		admit_mapped(job);
		u = job->next;
		if (u == job->nr_units || pl_pipe_slot(job, u)->state != PL_SLOT_FREE ||
		    (b->bytes && b->bytes + job->units[u].bytes > limit))
			break;
		if (!batch_add(job, b, u, job->units[u].bytes))
			break;
		pl_pipe_slot(job, u)->state = PL_SLOT_COPYING;
		pl_pipe_slot(job, u)->run = run;
		job->next++;
	}
	if (b->nr)
		job->write_run = 2 * limit;
}

static uint8_t idle_run(struct pl_job *job)
{
	uint8_t i = 0;

	while (job->runs[i].mark)
		i++;
	return i;
}

/* Gives one run to the driver; lock held, dropped meanwhile. Returns false if there was none. */
static bool issue_one(struct pl_job *job)
{
	enum pl_dir dir = job->op == PEERLANE_READ ? PL_TO_GPU : PL_FROM_GPU;
	struct peerlane *ctx = job->ctx;
	uint8_t i = idle_run(job);
	struct pl_run *run = &job->runs[i];
	struct pl_lane_queue *q = job->queue;
	struct batch b; /* too long to be cleared each time */
	int err = 0;

	b.nr = 0;
	b.bytes = 0;
	b.owner = NULL;
	if (job->op == PEERLANE_READ)
		gather_read(job, &b, i);
	else
		gather_write(job, &b, i);
	if (!b.nr)
		return false;
	pthread_mutex_unlock(&job->lock);
	if (!q)
		err = pl_lane_queue(ctx, job->lane, b.owner, &q);
	if (!err)
		err = ctx->gpu->ops->copy(ctx->gpu, q->queue, dir, b.list, b.nr, q->marks[i]);
	pthread_mutex_lock(&job->lock);
	run->owner = b.owner;
	run->err = err;
	run->cuda = err ? ctx->gpu->ops->result() : 0;
	/* Also after an error: some of the copies may be on their way. */
	run->mark = q ? q->marks[i] : (struct pl_mark *)-1;
	job->nr_runs++;
	return true;
}

/* Whether a read's run should wait for more units, which are on their way. */
static bool too_early(struct pl_job *job)
{
	bool more = job->busy || (job->next < job->nr_units &&
				  pl_pipe_slot(job, job->next)->state == PL_SLOT_FREE);

	if (job->op == PEERLANE_WRITE || !more)
		return false;
	if (job->small)
		return job->ready < SMALL_RUN && job->busy;
	return job->ready_bytes < job->min_run;
}

bool pl_pipe_issue(struct pl_job *job)
{
	bool any = false;

	if (job->issuing || !job->lane || job->gpu_err || (job->op == PEERLANE_READ && !job->ready))
		return false;
	job->issuing = true;
	while (job->nr_runs < RUNS_IN_FLIGHT && !too_early(job) && issue_one(job))
		any = true;
	job->issuing = false;
	return any;
}

/* The run's copies have ended; its units go on. Lock held. */
void pl_pipe_run_ended(struct pl_job *job, uint8_t i, int err, int cuda)
{
	job->runs[i].mark = NULL;
	job->nr_runs--;
	job->moved_ns = pl_now_ns();
	for (unsigned int u = job->low; u < job->next; u++) {
		struct pl_slot *slot = pl_pipe_slot(job, u);

		if (slot->state != PL_SLOT_COPYING || slot->run != i)
			continue;
		if (err)
			pl_pipe_finish(job, u, 0, err, cuda);
		else if (job->op == PEERLANE_READ)
			pl_pipe_finish(job, u, slot->got, slot->err, 0);
		else
			slot->state = PL_SLOT_READY;
	}
	pl_pipe_moved(job);
}

/* A mark failed, so nobody can tell when its copies end: the lane is not used any more. */
static void gpu_failed(struct pl_job *job, int err, int cuda)
{
	job->gpu_err = err;
	job->gpu_cuda = cuda;
	job->lane->lost = true;
	for (unsigned int u = job->low; u < job->next && job->op == PEERLANE_READ; u++)
		if (pl_pipe_slot(job, u)->state == PL_SLOT_READY)
			pl_pipe_finish(job, u, 0, err, cuda);
}

/* Looks which runs have ended; lock held, dropped meanwhile. */
bool pl_pipe_poll(struct pl_job *job)
{
	struct peerlane *ctx = job->ctx;
	bool any = false;

	if (job->polling || !job->nr_runs)
		return false;
	job->polling = true;
	job->polled_ns = pl_now_ns();
	for (uint8_t i = 0; i < PL_RUNS; i++) {
		struct pl_run run = job->runs[i];
		int done, cuda;

		if (!run.mark)
			continue;
		pthread_mutex_unlock(&job->lock);
		done = run.mark == (struct pl_mark *)-1
			       ? 1
			       : ctx->gpu->ops->mark_done(ctx->gpu, run.mark);
		cuda = done < 0 ? ctx->gpu->ops->result() : run.cuda;
		pthread_mutex_lock(&job->lock);
		/* Given up meanwhile, it is not ours to end any more. */
		if (!done || job->runs[i].mark != run.mark)
			continue;
		pl_pipe_run_ended(job, i, run.err ? run.err : (done < 0 ? done : 0), cuda);
		if (done < 0)
			gpu_failed(job, done, cuda);
		any = true;
	}
	job->polling = false;
	return any;
}
