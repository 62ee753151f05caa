/* SPDX-License-Identifier: MIT */
/*
 * What the simulated GPU allocates, in lists by kind, so that a handle can be checked and a
 * forked child can free what its parent's threads were using.
 */
#include "gpu_sim.h"
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards lists */
static struct pl_sim_object *lists[PL_SIM_NR_KINDS];

void pl_sim_object_lock(void)
{
	pthread_mutex_lock(&lock);
}

void pl_sim_object_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void *pl_sim_object_create(enum pl_sim_kind kind, const void *owner, size_t bytes)
{
	struct pl_sim_object *o = calloc(1, bytes);

	if (!o)
		return NULL;
	o->owner = owner;
	pthread_mutex_lock(&lock);
	o->next = lists[kind];
	o->link = &lists[kind];
	if (o->next)
		o->next->link = &o->next;
	lists[kind] = o;
	pthread_mutex_unlock(&lock);
	return o;
}

static void unlink_locked(struct pl_sim_object *o)
{
	*o->link = o->next;
	if (o->next)
		o->next->link = o->link;
}

void pl_sim_object_destroy(void *object)
{
	if (!object)
		return;
	pthread_mutex_lock(&lock);
	unlink_locked(object);
	pthread_mutex_unlock(&lock);
	free(object);
}

bool pl_sim_object_exists(enum pl_sim_kind kind, const void *object)
{
	struct pl_sim_object *o;

	pthread_mutex_lock(&lock);
	for (o = lists[kind]; o && o != object; o = o->next)
		;
	pthread_mutex_unlock(&lock);
	return o;
}

void *pl_sim_object_first(enum pl_sim_kind kind, const void *owner)
{
	struct pl_sim_object *o;

	pthread_mutex_lock(&lock);
	for (o = lists[kind]; o && o->owner != owner; o = o->next)
		;
	pthread_mutex_unlock(&lock);
	return o;
}

void pl_sim_object_forget(const void *owner)
{
	pthread_mutex_lock(&lock);
	for (unsigned int kind = 0; kind < PL_SIM_NR_KINDS; kind++) {
		for (struct pl_sim_object *next, *o = lists[kind]; o; o = next) {
			next = o->next;
			if (o->owner != owner)
				continue;
			unlink_locked(o);
			free(o);
		}
	}
	pthread_mutex_unlock(&lock);
}
