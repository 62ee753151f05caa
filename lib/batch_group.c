// SPDX-License-Identifier: MIT
/* Groups: the requests of a submission that go together, from their arguments to their events. */
#include "batch.h"

#include "io.h"

#include <errno.h>
#include <stdlib.h>

static void group_free(struct pl_group *g)
{
	pl_job_fini(&g->job);
	free(g->ops);
	free(g->segs);
	free(g->bufs);
	free(g);
}

void pl_group_put(struct peerlane_batch *b, struct pl_group *g)
{
	if (--g->users)
		return;
	for (struct pl_group **p = &b->groups; *p; p = &(*p)->next) {
		if (*p == g) {
			*p = g->next;
			break;
		}
	}
	group_free(g);
	pthread_cond_broadcast(&b->done);
}

/* What is counted of a request that has its outcome, and what it held is let go. */
static void request_close(struct pl_job *job, struct pl_group *g, struct pl_op *op)
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

/* Takes out of @list what O_DIRECT refused: pl_group_run() does it again. Returns the others. */
static struct pl_op *keep_refused(const struct pl_group *g, struct pl_op *list)
{
	struct pl_op **p = &list;

	while (*p) {
		struct pl_op *op = *p;

		op->again = !g->apart && !op->again && g->job.op == PEERLANE_WRITE &&
			    op->err == -EINVAL && op->stop < op->bytes &&
			    pl_io_writes_direct(op->file);
		if (op->again)
			*p = op->next;
		else
			p = &op->next;
	}
	return list;
}

/* @first and those listed after it have their outcome. Their group lives on until its job was
 * run, which is not before this returns. */
static void requests_done(struct pl_job *job, struct pl_op *first)
{
	struct pl_group *g = first->arg;
	struct peerlane_batch *b = g->batch;

	first = keep_refused(g, first);
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

bool pl_group_start(struct pl_group *g)
{
	if (g->started)
		return false;
	g->started = true;
	return true;
}

/* One request done apart; its segment and its buffer have its number. */
static void run_apart(struct pl_group *g, unsigned int i)
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
	op->next = NULL;
	requests_done(&g->job, op);
	pthread_mutex_unlock(&g->job.lock);
}

void pl_group_run(struct pl_group *g)
{
	if (!g->apart) {
		pl_io_direct_lock(g->direct_locks);
		pl_job_run(&g->job);
		pl_io_direct_unlock(g->direct_locks);
	}
	for (unsigned int i = 0; i < g->nr; i++)
		if (g->apart || g->ops[i].again)
			run_apart(g, i);
}

/* Run it, unless somebody has begun to. */
static void group_work(struct pl_group *g)
{
	struct peerlane_batch *b = g->batch;
	bool mine;

	pthread_mutex_lock(&b->lock);
	mine = pl_group_start(g);
	pthread_mutex_unlock(&b->lock);
	if (mine)
		pl_group_run(g);
}

/* In a worker. */
static void group_task(struct pl_task *task)
{
	struct pl_group *g = (struct pl_group *)task;
	struct peerlane_batch *b = g->batch;

	group_work(g);
	pthread_mutex_lock(&b->lock);
	pl_group_put(b, g);
	pthread_mutex_unlock(&b->lock);
}

static struct pl_group *group_alloc(struct peerlane_batch *b, unsigned int nr)
{
	struct pl_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->batch = b;
	/* Not cleared: whatever counts in @nr was set whole. */
	g->ops = malloc(nr * sizeof(g->ops[0]));
	g->segs = malloc(nr * sizeof(g->segs[0]));
	g->bufs = malloc(nr * sizeof(g->bufs[0]));
	if (g->ops && g->segs && g->bufs)
		return g;
	free(g->ops);
	free(g->segs);
	free(g->bufs);
	free(g);
	return NULL;
}

/* Undoes the references of a group that was never submitted, and frees it. */
static void group_undo(struct pl_group *g)
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

/* Says of what this thread failed with last that it was request @i; returns @err. */
static int say_which(unsigned int i, int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	return pl_fail_gpu(err, info.cuda, "request %u: %s", i, info.text);
}

/* Adds request @io, which is number @i of the submission made at @now. */
static int group_add(struct pl_group *g, const struct peerlane_io *io, unsigned int i, uint64_t now)
{
	struct peerlane *ctx = g->batch->ctx;
	struct pl_op *op = &g->ops[g->nr];
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
		return say_which(i, err);
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
	if (err)
		goto err_put_file;
	/* Small copies may go by a kernel, to which freed memory is fatal: look once a buffer. */
	if (g->bufs[g->nr] && g->bufs[g->nr] != g->checked) {
		err = pl_buffer_recheck(ctx, g->bufs[g->nr]);
		if (err)
			goto err_put_buffer;
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

err_put_buffer:
	pl_buffer_put(g->bufs[g->nr]);
err_put_file:
	pl_file_put(io->file);
	return say_which(i, err);
}

/* The group for @io, made when it is the first there. */
static struct pl_group *group_for(struct peerlane_batch *b, const struct peerlane_io *io,
				  unsigned int nr, struct pl_group *groups[PL_NR_GROUPS])
{
	struct pl_group **g = &groups[io->op == PEERLANE_WRITE ? PL_WRITES : PL_READS];

	/* A handle that cannot be looked into is refused in any group. */
	if (io->op == PEERLANE_WRITE && io->file && io->file->ctx == b->ctx &&
	    pl_io_odd_write(io->file, io->bytes, io->offset))
		g = &groups[PL_APART];
	if (!*g)
		*g = group_alloc(b, nr);
	if (*g)
		(*g)->apart = g == &groups[PL_APART];
	return *g;
}

int pl_groups_make(struct peerlane_batch *b, const struct peerlane_io *io, unsigned int nr,
		   struct pl_group *groups[PL_NR_GROUPS])
{
	uint64_t now = pl_now_ns();
	struct pl_group *g;
	int err = 0, d = 0;

	for (unsigned int i = 0; i < nr && !err; i++) {
		g = group_for(b, &io[i], nr, groups);
		err = g ? group_add(g, &io[i], i, now)
			: pl_fail(-ENOMEM, "no memory for the requests");
	}
	for (; d < PL_NR_GROUPS && !err; d++) {
		g = groups[d];
		if (g)
			err = pl_job_init(&g->job, b->ctx,
					  d == PL_READS ? PEERLANE_READ : PEERLANE_WRITE, g->ops,
					  g->nr, g->segs, g->apart ? 0 : g->nr);
	}
	if (!err)
		return 0;
	/* The last of those begun is the one that failed. */
	while (--d > 0)
		if (groups[d - 1])
			pl_job_fini(&groups[d - 1]->job);
	for (d = 0; d < PL_NR_GROUPS; d++)
		if (groups[d])
			group_undo(groups[d]);
	return err;
}

/* Requests of no bytes are done before the job starts. */
static void finish_empty(struct pl_group *g)
{
	pthread_mutex_lock(&g->job.lock);
	for (unsigned int i = 0; i < g->nr && !g->apart; i++)
		if (!g->ops[i].units_left)
			requests_done(&g->job, &g->ops[i]);
	pthread_mutex_unlock(&g->job.lock);
}

void pl_group_launch(struct peerlane_batch *b, struct pl_group *g)
{
	pl_stat_add(&pl_ctx_stats(b->ctx)->in_flight, g->nr);
	pthread_mutex_lock(&b->lock);
	g->users = 2; /* the task, and us */
	g->next = b->groups;
	b->groups = g;
	pthread_mutex_unlock(&b->lock);
	finish_empty(g);
	g->task.run = group_task;
	if (pl_task_post(&b->ctx->workers, &g->task)) {
		group_work(g);
		pthread_mutex_lock(&b->lock);
		g->users--; /* the task, which will not be */
	} else {
		pthread_mutex_lock(&b->lock);
	}
	pl_group_put(b, g);
	pthread_mutex_unlock(&b->lock);
}

unsigned int pl_group_cancel(struct pl_group *g)
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
