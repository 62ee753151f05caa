// SPDX-License-Identifier: MIT
/* Bytes of an array without their pages: what comes, against a model of it. */
#include "peek_test.h"

/* Controllers that do not have the page at @at get no good address. */
static void spoil_others(const struct bed *b, struct pld_dma dma[MAX_STORES], uint64_t at)
{
	for (unsigned int i = 0; i < b->nr_stores; i++)
		if (i != (b->plan.one_path ? 0 : at / b->plan.page % b->plan.nr_targets))
			dma[i] = (struct pld_dma){ 16, 16, 16 };
}

/* ------------------------------------------------------------------ against a model */

static void random_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_dma dma[MAX_STORES];
	char *memory = memory_of(b, warp, dma);
	uint64_t chance = warp * 32 + pld_lane() + 1;
	struct pld_array a;
	struct pld_group g;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	for (unsigned int i = 0; i < b->plan.rounds; i++) {
		const char *data = NULL;
		uint32_t room, bytes;
		uint64_t at, value;

		chance = mix(chance);
		at = chance % b->plan.bytes;
		room = b->plan.page - (uint32_t)at % b->plan.page;
		room = room < b->plan.bytes - at ? room : (uint32_t)(b->plan.bytes - at);
		bytes = 1 + (uint32_t)(chance >> 32) % (chance >> 40 & 1 ? room
							: room < 64	 ? room
									 : 64);
		memory_of(b, warp, dma);
		spoil_others(b, dma, at);
		memset(memory, 0xcc, b->plan.page);
		note(b, pld_array_peek(&a, chance >> 41 & 3, at, bytes, memory,
				       b->plan.bounce ? NULL : dma, &data) != 0);
		note(b,
		     chance >> 41 & 3 && (data < memory || data + bytes > memory + b->plan.page ||
					  memcmp(data, b->model + at, bytes)));
		for (uint32_t k = pld_peek_room(&a, bytes); k < b->plan.page; k++)
			note(b, memory[k] != (char)0xcc);
		/* Others come by pages. */
		note(b,
		     pld_array_read(&a, chance >> 43 & 1, at / 8 % b->nr_elements, &value, 8) != 0);
	}
	note(b, pld_array_close(&a) != 0);
}

static void run_random(const struct plan *plan)
{
	struct bed b;

	open_peeks(&b, plan);
	bed_run(&b, random_main);
	assert_int_equal(b.wrong, 0);
	check_quiet(&b);
	check_stored(&b);
	close_peeks(&b);
}

static void test_model(void **state)
{
	struct plan plan = many(3, 4);

	(void)state;
	run_random(&plan);
	plan.bounce = true;
	run_random(&plan);
	plan.page = 512;
	plan.bytes = 512 * 100 + 48;
	run_random(&plan);
}

/* Several controllers, or namespaces of one, of which each has its pages and its addresses. */
static void test_striped(void **state)
{
	struct plan plan = many(2, 4);

	(void)state;
	plan.nr_targets = 3;
	run_random(&plan);
	plan.config = "sim:size=8M,ns=3";
	plan.one_path = true;
	run_random(&plan);
}

/* Blocks as long as pages, or a quarter of them. */
static void test_long_blocks(void **state)
{
	struct plan plan = many(2, 4);

	(void)state;
	plan.config = "sim:size=8M,bs=4096";
	plan.rounds = 100;
	run_random(&plan);
	plan.page = 16384;
	plan.bytes = 16384 * 40 + 4096 + 48;
	run_random(&plan);
	plan.bounce = true;
	run_random(&plan);
}

/* One slot for all lanes: they take turns. */
static void test_one_slot(void **state)
{
	struct plan plan = many(2, 8);

	(void)state;
	plan.slots = 1;
	plan.rounds = 50;
	run_random(&plan);
}

/* ------------------------------------------------------------------ what was written */

/*
 * Each lane writes elements of its own through the cache, which is far too small, and peeks at them: what it wrote last, be
 * that in a frame, on its way to the drive or there.
 */
static void changes_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	const uint32_t nr = b->plan.nr_warps * b->plan.nr_lanes;
	const uint32_t me = warp * b->plan.nr_lanes + pld_lane();
	struct pld_dma dma[MAX_STORES];
	char *memory = memory_of(b, warp, dma);
	uint64_t chance = me + 1;
	_Alignas(16) char value[16];
	struct pld_array a;
	struct pld_group g;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	for (unsigned int i = 1; i <= b->plan.rounds; i++) {
		const uint64_t mine = b->nr_elements / nr;
		const char *data = NULL;
		uint64_t e;

		chance = mix(chance);
		e = chance % mine * nr + me;
		make_element(value, e, i, 16);
		note(b, pld_array_write(&a, 1, e, value, 16) != 0);
		memcpy(b->model + e * 16, value, 16);
		e = (chance >> 32) % mine * nr + me;
		note(b, pld_array_peek(&a, 1, e * 16 + 3, 11, memory, b->plan.bounce ? NULL : dma,
				       &data) != 0);
		note(b, memcmp(data, b->model + e * 16 + 3, 11) != 0);
	}
	note(b, pld_array_flush(&a, warp, b->plan.nr_warps) != 0);
	note(b, pld_array_close(&a) != 0);
}

static void run_changes(const struct plan *plan)
{
	struct bed b;

	open_peeks(&b, plan);
	bed_run(&b, changes_main);
	assert_int_equal(b.wrong, 0);
	assert_true(b.cache.stats->write_backs > 0);
	check_quiet(&b);
	/* Another may have changed a page after its part was flushed. */
	{
		struct pld_array a;
		struct pld_group g;

		assert_int_equal(pld_array_open(&a, &g, &b.cache, 0, 1), 0);
		assert_int_equal(pld_array_flush(&a, 0, 1), 0);
		assert_int_equal(pld_array_close(&a), 0);
	}
	check_stored(&b);
	close_peeks(&b);
}

static void test_changes(void **state)
{
	struct plan plan = many(4, 4);

	(void)state;
	plan.rounds = 300;
	plan.element = 16;
	run_changes(&plan);
	plan.bounce = true;
	plan.nr_targets = 2;
	run_changes(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),	    cmocka_unit_test(test_striped),
		cmocka_unit_test(test_long_blocks), cmocka_unit_test(test_one_slot),
		cmocka_unit_test(test_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
