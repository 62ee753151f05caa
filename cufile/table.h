/* SPDX-License-Identifier: MIT */
/*
 * Handles given to programs. A handle is a number in the guise of a pointer: its place in a table
 * and how often that place was used before. So a stale handle is told from a live one, and one
 * that never was from both, without touching memory it might point to.
 */
#ifndef PL_CF_TABLE_H
#define PL_CF_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PL_CF_CHUNK 256u
#define PL_CF_CHUNKS 4096u

/* Places are never freed: whoever still has a number may look. */
struct pl_cf_place {
	uint64_t word; /* generation << 32 | live bit | users; atomic */
	void *object;
	uint32_t next_free; /* index + 1 */
};

struct pl_cf_table {
	unsigned int kind; /* tells the tables' handles apart */
	void (*destroy)(void *object);
	pthread_mutex_t lock; /* guards all below; a chunk is read without it */
	struct pl_cf_place *chunks[PL_CF_CHUNKS];
	uint32_t nr, free;
};

enum pl_cf_found { PL_CF_LIVE, PL_CF_STALE, PL_CF_NEVER };

/* Takes over @object. NULL: no memory. */
void *pl_cf_table_add(struct pl_cf_table *t, void *object);
/* The object of a live handle, held until pl_cf_table_put(); else NULL and the reason. */
void *pl_cf_table_get(struct pl_cf_table *t, const void *handle, enum pl_cf_found *found);
void pl_cf_table_put(struct pl_cf_table *t, const void *handle);
/* The handle is stale from now on; the object goes when nobody holds it. False: it was no live
 * handle. */
bool pl_cf_table_remove(struct pl_cf_table *t, const void *handle);
/* Removes all. */
void pl_cf_table_clear(struct pl_cf_table *t);
/* In a forked child: forgets all, destroys nothing. */
void pl_cf_table_forget(struct pl_cf_table *t);

#endif
