// SPDX-License-Identifier: MIT
/*
 * Those who move units through a job's slots: the thread that runs it, which alone uses the
 * io_uring and waits for the end, and the helpers, which come and go.
 */
#include "context.h"
#include "job.h"
#include "pipe.h"
#include "ring.h"

#include <errno.h>

/* Not to ask the driver more often than this while there is other work. */
#define POLL_NS 5000
/* Requests pushed to the ring before they are submitted, if more can be. Not of units from LONG_UNIT on:
 * neighbours that come at once are joined to requests of several MiB, which disks take one by one. */
#define PUSH_MANY 8
#define LONG_UNIT (128u * 1024)
/* Rounds in which a helper of a write through a mapping looks for the copy it waits for before it sleeps. */
#define LOOKS 64u

/* What came of the units of a list on the file side. */
struct outcome {
	size_t got;
	int err;
	enum peerlane_path path;
};

/* Gives units @list[0..n) their shares of @got bytes. */
static void share_out(struct pl_job *job, const unsigned int *list, unsigned int n, size_t got,
		      int err, enum peerlane_path path, struct outcome *out)
{
	for (unsigned int i = 0; i < n; i++) {
		size_t bytes = job->units[list[i]].bytes;

		out[i].got = got < bytes ? got : bytes;
		out[i].err = out[i].got < bytes ? err : 0;
		out[i].path = path;
		got -= out[i].got;
	}
}

/* @fill went through a mapping: its file is to be touched. */
static void note_touch(struct pl_job *job, struct pl_touch *touch, const struct pl_fill *fill)
{
	if (touch->file && touch->file != fill->file && job->nr_ops > 1)
		pl_wmap_touch(touch);
	*touch = (struct pl_touch){ .file = fill->file,
				    .at = fill->offset + (off_t)fill->mapped - 1 };
}

/* The file side of unit @u. What follows a failed append would land in its place, so it is not done. */
static size_t fill_one(struct pl_job *job, unsigned int u, struct pl_fill *fill,
		       const struct pl_op **failed, int *err)
{
	const struct pl_op *op = pl_pipe_seg(job, u)->op;
	size_t got;

	if (*failed == op) {
		*err = -ECANCELED;
		return 0;
	}
	got = pl_fill_sync(job, fill, fill->got, err);
	if (job->ordered && got < fill->bytes)
		*failed = op;
	return got;
}

/* The file side of the units in @list, planned in @fills, one after the other, without the lock;
 * neighbours of a write go as one. */
static void fill_list(struct pl_job *job, const unsigned int *list, struct pl_fill *fills,
		      unsigned int n)
{
	struct outcome out[PL_TAKE];
	struct pl_touch touch = { .file = NULL };
	const struct pl_op *failed = NULL;
	unsigned int i = 0, k;
	size_t got;
	int err;

	while (i < n) {
		struct pl_fill *fill = &fills[i];

		for (k = i + 1; k < n && job->op == PEERLANE_WRITE && !job->small; k++)
			if (!pl_fill_join(fill, &fills[k]))
				break;
		got = fill_one(job, list[i], fill, &failed, &err);
		share_out(job, list + i, k - i, got, err, fill->path, out + i);
		if (fill->mapped)
			note_touch(job, &touch, fill);
		i = k;
	}
	/* One request's file is touched once at its end; but those of a batch end in here. */
	if (touch.file && job->nr_ops > 1)
		pl_wmap_touch(&touch);
	pthread_mutex_lock(&job->lock);
	if (touch.file)
		job->touch = touch;
	for (i = 0; i < n; i++)
		pl_pipe_filled(job, list[i], out[i].path, out[i].got, out[i].err);
	pl_pipe_issue(job);
	if (job->moved_ns - job->polled_ns > POLL_NS && pl_pipe_poll(job))
		pl_pipe_issue(job);
	pl_pipe_report(job);
	pthread_mutex_unlock(&job->lock);
}

static void help(struct pl_crew *crew)
{
	pl_party_run((struct pl_job *)crew, false);
}

static void call_helpers(struct pl_job *job)
{
	if (job->called || !job->max_helpers)
		return;
	job->called = true;
	job->crew.help = help;
	pl_crew_post(job->ctx, &job->crew, job->max_helpers);
}

/*
 * While a write through a mapping waits for its copies, each who waits maps a unit that nobody has written yet: a fault
 * takes as long as the copy. Lock held, dropped meanwhile; false: there is none.
 */
static bool prepare_one(struct pl_job *job)
{
	const struct pl_unit *unit;
	const struct pl_seg *seg;

	if (!job->mapped || job->small || !job->nr_runs)
		return false;
	if (job->prepared < job->low)
		job->prepared = job->low;
	if (job->prepared >= job->nr_units)
		return false;
	unit = &job->units[job->prepared++];
	seg = &job->segs[unit->seg];
	pthread_mutex_unlock(&job->lock);
	pl_wmap_prepare(seg->op->file, seg->offset + (off_t)unit->at, unit->bytes);
	pthread_mutex_lock(&job->lock);
	return true;
}

/* A helper with nothing to take waits a moment for a slot; it has done so @times times. Lock held. */
static void helper_wait(struct pl_job *job, unsigned int times)
{
	struct timespec ts;

	if (prepare_one(job))
		return;
	/* To be woken takes as long as its share of a short write. */
	if (job->mapped && job->nr_runs && times < LOOKS && job->ctx->workers.spin_ns) {
		pthread_mutex_unlock(&job->lock);
		for (int i = 0; i < 16; i++)
			pl_cpu_relax();
		pthread_mutex_lock(&job->lock);
		return;
	}
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
	unsigned int list[PL_TAKE], n, times = 0;
	struct pl_fill fills[PL_TAKE];

	pthread_mutex_lock(&job->lock);
	while (!all_taken(job)) {
		n = pl_pipe_take(job, list);
		if (n) {
			times = 0;
			pthread_mutex_unlock(&job->lock);
			for (unsigned int i = 0; i < n; i++)
				pl_fill_plan(job, list[i], &fills[i]);
			fill_list(job, list, fills, n);
			pthread_mutex_lock(&job->lock);
			continue;
		}
		if (!pl_pipe_issue(job) && !pl_pipe_poll(job) && !job->ended && !all_taken(job))
			helper_wait(job, times++);
		pl_pipe_report(job);
	}
	pl_pipe_report(job);
	pthread_mutex_unlock(&job->lock);
}

/* What the thread that runs the job knows of its own io_uring requests. */
struct owner {
	struct pl_job *job;
	struct pl_ring *ring; /* NULL: none needed so far */
	bool no_ring;
	bool gave_up;
	unsigned int pushed; /* to the ring, not yet submitted */
	unsigned int idle;   /* rounds without progress */
};

/* Starts a unit on the ring; false when it must be done at once instead. */
static bool push(struct owner *o, unsigned int u, const struct pl_fill *f)
{
	struct pl_job *job = o->job;
	unsigned int flags = (job->op == PEERLANE_WRITE ? PL_RING_WRITE : 0) |
			     (f->durable ? PL_RING_DURABLE : 0);

	if (o->no_ring || job->ordered || job->nr_units == 1)
		return false;
	if (!o->ring) {
		o->ring = job->lane ? pl_lane_ring(job->ctx, job->lane) : NULL;
		o->no_ring = !o->ring;
		if (o->no_ring)
			return false;
	}
	if (pl_ring_push(o->ring, flags, f->file->fd_direct, f->mem - f->before, f->span,
			 f->offset - f->before, u))
		return false;
	/* Only this thread looks at the mark, though the slot is the job's. */
	pl_pipe_slot(job, u)->pushed = true;
	o->pushed++;
	return true;
}

/* Does the taken units: direct ones by the ring, the rest at once. */
static void start_list(struct owner *o, const unsigned int *list, unsigned int n)
{
	struct pl_job *job = o->job;
	unsigned int rest[PL_TAKE], nr_rest = 0;
	struct pl_fill fills[PL_TAKE];

	for (unsigned int i = 0; i < n; i++) {
		struct pl_fill *fill = &fills[nr_rest];

		pl_fill_plan(job, list[i], fill);
		if (fill->direct && push(o, list[i], fill))
			continue;
		call_helpers(job);
		rest[nr_rest++] = list[i];
	}
	if (nr_rest)
		fill_list(job, rest, fills, nr_rest);
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
	if (fill.path == PEERLANE_PATH_P2P && got < fill.bytes) {
		/* A drive's error may be that of a neighbour the kernel had joined it with: then it
		 * is tried again, alone. */
		if (d->result >= 0 || d->result == -EFAULT || o->gave_up)
			pl_fill_leave_p2p(job, &fill, d->result < 0 ? d->result : -EIO);
		got = 0;
	}
	/* Once given up, the device is not asked again: it would make us wait again. */
	if (got < fill.bytes && o->gave_up)
		err = -ETIMEDOUT;
	else if (got < fill.bytes)
		got = pl_fill_sync(job, &fill, got, &err);
	pthread_mutex_lock(&job->lock);
	pl_pipe_slot(job, u)->pushed = false;
	pl_pipe_filled(job, u, fill.path, got, err);
	pthread_mutex_unlock(&job->lock);
}

static bool collect(struct owner *o, unsigned int wait_us)
{
	struct pl_ring_done done[32];
	int n;

	if (!o->ring || !pl_ring_in_flight(o->ring))
		return false;
	n = pl_ring_collect(o->ring, done, 32, wait_us);
	o->pushed = 0;
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
			pl_pipe_run_ended(job, i, -ETIMEDOUT, 0);
	for (unsigned int u = job->low; u < job->next; u++) {
		struct pl_slot *slot = pl_pipe_slot(job, u);

		if (slot->state == PL_SLOT_READY && job->op == PEERLANE_READ) {
			job->ready--;
			job->ready_bytes -= slot->got;
		}
		if (slot->state == PL_SLOT_BUSY &&
		    !(again && slot->pushed && !slot->p2p && !pl_pipe_seg(job, u)->host))
			continue;
		if (slot->state == PL_SLOT_BUSY && job->op == PEERLANE_READ)
			job->busy--;
		if (slot->state == PL_SLOT_READY || slot->state == PL_SLOT_BUSY)
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
	unsigned int list[PL_TAKE], n;
	bool progress, copying;
	unsigned int push_many = job->unit_bytes < LONG_UNIT ? PUSH_MANY : 1;

	pthread_mutex_lock(&job->lock);
	job->moved_ns = pl_now_ns();
	/* Helpers of a write come while its first copy is on the way. */
	if (job->mapped && !job->small && pl_pipe_issue(job)) {
		pthread_mutex_unlock(&job->lock);
		call_helpers(job);
		pthread_mutex_lock(&job->lock);
	}
	while (job->finished < job->nr_units) {
		/* With a full ring nothing more is taken: it would have to be done by waiting. */
		n = o.ring && pl_ring_full(o.ring) ? 0 : pl_pipe_take(job, list);
		if (n) {
			pthread_mutex_unlock(&job->lock);
			start_list(&o, list, n);
			if (o.pushed >= push_many)
				collect(&o, 0);
			pthread_mutex_lock(&job->lock);
			continue;
		}
		progress = pl_pipe_issue(job);
		progress |= pl_pipe_poll(job);
		pl_pipe_report(job);
		if (progress || prepare_one(job)) {
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
	pl_pipe_report(job);
	pl_pipe_moved(job);
	pthread_mutex_unlock(&job->lock);
}

void pl_party_run(struct pl_job *job, bool owner)
{
	if (owner)
		run_owner(job);
	else
		run_helper(job);
}
