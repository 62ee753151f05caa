// SPDX-License-Identifier: MIT
/* Warps of threads: lanes that wait for each other. */
#include <peerlane/device/warp_cpu.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LANES 32u

struct warp;

struct lane {
	struct warp *warp;
	pthread_t thread;
	uint32_t index;
	sem_t met;
	uint64_t inbox[MAX_LANES]; /* the lane's own when it has met the others */
};

/* Where some lanes meet; others may meet elsewhere meanwhile. A lane is in one meeting at a time. */
struct place {
	uint32_t lanes, here; /* none is here: free */
	uint64_t value[MAX_LANES];
};

struct warp {
	pthread_mutex_t lock; /* guards the places */
	unsigned int index;
	peerlane_cpu_fn fn;
	void *arg;
	struct gate *gate;
	struct place place[MAX_LANES];
	struct lane lane[MAX_LANES];
};

/* All threads wait until it is known that all of them could be made. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool open, give_up;
};

static __thread struct lane *self;

uint32_t peerlane_cpu_lane(void)
{
	return self ? self->index : 0;
}

/* The place where these lanes meet. There are no more meetings than lanes. */
static struct place *find(struct warp *w, uint32_t lanes)
{
	struct place *unused = NULL;

	for (uint32_t i = 0; i < MAX_LANES; i++) {
		struct place *p = &w->place[i];

		if (!p->here)
			unused = p;
		else if (p->lanes == lanes)
			return p;
	}
	unused->lanes = lanes;
	return unused;
}

/* The last one to come hands everybody the values, and wakes them when none of them would find the lock taken. */
static void hand_out(struct warp *w, struct place *p, uint32_t lanes)
{
	p->here = 0;
	for (uint32_t i = 0; i < MAX_LANES; i++)
		if (lanes >> i & 1)
			memcpy(w->lane[i].inbox, p->value, sizeof(p->value));
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < MAX_LANES; i++)
		if (lanes >> i & 1)
			sem_post(&w->lane[i].met);
}

void peerlane_cpu_meet(uint32_t lanes, uint64_t value, uint64_t *all)
{
	struct lane *me = self;
	struct warp *w;
	struct place *p;

	if (!me || lanes == 1u << me->index) {
		if (all)
			all[me ? me->index : 0] = value;
		return;
	}
	w = me->warp;
	pthread_mutex_lock(&w->lock);
	p = find(w, lanes);
	p->value[me->index] = value;
	p->here |= 1u << me->index;
	if (p->here == lanes)
		hand_out(w, p, lanes);
	else
		pthread_mutex_unlock(&w->lock);
	while (sem_wait(&me->met))
		;
	if (all)
		memcpy(all, me->inbox, sizeof(me->inbox));
}

static bool pass(struct gate *g)
{
	bool go;

	pthread_mutex_lock(&g->lock);
	while (!g->open)
		pthread_cond_wait(&g->moved, &g->lock);
	go = !g->give_up;
	pthread_mutex_unlock(&g->lock);
	return go;
}

static void open_gate(struct gate *g, bool give_up)
{
	pthread_mutex_lock(&g->lock);
	g->open = true;
	g->give_up = give_up;
	pthread_cond_broadcast(&g->moved);
	pthread_mutex_unlock(&g->lock);
}

static void *run_lane(void *arg)
{
	struct lane *me = arg;

	self = me;
	if (pass(me->warp->gate))
		me->warp->fn(me->warp->index, me->warp->arg);
	return NULL;
}

static void warp_init(struct warp *w, unsigned int index, peerlane_cpu_fn fn, void *arg,
		      struct gate *gate)
{
	pthread_mutex_init(&w->lock, NULL);
	for (uint32_t i = 0; i < MAX_LANES; i++)
		sem_init(&w->lane[i].met, 0, 0);
	w->index = index;
	w->fn = fn;
	w->arg = arg;
	w->gate = gate;
}

int peerlane_cpu_run(unsigned int nr_warps, unsigned int nr_lanes, peerlane_cpu_fn fn, void *arg)
{
	struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };
	struct warp *warps;
	unsigned int made = 0;
	const unsigned int nr = nr_warps * nr_lanes;
	int err = 0;

	if (!nr_warps || !nr_lanes || nr_lanes > MAX_LANES || nr_warps > 65536 || !fn)
		return -EINVAL;
	warps = calloc(nr_warps, sizeof(*warps));
	if (!warps)
		return -ENOMEM;
	for (unsigned int i = 0; i < nr_warps; i++)
		warp_init(&warps[i], i, fn, arg, &gate);
	for (; made < nr && !err; made++) {
		struct warp *w = &warps[made / nr_lanes];
		struct lane *lane = &w->lane[made % nr_lanes];

		lane->warp = w;
		lane->index = made % nr_lanes;
		err = -pthread_create(&lane->thread, NULL, run_lane, lane);
	}
	if (err)
		made--;
	open_gate(&gate, err != 0);
	for (unsigned int i = 0; i < made; i++)
		pthread_join(warps[i / nr_lanes].lane[i % nr_lanes].thread, NULL);
	for (unsigned int i = 0; i < nr_warps; i++) {
		for (uint32_t k = 0; k < MAX_LANES; k++)
			sem_destroy(&warps[i].lane[k].met);
		pthread_mutex_destroy(&warps[i].lock);
	}
	free(warps);
	return err;
}
