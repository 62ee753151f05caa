// SPDX-License-Identifier: MIT
/*
 * Batches. The requests of one submission that go in one direction become one job. Whoever comes
 * first runs it: a worker, or the thread that waits for the events, which else helps. Writes to a file opened with
 * O_DIRECT that share pages with others are not for a job; they are done apart, one by one.
 */
#include "batch.h"

#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CAPACITY 65536u
#define MAX_WAIT_S 1000000000l

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

int peerlane_batch_submit(struct peerlane_batch *b, const struct peerlane_io *io, unsigned int nr)
{
	PL_KEEP_ERRNO;
	struct pl_group *groups[PL_NR_GROUPS] = { NULL };
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
	err = pl_groups_make(b, io, nr, groups);
	if (err) {
		pthread_mutex_lock(&b->lock);
		b->in_flight -= nr;
		pthread_mutex_unlock(&b->lock);
		return err;
	}
	for (int d = 0; d < PL_NR_GROUPS; d++)
		if (groups[d])
			pl_group_launch(b, groups[d]);
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
	struct pl_group *g;

	for (g = b->groups; g; g = g->next)
		if (pl_group_start(g))
			break;
	if (!g)
		return false;
	g->users++;
	pthread_mutex_unlock(&b->lock);
	pl_group_run(g);
	pthread_mutex_lock(&b->lock);
	pl_group_put(b, g);
	return true;
}

/* Helps with a group somebody else runs, if that wants help. The same about the lock. */
static bool help_one(struct peerlane_batch *b)
{
	struct pl_group *g;

	for (g = b->groups; g; g = g->next)
		if (g->started && !g->apart && pl_crew_enter(b->ctx, &g->job.crew))
			break;
	if (!g)
		return false;
	g->users++;
	pthread_mutex_unlock(&b->lock);
	pl_crew_help(b->ctx, &g->job.crew);
	pthread_mutex_lock(&b->lock);
	pl_group_put(b, g);
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

int peerlane_batch_cancel(struct peerlane_batch *b)
{
	PL_KEEP_ERRNO;
	struct pl_group *g, *next;
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
		n += pl_group_cancel(g);
		pthread_mutex_lock(&b->lock);
		next = g->next;
		pl_group_put(b, g);
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
