// SPDX-License-Identifier: MIT
/* The pool of lanes. */
#include "pool.h"

#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024ul * 1024)
#define BIG_BYTES (32 * MIB)
#define SMALL_BYTES (1 * MIB)

int pl_pool_init(struct pl_pool *pool, size_t pool_bytes, size_t slot_bytes)
{
	pthread_condattr_t attr;
	size_t big, small;

	memset(pool, 0, sizeof(*pool));
	/* Half of the pool in small lanes, for many small requests and for what is read ahead, the rest in big ones. */
	small = pool_bytes / 2 / 32;
	small = pl_power_of_two_below(small < 128 * 1024 ? 128 * 1024 : small);
	pool->lane_bytes[0] = small < SMALL_BYTES ? small : SMALL_BYTES;
	pool->max[0] = (unsigned int)(pool_bytes / 2 / pool->lane_bytes[0]);
	big = pl_power_of_two_below(pool_bytes / 2);
	big = big < BIG_BYTES ? big : BIG_BYTES;
	pool->lane_bytes[1] = big;
	pool->max[1] = (unsigned int)((pool_bytes - pool->max[0] * pool->lane_bytes[0]) / big);
	if (slot_bytes > big)
		return -EINVAL;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pl_lock_init(&pool->lock);
	pthread_cond_init(&pool->freed, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

/* The list a lane that nobody uses is in. */
static struct pl_lane **list_of(struct pl_pool *pool, const struct pl_lane *lane)
{
	return lane->lost ? &pool->lost : lane->reserved ? &pool->reserved : &pool->idle[lane->big];
}

static void put_in_list(struct pl_pool *pool, struct pl_lane *lane)
{
	struct pl_lane **list = list_of(pool, lane);

	lane->next = *list;
	*list = lane;
}

/* Takes lanes that have recovered back into use; pool lock held, but not while the driver is asked:
 * it may take its time, and requests of streams need the lock meanwhile. */
static void reclaim(struct peerlane *ctx)
{
	struct pl_pool *pool = &ctx->pool;
	struct pl_lane *list = pool->lost, *lane;

	pool->lost = NULL;
	pthread_mutex_unlock(&pool->lock);
	for (lane = list; lane; lane = lane->next) {
		lane->lost = !pl_lane_recovered(ctx, lane);
		if (!lane->lost) {
			lane->serve = NULL;
			lane->convoy = NULL;
		}
	}
	pthread_mutex_lock(&pool->lock);
	while ((lane = list)) {
		list = lane->next;
		put_in_list(pool, lane);
	}
}

void pl_pool_reclaim(struct peerlane *ctx)
{
	pthread_mutex_lock(&ctx->pool.lock);
	if (ctx->pool.lost)
		reclaim(ctx);
	pthread_mutex_unlock(&ctx->pool.lock);
}

void pl_pool_fini(struct peerlane *ctx)
{
	struct pl_pool *pool = &ctx->pool;

	pl_pool_reclaim(ctx);
	if (pool->reserved)
		pl_lane_free(ctx, pool->reserved);
	for (int big = 0; big < 2; big++) {
		while (pool->idle[big]) {
			struct pl_lane *lane = pool->idle[big];

			pool->idle[big] = lane->next;
			pl_lane_free(ctx, lane);
		}
	}
	/* Memory a device may still write to is never given back. The list only keeps it in sight
	 * of leak checkers. */
	while (pool->lost) {
		static struct pl_lane *left;
		struct pl_lane *lane = pool->lost;

		pool->lost = lane->next;
		lane->next = __atomic_exchange_n(&left, lane, __ATOMIC_ACQ_REL);
	}
	pthread_cond_destroy(&pool->freed);
	pthread_mutex_destroy(&pool->lock);
}

void pl_pool_abandon(struct pl_pool *pool)
{
	if (pool->reserved)
		pl_lane_abandon(pool->reserved);
	for (int big = 0; big < 2; big++) {
		while (pool->idle[big]) {
			struct pl_lane *lane = pool->idle[big];

			pool->idle[big] = lane->next;
			pl_lane_abandon(lane);
		}
	}
}

/* Takes an idle lane or the right to make one. Returns false when neither is there. */
static bool take(struct pl_pool *pool, bool big, struct pl_lane **lane)
{
	*lane = pool->idle[big];
	if (*lane) {
		pool->idle[big] = (*lane)->next;
		return true;
	}
	if (pool->nr[big] < pool->max[big]) {
		pool->nr[big]++;
		return true;
	}
	return false;
}

/* A lane of either size that fits, idle or yet to be made; pool lock held. */
static bool take_any(struct pl_pool *pool, bool big, size_t least, bool *is_big,
		     struct pl_lane **lane)
{
	*is_big = big || least > pool->lane_bytes[0];
	if (take(pool, *is_big, lane))
		return true;
	*is_big = !*is_big;
	return least <= pool->lane_bytes[*is_big] && take(pool, *is_big, lane);
}

static struct timespec deadline(const struct peerlane *ctx)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ctx->opt.timeout_ms / 1000;
	t.tv_nsec += ctx->opt.timeout_ms % 1000 * 1000000l;
	if (t.tv_nsec >= 1000000000l) {
		t.tv_nsec -= 1000000000l;
		t.tv_sec++;
	}
	return t;
}

/* Waits until a lane comes back; lock held. @until: all zero the first time. */
static int wait_freed(struct peerlane *ctx, struct timespec *until)
{
	if (!until->tv_sec) {
		pl_stat_add(&pl_ctx_stats(ctx)->pool_waits, 1);
		*until = deadline(ctx);
	}
	return pthread_cond_timedwait(&ctx->pool.freed, &ctx->pool.lock, until);
}

/* Waits for a lane, or for the right to make one (*@lane is NULL then). */
static int wait_for_lane(struct peerlane *ctx, bool big, size_t least, bool *is_big,
			 struct pl_lane **lane)
{
	struct pl_pool *pool = &ctx->pool;
	struct timespec until = { .tv_sec = 0 };
	int err = 0;

	pthread_mutex_lock(&pool->lock);
	while (!take_any(pool, big, least, is_big, lane)) {
		if (pool->lost) {
			reclaim(ctx);
			if (take_any(pool, big, least, is_big, lane))
				break;
		}
		if (err) {
			pthread_mutex_unlock(&pool->lock);
			return pl_fail(-ETIMEDOUT, "no staging memory came free in time");
		}
		err = wait_freed(ctx, &until);
	}
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

int pl_lane_acquire(struct peerlane *ctx, size_t bytes, size_t least, struct pl_lane **out)
{
	struct pl_pool *pool = &ctx->pool;
	struct pl_lane *lane;
	bool is_big;
	int err = wait_for_lane(ctx, bytes > pool->lane_bytes[0], least, &is_big, &lane);

	if (err)
		return err;
	if (!lane)
		lane = pl_lane_create(ctx, is_big);
	if (!lane) {
		pthread_mutex_lock(&pool->lock);
		pool->nr[is_big]--;
		pthread_cond_broadcast(&pool->freed);
		pthread_mutex_unlock(&pool->lock);
		return pl_fail(-ENOMEM, "no memory for staging");
	}
	*out = lane;
	return 0;
}

/* An idle lane of pinned memory out of @list. */
static struct pl_lane *take_pinned(struct pl_lane **list, size_t least)
{
	for (struct pl_lane **p = list; *p; p = &(*p)->next) {
		struct pl_lane *lane = *p;

		if (lane->pinned && lane->bytes >= least) {
			*p = lane->next;
			return lane;
		}
	}
	return NULL;
}

static struct pl_lane *take_made(struct pl_pool *pool, bool big, size_t least)
{
	struct pl_lane *lane = take_pinned(&pool->idle[big], least);

	if (!lane)
		lane = take_pinned(&pool->idle[!big], least);
	return lane ? lane : take_pinned(&pool->reserved, least);
}

int pl_lane_acquire_made(struct peerlane *ctx, size_t bytes, size_t least, struct pl_lane **out)
{
	struct pl_pool *pool = &ctx->pool;
	bool big = bytes > pool->lane_bytes[0];
	struct timespec until = { .tv_sec = 0 };
	int err = 0;

	pthread_mutex_lock(&pool->lock);
	while (!(*out = take_made(pool, big, least)) && !err) {
		err = wait_freed(ctx, &until);
	}
	pthread_mutex_unlock(&pool->lock);
	return *out ? 0 : pl_fail(-ETIMEDOUT, "no staging memory came free in time");
}

/* Makes a lane that only requests of streams take. */
static int reserve_one(struct peerlane *ctx)
{
	struct pl_lane *lane = NULL;
	int err = pl_lane_acquire(ctx, 1, 1, &lane);

	if (err || !lane)
		return err;
	lane->reserved = lane->pinned;
	ctx->pool.has_reserved = lane->pinned;
	if (!lane->pinned)
		err = -ENOMEM;
	pl_lane_release(ctx, lane);
	return err;
}

/* Makes lanes until there are @nr of a size, as far as there is memory. */
static void make_lanes(struct peerlane *ctx, bool big, unsigned int nr)
{
	struct pl_pool *pool = &ctx->pool;
	struct pl_lane *lane;
	bool wanted;

	for (;;) {
		pthread_mutex_lock(&pool->lock);
		wanted = pool->nr[big] < nr && pool->nr[big] < pool->max[big];
		pool->nr[big] += wanted;
		pthread_mutex_unlock(&pool->lock);
		if (!wanted)
			return;
		lane = pl_lane_create(ctx, big);
		if (lane) {
			pl_lane_release(ctx, lane);
			continue;
		}
		pthread_mutex_lock(&pool->lock);
		pool->nr[big]--;
		pthread_mutex_unlock(&pool->lock);
		return;
	}
}

/* Lanes that may be taken for work nobody waits for. */
static unsigned int spare_lanes(const struct pl_pool *pool)
{
	return pool->max[0] - pool->max[0] / 4;
}

int pl_pool_reserve(struct peerlane *ctx, size_t bytes)
{
	struct pl_pool *pool = &ctx->pool;
	/* Small ones for as many requests as are served at a time, the one that is reserved, and for
	 * those that are read ahead. */
	unsigned int small = PL_STREAM_THREADS + 1 + spare_lanes(pool);
	int err = pool->has_reserved ? 0 : reserve_one(ctx);

	if (err)
		return err;
	pl_pool_reclaim(ctx);
	make_lanes(ctx, false, small < pool->max[0] ? small : pool->max[0]);
	if (bytes > pool->lane_bytes[0])
		make_lanes(ctx, true, 1);
	return 0;
}

void pl_lane_release(struct peerlane *ctx, struct pl_lane *lane)
{
	struct pl_pool *pool = &ctx->pool;

	if (!lane)
		return;
	pthread_mutex_lock(&pool->lock);
	put_in_list(pool, lane);
	/* All: not every waiter can use every lane. */
	pthread_cond_broadcast(&pool->freed);
	pthread_mutex_unlock(&pool->lock);
}

struct pl_lane *pl_lane_spare(struct peerlane *ctx, bool made)
{
	struct pl_pool *pool = &ctx->pool;
	struct pl_lane *lane = NULL;
	bool got;

	pthread_mutex_lock(&pool->lock);
	if (pool->spared >= spare_lanes(pool))
		got = false;
	else if (made)
		got = (lane = take_pinned(&pool->idle[0], 1));
	else
		got = take(pool, false, &lane);
	pool->spared += got;
	pthread_mutex_unlock(&pool->lock);
	if (!got || lane)
		return lane;
	lane = pl_lane_create(ctx, false);
	if (!lane) {
		pthread_mutex_lock(&pool->lock);
		pool->nr[0]--;
		pool->spared--;
		pthread_mutex_unlock(&pool->lock);
	}
	return lane;
}

void pl_lane_give_back(struct peerlane *ctx, struct pl_lane *lane)
{
	pthread_mutex_lock(&ctx->pool.lock);
	ctx->pool.spared--;
	pthread_mutex_unlock(&ctx->pool.lock);
	pl_lane_release(ctx, lane);
}
