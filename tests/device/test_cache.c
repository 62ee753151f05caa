// SPDX-License-Identifier: MIT
/* The words of a cache, step by step, as no race between threads can be made to show it. */
#include "device_test.h"

#include <peerlane/device/cache.h>

#define WAYS 4u
#define STATE(s) ((uint64_t)(s) << PLD_STATE_SHIFT)
#define TAG(t) ((uint64_t)(t) << PLD_TAG_SHIFT)

struct fixture {
	struct pld_cache c;
	uint64_t words[WAYS];
	uint32_t set;
};

static void make(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->c.words = f->words;
	f->c.sets = &f->set;
	f->c.ways = WAYS;
	f->c.stripe.nr_targets = f->c.stripe.nr_paths = 1;
}

/* One set: all have other pages, 100 and on. */
static void make_full(struct fixture *f)
{
	make(f);
	for (uint32_t i = 0; i < WAYS; i++)
		f->words[i] = TAG(100 + i) | STATE(PLD_VALID);
}

static int claim(struct fixture *f, uint64_t page, uint32_t *frame)
{
	uint32_t evicted = 0;

	return pld_cache_claim_(&f->c, page, 1, 1, frame, &evicted);
}

static void test_life(void **state)
{
	struct fixture f;
	uint32_t frame = 99;

	(void)state;
	make(&f);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &frame), PLD_NONE);
	assert_int_equal(claim(&f, 7, &frame), PLD_CLAIM_FILL);
	assert_int_equal(f.words[frame], TAG(7) | STATE(PLD_FILLING) | 1);
	/* It has its place; who comes now waits. */
	assert_int_equal(claim(&f, 7, &frame), PLD_NONE);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &frame), PLD_HELD);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 1, &frame), PLD_HELD);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 0), PLD_HELD);
	pld_cache_settle_(&f.c, frame, 0, 0);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 0), PLD_READY);
	assert_int_equal(f.words[frame] & (PLD_REFS | PLD_DIRTY | PLD_WRITERS), 3);
	/* The one that is to write becomes a writer. */
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 1), PLD_READY);
	assert_int_equal(f.words[frame] & (PLD_REFS | PLD_DIRTY | PLD_WRITERS),
			 2 | PLD_DIRTY | PLD_WRITER);
	/* No write-back while he is at it; readers do not matter. */
	assert_int_equal(pld_cache_clean_(&f.c, frame, f.words[frame]), PLD_HELD);
	pld_drop_(&f.c, frame, PLD_WRITER);
	assert_int_equal(pld_cache_clean_(&f.c, frame, f.words[frame]), PLD_CLAIM_CLEAN);
	assert_int_equal(pld_cache_clean_(&f.c, frame, f.words[frame]), PLD_HELD);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &frame), PLD_READY);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 1, &frame), PLD_HELD);
	pld_cache_settle_(&f.c, frame, 1, -EIO);
	assert_true(f.words[frame] & PLD_DIRTY);
	assert_int_equal(pld_cache_clean_(&f.c, frame, f.words[frame]), PLD_CLAIM_CLEAN);
	pld_cache_settle_(&f.c, frame, 1, 0);
	pld_drop_(&f.c, frame, 4);
	assert_int_equal(f.words[frame] & ~PLD_USED, TAG(7) | STATE(PLD_VALID));
}

static void test_failure(void **state)
{
	struct fixture f;
	uint32_t frame = 0, other = 0;

	(void)state;
	make(&f);
	assert_int_equal(claim(&f, 7, &frame), PLD_CLAIM_FILL);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &frame), PLD_HELD);
	pld_cache_settle_(&f.c, frame, 0, -EIO);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 0), -EIO);
	/* One who waits has not seen it yet: others see it, too, and nobody takes the frame. */
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &other), -EIO);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 1, &other), -EIO);
	assert_int_equal(claim(&f, 7, &other), PLD_NONE);
	assert_int_equal(f.words[frame] & PLD_REFS, 1);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 1), -EIO);
	/* Now the page is read again, into the same frame: it must not be in two. */
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &other), PLD_NONE);
	assert_int_equal(pld_cache_has_(&f.c, 7), 0);
	assert_int_equal(claim(&f, 7, &other), PLD_CLAIM_FILL);
	assert_int_equal(other, frame);
}

/* Who saw a page that has gone meanwhile leaves no trace on what is there now. */
static void test_gone(void **state)
{
	static const uint64_t now[] = {
		TAG(8) | STATE(PLD_VALID) | PLD_USED | 5,
		TAG(8) | STATE(PLD_FILLING) | 1,
		TAG(7) | STATE(PLD_FAILED) | 1,
		0,
	};
	const uint64_t seen[] = { TAG(7) | STATE(PLD_VALID) | PLD_USED, TAG(7) | STATE(PLD_VALID) };
	struct fixture f;

	(void)state;
	make(&f);
	for (size_t i = 0; i < sizeof(now) / sizeof(now[0]); i++) {
		for (size_t k = 0; k < 2; k++) {
			f.words[1] = now[i];
			assert_int_equal(pld_take_read_(&f.c, 1, seen[k], 7, 3), PLD_NONE);
			assert_int_equal(pld_take_write_(&f.c, 1, seen[k], 7), PLD_NONE);
			assert_int_equal(f.words[1], now[i]);
		}
	}
	/* It went and came again: as good as any. */
	f.words[1] = TAG(7) | STATE(PLD_FILLING) | 1;
	assert_int_equal(pld_take_read_(&f.c, 1, seen[0], 7, 1), PLD_HELD);
	assert_int_equal(f.words[1] & PLD_REFS, 2);
}

/* Reading notes that a page is used, and nothing else. */
static void test_reading(void **state)
{
	struct fixture f;
	uint32_t frame;

	(void)state;
	make_full(&f);
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(pld_cache_look_(&f.c, 102, 1, 0, &frame), PLD_READY);
		assert_int_equal(frame, 2);
		assert_int_equal(f.words[2], TAG(102) | STATE(PLD_VALID) | PLD_USED | (uint64_t)i);
	}
}

/* There are never more writers than the word can count. */
static void test_many_writers(void **state)
{
	struct fixture f;
	uint32_t frame = 0;

	(void)state;
	make_full(&f);
	for (int i = 0; i < 63; i++)
		assert_int_equal(pld_cache_look_(&f.c, 101, 1, 1, &frame), PLD_READY);
	assert_int_equal(pld_cache_look_(&f.c, 101, 1, 1, &frame), PLD_HELD);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 1), PLD_HELD);
	assert_int_equal(pld_state_(f.words[frame]), PLD_VALID);
	pld_drop_(&f.c, frame, PLD_WRITER);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 1), PLD_READY);
	pld_drop_(&f.c, frame, 63 * PLD_WRITER);
	assert_int_equal(f.words[frame], TAG(101) | STATE(PLD_VALID) | PLD_DIRTY | PLD_USED);
}

static void test_victims(void **state)
{
	struct fixture f;
	uint32_t frame = 99, evicted = 0;

	(void)state;
	/* While another has the set nothing happens. */
	make_full(&f);
	f.set = PLD_SET_LOCKED;
	assert_int_equal(claim(&f, 7, &frame), PLD_NONE);
	assert_int_equal(f.words[0], TAG(100) | STATE(PLD_VALID));
	/* In turn, but those in use and those used. */
	make_full(&f);
	f.words[0] |= 1;
	f.words[1] |= PLD_USED;
	assert_int_equal(claim(&f, 7, &frame), PLD_CLAIM_FILL);
	assert_int_equal(frame, 2);
	assert_false(f.words[1] & PLD_USED);
	assert_int_equal(claim(&f, 8, &frame), PLD_CLAIM_FILL);
	assert_int_equal(frame, 1);
	assert_int_equal(claim(&f, 9, &frame), PLD_CLAIM_FILL);
	assert_int_equal(frame, 3);
	/* What is on its way will come free: that is not all in use. */
	assert_int_equal(claim(&f, 10, &frame), PLD_NONE);
	for (uint32_t i = 1; i < WAYS; i++)
		pld_cache_settle_(&f.c, i, 0, 0);
	assert_int_equal(claim(&f, 10, &frame), PLD_CLAIM_FULL);
	/* A dirty one is written first, if there is a slot for that. */
	make_full(&f);
	for (uint32_t i = 0; i < WAYS; i++)
		f.words[i] |= PLD_DIRTY;
	f.words[0] |= PLD_WRITER;
	assert_int_equal(pld_cache_claim_(&f.c, 7, 1, 0, &frame, &evicted), PLD_NONE);
	assert_int_equal(pld_cache_claim_(&f.c, 7, 1, 1, &frame, &evicted), PLD_CLAIM_CLEAN);
	assert_int_equal(evicted, 0);
	assert_int_equal(f.words[frame], TAG(100 + frame) | STATE(PLD_WRITING) | PLD_DIRTY);
	pld_cache_settle_(&f.c, frame, 1, 0);
	f.set = frame;
	assert_int_equal(pld_cache_claim_(&f.c, 7, 1, 1, &frame, &evicted), PLD_CLAIM_FILL);
	assert_int_equal(evicted, 1);
	assert_int_equal(f.set & PLD_SET_LOCKED, 0);
}

/* A page that was brought in ahead counts as used when it is asked for again, not by being asked for. */
static void test_ahead(void **state)
{
	struct fixture f;
	uint32_t frame = 0, evicted = 0, i;

	(void)state;
	make(&f);
	assert_int_equal(pld_cache_claim_(&f.c, 7, 0, 1, &frame, &evicted), PLD_CLAIM_FILL);
	assert_int_equal(f.words[frame], TAG(7) | STATE(PLD_FILLING) | PLD_FRESH);
	pld_cache_settle_(&f.c, frame, 0, 0);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &frame), PLD_READY);
	assert_int_equal(f.words[frame], TAG(7) | STATE(PLD_VALID) | 1);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 0, &frame), PLD_READY);
	assert_int_equal(f.words[frame], TAG(7) | STATE(PLD_VALID) | PLD_USED | 2);
	/* Nor does writing leave it fresh. */
	make(&f);
	assert_int_equal(pld_cache_claim_(&f.c, 7, 0, 1, &frame, &evicted), PLD_CLAIM_FILL);
	pld_cache_settle_(&f.c, frame, 0, 0);
	assert_int_equal(pld_cache_look_(&f.c, 7, 1, 1, &frame), PLD_READY);
	assert_int_equal(f.words[frame],
			 TAG(7) | STATE(PLD_VALID) | PLD_USED | PLD_DIRTY | PLD_WRITER);
	/* The hand passes it over once. */
	make_full(&f);
	f.words[0] |= PLD_FRESH;
	assert_int_equal(claim(&f, 7, &frame), PLD_CLAIM_FILL);
	assert_int_equal(frame, 1);
	assert_int_equal(f.words[0], TAG(100) | STATE(PLD_VALID));
	/* If all are, one goes. */
	make_full(&f);
	for (i = 0; i < WAYS; i++)
		f.words[i] |= PLD_FRESH;
	assert_int_equal(claim(&f, 7, &frame), PLD_CLAIM_FILL);
	assert_int_equal(frame, 0);
	/* But not for another that is brought in ahead. */
	make_full(&f);
	for (i = 0; i < WAYS; i++)
		f.words[i] |= PLD_FRESH;
	assert_int_equal(pld_cache_claim_(&f.c, 7, 0, 1, &frame, &evicted), PLD_NONE);
	assert_int_equal(f.words[0], TAG(100) | STATE(PLD_VALID) | PLD_FRESH);
}

/* ------------------------------------------------------------------ what is kept */

#define LOG_SETS 4u
#define MANY_WAYS 8u
#define NR_FRAMES (MANY_WAYS << LOG_SETS)

struct many {
	struct pld_cache c;
	uint64_t words[NR_FRAMES];
	uint32_t sets[1u << LOG_SETS];
	uint64_t chance;
};

static void make_many(struct many *m)
{
	memset(m, 0, sizeof(*m));
	m->c.words = m->words;
	m->c.sets = m->sets;
	m->c.ways = MANY_WAYS;
	m->c.log_sets = LOG_SETS;
	m->c.stripe.nr_targets = m->c.stripe.nr_paths = 1;
}

/* Read a page, ahead of time or not; read it twice in a row if told so. Returns whether it was there. */
static unsigned int use(struct many *m, uint64_t page, bool ahead, bool twice)
{
	uint32_t frame = 0, evicted = 0;
	const bool hit = pld_cache_has_(&m->c, page);

	if (!hit) {
		assert_int_equal(pld_cache_claim_(&m->c, page, !ahead, 1, &frame, &evicted),
				 PLD_CLAIM_FILL);
		pld_cache_settle_(&m->c, frame, 0, 0);
	}
	for (int i = hit || ahead ? 0 : 1; i < (twice ? 2 : 1); i++) {
		assert_int_equal(pld_cache_look_(&m->c, page, 1, 0, &frame), PLD_READY);
		pld_drop_(&m->c, frame, 1);
	}
	if (!hit && !ahead)
		pld_drop_(&m->c, frame, 1);
	return hit;
}

static uint64_t below(struct many *m, uint64_t nr)
{
	m->chance = m->chance * 6364136223846793005u + 1442695040888963407u;
	return (m->chance >> 33) % nr;
}

/* A sweep over four times of what fits finds seven of the eight frames of each set, for ever. */
static void test_sweeps(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		struct many m;
		unsigned int hits = 0;

		make_many(&m);
		for (int i = 0; i < 24; i++) {
			hits = 0;
			for (uint64_t page = 0; page < 4 * NR_FRAMES; page++)
				hits += use(&m, page, how & 1, how & 2);
		}
		assert_in_range(hits, NR_FRAMES * 3 / 4, NR_FRAMES);
	}
}

/* At random it is as any other cache. */
static void test_random(void **state)
{
	const unsigned int nr = 100 * NR_FRAMES;
	struct many m;
	unsigned int hits = 0;

	(void)state;
	make_many(&m);
	for (unsigned int i = 0; i < nr; i++)
		hits += use(&m, below(&m, 4 * NR_FRAMES), false, false);
	assert_in_range(hits, nr * 22 / 100, nr * 28 / 100);
	/* Half of what is asked for are few pages: these are there. */
	make_many(&m);
	for (unsigned int i = 0; i < 2 * nr; i++) {
		if (i == nr)
			hits = 0;
		hits += use(&m, i & 1 ? below(&m, NR_FRAMES / 2) : 1000 + below(&m, 16 * NR_FRAMES),
			    false, false);
	}
	assert_in_range(hits, nr * 45 / 100, nr);
}

/* Other pages are wanted than before, as many as fit: some time all are there. */
static void test_change(void **state)
{
	const unsigned int often = 2 * (PLD_STAY + 1);
	struct many m;
	unsigned int misses = 0;

	(void)state;
	make_many(&m);
	for (unsigned int i = 0; i < often * NR_FRAMES; i++)
		use(&m, below(&m, NR_FRAMES), false, false);
	for (unsigned int i = 0; i < often; i++) {
		misses = 0;
		for (uint64_t page = 5 * NR_FRAMES; page < 6 * NR_FRAMES; page++)
			misses += !use(&m, page, false, false);
	}
	assert_int_equal(misses, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),	     cmocka_unit_test(test_failure),
		cmocka_unit_test(test_gone),	     cmocka_unit_test(test_reading),
		cmocka_unit_test(test_many_writers), cmocka_unit_test(test_victims),
		cmocka_unit_test(test_ahead),	     cmocka_unit_test(test_sweeps),
		cmocka_unit_test(test_random),	     cmocka_unit_test(test_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
