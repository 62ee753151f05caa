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
 * Room is made in one frame of the set again and again, where the hand is: the page that came last is the
 * first to go. So a sweep over more than fits leaves most of the other pages in place, for the next sweep
 * to find. If that frame is in use, another is taken; the hand stays. Every PLD_STAY pages it moves on, to the next frame whose page was not used since it last came
 * by; the page that it leaves stays. So what is used often is kept, and what is not used any more goes.
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
	uint32_t *sets;	   /* one for each set: its lock, the hand, and how long it was there */
	uint32_t *records; /* one for each slot: which frame its command is for */
	struct pld_array_stats *stats;
	uint64_t timeout_ns; /* of a wait */
	uint64_t busy_ns;    /* of a wait for a frame, while all of a set are in use */
	uint32_t log_sets;
	uint32_t ways; /* frames of a set, 1 to 32 */
};

/* A word: 20 bits references, 6 writers, fresh, 3 state, dirty, used, 32 of the page number. */
#define PLD_REFS ((uint64_t)0xfffff)
#define PLD_WRITER ((uint64_t)1 << 20)
#define PLD_WRITERS ((uint64_t)0x3f << 20)
#define PLD_FRESH ((uint64_t)1 << 26) /* brought in ahead, and not asked for yet */
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

/* A set: its lock, the hand in the lowest bits, and how many pages came where it is. */
#define PLD_SET_LOCKED 0x80000000u
#define PLD_SET_HAND 0x1fu
#define PLD_SET_PAGE 0x100u
#define PLD_STAY 32u

/* Words that are read at once: reads that wait for each other are what a look costs. */
#define PLD_LOOK 8u

PLD_FN uint32_t pld_state_(uint64_t word)
{
	return (uint32_t)(word >> PLD_STATE_SHIFT) & 7;
}

PLD_FN uint32_t pld_tag_(const struct pld_cache *c, uint64_t page)
{
	return (uint32_t)(page >> c->log_sets);
}

/*
 * Pages less than half as far apart as there are sets are in different ones, so that pages that are read one after
 * the other do not meet; and so are pages that are powers of two apart. For that, as many pages as there are sets
 * begin at another set each time: 0.414 of all further on, an odd number.
 */
PLD_FN uint32_t pld_turn_(const struct pld_cache *c, uint32_t tag)
{
	return tag * ((uint32_t)((uint64_t)0x6a09e667 << c->log_sets >> 32) | 1);
}

PLD_FN uint32_t pld_set_(const struct pld_cache *c, uint64_t page)
{
	return ((uint32_t)page + pld_turn_(c, pld_tag_(c, page))) & ((1u << c->log_sets) - 1);
}

/* The page a frame has, by its word. */
PLD_FN uint64_t pld_page_of_(const struct pld_cache *c, uint32_t frame, uint64_t word)
{
	const uint32_t tag = (uint32_t)(word >> PLD_TAG_SHIFT);

	return (uint64_t)tag << c->log_sets |
	       ((frame / c->ways - pld_turn_(c, tag)) & ((1u << c->log_sets) - 1));
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
	const uint64_t noted = seen & PLD_FRESH ? seen & ~PLD_FRESH : seen | PLD_USED;

	if (pld_state_(seen) == PLD_FAILED)
		return seen & PLD_REFS ? -EIO : PLD_NONE;
	/* To note that it is used is worth one try. */
	if (noted == seen || pld_cas_dev64(word, seen, noted + refs) != seen)
		return pld_judge_(c, frame, pld_take_dev64(word, refs), tag, refs);
	return pld_state_(seen) == PLD_FILLING ? PLD_HELD : PLD_READY;
}

/* A word with one writer more. */
PLD_FN uint64_t pld_written_(uint64_t word)
{
	return ((word & ~PLD_FRESH) + PLD_WRITER) | PLD_DIRTY | PLD_USED;
}

/* To write: a page that is written back or has as many writers as can be is held until it can be had. */
PLD_FN int pld_take_write_(const struct pld_cache *c, uint32_t frame, uint64_t seen, uint32_t tag)
{
	int grip;

	if (pld_state_(seen) == PLD_VALID && (seen & PLD_WRITERS) != PLD_WRITERS)
		return pld_cas_dev64(&c->words[frame], seen, pld_written_(seen)) == seen ? PLD_READY
											 : PLD_NONE;
	grip = pld_take_read_(c, frame, seen, tag, 1);
	return grip == PLD_READY ? PLD_HELD : grip;
}

/* The words of the frames from @first + @base on; 0 where the set has no more. */
PLD_FN void pld_read_words_(const struct pld_cache *c, uint32_t first, uint32_t base,
			    uint64_t words[PLD_LOOK])
{
	for (uint32_t i = 0; i < PLD_LOOK; i++)
		words[i] = base + i < c->ways ? pld_load_relaxed_dev64(&c->words[first + base + i])
					      : 0;
}

/* The frame that a page has, and its word. Returns 0 if it has none. */
PLD_FN int pld_find_(const struct pld_cache *c, uint64_t page, uint32_t *frame, uint64_t *word)
{
	const uint32_t tag = pld_tag_(c, page), first = pld_set_(c, page) * c->ways;
	uint64_t seen[PLD_LOOK];
	int found = 0;

	for (uint32_t base = 0; base < c->ways && !found; base += PLD_LOOK) {
		pld_read_words_(c, first, base, seen);
		for (uint32_t i = 0; i < PLD_LOOK; i++)
			if (pld_is_of_(seen[i], tag)) {
				*frame = first + base + i;
				*word = seen[i];
				found = 1;
			}
	}
	return found;
}

/* Look for a page, and take it if it is there. A writer takes one reference. */
PLD_FN int pld_cache_look_(const struct pld_cache *c, uint64_t page, uint32_t refs, int write,
			   uint32_t *frame)
{
	const uint32_t tag = pld_tag_(c, page);
	uint32_t f = 0;
	uint64_t seen = 0;

	if (!pld_find_(c, page, &f, &seen))
		return PLD_NONE;
	*frame = f;
	return write ? pld_take_write_(c, f, seen, tag) : pld_take_read_(c, f, seen, tag, refs);
}

/* Is a page there, or on its way? */
PLD_FN int pld_cache_has_(const struct pld_cache *c, uint64_t page)
{
	uint32_t frame = 0;
	uint64_t seen = 0;

	return pld_find_(c, page, &frame, &seen) && pld_state_(seen) != PLD_FAILED;
}

/* What has become of a frame that is held. A writer's reference becomes his place among the writers. */
PLD_FN int pld_cache_check_(const struct pld_cache *c, uint32_t frame, uint32_t refs, int write)
{
	uint64_t seen = pld_load_relaxed_dev64(&c->words[frame]);
	uint32_t state;

	/* That is asked often; what came is to be seen once. */
	if (pld_state_(seen) == PLD_FILLING)
		return PLD_HELD;
	seen = pld_load_acquire_dev64(&c->words[frame]);
	state = pld_state_(seen);
	if (state == PLD_FAILED) {
		pld_drop_(c, frame, refs);
		return -EIO;
	}
	if (!write)
		return PLD_READY;
	if (state == PLD_WRITING || (seen & PLD_WRITERS) == PLD_WRITERS)
		return PLD_HELD;
	return pld_cas_dev64(&c->words[frame], seen, pld_written_(seen - refs)) == seen ? PLD_READY
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

/* What was found for a page that needs a frame. */
struct pld_place {
	uint32_t frame;
	uint64_t word; /* of that frame, as it was seen */
	int found; /* 1 it can be taken; 2 it must be written back first; 0 none; -1 the page has one */
	int busy; /* nothing was found since others use all frames */
};

/* A frame of the set that has nothing, or that had the page and failed. *at_hand is the word at the hand. */
PLD_FN struct pld_place pld_find_free_(const struct pld_cache *c, uint32_t first, uint32_t tag,
				       uint32_t hand, uint64_t *at_hand)
{
	struct pld_place place = { 0, 0, 0, 0 };
	uint64_t seen[PLD_LOOK];
	int its = 0;

	*at_hand = 0;
	for (uint32_t base = 0; base < c->ways; base += PLD_LOOK) {
		pld_read_words_(c, first, base, seen);
		for (uint32_t i = 0; i < PLD_LOOK && base + i < c->ways; i++) {
			const int free = pld_is_free_(seen[i]);

			if (base + i == hand)
				*at_hand = seen[i];
			if (!its && (pld_is_of_(seen[i], tag) || (free && !place.found))) {
				its = pld_is_of_(seen[i], tag);
				place.found = free ? 1 : -1;
				place.frame = first + base + i;
				place.word = seen[i];
			}
		}
	}
	return place;
}

/*
 * The frame at the hand, or one further on if that is in use or the hand moves on: then a page that was used since
 * the hand came by is passed over once. Dirty pages are taken only if their path is in @room. One that is
 * brought in ahead does not push out another such.
 */
PLD_FN struct pld_place pld_find_victim_(const struct pld_cache *c, uint32_t first, uint32_t room,
					 int ahead, uint32_t *set, uint64_t word)
{
	const int stay = *set / PLD_SET_PAGE < PLD_STAY;
	uint32_t hand = *set & PLD_SET_HAND;
	struct pld_place place = { 0, 0, 0, 1 };

	for (uint32_t turn = 0; turn < 2 * c->ways;
	     turn++, hand = hand + 1 < c->ways ? hand + 1 : 0) {
		const uint64_t keep = turn == c->ways ? 0 : turn ? PLD_USED | PLD_FRESH : PLD_FRESH;

		place.frame = first + hand;
		if (turn)
			word = pld_load_relaxed_dev64(&c->words[place.frame]);
		place.word = word;
		if (pld_in_use_(word)) {
			/* What is on its way will be free some time. */
			place.busy &= pld_state_(word) == PLD_VALID ||
				      pld_state_(word) == PLD_FAILED;
			continue;
		}
		place.busy = 0;
		if (ahead && word & PLD_FRESH)
			continue;
		if (word & keep)
			pld_cas_relaxed_dev64(&c->words[place.frame], word, word & ~keep);
		else if (!turn && !stay)
			continue;
		else if (!(word & PLD_DIRTY))
			place.found = 1;
		else if (room >> pld_path_of_(&c->stripe, pld_page_of_(c, place.frame, word)) & 1)
			place.found = 2;
		if (place.found)
			break;
	}
	/* One that must be written first may fail to be: the next try is another. */
	if (place.found == 2)
		*set = hand + 1 < c->ways ? hand + 1 : 0;
	else if (place.found)
		*set = stay ? *set + PLD_SET_PAGE : hand;
	return place;
}

PLD_FN uint64_t pld_fill_word_(uint32_t tag, uint32_t refs)
{
	return (uint64_t)tag << PLD_TAG_SHIFT | (uint64_t)PLD_FILLING << PLD_STATE_SHIFT |
	       (refs ? refs : PLD_FRESH);
}

/*
 * Get a frame for a page that is not there. @room has a bit for each path that can take a command.
 * Returns PLD_NONE or PLD_CLAIM_*.
 */
PLD_FN int pld_cache_claim_(const struct pld_cache *c, uint64_t page, uint32_t refs, uint32_t room,
			    uint32_t *frame, uint32_t *nr_evicted)
{
	const uint32_t tag = pld_tag_(c, page), nr = pld_set_(c, page);
	uint32_t set = pld_or_dev32(&c->sets[nr], PLD_SET_LOCKED);
	int claim = PLD_NONE;
	struct pld_place place;
	uint64_t at_hand, next;

	if (set & PLD_SET_LOCKED)
		return PLD_NONE;
	place = pld_find_free_(c, nr * c->ways, tag, set & PLD_SET_HAND, &at_hand);
	if (!place.found)
		place = pld_find_victim_(c, nr * c->ways, room, !refs, &set, at_hand);
	if (place.found > 0) {
		next = place.found == 1 ? pld_fill_word_(tag, refs)
					: place.word + ((uint64_t)(PLD_WRITING - PLD_VALID)
							<< PLD_STATE_SHIFT);
		*frame = place.frame;
		if (pld_cas_dev64(&c->words[place.frame], place.word, next) == place.word) {
			claim = place.found == 1 ? PLD_CLAIM_FILL : PLD_CLAIM_CLEAN;
			*nr_evicted += place.found == 1 && pld_state_(place.word) == PLD_VALID;
		}
	} else if (place.busy) {
		claim = PLD_CLAIM_FULL;
	}
	pld_store_release_dev32(&c->sets[nr], set);
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
