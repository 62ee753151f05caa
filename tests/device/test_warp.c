// SPDX-License-Identifier: MIT
/* Warps of threads: the collectives give what those of a GPU give, whoever comes late. */
#include "device_test.h"

#define ROUNDS 200u

struct shared {
	unsigned int nr_lanes;
	uint32_t wrong;
	uint32_t ran;
};

static void note(struct shared *s, int bad)
{
	if (bad)
		__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
}

/* Groups that change with each round: the lanes whose bit in a word that all know is set, and the rest. */
static void check_round(struct shared *s, uint32_t round)
{
	const uint32_t all = s->nr_lanes == 32 ? ~0u : (1u << s->nr_lanes) - 1;
	const uint32_t cut = (round * 2654435761u >> 7) & all, me = pld_lane();
	const uint32_t lanes = cut >> me & 1 ? cut : all & ~cut;
	const uint64_t value = (uint64_t)round << 32 | me / 3;
	uint32_t same = 0, odd = 0;
	uint64_t any = 0;

	for (uint32_t i = 0; i < 32; i++) {
		if (!(lanes >> i & 1))
			continue;
		same |= (uint32_t)(i / 3 == me / 3) << i;
		odd |= (i & 1) << i;
		any |= (uint64_t)1 << (2 * i);
	}
	note(s, pld_ballot(lanes, me & 1) != odd);
	note(s, pld_match64(lanes, value) != same);
	note(s, pld_or64(lanes, (uint64_t)1 << (2 * me)) != any);
	for (uint32_t left = lanes; left; left &= left - 1) {
		const uint32_t from = pld_lowest32(left);

		note(s, pld_shfl32(lanes, me * 7 + round, from) != from * 7 + round);
	}
	note(s, pld_leads(lanes) != (me == pld_lowest32(lanes)));
}

static void lane_main(unsigned int warp, void *arg)
{
	struct shared *s = arg;

	__atomic_fetch_add(&s->ran, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < ROUNDS; i++)
		check_round(s, warp * 1000 + i);
}

static void test_collectives(void **state)
{
	static const unsigned int widths[] = { 1, 2, 5, 8, 32 };

	(void)state;
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		struct shared s = { .nr_lanes = widths[i] };

		assert_int_equal(peerlane_cpu_run(2, widths[i], lane_main, &s), 0);
		assert_int_equal(s.ran, 2 * widths[i]);
		assert_int_equal(s.wrong, 0);
	}
}

static void test_refusals(void **state)
{
	struct shared s = { 0 };

	(void)state;
	assert_int_equal(peerlane_cpu_run(0, 1, lane_main, &s), -EINVAL);
	assert_int_equal(peerlane_cpu_run(1, 0, lane_main, &s), -EINVAL);
	assert_int_equal(peerlane_cpu_run(1, 33, lane_main, &s), -EINVAL);
	assert_int_equal(peerlane_cpu_run(1, 1, NULL, &s), -EINVAL);
	assert_int_equal(s.ran, 0);
}

/* A thread of no warp is a warp of one lane. */
static void test_alone(void **state)
{
	(void)state;
	assert_int_equal(pld_lane(), 0);
	assert_int_equal(pld_ballot(1, 1), 1);
	assert_int_equal(pld_ballot(1, 0), 0);
	assert_int_equal(pld_shfl64(1, 77, 0), 77);
	assert_int_equal(pld_match64(1, 5), 1);
	pld_sync(1);
}

static void test_bits(void **state)
{
	(void)state;
	assert_int_equal(pld_nth64(0x8000000000000001u, 1), 63);
	assert_int_equal(pld_nth64(0xf0, 2), 6);
	assert_int_equal(pld_count64(~(uint64_t)0), 64);
	assert_int_equal(pld_rank(1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
