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
#include "ring.h"

#include <errno.h>

/* Most bytes of one run of copies: large enough to hide the cost of a copy, small enough to keep
 * slots coming back. */
#define RUN_BYTES (8ul << 20)
#define RUN_COPIES 128
/* Copies in flight at a time; more only makes them shorter. */
#define RUNS_IN_FLIGHT 2
/* Small units a participant takes at once. */
#define TAKE 16

static struct pl_slot *slot_of(struct pl_job *job, unsigned int u)
{
	return &job->slots[u % job->nr_slots];
}

static struct pl_seg *seg_of(struct pl_job *job, unsigned int u)
{
	return &job->segs[job->units[u].seg];
}

/* Position of a unit in its request. */
static size_t at_of(struct pl_job *job, unsigned int u)
{
	return seg_of(job, u)->at + job->units[u].at;
}

static void moved(struct pl_job *job)
{
	if (job->waiting)
		pthread_cond_broadcast(&job->moved);
}

void pl_pipe_finish(struct pl_job *job, unsigned int u, size_t got, int err, int cuda)
{
	struct pl_op *op = seg_of(job, u)->op;
	struct pl_slot *slot = slot_of(job, u);

	if (got < job->units[u].bytes && at_of(job, u) + got < op->stop) {
		op->stop = at_of(job, u) + got;
		op->err = err;
		op->cuda = cuda;
	}
	if (got)
		pl_stats_path(&job->ctx->stats, job->op, slot->path, got);
	slot->state = PL_SLOT_FREE;
	job->finished++;
	/* A slot is taken again only after all units before are past: see the top of the file. */
	while (job->low < job->next && slot_of(job, job->low)->state == PL_SLOT_FREE)
		job->low++;
	if (!--op->units_left && op->done)
		op->done(job, op);
}

/* Whether unit @u can no longer count: its request has already stopped before it. */
static bool pointless(struct pl_job *job, unsigned int u)
{
	return job->cancelled || at_of(job, u) >= seg_of(job, u)->op->stop;
}

/* Ends units at the front that can no longer count, before they start. */
static void skip_pointless(struct pl_job *job)
{
	while (job->next < job->nr_units && slot_of(job, job->next)->state == PL_SLOT_FREE &&
	       pointless(job, job->next)) {
		job->next++;
		pl_pipe_finish(job, job->next - 1, 0, -ECANCELED, 0);
	}
}

/* Units of a write whose memory the CPU can read need no copy first. */
static void admit_mapped(struct pl_job *job)
{
	for (;;) {
		skip_pointless(job);
		if (job->next == job->nr_units || !seg_of(job, job->next)->host ||
		    slot_of(job, job->next)->state != PL_SLOT_FREE)
			return;
		slot_of(job, job->next++)->state = PL_SLOT_READY;
	}
}

/* Takes units for the file side. Returns how many are in @list. */
static unsigned int take(struct pl_job *job, unsigned int *list)
{
	unsigned int max = job->small ? TAKE : 1, n = 0, u;

	if (job->op == PEERLANE_READ) {
		while (n < max) {
			skip_pointless(job);
			u = job->next;
			if (u == job->nr_units || slot_of(job, u)->state != PL_SLOT_FREE)
				break;
			slot_of(job, u)->state = PL_SLOT_BUSY;
			list[n++] = u;
			job->next++;
		}
		return n;
	}
	admit_mapped(job);
	for (u = job->low; u < job->next && n < max; u++) {
		struct pl_slot *slot = slot_of(job, u);

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
static void filled(struct pl_job *job, unsigned int u, enum peerlane_path path, size_t got, int err)
{
	struct pl_slot *slot = slot_of(job, u);

	slot->path = (uint8_t)path;
	job->moved_ns = pl_now_ns();
	if (job->op == PEERLANE_WRITE || seg_of(job, u)->host || !got) {
		pl_pipe_finish(job, u, got, err, 0);
		moved(job);
		return;
	}
	slot->got = (uint32_t)got;
	slot->err = err;
	slot->state = PL_SLOT_READY;
}

/* --- the copy side --- */

struct batch {
	struct pl_copy list[RUN_COPIES];
	unsigned int nr;
	size_t bytes;
	void *owner;
	unsigned int first, last; /* units between which those of the run lie */
};

/* Adds unit @u to @b, joined to the copy before it where both sides touch. */
static bool batch_add(struct pl_job *job, struct batch *b, unsigned int u, size_t bytes)
{
	struct pl_seg *seg = seg_of(job, u);
	char *gpu = seg->addr + job->units[u].at;
	char *host = pl_fill_slot(job, u);

	if (b->nr && seg->owner != b->owner)
		return false;
	if (b->bytes && b->bytes + bytes > RUN_BYTES)
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
		struct pl_slot *slot = slot_of(job, u);

		if (slot->state != PL_SLOT_READY)
			continue;
		if (!batch_add(job, b, u, slot->got))
			break;
		slot->state = PL_SLOT_COPYING;
		slot->run = run;
		b->last = u + 1;
	}
}

/* Collects units whose slots are free, for a write. The first runs are short, so that the file
 * side starts soon. */
static void gather_write(struct pl_job *job, struct batch *b, uint8_t run)
{
	size_t limit = (size_t)job->finished * job->unit_bytes;
	unsigned int u;

	if (limit < 2 * job->unit_bytes)
		limit = 2 * job->unit_bytes;
	for (;;) {
		admit_mapped(job);
		u = job->next;
		if (u == job->nr_units || slot_of(job, u)->state != PL_SLOT_FREE ||
		    (b->bytes && b->bytes + job->units[u].bytes > limit))
			return;
		if (!batch_add(job, b, u, job->units[u].bytes))
			return;
		slot_of(job, u)->state = PL_SLOT_COPYING;
		slot_of(job, u)->run = run;
		job->next++;
		b->last = u + 1;
	}
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
	struct pl_lane_queue *q = NULL;
	struct batch b = { .nr = 0 };
	int err;

	if (job->op == PEERLANE_READ)
		gather_read(job, &b, i);
	else
		gather_write(job, &b, i);
	if (!b.nr)
		return false;
	pthread_mutex_unlock(&job->lock);
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

static bool issue(struct pl_job *job)
{
	bool any = false;

	if (job->issuing || !job->lane)
		return false;
	job->issuing = true;
	while (job->nr_runs < RUNS_IN_FLIGHT && issue_one(job))
		any = true;
	job->issuing = false;
	return any;
}

/* The run's copies have ended; its units go on. Lock held. */
static void run_ended(struct pl_job *job, uint8_t i, int err, int cuda)
{
	job->runs[i].mark = NULL;
	job->nr_runs--;
	job->moved_ns = pl_now_ns();
	for (unsigned int u = job->low; u < job->next; u++) {
		struct pl_slot *slot = slot_of(job, u);

		if (slot->state != PL_SLOT_COPYING || slot->run != i)
			continue;
		if (err)
			pl_pipe_finish(job, u, 0, err, cuda);
		else if (job->op == PEERLANE_READ)
			pl_pipe_finish(job, u, slot->got, slot->err, 0);
		else
			slot->state = PL_SLOT_READY;
	}
	moved(job);
}

/* Looks which runs have ended; lock held, dropped meanwhile. */
static bool poll_runs(struct pl_job *job)
{
	struct peerlane *ctx = job->ctx;
	bool any = false;

	if (job->polling || !job->nr_runs)
		return false;
	job->polling = true;
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
		if (!done)
			continue;
		run_ended(job, i, run.err ? run.err : (done < 0 ? done : 0), cuda);
		any = true;
	}
	job->polling = false;
	return any;
}

/* --- participants --- */

/* The file side of the units in @list, one after the other, without the lock. */
static void fill_list(struct pl_job *job, const unsigned int *list, unsigned int n)
{
	struct pl_fill fill;
	size_t got[TAKE];
	int err[TAKE];
	enum peerlane_path path[TAKE];

	for (unsigned int i = 0; i < n; i++) {
		pl_fill_plan(job, list[i], &fill);
		got[i] = pl_fill_sync(job, &fill, 0, &err[i]);
		path[i] = fill.path;
	}
	pthread_mutex_lock(&job->lock);
	for (unsigned int i = 0; i < n; i++)
		filled(job, list[i], path[i], got[i], err[i]);
	issue(job);
	poll_runs(job);
	issue(job);
	pthread_mutex_unlock(&job->lock);
}

static void help(struct pl_crew *crew)
{
	pl_pipe_run((struct pl_job *)crew, false);
}

static void call_helpers(struct pl_job *job)
{
	if (job->called || !job->max_helpers)
		return;
	job->called = true;
	job->crew.help = help;
	pl_crew_post(job->ctx, &job->crew, job->max_helpers);
}

/* A helper with nothing to take waits a moment for a slot. Lock held. */
static void helper_wait(struct pl_job *job)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += 100000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	job->waiting++;
	pthread_cond_timedwait(&job->moved, &job->lock, &ts);
	job->waiting--;
}

/* Everything has been taken: a helper is not needed any more. */
static bool all_taken(struct pl_job *job)
{
	if (job->op == PEERLANE_READ)
		return job->next == job->nr_units;
	return job->finished == job->nr_units;
}

static void run_helper(struct pl_job *job)
{
	unsigned int list[TAKE], n;

	pthread_mutex_lock(&job->lock);
	while (!all_taken(job)) {
		n = take(job, list);
		if (n) {
			pthread_mutex_unlock(&job->lock);
			fill_list(job, list, n);
			pthread_mutex_lock(&job->lock);
			continue;
		}
		if (!issue(job) && !poll_runs(job) && !all_taken(job))
			helper_wait(job);
	}
	pthread_mutex_unlock(&job->lock);
}

/* What the thread that runs the job knows of its own io_uring requests. */
struct owner {
	struct pl_job *job;
	struct pl_ring *ring; /* NULL: none needed so far */
	bool no_ring;
	bool gave_up;
	unsigned int idle; /* rounds without progress */
};

/* Starts a unit on the ring; false when it must be done at once instead. */
static bool push(struct owner *o, unsigned int u, const struct pl_fill *f)
{
	struct pl_job *job = o->job;
	bool write = job->op == PEERLANE_WRITE;

	if (o->no_ring || job->ordered || job->nr_units == 1)
		return false;
	if (!o->ring) {
		o->ring = job->lane ? pl_lane_ring(job->ctx, job->lane) : NULL;
		o->no_ring = !o->ring;
		if (o->no_ring)
			return false;
	}
	if (pl_ring_push(o->ring, write, f->file->fd_direct, f->mem - f->before, f->span,
			 f->offset - f->before, f->durable, u))
		return false;
	/* Only this thread looks at the mark, though the slot is the job's. */
	slot_of(job, u)->pushed = true;
	return true;
}

/* Does the taken units: direct ones by the ring, the rest at once. */
static void start_list(struct owner *o, const unsigned int *list, unsigned int n)
{
	struct pl_job *job = o->job;
	unsigned int rest[TAKE], nr_rest = 0;
	struct pl_fill fill;

	for (unsigned int i = 0; i < n; i++) {
		pl_fill_plan(job, list[i], &fill);
		if (fill.direct && push(o, list[i], &fill))
			continue;
		rest[nr_rest++] = list[i];
	}
	if (!nr_rest)
		return;
	call_helpers(job);
	fill_list(job, rest, nr_rest);
}

/* A direct request came back; what it did not do is done at once. */
static void pushed_done(struct owner *o, const struct pl_ring_done *d)
{
	struct pl_job *job = o->job;
	unsigned int u = (unsigned int)d->tag;
	struct pl_fill fill;
	size_t got;
	int err = 0;

	pl_fill_plan_direct(job, u, &fill);
	got = d->result > 0 ? pl_fill_got(&fill, (size_t)d->result) : 0;
	if (got < fill.bytes)
		got = pl_fill_sync(job, &fill, got, &err);
	pthread_mutex_lock(&job->lock);
	slot_of(job, u)->pushed = false;
	filled(job, u, fill.path, got, err);
	pthread_mutex_unlock(&job->lock);
}

static bool collect(struct owner *o, unsigned int wait_us)
{
	struct pl_ring_done done[32];
	int n;

	if (!o->ring || !pl_ring_in_flight(o->ring))
		return false;
	n = pl_ring_collect(o->ring, done, 32, wait_us);
	for (int i = 0; i < n; i++)
		pushed_done(o, &done[i]);
	return n > 0;
}

/* Nothing moved: look again soon, then less often. */
static void owner_wait(struct owner *o, bool copying)
{
	const struct timespec nap = { .tv_nsec = 20000 };

	o->idle++;
	if (o->ring && pl_ring_in_flight(o->ring)) {
		collect(o, copying ? 50 : 5000);
	} else if (o->idle < 2000 && !o->job->called) {
		pl_cpu_relax();
	} else if (o->idle < 200) {
		for (int i = 0; i < 16; i++)
			pl_cpu_relax();
	} else {
		nanosleep(&nap, NULL);
	}
}

/*
 * Too long without progress: whatever is under way is given up, and the lane with it, since a
 * device may still write there. Requests on the ring are asked to stop first and left behind the
 * second time. What is never left behind is a transfer into the caller's own memory.
 */
static void give_up(struct owner *o)
{
	struct pl_job *job = o->job;
	bool again = o->gave_up;

	if (!again && o->ring && pl_ring_in_flight(o->ring))
		pl_ring_cancel(o->ring);
	o->gave_up = true;
	pthread_mutex_lock(&job->lock);
	job->cancelled = true;
	if (job->lane)
		job->lane->lost = true;
	for (uint8_t i = 0; i < PL_RUNS; i++)
		if (job->runs[i].mark)
			run_ended(job, i, -ETIMEDOUT, 0);
	for (unsigned int u = job->low; u < job->next; u++) {
		struct pl_slot *slot = slot_of(job, u);

		if (slot->state == PL_SLOT_READY ||
		    (again && slot->state == PL_SLOT_BUSY && slot->pushed && !seg_of(job, u)->host))
			pl_pipe_finish(job, u, 0, -ETIMEDOUT, 0);
	}
	job->moved_ns = pl_now_ns();
	pthread_mutex_unlock(&job->lock);
	pl_log(job->ctx, 0, "no progress for %u ms: request given up", job->ctx->opt.timeout_ms);
}

static void run_owner(struct pl_job *job)
{
	uint64_t limit = job->ctx->opt.timeout_ms * 1000000ull;
	struct owner o = { .job = job, .no_ring = job->ctx->ring_why != NULL };
	unsigned int list[TAKE], n;
	bool progress, copying;

	pthread_mutex_lock(&job->lock);
	job->moved_ns = pl_now_ns();
	while (job->finished < job->nr_units) {
		n = take(job, list);
		if (n) {
			pthread_mutex_unlock(&job->lock);
			start_list(&o, list, n);
			collect(&o, 0);
			pthread_mutex_lock(&job->lock);
			continue;
		}
		progress = issue(job);
		progress |= poll_runs(job);
		if (progress) {
			o.idle = 0;
			continue;
		}
		if (pl_now_ns() - job->moved_ns > limit) {
			pthread_mutex_unlock(&job->lock);
			give_up(&o);
			pthread_mutex_lock(&job->lock);
			continue;
		}
		copying = job->nr_runs > 0;
		pthread_mutex_unlock(&job->lock);
		owner_wait(&o, copying);
		pthread_mutex_lock(&job->lock);
	}
	moved(job);
	pthread_mutex_unlock(&job->lock);
}

void pl_pipe_run(struct pl_job *job, bool owner)
{
	if (owner)
		run_owner(job);
	else
		run_helper(job);
}
