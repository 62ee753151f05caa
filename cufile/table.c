// SPDX-License-Identifier: MIT
/* Handles: places in a table, with a generation and a count of users each. */
#include "table.h"

#include <stdlib.h>

#define TAG 0x5cf1ull /* no address of a program has these upper bits */
#define LIVE (1ull << 31)
#define USERS (LIVE - 1)
#define GENERATIONS (1u << 20)

static void *make_handle(const struct pl_cf_table *t, uint32_t index, uint32_t generation)
{
	return (void *)(uintptr_t)(TAG << 48 | (uint64_t)t->kind << 44 |
				   (uint64_t)generation << 24 | index);
}

static struct pl_cf_place *place_at(struct pl_cf_table *t, uint32_t index)
{
	struct pl_cf_place *chunk;

	if (index >= PL_CF_CHUNK * PL_CF_CHUNKS)
		return NULL;
	chunk = __atomic_load_n(&t->chunks[index / PL_CF_CHUNK], __ATOMIC_ACQUIRE);
	return chunk ? &chunk[index % PL_CF_CHUNK] : NULL;
}

/* The place a handle names, and the generation it has; NULL if it cannot be a handle. */
static struct pl_cf_place *place_of(struct pl_cf_table *t, const void *handle, uint32_t *generation)
{
	uint64_t v = (uintptr_t)handle;

	if (v >> 48 != TAG || (v >> 44 & 15) != t->kind)
		return NULL;
	*generation = v >> 24 & (GENERATIONS - 1);
	return place_at(t, v & 0xffffff);
}

/* A place nobody uses; lock held. */
static struct pl_cf_place *new_place(struct pl_cf_table *t, uint32_t *index)
{
	struct pl_cf_place *p;

	if (t->free) {
		*index = t->free - 1;
		p = place_at(t, *index);
		t->free = p->next_free;
		return p;
	}
	if (t->nr == PL_CF_CHUNK * PL_CF_CHUNKS)
		return NULL;
	if (t->nr % PL_CF_CHUNK == 0) {
		p = calloc(PL_CF_CHUNK, sizeof(*p));
		if (!p)
			return NULL;
		/* Pairs with the load in place_at(). */
		__atomic_store_n(&t->chunks[t->nr / PL_CF_CHUNK], p, __ATOMIC_RELEASE);
	}
	*index = t->nr++;
	return place_at(t, *index);
}

void *pl_cf_table_add(struct pl_cf_table *t, void *object)
{
	struct pl_cf_place *p;
	uint32_t index, generation;

	pthread_mutex_lock(&t->lock);
	p = new_place(t, &index);
	pthread_mutex_unlock(&t->lock);
	if (!p)
		return NULL;
	p->object = object;
	generation = ((uint32_t)(p->word >> 32) + 1) % GENERATIONS;
	generation += !generation;
	/* Whoever sees the place live sees the object. */
	__atomic_store_n(&p->word, (uint64_t)generation << 32 | LIVE | 1, __ATOMIC_RELEASE);
	return make_handle(t, index, generation);
}

void *pl_cf_table_get(struct pl_cf_table *t, const void *handle, enum pl_cf_found *found)
{
	uint32_t generation;
	struct pl_cf_place *p = place_of(t, handle, &generation);
	uint64_t word;

	*found = PL_CF_NEVER;
	if (!p || !generation)
		return NULL;
	word = __atomic_load_n(&p->word, __ATOMIC_ACQUIRE);
	do {
		if (word >> 32 != generation || !(word & LIVE)) {
			if (word >> 32 >= generation)
				*found = PL_CF_STALE;
			return NULL;
		}
	} while (!__atomic_compare_exchange_n(&p->word, &word, word + 1, true, __ATOMIC_ACQUIRE,
					      __ATOMIC_ACQUIRE));
	*found = PL_CF_LIVE;
	return p->object;
}

void pl_cf_table_put(struct pl_cf_table *t, const void *handle)
{
	uint32_t generation;
	struct pl_cf_place *p = place_of(t, handle, &generation);

	/* The last one sees all that the others did with the object. */
	if (!p || (__atomic_sub_fetch(&p->word, 1, __ATOMIC_ACQ_REL) & USERS))
		return;
	t->destroy(p->object);
	p->object = NULL;
	pthread_mutex_lock(&t->lock);
	p->next_free = t->free;
	t->free = (uint32_t)((uintptr_t)handle & 0xffffff) + 1;
	pthread_mutex_unlock(&t->lock);
}

bool pl_cf_table_remove(struct pl_cf_table *t, const void *handle)
{
	enum pl_cf_found found;
	uint32_t generation;
	struct pl_cf_place *p;
	bool mine;

	if (!pl_cf_table_get(t, handle, &found))
		return false;
	p = place_of(t, handle, &generation);
	mine = __atomic_fetch_and(&p->word, ~LIVE, __ATOMIC_ACQ_REL) & LIVE;
	/* Of two who remove it at once only one drops the table's own hold. */
	if (mine)
		pl_cf_table_put(t, handle);
	pl_cf_table_put(t, handle);
	return mine;
}

void pl_cf_table_clear(struct pl_cf_table *t)
{
	for (uint32_t i = 0; i < t->nr; i++) {
		uint64_t word = __atomic_load_n(&place_at(t, i)->word, __ATOMIC_ACQUIRE);

		if (word & LIVE)
			pl_cf_table_remove(t, make_handle(t, i, (uint32_t)(word >> 32)));
	}
}

void pl_cf_table_forget(struct pl_cf_table *t)
{
	pthread_mutex_init(&t->lock, NULL);
	for (uint32_t i = 0; i < t->nr; i++)
		place_at(t, i)->word &= ~(LIVE | USERS);
	/* The places stay used up: who held them in the parent is not known. */
	t->free = 0;
}
