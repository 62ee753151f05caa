/* SPDX-License-Identifier: MIT */
/*
 * A cache of pages in GPU memory: sets of frames, each frame with one word that says what is in it.
 * Everything a frame goes through is one atomic operation on that word:
 *
 *	EMPTY -> FILLING	claimed for a page, by the group that reads it
 *	FILLING -> VALID	read
 *	FILLING -> FAILED	the read failed; the page is not there, whoever waits gets -EIO
 *	FAILED -> FILLING	claimed, once all who waited have gone
 *	VALID -> FILLING	evicted: no reference, no writer, not dirty
 *	VALID -> WRITING	dirty and without writers: written back; readers go on, writers wait
 *	WRITING -> VALID	written, and clean; or failed, and dirty as before
 *
 * A word costs 8 bytes for each frame, a set 4 bytes; pages that are not cached cost nothing. Beside that each frame
 * has its struct pld_dma, 24 bytes for each controller, unless data go by the host.
 *
 * A page is in one frame at most: only who has the set's lock gives a frame to another page. Nobody waits
 * for that lock, it is tried again, and no I/O is done under it. Readers do not need it.
 *
 * All functions here are of one lane. They give a grip: PLD_NONE, try again; PLD_HELD, the frame is
 * referenced and its page on the way; PLD_READY; or a negative errno.
 */
#ifndef PEERLANE_DEVICE_CACHE_H
#define PEERLANE_DEVICE_CACHE_H

#include <peerlane/device/stripe.h>

/* What happened, since the metadata were zero. */
struct pld_array_stats {
	uint64_t hits;	      /* pages asked for by groups that were there */
	uint64_t misses;      /* that were not, or not yet */
	uint64_t evictions;   /* pages that made room */
	uint64_t write_backs; /* dirty pages written */
	uint64_t bytes_read;  /* from the targets */
	uint64_t bytes_written;
	uint64_t read_errors; /* commands that failed */
	uint64_t write_errors;
	uint64_t timeouts; /* waits that ended with -ETIMEDOUT, -ECANCELED or -EBUSY */
};

/* The same for all groups of all kernels. The host fills it: peerlane_array_init(). */
struct pld_cache {
	struct pld_stripe stripe;
	char *frames;	   /* nr_sets * ways pages */
	uint64_t *words;   /* one for each frame */
	uint32_t *sets;	   /* one for each set: its lock, and where the next victim is looked for */
	uint32_t *records; /* one for each slot: which frame its command is for */
	struct pld_array_stats *stats;
	uint64_t timeout_ns; /* of a wait */
	uint64_t busy_ns;    /* of a wait for a frame, while all of a set are in use */
	uint32_t log_sets;
	uint32_t ways; /* frames of a set, 1 to 32 */
};

/* A word: 20 bits references, 7 bits writers, 3 bits state, dirty, used, 32 bits of the page number. */
#define PLD_REFS ((uint64_t)0xfffff)
#define PLD_WRITER ((uint64_t)1 << 20)
#define PLD_WRITERS ((uint64_t)0x7f << 20)
#define PLD_STATE_SHIFT 27
#define PLD_DIRTY ((uint64_t)1 << 30)
#define PLD_USED ((uint64_t)1 << 31) /* again, since it came or the hand came by */
#define PLD_TAG_SHIFT 32

#define PLD_EMPTY 0u
#define PLD_FILLING 1u
#define PLD_VALID 2u
#define PLD_WRITING 3u
#define PLD_FAILED 4u

#define PLD_NONE 0
#define PLD_HELD 1
#define PLD_READY 2
/* What a claim gives beside PLD_NONE: the caller must start the command. */
#define PLD_CLAIM_FILL 3  /* the frame is FILLING, for the page, with the references asked for */
#define PLD_CLAIM_CLEAN 4 /* the frame is WRITING; afterwards try again */
#define PLD_CLAIM_FULL 5  /* all frames of the set are in use */

#define PLD_SET_LOCKED 0x80000000u

PLD_FN uint32_t pld_state_(uint64_t word)
{
	return (uint32_t)(word >> PLD_STATE_SHIFT) & 7;
}

PLD_FN uint32_t pld_tag_(const struct pld_cache *c, uint64_t page)
{
	return (uint32_t)(page >> c->log_sets);
}

/* Neighbours are in different sets, and so are pages that are powers of two apart. */
PLD_FN uint32_t pld_mix_(const struct pld_cache *c, uint32_t tag)
{
	return (tag * 0x9e3779b1u) & ((1u << c->log_sets) - 1);
}

PLD_FN uint32_t pld_set_(const struct pld_cache *c, uint64_t page)
{
	return ((uint32_t)page & ((1u << c->log_sets) - 1)) ^ pld_mix_(c, pld_tag_(c, page));
}

/* The page a frame has, by its word. */
PLD_FN uint64_t pld_page_of_(const struct pld_cache *c, uint32_t frame, uint64_t word)
{
	const uint32_t tag = (uint32_t)(word >> PLD_TAG_SHIFT);

	return (uint64_t)tag << c->log_sets | (frame / c->ways ^ pld_mix_(c, tag));
}

PLD_FN char *pld_frame_memory_(const struct pld_cache *c, uint32_t frame)
{
	return c->frames + ((uint64_t)frame << c->stripe.log_page);
}

PLD_FN void pld_drop_(const struct pld_cache *c, uint32_t frame, uint64_t refs)
{
	pld_give_dev64(&c->words[frame], 0 - refs);
}

/* Is this word one of the page with the tag, of whatever state? */
PLD_FN int pld_is_of_(uint64_t word, uint32_t tag)
{
	return (uint32_t)(word >> PLD_TAG_SHIFT) == tag && pld_state_(word) != PLD_EMPTY;
}

/* What references that were just added to a word are worth; those that are worth nothing are dropped. */
PLD_FN int pld_judge_(const struct pld_cache *c, uint32_t frame, uint64_t was, uint32_t tag,
		      uint32_t refs)
{
	const uint32_t state = pld_state_(was);

	if (pld_is_of_(was, tag)) {
		if (state == PLD_VALID || state == PLD_WRITING)
			return PLD_READY;
		if (state == PLD_FILLING)
			return PLD_HELD;
	}
	pld_drop_(c, frame, refs);
	return PLD_NONE;
}

/* Reference the frame whose word was just seen, to read. */
PLD_FN int pld_take_read_(const struct pld_cache *c, uint32_t frame, uint64_t seen, uint32_t tag,
			  uint32_t refs)
{
	uint64_t *word = &c->words[frame];

	if (pld_state_(seen) == PLD_FAILED)
		return seen & PLD_REFS ? -EIO : PLD_NONE;
	/* That it is used is worth one try. */
	if (seen & PLD_USED || pld_cas_dev64(word, seen, (seen + refs) | PLD_USED) != seen)
		return pld_judge_(c, frame, pld_take_dev64(word, refs), tag, refs);
	return pld_state_(seen) == PLD_FILLING ? PLD_HELD : PLD_READY;
}

/* To write: a page that is written back or has as many writers as can be is held until it can be had. */
PLD_FN int pld_take_write_(const struct pld_cache *c, uint32_t frame, uint64_t seen, uint32_t tag)
{
	int grip;

	if (pld_state_(seen) == PLD_VALID && (seen & PLD_WRITERS) != PLD_WRITERS)
		return pld_cas_dev64(&c->words[frame], seen,
				     (seen + PLD_WRITER) | PLD_DIRTY | PLD_USED) == seen
			       ? PLD_READY
			       : PLD_NONE;
	grip = pld_take_read_(c, frame, seen, tag, 1);
	return grip == PLD_READY ? PLD_HELD : grip;
}

/* Look for a page, and take it if it is there. A writer takes one reference. */
PLD_FN int pld_cache_look_(const struct pld_cache *c, uint64_t page, uint32_t refs, int write,
			   uint32_t *frame)
{
	const uint32_t tag = pld_tag_(c, page), first = pld_set_(c, page) * c->ways;

	for (uint32_t f = first; f < first + c->ways; f++) {
		const uint64_t seen = pld_load_relaxed_dev64(&c->words[f]);

		if (!pld_is_of_(seen, tag))
			continue;
		*frame = f;
		return write ? pld_take_write_(c, f, seen, tag)
			     : pld_take_read_(c, f, seen, tag, refs);
	}
	return PLD_NONE;
}

/* Is a page there, or on its way? */
PLD_FN int pld_cache_has_(const struct pld_cache *c, uint64_t page)
{
	const uint32_t tag = pld_tag_(c, page), first = pld_set_(c, page) * c->ways;

	for (uint32_t f = first; f < first + c->ways; f++) {
		const uint64_t seen = pld_load_relaxed_dev64(&c->words[f]);

		if (pld_is_of_(seen, tag) && pld_state_(seen) != PLD_FAILED)
			return 1;
	}
	return 0;
}

/* What has become of a frame that is held. A writer's reference becomes his place among the writers. */
PLD_FN int pld_cache_check_(const struct pld_cache *c, uint32_t frame, uint32_t refs, int write)
{
	const uint64_t seen = pld_load_acquire_dev64(&c->words[frame]);
	const uint32_t state = pld_state_(seen);

	if (state == PLD_FILLING)
		return PLD_HELD;
	if (state == PLD_FAILED) {
		pld_drop_(c, frame, refs);
		return -EIO;
	}
	if (!write)
		return PLD_READY;
	if (state == PLD_WRITING || (seen & PLD_WRITERS) == PLD_WRITERS)
		return PLD_HELD;
	return pld_cas_dev64(&c->words[frame], seen,
			     (seen - refs + PLD_WRITER) | PLD_DIRTY | PLD_USED) == seen
		       ? PLD_READY
		       : PLD_HELD;
}

/* ------------------------------------------------------------------ room for a page */

PLD_FN int pld_in_use_(uint64_t word)
{
	const uint32_t state = pld_state_(word);

	return (word & (PLD_REFS | PLD_WRITERS)) || state == PLD_FILLING || state == PLD_WRITING;
}

PLD_FN int pld_is_free_(uint64_t word)
{
	return !pld_in_use_(word) && pld_state_(word) != PLD_VALID;
}

/*
 * A frame of the set that has nothing, or that had the page and failed. Returns 1 and what its word is; 0:
 * there is none; -1: the page has a frame.
 */
PLD_FN int pld_find_free_(const struct pld_cache *c, uint32_t first, uint32_t tag, uint32_t *frame,
			  uint64_t *word)
{
	int found = 0;

	for (uint32_t f = first; f < first + c->ways; f++) {
		const uint64_t seen = pld_load_relaxed_dev64(&c->words[f]);
		const int its = pld_is_of_(seen, tag);

		if (its && !pld_is_free_(seen))
			return -1;
		if (!its && (found || !pld_is_free_(seen)))
			continue;
		*frame = f;
		*word = seen;
		if (its)
			return 1;
		found = 1;
	}
	return found;
}

/*
 * The next frame in turn whose page was not used since the hand came by. Returns 1; 2 if it is dirty; or 0
 * and, in *busy, whether others use all. Dirty pages are taken only if their path is in @room.
 */
PLD_FN int pld_find_victim_(const struct pld_cache *c, uint32_t first, uint32_t room,
			    uint32_t *hand, uint32_t *frame, uint64_t *word, int *busy)
{
	*busy = 1;
	for (uint32_t turn = 0; turn < 2 * c->ways; turn++) {
		*frame = first + *hand;
		*word = pld_load_relaxed_dev64(&c->words[*frame]);
		*hand = *hand + 1 < c->ways ? *hand + 1 : 0;
		if (pld_in_use_(*word)) {
			/* What is on its way will be free some time. */
			*busy &= pld_state_(*word) == PLD_VALID || pld_state_(*word) == PLD_FAILED;
			continue;
		}
		*busy = 0;
		if (*word & PLD_USED)
			pld_cas_dev64(&c->words[*frame], *word, *word & ~PLD_USED);
		else if (!(*word & PLD_DIRTY))
			return 1;
		else if (room >> pld_path_of_(&c->stripe, pld_page_of_(c, *frame, *word)) & 1)
			return 2;
	}
	return 0;
}

PLD_FN uint64_t pld_fill_word_(uint32_t tag, uint32_t refs)
{
	return (uint64_t)tag << PLD_TAG_SHIFT | (uint64_t)PLD_FILLING << PLD_STATE_SHIFT | refs;
}

/*
 * Get a frame for a page that is not there. @room has a bit for each path that can take a command.
 * Returns PLD_NONE or PLD_CLAIM_*.
 */
PLD_FN int pld_cache_claim_(const struct pld_cache *c, uint64_t page, uint32_t refs, uint32_t room,
			    uint32_t *frame, uint32_t *nr_evicted)
{
	const uint32_t tag = pld_tag_(c, page), set = pld_set_(c, page);
	uint32_t hand = pld_or_dev32(&c->sets[set], PLD_SET_LOCKED);
	int found, busy = 0, claim = PLD_NONE;
	uint64_t word = 0, next;

	if (hand & PLD_SET_LOCKED)
		return PLD_NONE;
	found = pld_find_free_(c, set * c->ways, tag, frame, &word);
	if (!found)
		found = pld_find_victim_(c, set * c->ways, room, &hand, frame, &word, &busy);
	if (found > 0) {
		next = found == 1 ? pld_fill_word_(tag, refs)
				  : word + ((uint64_t)(PLD_WRITING - PLD_VALID) << PLD_STATE_SHIFT);
		if (pld_cas_dev64(&c->words[*frame], word, next) == word) {
			claim = found == 1 ? PLD_CLAIM_FILL : PLD_CLAIM_CLEAN;
			*nr_evicted += found == 1 && pld_state_(word) == PLD_VALID;
		}
	} else if (busy) {
		claim = PLD_CLAIM_FULL;
	}
	pld_store_release_dev32(&c->sets[set], hand);
	return claim;
}

/* Begin to write back a frame that was just seen dirty: PLD_CLAIM_CLEAN, or PLD_HELD not yet. */
PLD_FN int pld_cache_clean_(const struct pld_cache *c, uint32_t frame, uint64_t seen)
{
	const uint64_t next = seen + ((uint64_t)(PLD_WRITING - PLD_VALID) << PLD_STATE_SHIFT);

	if (pld_state_(seen) == PLD_WRITING || seen & PLD_WRITERS)
		return PLD_HELD;
	return pld_cas_dev64(&c->words[frame], seen, next) == seen ? PLD_CLAIM_CLEAN : PLD_HELD;
}

/* A command has ended: say so in the word. */
PLD_FN void pld_cache_settle_(const struct pld_cache *c, uint32_t frame, int write, int err)
{
	uint64_t change;

	if (!write)
		change = (uint64_t)((err ? PLD_FAILED : PLD_VALID) - PLD_FILLING)
			 << PLD_STATE_SHIFT;
	else
		change = 0 - ((uint64_t)(PLD_WRITING - PLD_VALID) << PLD_STATE_SHIFT) -
			 (err ? 0 : PLD_DIRTY);
	pld_give_dev64(&c->words[frame], change);
}

#endif
