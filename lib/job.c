// SPDX-License-Identifier: MIT
/* Jobs: cutting requests into units, running them, and what came of each request. */
#include "job.h"

#include "cache.h"
#include "context.h"
#include "p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024ul
/* Segments up to this size are not cut. */
#define SMALL_BYTES (64 * KIB)
/* Slots are not worth making smaller than this to get more threads to help. */
#define MIN_UNIT (64 * KIB)
/* How far starts_cold() looks. */
#define LOOK_BYTES (64 * KIB)
/* See choose_unit(). */
#define LARGE_BYTES (64ul << 20)
#define MANY_THREADS 10u
/* Writes through a mapping: from what size on threads share one, and in what pieces. */
#define SHARED_MIN_BYTES (256 * KIB)
#define SHARED_UNIT (128 * KIB)
#define SHARED_PARTS 128
#define PAST_CACHE_UNIT (128 * KIB)
#define MAX_MIN_RUN (1024 * KIB)
#define LAG_RUN (12288 * KIB)
/* Without a lane a slot is only a number; this many units may be under way. */
#define BARE_SLOTS 256u

/* Bytes of all segments, the longest, and whether any needs a slot. */
struct shape {
	size_t total, longest;
	bool staged;
};

static struct shape measure(const struct pl_job *job)
{
	struct shape s = { .total = 0 };

	for (unsigned int i = 0; i < job->nr_segs; i++) {
		s.total += job->segs[i].bytes;
		if (job->segs[i].bytes > s.longest)
			s.longest = job->segs[i].bytes;
		if (!job->segs[i].host)
			s.staged = true;
	}
	return s;
}

/* Whether a read's first bytes would have to come from the device. */
static bool starts_cold(const struct pl_job *job)
{
	const struct pl_seg *seg = &job->segs[0];
	const struct peerlane_file *f = seg->op->file;
	size_t look = seg->bytes < LOOK_BYTES ? seg->bytes : LOOK_BYTES;

	if (job->op == PEERLANE_WRITE || f->fd_direct < 0)
		return false;
	if (f->want_direct || f->fd < 0)
		return true;
	return pl_cache_resident(f->fd, seg->offset, look) < (int64_t)look / 2;
}

/* Whether a write is for several threads: nearly all of it goes through a mapping of the file. Of
 * a batch the first request speaks for the others. */
static bool shares_write(const struct pl_job *job, const struct shape *s)
{
	const struct pl_seg *seg = &job->segs[0];
	size_t bytes = job->nr_ops == 1 ? s->total : seg->bytes;

	if (job->op != PEERLANE_WRITE || job->ordered || !job->nr_segs ||
	    (seg->op->flags & PEERLANE_DURABLE) || seg->op->plain_write)
		return false;
	if (job->nr_ops == 1 && bytes < SHARED_MIN_BYTES)
		return false;
	return pl_wmap_fits(seg->op->file, seg->offset, bytes);
}

/* Threads that will work on the job, if the others are as busy as now. */
static unsigned int fair_share(const struct pl_job *job)
{
	unsigned int jobs = __atomic_load_n(&job->ctx->jobs, __ATOMIC_RELAXED) + 1;

	return 1 + job->ctx->opt.nr_threads / jobs;
}

/*
 * The size of units. By O_DIRECT: a few large ones, the ring keeps them in flight. From the page
 * cache: small enough that all threads get several, large enough to be worth a call.
 */
static void choose_unit(struct pl_job *job, const struct shape *s)
{
	size_t want, most = job->ctx->opt.slot_bytes;
	unsigned int threads = fair_share(job);

	/* It may have to do with a small lane. */
	if (job->queue && most > job->ctx->pool.lane_bytes[0] / 2)
		most = job->ctx->pool.lane_bytes[0] / 2;
	job->small = s->longest <= SMALL_BYTES;
	if (job->small) {
		job->unit_bytes = SMALL_BYTES;
		/* Room to widen each on both sides. */
		job->stride = ((s->longest + job->grain - 1) & ~(job->grain - 1)) + 2 * job->grain;
		return;
	}
	if (job->mapped) {
		want = s->total / SHARED_PARTS > SHARED_UNIT ? s->total / SHARED_PARTS
							     : SHARED_UNIT;
		/* Two copies at least, so that the second passes beside the file side. */
		job->write_run = s->total / 2 < MAX_MIN_RUN ? s->total / 2 : MAX_MIN_RUN;
	} else if (job->op == PEERLANE_WRITE) {
		want = s->total / (job->segs[0].op->file->want_direct ? 2 : 16);
		job->write_run = threads < job->ctx->opt.nr_threads / 2 ? MAX_MIN_RUN : 0;
	} else if (starts_cold(job)) {
		/* Two, so that the copy of the one passes beside the other; by p2p there is none. */
		want = job->segs[0].p2p ? s->total : s->total / 2;
	} else {
		want = s->total / (4 * threads);
		/* With many threads on a large read the slots are long out of their caches when
		 * their turn comes. With few, or on a short one, they are not. */
		job->past_cache = s->staged && job->ctx->gpu->ops->dma &&
				  (s->total < LARGE_BYTES || threads < MANY_THREADS);
		if (job->past_cache && threads > 2 && most > PAST_CACHE_UNIT)
			most = PAST_CACHE_UNIT;
		/* Every copy costs the engine as much as 100 KiB more. Alone, an early start is
		 * worth that; beside others, whose copies fill the gap, it is not. */
		job->min_run = threads < job->ctx->opt.nr_threads / 2 ? MAX_MIN_RUN : s->total / 4;
		if (job->min_run > MAX_MIN_RUN)
			job->min_run = MAX_MIN_RUN;
		/* Long runs keep the copies far enough behind for the slots to leave the caches;
		 * once they catch up, both sides are slow and stay so. */
		if (s->staged && job->ctx->gpu->ops->dma && !job->past_cache)
			job->min_run = LAG_RUN;
	}
	if (want < MIN_UNIT)
		want = MIN_UNIT;
	job->unit_bytes = pl_power_of_two_below(want < most ? want : most);
	job->stride = job->unit_bytes;
}

/* Whole blocks go by p2p, and what is before and behind them is a unit of its own. */
static size_t cut_ends(const struct pl_job *job, const struct pl_seg *s, size_t at, size_t n)
{
	size_t mask = pl_p2p_block(s->op->file, job->op) - 1;
	size_t start = (size_t)s->offset + at, head = -start & mask;

	if (head)
		return head < n ? head : n;
	return n > mask ? n - ((start + n) & mask) : n;
}

/* Units of a segment: whole if small, else cut where the file offset is a multiple. */
static unsigned int cut(const struct pl_job *job, uint32_t seg, struct pl_unit *out)
{
	const struct pl_seg *s = &job->segs[seg];
	size_t at = 0, mask = job->unit_bytes - 1, n;
	unsigned int nr = 0;

	while (at < s->bytes) {
		n = job->small ? s->bytes : job->unit_bytes - (((size_t)s->offset + at) & mask);
		if (n > s->bytes - at)
			n = s->bytes - at;
		if (s->p2p)
			n = cut_ends(job, s, at, n);
		if (out)
			out[nr] = (struct pl_unit){ .seg = seg, .bytes = (uint32_t)n, .at = at };
		nr++;
		at += n;
	}
	return nr;
}

static int make_units(struct pl_job *job)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < job->nr_segs; i++) {
		unsigned int n = cut(job, i, NULL);

		job->segs[i].op->units_left += n;
		nr += n;
	}
	job->nr_units = nr;
	job->units = job->units_inline;
	if (nr > PL_JOB_INLINE) {
		job->units = malloc(nr * sizeof(job->units[0]));
		if (!job->units)
			return -ENOMEM;
	}
	nr = 0;
	for (unsigned int i = 0; i < job->nr_segs; i++)
		nr += cut(job, i, job->units + nr);
	return 0;
}

/* How many threads help, beside the one that runs the job. */
static unsigned int helpers(const struct pl_job *job)
{
	unsigned int max = fair_share(job) - 1, share;

	if (job->ordered || job->nr_units < 2)
		return 0;
	/* Plain writes to one file queue up at its lock: help only makes the queue longer. */
	if (job->op == PEERLANE_WRITE && job->nr_ops == 1 && !job->mapped &&
	    !(job->segs[0].op->file->want_direct && job->ctx->ring_why))
		return 0;
	share = job->small ? (job->nr_units + 23) / 24 : (job->nr_units + 1) / 2;
	return share < max ? share : max;
}

int pl_job_init(struct pl_job *job, struct peerlane *ctx, enum peerlane_op op, struct pl_op *ops,
		unsigned int nr_ops, struct pl_seg *segs, unsigned int nr_segs)
{
	pthread_condattr_t attr;
	struct shape shape;
	int err;

	memset(job, 0, offsetof(struct pl_job, units_inline));
	job->ctx = ctx;
	job->op = op;
	job->ops = ops;
	job->queue = nr_ops == 1 ? ops[0].queue : NULL;
	job->nr_ops = nr_ops;
	job->segs = segs;
	job->nr_segs = nr_segs;
	job->ended_end = &job->ended;
	job->grain = 4096;
	for (unsigned int i = 0; i < nr_ops; i++) {
		ops[i].stop = ops[i].bytes;
		ops[i].units_left = 0;
		ops[i].err = ops[i].cuda = 0;
		ops[i].p2p = ops[i].copied = 0;
		ops[i].end_ns = 0;
		ops[i].next = NULL;
		job->ordered |= op == PEERLANE_WRITE && ops[i].file->append;
		if (ops[i].file->align > job->grain)
			job->grain = ops[i].file->align;
	}
	shape = measure(job);
	job->mapped = shares_write(job, &shape);
	choose_unit(job, &shape);
	err = make_units(job);
	if (err)
		return pl_fail(err, "no memory to plan the request");
	job->max_helpers = helpers(job);
	pl_lock_init(&job->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&job->moved, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

void pl_job_fini(struct pl_job *job)
{
	if (job->units != job->units_inline)
		free(job->units);
	if (job->slots != job->slots_inline)
		free(job->slots);
	pthread_cond_destroy(&job->moved);
	pthread_mutex_destroy(&job->lock);
}

void pl_job_abort(struct pl_job *job, int err, int cuda)
{
	pthread_mutex_lock(&job->lock);
	for (unsigned int i = 0; i < job->nr_ops; i++) {
		struct pl_op *op = &job->ops[i];

		if (!op->units_left)
			continue;
		op->stop = 0;
		op->err = err;
		op->cuda = cuda;
		op->units_left = 0;
		if (op->done)
			op->done(job, op);
	}
	job->next = job->finished = job->nr_units;
	pthread_mutex_unlock(&job->lock);
}

/* A lane, if any unit needs one, and the slots. */
static int get_slots(struct pl_job *job)
{
	struct shape s = measure(job);
	size_t want = job->small ? job->stride * job->nr_units : s.total;
	unsigned int nr = BARE_SLOTS;
	int err;

	if (s.staged) {
		err = job->queue ? pl_lane_acquire_made(job->ctx, want, job->stride, &job->lane)
				 : pl_lane_acquire(job->ctx, want, job->stride, &job->lane);
		if (err)
			return err;
		nr = (unsigned int)(job->lane->bytes / job->stride);
	}
	job->nr_slots = nr < job->nr_units ? nr : job->nr_units;
	if (job->min_run > job->nr_slots * job->stride / 2)
		job->min_run = job->nr_slots * job->stride / 2;
	job->slots = job->slots_inline;
	if (job->nr_slots > PL_JOB_INLINE)
		job->slots = malloc(job->nr_slots * sizeof(job->slots[0]));
	if (!job->slots)
		return pl_fail(-ENOMEM, "no memory for slots");
	memset(job->slots, 0, job->nr_slots * sizeof(job->slots[0]));
	return 0;
}

/* After a driver error its context may be gone: the lane forgets its queue there. */
static void drop_failed_queues(struct pl_job *job)
{
	/* Its copies are not the lane's. If it was given up, they end with the kernel. */
	if (job->queue) {
		job->lane->serve = job->lane->lost ? job->queue->serve : NULL;
		job->lane->serve_number = job->queue->number;
		return;
	}
	for (unsigned int i = 0; i < job->nr_segs; i++)
		if (job->segs[i].op->cuda && !job->lane->lost)
			pl_lane_queue_drop(job->ctx, job->lane, job->segs[i].owner);
}

void pl_job_run(struct pl_job *job)
{
	int err;

	__atomic_fetch_add(&job->ctx->jobs, 1, __ATOMIC_RELAXED);
	err = get_slots(job);

	if (err) {
		pl_job_abort(job, err, 0);
	} else if (job->nr_units) {
		pl_party_run(job, true);
		pl_crew_dismiss(job->ctx, &job->crew);
	}
	/* Requests of a batch have done it before they were reported. */
	if (job->touch.file && job->nr_ops == 1)
		pl_wmap_touch(&job->touch);
	if (job->lane) {
		drop_failed_queues(job);
		pl_lane_release(job->ctx, job->lane);
		job->lane = NULL;
	}
	__atomic_fetch_sub(&job->ctx->jobs, 1, __ATOMIC_RELAXED);
}

unsigned int pl_job_cancel(struct pl_job *job)
{
	unsigned int n = 0;

	pthread_mutex_lock(&job->lock);
	if (!job->cancelled) {
		job->cancelled = true;
		for (unsigned int u = job->next; u < job->nr_units; u++)
			if (u == job->next ||
			    job->segs[job->units[u].seg].op != job->segs[job->units[u - 1].seg].op)
				n++;
	}
	pthread_mutex_unlock(&job->lock);
	return n;
}

ssize_t pl_op_result(const struct pl_op *op)
{
	return op->stop || !op->err ? (ssize_t)op->stop : op->err;
}
