// SPDX-License-Identifier: MIT
/* Arrays against a plain model: all shapes, from many threads, with caches that are too small. */
#include "array_test.h"

/* Beyond this byte nothing is ever written, and anybody may read anything. */
static uint64_t constant_from(const struct bed *b)
{
	return b->plan.bytes / 3 * 2 / 64 * 64;
}

/* A lane: the changes of its own elements, and what it asks for. */
struct worker {
	struct bed *b;
	struct pld_array a;
	struct pld_group g;
	uint64_t me, nr; /* of all lanes */
	uint64_t seed, warp_seed;
	uint32_t *changes; /* of all elements; an element is changed by one lane */
};

static uint64_t next(uint64_t *seed)
{
	*seed += 0x9e3779b97f4a7c15u;
	return mix(*seed);
}

/* An element that this lane alone changes. */
static uint64_t pick_own(struct worker *w)
{
	const uint64_t nr = constant_from(w->b) / w->b->plan.element / w->nr;

	return next(&w->seed) % nr * w->nr + w->me;
}

static uint64_t pick(struct worker *w)
{
	const uint64_t first = constant_from(w->b) / w->b->plan.element;

	if (next(&w->seed) % 3)
		return pick_own(w);
	return first + next(&w->seed) % (w->b->nr_elements - first);
}

static bool is_right(const struct worker *w, uint64_t e, const void *value)
{
	unsigned char expected[64];

	make_element(expected, e, w->changes[e], w->b->plan.element);
	return !memcmp(expected, value, w->b->plan.element);
}

static void do_read(struct worker *w)
{
	const uint64_t e = pick(w);
	const int want = next(&w->seed) % 8 != 0;
	unsigned char value[64];

	memset(value, 0xaa, sizeof(value));
	note(w->b, pld_array_read(&w->a, want, e, value, w->b->plan.element) != 0);
	note(w->b, want ? !is_right(w, e, value) : value[0] != 0xaa);
}

static void do_write(struct worker *w)
{
	const uint64_t e = pick_own(w);
	const int want = next(&w->seed) % 8 != 0;
	unsigned char value[64];

	make_element(value, e, w->changes[e] + 1, w->b->plan.element);
	note(w->b, pld_array_write(&w->a, want, e, value, w->b->plan.element) != 0);
	w->changes[e] += want != 0;
}

static void do_ticket(struct worker *w)
{
	const uint64_t e = pick(w);
	const int want = next(&w->seed) % 4 != 0;
	struct pld_ticket t;
	int state = pld_array_issue(&w->a, want, e, w->b->plan.element, &t);

	/* All lanes call until all are done; in a cache of few frames some have to let go first. */
	for (int done = !want; pld_ballot(w->a.lanes, !done);) {
		if (!done && state) {
			note(w->b, state != 1 || !is_right(w, e, pld_ticket_data(&w->a, &t)));
			pld_array_release(&w->a, &t);
			done = 1;
		}
		state = pld_array_ready(&w->a, &t);
		sched_yield();
	}
}

static void do_run(struct worker *w)
{
	const uint64_t first = constant_from(w->b) / 16, end = w->b->plan.bytes / 16;
	const uint64_t at = (first + next(&w->warp_seed) % (end - first)) * 16;
	uint64_t bytes = (1 + next(&w->warp_seed) % (3 * w->b->plan.page / 16)) * 16;
	static __thread struct pld_vec to[4 * 65536 / 16];
	const struct pld_vec *all;

	if (bytes > end * 16 - at)
		bytes = end * 16 - at;
	/* All lanes copy into the memory of the first. */
	all = (const struct pld_vec *)(uintptr_t)pld_shfl64(w->a.lanes, (uintptr_t)to, 0);
	note(w->b, pld_array_read_run(&w->a, at, bytes, (void *)(uintptr_t)all) != 0);
	pld_sync(w->a.lanes);
	if (pld_lane() == 0)
		note(w->b, memcmp(all, w->b->model + at, bytes) != 0);
	pld_sync(w->a.lanes);
}

static void do_one(struct worker *w)
{
	switch (next(&w->warp_seed) % 16) {
	case 0:
	case 1:
		pld_array_prefetch(&w->a, 1, pick(w), w->b->plan.element);
		break;
	case 2:
		do_ticket(w);
		break;
	case 3:
		do_run(w);
		break;
	case 4:
		note(w->b, next(&w->warp_seed) % 4 == 0 && pld_array_flush(&w->a, 0, 1) != 0);
		break;
	case 5:
	case 6:
	case 7:
	case 8:
		do_write(w);
		break;
	default:
		do_read(w);
		break;
	}
}

static uint32_t *changes_of_all;

static void model_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct worker w = { .b = b, .changes = changes_of_all };

	w.nr = (uint64_t)b->plan.nr_warps * b->plan.nr_lanes;
	w.me = (uint64_t)warp * b->plan.nr_lanes + pld_lane();
	w.seed = mix(w.me + 1000);
	w.warp_seed = mix(warp);
	note(b, pld_array_open(&w.a, &w.g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	for (unsigned int i = 0; i < b->plan.rounds; i++)
		do_one(&w);
	note(b, pld_array_close(&w.a) != 0);
}

static void flush_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_array a;
	struct pld_group g;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	note(b, pld_array_flush(&a, warp, b->plan.nr_warps) != 0);
	note(b, pld_array_commit(&a) != 0);
	note(b, pld_array_close(&a) != 0);
}

static void check_plan(const struct plan *plan)
{
	struct bed b;

	bed_open(&b, plan);
	changes_of_all = calloc(b.nr_elements, sizeof(*changes_of_all));
	bed_run(&b, model_main);
	assert_int_equal(b.wrong, 0);
	check_quiet(&b);
	bed_run(&b, flush_main);
	assert_int_equal(b.wrong, 0);
	check_quiet(&b);
	for (uint64_t e = 0; e < b.nr_elements; e++)
		make_element(b.model + e * plan->element, e, changes_of_all[e], plan->element);
	check_stored(&b);
	assert_true(b.cache.stats->hits && b.cache.stats->misses && b.cache.stats->write_backs);
	assert_int_equal(b.cache.stats->read_errors + b.cache.stats->write_errors, 0);
	free(changes_of_all);
	bed_close(&b);
}

static void check_plans(const struct plan *plans, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		check_plan(&plans[i]);
}

#define CHECK_PLANS(plans) check_plans(plans, sizeof(plans) / sizeof((plans)[0]))

/* Single threads, all page and element sizes, with a cache much smaller than the array. */
static void test_sizes(void **state)
{
	const struct plan plans[] = {
		{ .nr_targets = 1,
		  .page = 512,
		  .ways = 2,
		  .nr_frames = 2,
		  .bytes = 40000,
		  .element = 1,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 400,
		  .slots = 1 },
		{ .nr_targets = 1,
		  .page = 1024,
		  .ways = 8,
		  .nr_frames = 64,
		  .bytes = 300000,
		  .element = 2,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 400,
		  .slots = 4 },
		{ .nr_targets = 1,
		  .page = 4096,
		  .ways = 1,
		  .nr_frames = 16,
		  .bytes = 500000,
		  .element = 4,
		  .nr_warps = 6,
		  .nr_lanes = 1,
		  .rounds = 300,
		  .slots = 3 },
		{ .nr_targets = 1,
		  .page = 8192,
		  .ways = 5,
		  .nr_frames = 27,
		  .bytes = 1000000,
		  .element = 8,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 200,
		  .slots = 4 },
		{ .nr_targets = 1,
		  .page = 16384,
		  .ways = 4,
		  .nr_frames = 8,
		  .bytes = 1000000,
		  .element = 16,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 200,
		  .slots = 2 },
		{ .nr_targets = 1,
		  .page = 32768,
		  .ways = 4,
		  .nr_frames = 4,
		  .bytes = 1000000,
		  .element = 32,
		  .nr_warps = 3,
		  .nr_lanes = 1,
		  .rounds = 80,
		  .slots = 2 },
		{ .nr_targets = 1,
		  .page = 65536,
		  .ways = 4,
		  .nr_frames = 8,
		  .bytes = 2000000,
		  .element = 64,
		  .nr_warps = 3,
		  .nr_lanes = 1,
		  .rounds = 50,
		  .slots = 2 },
	};

	(void)state;
	CHECK_PLANS(plans);
}

/* Several targets, of which one has a page more, or the last page is a part of one. */
static void test_stripes(void **state)
{
	const struct plan plans[] = {
		{ .nr_targets = 2,
		  .page = 512,
		  .ways = 8,
		  .nr_frames = 32,
		  .bytes = 512 * 101,
		  .element = 8,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 300,
		  .slots = 4 },
		{ .nr_targets = 3,
		  .page = 4096,
		  .ways = 4,
		  .nr_frames = 16,
		  .bytes = 4096 * 100 + 72,
		  .element = 8,
		  .nr_warps = 2,
		  .nr_lanes = 4,
		  .rounds = 40,
		  .slots = 2 },
		{ .nr_targets = 3,
		  .one_path = true,
		  .page = 2048,
		  .ways = 4,
		  .nr_frames = 16,
		  .config = "sim:size=1M,ns=3",
		  .bytes = 2048 * 100 + 520,
		  .element = 4,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 300,
		  .slots = 4 },
		{ .nr_targets = 2,
		  .page = 8192,
		  .ways = 2,
		  .nr_frames = 4,
		  .config = "sim:size=1M,bs=4096",
		  .bytes = 8192 * 41 + 4100,
		  .element = 4,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 200,
		  .slots = 1,
		  .exclusive = true },
	};

	(void)state;
	CHECK_PLANS(plans);
}

/* Whole warps, with queues of their own and shared ones. */
static void test_warps(void **state)
{
	const struct plan plans[] = {
		{ .nr_targets = 1,
		  .page = 512,
		  .ways = 4,
		  .nr_frames = 4,
		  .bytes = 30000,
		  .element = 4,
		  .nr_warps = 3,
		  .nr_lanes = 4,
		  .rounds = 40,
		  .slots = 4 },
		{ .nr_targets = 1,
		  .page = 4096,
		  .ways = 8,
		  .nr_frames = 64,
		  .bytes = 600000,
		  .element = 8,
		  .nr_warps = 4,
		  .nr_lanes = 4,
		  .rounds = 40,
		  .slots = 4,
		  .exclusive = true },
		{ .nr_targets = 2,
		  .page = 512,
		  .ways = 8,
		  .nr_frames = 16,
		  .bytes = 60000,
		  .element = 4,
		  .nr_warps = 2,
		  .nr_lanes = 32,
		  .rounds = 12,
		  .slots = 16 },
	};

	(void)state;
	CHECK_PLANS(plans);
}

/* Where the controller cannot reach the frames, the lanes copy. */
static void test_bounce(void **state)
{
	const struct plan plans[] = {
		{ .nr_targets = 2,
		  .page = 512,
		  .ways = 4,
		  .nr_frames = 16,
		  .bytes = 60000,
		  .bounce = true,
		  .element = 4,
		  .nr_warps = 4,
		  .nr_lanes = 1,
		  .rounds = 200,
		  .slots = 2 },
		{ .nr_targets = 1,
		  .page = 16384,
		  .ways = 4,
		  .nr_frames = 8,
		  .bytes = 600000,
		  .bounce = true,
		  .element = 8,
		  .nr_warps = 2,
		  .nr_lanes = 4,
		  .rounds = 40,
		  .slots = 4,
		  .exclusive = true },
	};

	(void)state;
	CHECK_PLANS(plans);
}

/* Completions that come late and in another order change nothing. */
static void test_disorder(void **state)
{
	const struct plan plans[] = {
		{ .nr_targets = 1,
		  .page = 512,
		  .ways = 8,
		  .nr_frames = 32,
		  .bytes = 100000,
		  .config = "sim:size=1M,rule=reorder opcode=read window=2 every=5;"
			    "delay every=7 steps=20",
		  .element = 8,
		  .nr_warps = 4,
		  .nr_lanes = 4,
		  .rounds = 40,
		  .slots = 4 },
	};

	(void)state;
	CHECK_PLANS(plans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),	 cmocka_unit_test(test_stripes),
		cmocka_unit_test(test_warps),	 cmocka_unit_test(test_bounce),
		cmocka_unit_test(test_disorder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
