// SPDX-License-Identifier: MIT
/* Who fills the pieces that come from the page cache: the workers, and those who wait for others. */
#include "ahead.h"

#include "context.h"
#include "file.h"

#include <stddef.h>

/* See many_readers(). */
#define MANY_READERS 4u
#define MIN_FILLERS 2u
/* Pieces nobody has begun with, from which on it is worth the while of one who waits. */
#define MANY_PIECES 2u

void pl_ahead_queue(struct pl_ahead *a, struct pl_piece *p)
{
	uint32_t i = __atomic_load_n(&a->nr_queued, __ATOMIC_RELAXED);

	pl_piece_queue(p);
	__atomic_store_n(&a->queue[i % PL_AHEAD_PIECES], (uint8_t)(p - a->pieces),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&a->nr_queued, i + 1, __ATOMIC_RELEASE);
}

/* Takes and fills the next piece, unless there are less than @least. */
static bool fill_one(struct peerlane_file *f, uint32_t least)
{
	struct pl_ahead *a = &f->ahead;
	/* Who took the last one had seen it queued, and so do we. */
	uint32_t i = __atomic_load_n(&a->nr_taken, __ATOMIC_ACQUIRE);

	do {
		if (__atomic_load_n(&a->nr_queued, __ATOMIC_ACQUIRE) - i < least)
			return false;
	} while (!__atomic_compare_exchange_n(&a->nr_taken, &i, i + 1, false, __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
	/* It may have been filled, dropped and asked for again: its state tells. */
	i = __atomic_load_n(&a->queue[i % PL_AHEAD_PIECES], __ATOMIC_RELAXED);
	pl_piece_fill(&a->pieces[i], f);
	return true;
}

/* Those of a crew. */
static void help(struct pl_crew *crew)
{
	struct pl_ahead *a = (struct pl_ahead *)((char *)crew - offsetof(struct pl_ahead, crew));

	while (fill_one((struct peerlane_file *)((char *)a - offsetof(struct peerlane_file, ahead)),
			1))
		;
}

/*
 * Of several who read, each fills a piece while it waits for its copy, and there is a worker less for it: with more
 * threads than CPUs one that all wait for is kept from its CPU now and then. Returns how many read; 0: too few for that.
 */
static unsigned int many_readers(const struct peerlane_file *f)
{
	unsigned int nr = __atomic_load_n(&f->ahead.readers, __ATOMIC_RELAXED);

	return nr < MANY_READERS ? 0 : nr;
}

void pl_ahead_call(struct peerlane_file *f, unsigned int nr)
{
	unsigned int threads = f->ctx->opt.nr_threads, fewer = many_readers(f);

	pl_crew_renew(f->ctx, &f->ahead.crew, help, nr,
		      threads > fewer + MIN_FILLERS ? threads - fewer : MIN_FILLERS);
}

void pl_ahead_help(struct peerlane_file *f)
{
	if (many_readers(f))
		fill_one(f, MANY_PIECES);
}
