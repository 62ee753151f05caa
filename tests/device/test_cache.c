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
	for (int i = 0; i < 127; i++)
		assert_int_equal(pld_cache_look_(&f.c, 101, 1, 1, &frame), PLD_READY);
	assert_int_equal(pld_cache_look_(&f.c, 101, 1, 1, &frame), PLD_HELD);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 1), PLD_HELD);
	assert_int_equal(pld_state_(f.words[frame]), PLD_VALID);
	pld_drop_(&f.c, frame, PLD_WRITER);
	assert_int_equal(pld_cache_check_(&f.c, frame, 1, 1), PLD_READY);
	pld_drop_(&f.c, frame, 127 * PLD_WRITER);
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
	assert_int_equal(frame, 3);
	assert_int_equal(claim(&f, 9, &frame), PLD_CLAIM_FILL);
	assert_int_equal(frame, 1);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),	     cmocka_unit_test(test_failure),
		cmocka_unit_test(test_gone),	     cmocka_unit_test(test_reading),
		cmocka_unit_test(test_many_writers), cmocka_unit_test(test_victims),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
