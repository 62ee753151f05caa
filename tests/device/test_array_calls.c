// SPDX-License-Identifier: MIT
/* Setting arrays up, and the calls that the model does not make. */
#include "array_test.h"

struct pair {
	float x, y;
};

PLD_ARRAY_OF(pairs, struct pair)
PLD_ARRAY_OF(bytes, uint8_t)

static const struct plan small = { .nr_targets = 1,
				   .page = 1024,
				   .ways = 4,
				   .nr_frames = 8,
				   .bytes = 1024 * 40 + 48,
				   .element = 8,
				   .nr_warps = 1,
				   .nr_lanes = 4,
				   .slots = 4 };

static struct peerlane_array_options good_options(struct pld_target *target, struct pld_path *path,
						  struct pld_queue *queue)
{
	*target = (struct pld_target){ .nsid = 1, .log_block = 9 };
	*path = (struct pld_path){ .queues = queue, .nr_queues = 2, .slots_per_queue = 100 };
	return (struct peerlane_array_options){ .size = sizeof(struct peerlane_array_options),
						.bytes = 1 << 20,
						.frames = (void *)4096,
						.frames_bytes = 100 * 4096,
						.metadata = (void *)8192,
						.targets = target,
						.paths = path,
						.nr_targets = 1,
						.nr_paths = 1 };
}

static void test_layout(void **state)
{
	struct peerlane_array_options opt;
	struct pld_target target;
	struct pld_queue queue;
	struct pld_cache c;
	struct pld_path path;

	(void)state;
	opt = good_options(&target, &path, &queue);
	opt.ways = 8;
	assert_int_equal(peerlane_array_init(&c, &opt), 0);
	assert_int_equal(c.stripe.log_page, 12);
	/* A hundred frames: eight sets of eight, and four more in each. */
	assert_int_equal(c.log_sets, 3);
	assert_int_equal(c.ways, 12);
	assert_true(c.timeout_ns > c.busy_ns && c.busy_ns > 0);
	/* 128; 96 words; 8 sets; 200 slots; all in lines of 128. */
	assert_int_equal(peerlane_array_metadata_bytes(&opt), 128 + 768 + 128 + 896);
	/* By default four of sixteen, and nine more; few frames are one set. */
	opt.ways = 0;
	assert_int_equal(peerlane_array_init(&c, &opt), 0);
	assert_int_equal(c.log_sets, 2);
	assert_int_equal(c.ways, 25);
	opt.frames_bytes = (uint64_t)5 * 4096;
	assert_int_equal(peerlane_array_init(&c, &opt), 0);
	assert_int_equal(c.log_sets, 0);
	assert_int_equal(c.ways, 5);
	opt.ways = 32;
	opt.frames_bytes = (uint64_t)1000 * 4096;
	assert_int_equal(peerlane_array_init(&c, &opt), 0);
	assert_int_equal(c.log_sets, 4);
	assert_int_equal(c.ways, 32);
	/* As many pages as the words can tell apart. */
	opt.bytes = (uint64_t)1 << (12 + 32 + 4);
	assert_int_equal(peerlane_array_init(&c, &opt), 0);
	opt.bytes++;
	assert_int_equal(peerlane_array_init(&c, &opt), -E2BIG);
}

#define REFUSED(change)                                                                            \
	do {                                                                                       \
		opt = good_options(&target, &path, &queue);                                        \
		change;                                                                            \
		assert_int_equal(peerlane_array_init(&c, &opt), -EINVAL);                          \
	} while (0)

static void test_refusals(void **state)
{
	struct peerlane_array_options opt;
	struct pld_target target;
	struct pld_queue queue;
	struct pld_cache c;
	struct pld_path path;

	(void)state;
	REFUSED(opt.size = 8);
	REFUSED(opt.bytes = 0);
	REFUSED(opt.page_bytes = 256);
	REFUSED(opt.page_bytes = 131072);
	REFUSED(opt.page_bytes = 5000);
	REFUSED(opt.ways = 33);
	REFUSED(opt.frames_bytes = 4095);
	REFUSED(opt.ways = 8; opt.frames_bytes = 7 * 4096);
	REFUSED(opt.frames = NULL);
	REFUSED(opt.frames = (void *)4100);
	REFUSED(opt.metadata = NULL);
	REFUSED(opt.metadata = (void *)4100);
	REFUSED(opt.nr_targets = 0);
	REFUSED(opt.nr_targets = 17);
	REFUSED(opt.targets = NULL);
	REFUSED(opt.nr_paths = 0);
	REFUSED(opt.nr_paths = 17);
	REFUSED(opt.paths = NULL);
	REFUSED(target.log_block = 8);
	REFUSED(target.log_block = 13);
	REFUSED(target.path = 1);
	REFUSED(path.queues = NULL);
	REFUSED(path.nr_queues = 0);
	REFUSED(path.slots_per_queue = 0);
	assert_int_equal(peerlane_array_metadata_bytes(NULL), 0);
	assert_int_equal(peerlane_array_init(&c, NULL), -EINVAL);
}

static void calls_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	static _Alignas(16) char shared[4096];
	const uint64_t last = b->nr_elements - 1;
	struct pair pair;
	struct pld_ticket t;
	struct pld_array a;
	struct pld_group g;
	const char *data = NULL;
	uint32_t nr = 0;
	uint8_t byte;

	note(b, pld_array_open(&a, &g, &b->cache, warp + 1, lanes_of(4)) != -EINVAL);
	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(4)) != 0);
	/* The end. */
	note(b, pairs_read(&a, 1, last, &pair) || memcmp(&pair, b->model + last * 8, 8));
	note(b, pairs_read(&a, 1, last + 1, &pair) != -ERANGE);
	note(b, pairs_read(&a, 1, ~(uint64_t)0, &pair) != -ERANGE);
	note(b, pairs_write(&a, 1, last + 1, pair) != -ERANGE);
	note(b, pairs_read(&a, 0, last + 1, &pair) != 0);
	note(b, pld_array_issue(&a, 1, last + 1, 8, &t) != -ERANGE);
	note(b, pld_array_ready(&a, &t) != 0);
	pld_array_release(&a, &t);
	pld_array_prefetch(&a, 1, last + 1, 8);
	/* One lane beyond the end costs the others nothing. */
	note(b, bytes_read(&a, 1, pld_lane() ? pld_lane() : b->plan.bytes, &byte) !=
			(pld_lane() ? 0 : -ERANGE));
	note(b, pld_lane() && byte != b->model[pld_lane()]);
	/* Runs. */
	note(b, pld_array_read_run(&a, 8, 16, shared) != -EINVAL);
	note(b, pld_array_read_run(&a, 0, 8, shared) != -EINVAL);
	note(b, pld_array_read_run(&a, 0, 16, shared + 4) != -EINVAL);
	note(b, pld_array_read_run(&a, b->plan.bytes, 16, shared) != -ERANGE);
	note(b, pld_array_read_run(&a, b->plan.bytes - 16, 32, shared) != -ERANGE);
	note(b, pld_array_read_run(&a, b->plan.bytes, 0, shared) != 0);
	note(b, pld_array_read_run(&a, b->plan.bytes - 2064, 2064, shared) != 0);
	pld_sync(a.lanes);
	note(b, memcmp(shared, b->model + b->plan.bytes - 2064, 2064) != 0);
	pld_sync(a.lanes);
	note(b, pld_array_write_run(&a, 1008, 2064, shared) != 0);
	/* In place, to the end of the page, or of the array. */
	note(b, pld_array_hold(&a, 1034, &data, &nr) || nr != 1014);
	note(b, memcmp(data, shared + 26, nr) != 0);
	pld_array_let_go(&a, data);
	note(b, pld_array_hold(&a, b->plan.bytes - 3, &data, &nr) || nr != 3);
	note(b, memcmp(data, b->model + b->plan.bytes - 3, 3) != 0);
	pld_array_let_go(&a, data);
	note(b, pld_array_hold(&a, b->plan.bytes, &data, &nr) != -ERANGE);
	note(b, pld_array_flush(&a, 0, 1) != 0);
	note(b, pld_array_close(&a) != 0);
}

static void test_calls(void **state)
{
	struct bed b;

	(void)state;
	bed_open(&b, &small);
	bed_run(&b, calls_main);
	assert_int_equal(b.wrong, 0);
	check_quiet(&b);
	memcpy(b.model + 1008, b.model + small.bytes - 2064, 2064);
	check_stored(&b);
	bed_close(&b);
}

/* Of the last page no more blocks are moved than there are. */
static void test_tail(void **state)
{
	const uint64_t last = small.bytes / 8 - 1;
	struct pld_array a;
	struct pld_group g;
	struct pair pair = { 1, 2 };
	struct bed b;

	(void)state;
	bed_open(&b, &small);
	assert_int_equal(pld_array_open(&a, &g, &b.cache, 0, 1), 0);
	assert_int_equal(pairs_write(&a, 1, last, pair), 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), 0);
	assert_int_equal(pld_array_close(&a), 0);
	assert_int_equal(b.cache.stats->bytes_read, 512);
	assert_int_equal(b.cache.stats->bytes_written, 512);
	memcpy(b.model + last * 8, &pair, 8);
	check_stored(&b);
	bed_close(&b);
}

/* Every page has one place, and every place gives its page back. */
static void test_places(void **state)
{
	struct pld_cache c = { .log_sets = 5, .ways = 12 };
	unsigned int nr[32] = { 0 };

	(void)state;
	for (uint64_t page = 0; page < 32 * 64; page++) {
		const uint32_t set = pld_set_(&c, page * 32);
		const uint64_t word = (uint64_t)pld_tag_(&c, page) << PLD_TAG_SHIFT;

		assert_true(set < 32);
		nr[set]++;
		assert_int_equal(pld_page_of_(&c, pld_set_(&c, page) * 12 + 7, word), page);
	}
	/* Pages that are a power of two apart use all sets, too. */
	for (unsigned int i = 0; i < 32; i++)
		assert_int_equal(nr[i], 64);
	/* Those that are near do not meet. */
	for (uint64_t page = 0; page < 32 * 64; page++)
		for (uint64_t next = page + 1; next < page + 16; next++)
			assert_int_not_equal(pld_set_(&c, page), pld_set_(&c, next));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_calls),  cmocka_unit_test(test_tail),
		cmocka_unit_test(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
