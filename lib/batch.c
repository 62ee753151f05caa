// SPDX-License-Identifier: MIT
/*
 * Batches. The requests of one submission that go in one direction become one job. Whoever comes
 * first runs it: a worker, or the thread that waits for the events, which else helps. Writes to a file opened with
 * O_DIRECT that share pages with others are not for a job; they are done apart, one by one.
 */
#include "context.h"
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CAPACITY 65536u
#define MAX_WAIT_S 1000000000l

/* The requests of one submission, by what becomes of them. */
enum { READS, WRITES, APART, NR_GROUPS };

struct group {
	struct pl_task task; /* first: workers are given it */
	struct peerlane_batch *batch;
	struct group *next;
	bool started;	    /* by a worker or a waiting thread; under the batch's lock */
	unsigned int users; /* threads that may still touch it; freed at 0 */
	struct pl_job job;  /* not run if @apart */
	bool apart;
	unsigned int nr_begun;	   /* of those done apart; under the job's lock */
	unsigned int direct_locks; /* held while the job runs */
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
	struct group *groups;
};

int peerlane_batch_create(struct peerlane *ctx, unsigned int capacity, struct peerlane_batch **out)
{
	PL_KEEP_ERRNO;
	struct peerlane_batch *b;
	pthread_condattr_t attr;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!out || !capacity || capacity > MAX_CAPACITY)
		return pl_fail(-EINVAL, "a batch holds 1 to %u requests, not %u", MAX_CAPACITY,
			       capacity);
	b = calloc(1, sizeof(*b));
	if (!b)
		return pl_fail(-ENOMEM, "no memory for a batch");
	b->events = calloc(capacity, sizeof(b->events[0]));
	b->p2p = calloc(capacity, sizeof(b->p2p[0]));
	if (!b->events || !b->p2p) {
		free(b->events);
		free(b->p2p);
		free(b);
		return pl_fail(-ENOMEM, "no memory for a batch");
	}
	b->ctx = ctx;
	b->capacity = capacity;
	pl_lock_init(&b->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&b->done, &attr);
	pthread_condattr_destroy(&attr);
	pl_stat_add(&pl_ctx_stats(ctx)->batches, 1);
	*out = b;
	return 0;
}

static void group_free(struct group *g)
{
	pl_job_fini(&g->job);
	free(g->ops);
	free(g->segs);
	free(g->bufs);
	free(g);
}

/* One thread less has to do with @g. Batch lock held. */
static void group_put(struct peerlane_batch *b, struct group *g)
{
	if (--g->users)
		return;
	for (struct group **p = &b->groups; *p; p = &(*p)->next) {
		if (*p == g) {
			*p = g->next;
			break;
		}
	}
	group_free(g);
	pthread_cond_broadcast(&b->done);
}

/* What is counted of a request that has its outcome, and what it held is let go. */
static void request_close(struct pl_job *job, struct group *g, struct pl_op *op)
{
	ssize_t result = pl_op_result(op);
	uint64_t end = op->end_ns ? op->end_ns : pl_now_ns();

	pl_stats_request(&job->ctx->stats, job->op, op->asked, result,
			 end > op->start_ns ? end - op->start_ns : 0);
	if (result == -ECANCELED)
		pl_stat_add(&pl_ctx_stats(job->ctx)->cancelled, 1);
	pl_stat_sub(&pl_ctx_stats(job->ctx)->in_flight, 1);
	pl_buffer_put(g->bufs[op - g->ops]);
	pl_file_put(op->file);
}

/* @first and those listed after it have their outcome. Their group lives on until its job was
 * run, which is not before this returns. */
static void requests_done(struct pl_job *job, struct pl_op *first)
{
	struct group *g = first->arg;
	struct peerlane_batch *b = g->batch;

	for (struct pl_op *op = first; op; op = op->next)
		request_close(job, g, op);
	pthread_mutex_lock(&b->lock);
	for (struct pl_op *op = first; op; op = op->next) {
		unsigned int at = (b->head + b->nr_events++) % b->capacity;

		b->events[at] = (struct peerlane_event){ .cookie = op->cookie,
							 .result = pl_op_result(op),
							 .cuda = op->cuda };
		b->p2p[at] = op->p2p;
		b->in_flight--;
	}
	__atomic_store_n(&b->turns, b->turns + 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&b->done);
	pthread_mutex_unlock(&b->lock);
}

/* Becomes the one who runs @g, or not. Batch lock held. */
static bool group_start(struct group *g)
{
	if (g->started)
		return false;
	g->started = true;
	return true;
}

/* One request done apart; its segment and its buffer have its number. */
static void run_apart(struct group *g, unsigned int i)
{
	struct pl_op *op = &g->ops[i], one = *op;
	ssize_t n = -ECANCELED;
	bool cancelled;

	pthread_mutex_lock(&g->job.lock);
	cancelled = g->job.cancelled;
	g->nr_begun = i + 1;
	pthread_mutex_unlock(&g->job.lock);
	one.done = NULL;
	if (!cancelled)
		n = pl_io_write_direct(g->batch->ctx, &one, &g->segs[i], 1);
	pthread_mutex_lock(&g->job.lock);
	g->job.moved_ns = pl_now_ns();
	op->stop = n > 0 ? (size_t)n : 0;
	op->err = n < 0 ? (int)n : one.err;
	op->cuda = one.cuda;
	op->p2p = one.p2p;
	requests_done(&g->job, op);
	pthread_mutex_unlock(&g->job.lock);
}

static void group_run(struct group *g)
{
	struct peerlane *ctx = g->batch->ctx;

	for (unsigned int i = 0; g->apart && i < g->nr; i++)
		run_apart(g, i);
	if (g->apart)
		return;
	pl_io_direct_lock(ctx, g->direct_locks);
	pl_job_run(&g->job);
	pl_io_direct_unlock(ctx, g->direct_locks);
}

/* In a worker. */
static void group_task(struct pl_task *task)
{
	struct group *g = (struct group *)task;
	struct peerlane_batch *b = g->batch;
	bool mine;

	pthread_mutex_lock(&b->lock);
	mine = group_start(g);
	pthread_mutex_unlock(&b->lock);
	if (mine)
		group_run(g);
	pthread_mutex_lock(&b->lock);
	group_put(b, g);
	pthread_mutex_unlock(&b->lock);
}

/* --- submission --- */

static struct group *group_alloc(struct peerlane_batch *b, unsigned int nr)
{
	struct group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->batch = b;
	g->ops = calloc(nr, sizeof(g->ops[0]));
	g->segs = calloc(nr, sizeof(g->segs[0]));
	g->bufs = calloc(nr, sizeof(g->bufs[0]));
	if (g->ops && g->segs && g->bufs)
		return g;
	free(g->ops);
	free(g->segs);
	free(g->bufs);
	free(g);
	return NULL;
}

/* Undoes the references of a group that was never submitted, and frees it. */
static void group_undo(struct group *g)
{
	for (unsigned int i = 0; i < g->nr; i++) {
		pl_buffer_put(g->bufs[i]);
		pl_file_put(g->ops[i].file);
	}
	free(g->ops);
	free(g->segs);
	free(g->bufs);
	free(g);
}

/* Adds request @io, which is number @i of the submission made at @now. */
static int group_add(struct group *g, const struct peerlane_io *io, unsigned int i, uint64_t now)
{
	struct peerlane *ctx = g->batch->ctx;
	struct pl_op *op = &g->ops[g->nr];
	struct peerlane_error_info info = { .size = sizeof(info) };
	int err;

	if (!io->file || !io->addr || io->op > PEERLANE_WRITE || (io->flags & ~PEERLANE_DURABLE))
		return pl_fail(-EINVAL, "request %u: %s", i,
			       !io->file		 ? "the file is NULL"
			       : !io->addr		 ? "the memory address is NULL"
			       : io->op > PEERLANE_WRITE ? "unknown operation"
							 : "unknown flags");
	if (io->file->ctx != ctx)
		return pl_fail(-EINVAL, "request %u: the file is of another context", i);
	err = pl_io_check(io->file, io->op, io->bytes, io->offset);
	if (err)
		goto err_say;
	*op = (struct pl_op){ .file = io->file,
			      .asked = io->bytes,
			      .bytes = io->bytes,
			      .flags = io->flags,
			      .cookie = io->cookie,
			      .done = requests_done,
			      .arg = g,
			      .start_ns = now };
	err = pl_io_segment(ctx, &g->segs[g->nr], io->op, op, io->addr, io->bytes, io->offset,
			    &g->bufs[g->nr]);
	if (err) {
		pl_file_put(io->file);
		goto err_say;
	}
	/* Small copies may go by a kernel, to which freed memory is fatal: look once a buffer. */
	if (g->bufs[g->nr] && g->bufs[g->nr] != g->checked) {
		err = pl_buffer_recheck(ctx, g->bufs[g->nr]);
		if (err) {
			pl_buffer_put(g->bufs[g->nr]);
			pl_file_put(io->file);
			goto err_say;
		}
		g->checked = g->bufs[g->nr];
	}
	if (io->op == PEERLANE_READ &&
	    (io->bytes > 64 * 1024 || io->file->want_direct || g->segs[g->nr].p2p)) {
		if (g->sized != io->file)
			g->size = pl_file_size(io->file);
		g->sized = io->file;
		op->bytes = g->segs[g->nr].bytes = pl_io_cut(g->size, io->bytes, io->offset);
	}
	if (io->op == PEERLANE_WRITE)
		g->direct_locks |= pl_io_direct_lock_of(io->file);
	g->nr++;
	return 0;

err_say:
	peerlane_error(&info);
	return pl_fail_gpu(err, info.cuda, "request %u: %s", i, info.text);
}

/* The group for @io, made when it is the first there. */
static struct group *group_for(struct peerlane_batch *b, const struct peerlane_io *io,
			       unsigned int nr, struct group *groups[NR_GROUPS])
{
	struct group **g = &groups[io->op == PEERLANE_WRITE ? WRITES : READS];

	/* A handle that cannot be looked into is refused in any group. */
	if (io->op == PEERLANE_WRITE && io->file && io->file->ctx == b->ctx &&
	    pl_io_odd_write(io->file, io->bytes, io->offset))
		g = &groups[APART];
	if (!*g)
		*g = group_alloc(b, nr);
	if (*g)
		(*g)->apart = g == &groups[APART];
	return *g;
}

/* Requests in groups; none when one is malformed. */
static int sort_requests(struct peerlane_batch *b, const struct peerlane_io *io, unsigned int nr,
			 struct group *groups[NR_GROUPS])
{
	uint64_t now = pl_now_ns();
	struct group *g;
	int err = 0, d = 0;

	for (unsigned int i = 0; i < nr && !err; i++) {
		g = group_for(b, &io[i], nr, groups);
		err = g ? group_add(g, &io[i], i, now)
			: pl_fail(-ENOMEM, "no memory for the requests");
	}
	for (; d < NR_GROUPS && !err; d++) {
		g = groups[d];
		if (g)
			err = pl_job_init(&g->job, b->ctx,
					  d == READS ? PEERLANE_READ : PEERLANE_WRITE, g->ops,
					  g->nr, g->segs, g->apart ? 0 : g->nr);
	}
	if (!err)
		return 0;
	/* The last of those begun is the one that failed. */
	while (--d > 0)
		if (groups[d - 1])
			pl_job_fini(&groups[d - 1]->job);
	for (d = 0; d < NR_GROUPS; d++)
		if (groups[d])
			group_undo(groups[d]);
	return err;
}

/* Requests of no bytes are done before the job starts. */
static void finish_empty(struct group *g)
{
	pthread_mutex_lock(&g->job.lock);
	for (unsigned int i = 0; i < g->nr && !g->apart; i++)
		if (!g->ops[i].units_left)
			requests_done(&g->job, &g->ops[i]);
	pthread_mutex_unlock(&g->job.lock);
}

static void launch(struct peerlane_batch *b, struct group *g)
{
	pl_stat_add(&pl_ctx_stats(b->ctx)->in_flight, g->nr);
	pthread_mutex_lock(&b->lock);
	g->users = 2; /* the task, and us */
	g->next = b->groups;
	b->groups = g;
	pthread_mutex_unlock(&b->lock);
	finish_empty(g);
	g->task.run = group_task;
	if (pl_task_post(&b->ctx->workers, &g->task))
		group_task(&g->task);
	pthread_mutex_lock(&b->lock);
	group_put(b, g);
	pthread_mutex_unlock(&b->lock);
}

int peerlane_batch_submit(struct peerlane_batch *b, const struct peerlane_io *io, unsigned int nr)
{
	PL_KEEP_ERRNO;
	struct group *groups[NR_GROUPS] = { NULL };
	bool room;
	int err;

	if (!b || (nr && !io))
		return pl_fail(-EINVAL, "the %s is NULL", b ? "request array" : "batch");
	err = pl_context_check(b->ctx);
	if (err || !nr)
		return err;
	pthread_mutex_lock(&b->lock);
	room = nr <= b->capacity - b->in_flight - b->nr_events;
	if (room)
		b->in_flight += nr;
	pthread_mutex_unlock(&b->lock);
	if (!room)
		return pl_fail(nr > b->capacity ? -EINVAL : -EAGAIN,
			       "%u requests do not fit: the batch holds %u", nr, b->capacity);
	err = sort_requests(b, io, nr, groups);
	if (err) {
		pthread_mutex_lock(&b->lock);
		b->in_flight -= nr;
		pthread_mutex_unlock(&b->lock);
		return err;
	}
	for (int d = 0; d < NR_GROUPS; d++)
		if (groups[d])
			launch(b, groups[d]);
	return 0;
}

/* --- waiting, cancelling, destroying --- */

/* Takes events as far as there are any, behind the @n that are there. */
static unsigned int collect(struct peerlane_batch *b, struct peerlane_event *events, size_t *p2p,
			    unsigned int n, unsigned int max)
{
	while (n < max && b->nr_events) {
		if (p2p)
			p2p[n] = b->p2p[b->head];
		events[n++] = b->events[b->head];
		b->head = (b->head + 1) % b->capacity;
		b->nr_events--;
	}
	return n;
}

/* Runs a group nobody has started, in this thread. Batch lock held, dropped meanwhile. */
static bool run_one(struct peerlane_batch *b)
{
	struct group *g;

	for (g = b->groups; g; g = g->next)
		if (group_start(g))
			break;
	if (!g)
		return false;
	g->users++;
	pthread_mutex_unlock(&b->lock);
	group_run(g);
	pthread_mutex_lock(&b->lock);
	group_put(b, g);
	return true;
}

/* Helps with a group somebody else runs, if that wants help. The same about the lock. */
static bool help_one(struct peerlane_batch *b)
{
	struct group *g;

	for (g = b->groups; g; g = g->next)
		if (g->started && !g->apart && pl_crew_enter(b->ctx, &g->job.crew))
			break;
	if (!g)
		return false;
	g->users++;
	pthread_mutex_unlock(&b->lock);
	pl_crew_help(b->ctx, &g->job.crew);
	pthread_mutex_lock(&b->lock);
	group_put(b, g);
	return true;
}

/*
 * Looks for events, or for help being wanted, until @end: to be woken takes as long as a small
 * batch. Only where the workers do so, too. Batch lock held, dropped meanwhile; false: time is up.
 */
static bool look(struct peerlane_batch *b, uint64_t *end)
{
	const struct pl_workers *w = &b->ctx->workers;
	uint32_t turns = b->turns, posts = __atomic_load_n(&w->posts, __ATOMIC_RELAXED);
	uint64_t now;

	if (!w->spin_ns)
		return false;
	now = pl_now_ns();
	*end = *end ? *end : now + w->spin_ns;
	if (now >= *end)
		return false;
	pthread_mutex_unlock(&b->lock);
	while (now < *end && __atomic_load_n(&b->turns, __ATOMIC_RELAXED) == turns &&
	       __atomic_load_n(&w->posts, __ATOMIC_RELAXED) == posts) {
		pl_cpu_relax();
		now = pl_now_ns();
	}
	pthread_mutex_lock(&b->lock);
	return true;
}

static struct timespec after(const struct timespec *timeout)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	/* Nobody waits longer than this, and the sum must not overflow. */
	t.tv_sec += timeout->tv_sec < MAX_WAIT_S ? timeout->tv_sec : MAX_WAIT_S;
	t.tv_nsec += timeout->tv_nsec;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	return t;
}

int peerlane_batch_wait(struct peerlane_batch *b, unsigned int min_nr,
			struct peerlane_event *events, unsigned int max_nr,
			const struct timespec *timeout)
{
	return pl_batch_wait(b, min_nr, events, NULL, max_nr, timeout);
}

int pl_batch_wait(struct peerlane_batch *b, unsigned int min_nr, struct peerlane_event *events,
		  size_t *p2p, unsigned int max_nr, const struct timespec *timeout)
{
	PL_KEEP_ERRNO;
	struct timespec until = { .tv_sec = 0 };
	uint64_t look_end = 0;
	unsigned int n = 0;
	int err;

	if (!b || (max_nr && !events) || min_nr > max_nr)
		return pl_fail(-EINVAL, !b		  ? "the batch is NULL"
					: min_nr > max_nr ? "min_nr is larger than max_nr"
							  : "the event array is NULL");
	if (timeout &&
	    (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000))
		return pl_fail(-EINVAL, "the time-out is not a valid time");
	err = pl_context_check(b->ctx);
	if (err)
		return err;
	if (timeout)
		until = after(timeout);
	pthread_mutex_lock(&b->lock);
	for (;;) {
		n = collect(b, events, p2p, n, max_nr);
		if (n >= min_nr || !b->in_flight)
			break;
		/* With a bound on the time the work is left to the workers. */
		if (!timeout) {
			if (!run_one(b) && !help_one(b) && !look(b, &look_end))
				pthread_cond_wait(&b->done, &b->lock);
		} else if (pthread_cond_timedwait(&b->done, &b->lock, &until) == ETIMEDOUT) {
			n = collect(b, events, p2p, n, max_nr);
			break;
		}
	}
	pthread_mutex_unlock(&b->lock);
	return (int)n;
}

static unsigned int group_cancel(struct group *g)
{
	unsigned int n;

	if (!g->apart)
		return pl_job_cancel(&g->job);
	pthread_mutex_lock(&g->job.lock);
	n = g->job.cancelled ? 0 : g->nr - g->nr_begun;
	g->job.cancelled = true;
	pthread_mutex_unlock(&g->job.lock);
	return n;
}

int peerlane_batch_cancel(struct peerlane_batch *b)
{
	PL_KEEP_ERRNO;
	struct group *g, *next;
	unsigned int n = 0;
	int err;

	if (!b)
		return pl_fail(-EINVAL, "the batch is NULL");
	err = pl_context_check(b->ctx);
	if (err)
		return err;
	pthread_mutex_lock(&b->lock);
	for (g = b->groups; g; g = g->next)
		g->users++;
	/* Nothing is taken out of the list while we hold a reference to its members; new ones
	 * come in at the front. */
	g = b->groups;
	while (g) {
		pthread_mutex_unlock(&b->lock);
		n += group_cancel(g);
		pthread_mutex_lock(&b->lock);
		next = g->next;
		group_put(b, g);
		g = next;
	}
	pthread_mutex_unlock(&b->lock);
	return (int)n;
}

void peerlane_batch_destroy(struct peerlane_batch *b)
{
	PL_KEEP_ERRNO;
	if (!b)
		return;
	if (!pl_context_check(b->ctx)) {
		peerlane_batch_cancel(b);
		pthread_mutex_lock(&b->lock);
		while (b->groups)
			if (!run_one(b))
				pthread_cond_wait(&b->done, &b->lock);
		pthread_mutex_unlock(&b->lock);
		pl_stat_sub(&pl_ctx_stats(b->ctx)->batches, 1);
		pthread_cond_destroy(&b->done);
		pthread_mutex_destroy(&b->lock);
	}
	free(b->events);
	free(b->p2p);
	free(b);
}
