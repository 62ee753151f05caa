// SPDX-License-Identifier: MIT
/* Convoys: lists of copies, one under way and at most one behind it. */
#include "convoy.h"

#include "context.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_RIDES 16u
/* One that the engine is at, and one it finds when that is over. */
#define LISTS 2u
/* How long before the end of the list that is under way the next one is given to the driver. */
#define LEAD_NS 30000u
/* What a rate is of; and how slowly a longer time is believed: others may have had the bus. */
#define MIB (1ull << 20)
#define DOUBT 16u

struct list {
	struct pl_ride *rides;
	uint32_t number;
	struct pl_mark *mark;
	bool set; /* the mark is; else the driver is being given the list */
	int err;
	size_t bytes;
	uint64_t began;
};

struct pl_convoy {
	struct pl_convoy *next;
	struct peerlane *ctx;
	void *owner;
	struct pl_queue *queue;
	pthread_mutex_t lock; /* guards all below */
	struct pl_ride *waiting, **waiting_end;
	unsigned int nr_waiting;
	struct list lists[LISTS];
	unsigned int first, nr; /* of those under way: index of the first, modulo; how many */
	uint32_t given,
		passed; /* numbers of the last list given to the driver, and of the last that is over */
	uint64_t mib_ns; /* what a MiB takes; 0: not known */
	bool dead;	 /* the queue failed, or does not get on: its GPU context may be gone */
};

void pl_convoys_init(struct pl_convoys *convoys)
{
	pthread_mutex_init(&convoys->lock, NULL);
	convoys->list = NULL;
}

static void destroy(struct pl_convoy *c, bool forked)
{
	const struct pl_gpu_ops *ops = c->ctx->gpu->ops;

	for (unsigned int i = 0; i < LISTS && !forked; i++)
		if (c->lists[i].mark)
			ops->mark_destroy(c->ctx->gpu, c->lists[i].mark);
	if (c->queue && !forked)
		ops->queue_destroy(c->ctx->gpu, c->queue);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void pl_convoys_fini(struct peerlane *ctx, bool forked)
{
	struct pl_convoy *c;

	while ((c = ctx->convoys.list)) {
		ctx->convoys.list = c->next;
		destroy(c, forked);
	}
	pthread_mutex_destroy(&ctx->convoys.lock);
}

static struct pl_convoy *create(struct peerlane *ctx, void *owner)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	struct pl_convoy *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return NULL;
	c->ctx = ctx;
	c->owner = owner;
	c->waiting_end = &c->waiting;
	pl_lock_init(&c->lock);
	err = ops->queue_create(ctx->gpu, owner, &c->queue);
	for (unsigned int i = 0; i < LISTS && !err; i++)
		err = ops->mark_create(ctx->gpu, c->queue, &c->lists[i].mark);
	if (err) {
		destroy(c, false);
		return NULL;
	}
	return c;
}

static struct pl_convoy *find(const struct pl_convoys *convoys, const void *owner)
{
	struct pl_convoy *c = convoys->list;

	while (c && c->owner != owner)
		c = c->next;
	return c;
}

struct pl_convoy *pl_convoy_get(struct peerlane *ctx, void *owner)
{
	struct pl_convoys *convoys = &ctx->convoys;
	struct pl_convoy *c, *made = NULL;

	pthread_mutex_lock(&convoys->lock);
	c = find(convoys, owner);
	if (!c) {
		/* The driver may take its time, and others have theirs. */
		pthread_mutex_unlock(&convoys->lock);
		made = create(ctx, owner);
		pthread_mutex_lock(&convoys->lock);
		c = find(convoys, owner);
	}
	if (!c && made) {
		made->next = convoys->list;
		convoys->list = c = made;
		made = NULL;
	}
	pthread_mutex_unlock(&convoys->lock);
	if (made)
		destroy(made, false);
	return c && !__atomic_load_n(&c->dead, __ATOMIC_RELAXED) ? c : NULL;
}

/* ------------------------------------------------------------------ lock held from here on */

static void end_ride(struct pl_ride *ride, int err)
{
	ride->err = err;
	/* It is the caller's from now on. */
	__atomic_store_n(&ride->state, (uint8_t)PL_RIDE_OVER, __ATOMIC_RELEASE);
}

static void end_rides(struct pl_ride *ride, int err)
{
	struct pl_ride *next;

	for (; ride; ride = next) {
		next = ride->next;
		end_ride(ride, err);
	}
}

/* What a MiB took. */
static void learn(struct pl_convoy *c, const struct list *l, uint64_t now)
{
	uint64_t ns = (now - l->began) * MIB / l->bytes;

	if (!c->mib_ns || ns < c->mib_ns)
		c->mib_ns = ns;
	else
		c->mib_ns += (ns - c->mib_ns) / DOUBT;
}

/* Nobody goes with it any more. */
static void give_up(struct pl_convoy *c, int err)
{
	__atomic_store_n(&c->dead, true, __ATOMIC_RELAXED);
	end_rides(c->waiting, err);
	c->waiting = NULL;
	c->waiting_end = &c->waiting;
	c->nr_waiting = 0;
}

/* The first list is over. */
static void end_list(struct pl_convoy *c, int done)
{
	struct list *l = &c->lists[c->first];
	struct pl_ride *rides = l->rides;
	uint64_t now = pl_now_ns();

	if (done > 0 && !l->err)
		learn(c, l, now);
	l->rides = NULL;
	c->passed = l->number;
	c->first = (c->first + 1) % LISTS;
	c->nr--;
	/* The next one begins now, unless it was late. */
	if (c->nr && c->lists[c->first].began < now)
		c->lists[c->first].began = now;
	end_rides(rides, done < 0 ? done : l->err);
	if (done >= 0)
		return;
	give_up(c, done);
}

/* Whether those who wait should go now. */
static bool due(const struct pl_convoy *c)
{
	const struct list *l = &c->lists[c->first];

	if (!c->waiting || c->nr == LISTS || (c->nr && !l->set))
		return false;
	return !c->nr || c->nr_waiting >= MAX_RIDES ||
	       pl_now_ns() + LEAD_NS >= l->began + c->mib_ns * l->bytes / MIB;
}

/* Gives those who wait to the driver; the lock is dropped meanwhile. */
static void go(struct pl_convoy *c)
{
	const struct pl_gpu_ops *ops = c->ctx->gpu->ops;
	struct list *l = &c->lists[(c->first + c->nr) % LISTS];
	struct pl_copy copies[MAX_RIDES];
	struct pl_ride **at = &c->waiting;
	unsigned int nr = 0;
	uint64_t now;
	int err;

	l->rides = c->waiting;
	l->number = ++c->given;
	l->bytes = 0;
	l->began = 0;
	l->set = false;
	for (; *at && nr < MAX_RIDES; at = &(*at)->next) {
		copies[nr++] = (*at)->copy;
		l->bytes += (*at)->copy.bytes;
		(*at)->number = l->number;
		__atomic_store_n(&(*at)->state, (uint8_t)PL_RIDE_GOES, __ATOMIC_RELAXED);
	}
	c->waiting = *at;
	*at = NULL;
	if (!c->waiting)
		c->waiting_end = &c->waiting;
	c->nr_waiting -= nr;
	c->nr++;
	pthread_mutex_unlock(&c->lock);
	err = ops->copy(c->ctx->gpu, c->queue, PL_TO_GPU, copies, nr, l->mark);
	now = pl_now_ns();
	pthread_mutex_lock(&c->lock);
	l->err = err;
	if (l->began < now)
		l->began = now;
	l->set = true;
}

/* Goes on with all that can. */
static void advance(struct pl_convoy *c)
{
	struct list *l = &c->lists[c->first];
	int done;

	while (c->nr && l->set && (done = c->ctx->gpu->ops->mark_done(c->ctx->gpu, l->mark))) {
		end_list(c, done);
		l = &c->lists[c->first];
	}
	if (due(c))
		go(c);
}

/* ------------------------------------------------------------------ from outside */

void pl_convoy_join(struct pl_convoy *c, struct pl_ride *ride)
{
	ride->next = NULL;
	ride->err = 0;
	ride->state = PL_RIDE_WAITS;
	pthread_mutex_lock(&c->lock);
	if (c->dead) {
		end_ride(ride, -EREMOTEIO);
	} else {
		*c->waiting_end = ride;
		c->waiting_end = &ride->next;
		c->nr_waiting++;
		advance(c);
	}
	pthread_mutex_unlock(&c->lock);
}

bool pl_convoy_over(struct pl_convoy *c, struct pl_ride *ride)
{
	if (__atomic_load_n(&ride->state, __ATOMIC_ACQUIRE) == PL_RIDE_OVER)
		return true;
	/* One at a time is enough. */
	if (pthread_mutex_trylock(&c->lock))
		return false;
	advance(c);
	pthread_mutex_unlock(&c->lock);
	return __atomic_load_n(&ride->state, __ATOMIC_ACQUIRE) == PL_RIDE_OVER;
}

static void unlink_ride(struct pl_ride **at, struct pl_ride *ride)
{
	while (*at && *at != ride)
		at = &(*at)->next;
	if (*at)
		*at = ride->next;
}

bool pl_convoy_leave(struct pl_convoy *c, struct pl_ride *ride)
{
	bool goes;

	pthread_mutex_lock(&c->lock);
	goes = ride->state == PL_RIDE_GOES;
	if (ride->state == PL_RIDE_WAITS) {
		unlink_ride(&c->waiting, ride);
		c->nr_waiting--;
		for (c->waiting_end = &c->waiting; *c->waiting_end;
		     c->waiting_end = &(*c->waiting_end)->next)
			;
	}
	for (unsigned int i = 0; goes && i < LISTS; i++)
		unlink_ride(&c->lists[i].rides, ride);
	/* Those who have not begun need not wait as long, and can go another way. */
	if (goes)
		give_up(c, -ECANCELED);
	pthread_mutex_unlock(&c->lock);
	return goes;
}

bool pl_convoy_passed(struct pl_convoy *c, uint32_t number)
{
	bool passed;

	pthread_mutex_lock(&c->lock);
	advance(c);
	passed = (int32_t)(c->passed - number) >= 0;
	pthread_mutex_unlock(&c->lock);
	return passed;
}
