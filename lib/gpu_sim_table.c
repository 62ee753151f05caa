/* SPDX-License-Identifier: MIT */
/*
 * The memory the simulated driver knows in this process: records sorted by address.
 */
#include "gpu_sim.h"
#include <stdlib.h>
#include <string.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* guards all but all */
static struct pl_sim_range **sorted;			   /* disjoint ranges */
static size_t nr, room;
static struct pl_sim_range *unused;
static uint64_t last_id;
static _Atomic(struct pl_sim_range *) all; /* grows only, at its head */

void pl_sim_table_read(void)
{
	pthread_rwlock_rdlock(&lock);
}

void pl_sim_table_write(void)
{
	pthread_rwlock_wrlock(&lock);
}

void pl_sim_table_unlock(void)
{
	pthread_rwlock_unlock(&lock);
}

struct pl_sim_range *pl_sim_table_all(void)
{
	return all;
}

/* Index of the first range that ends after @addr. */
static size_t find_index(uintptr_t addr)
{
	size_t lo = 0, hi = nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (sorted[mid]->base + sorted[mid]->bytes > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct pl_sim_range *pl_sim_table_find(uintptr_t addr)
{
	size_t i = find_index(addr);

	return i < nr ? sorted[i] : NULL;
}

static struct pl_sim_range *new_record(void)
{
	struct pl_sim_range *r = unused;

	if (r) {
		unused = r->next;
		return r;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->all = all;
	all = r;
	return r;
}

static int make_room(void)
{
	size_t want = room ? room * 2 : 64;
	struct pl_sim_range **more;

	if (nr < room)
		return 0;
	more = realloc(sorted, want * sizeof(struct pl_sim_range *));
	if (!more)
		return -1;
	sorted = more;
	room = want;
	return 0;
}

struct pl_sim_range *pl_sim_table_add(enum pl_sim_state state, uintptr_t base, size_t bytes,
				      uintptr_t shadow, int gpu)
{
	struct pl_sim_range *r;
	size_t i;

	if (make_room())
		return NULL;
	while ((r = pl_sim_table_find(base)) && r->base < base + bytes) {
		if (r->state != PL_SIM_REGISTERED)
			return NULL;
		pl_sim_table_remove(r);
	}
	r = new_record();
	if (!r)
		return NULL;
	r->next = NULL;
	r->base = base;
	r->bytes = bytes;
	r->shadow = shadow;
	r->gpu = gpu;
	r->id = ++last_id;
	r->released = false;
	r->refs = 1;
	r->state = state;
	i = find_index(base);
	memmove(&sorted[i + 1], &sorted[i], (nr - i) * sizeof(struct pl_sim_range *));
	sorted[i] = r;
	nr++;
	return r;
}

void pl_sim_table_remove(struct pl_sim_range *r)
{
	size_t i = find_index(r->base);

	nr--;
	memmove(&sorted[i], &sorted[i + 1], (nr - i) * sizeof(struct pl_sim_range *));
	r->state = PL_SIM_UNUSED;
	r->next = unused;
	unused = r;
}

void pl_sim_table_forget(void)
{
	while (nr) {
		struct pl_sim_range *r = sorted[--nr];

		if (r->state == PL_SIM_LIVE) {
			r->state = PL_SIM_INHERITED;
			continue;
		}
		r->state = PL_SIM_UNUSED;
		r->next = unused;
		unused = r;
	}
	pthread_rwlock_unlock(&lock);
	/* Threads the child does not have may have been reading. */
	pthread_rwlock_init(&lock, NULL);
}
