// SPDX-License-Identifier: MIT
/* What a controller may do at most: lists of namespaces that lead nowhere, a shutdown that takes its time, pages that
 * cannot be described, one error after the other. */
#include "nvme_test.h"

#define SECOND_NS 1000000000u

/* ------------------------------------------------------------------ lists of namespaces */

/* The lists that the controller gives, one after the other. */
struct lists {
	uint32_t ids[2][PL_NVME_NS_LIST_ENTRIES];
	unsigned int nr_asked;
};

static enum fake_do give_list(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			      struct pl_nvme_cqe *cqe)
{
	struct lists *lists = f->hook_arg;
	struct fake_piece *pieces;
	const char *from;
	size_t nr;

	if (qid || sqe->opcode != PL_NVME_ADMIN_IDENTIFY ||
	    (sqe->cdw10 & 0xff) != PL_NVME_CNS_NS_ACTIVE)
		return FAKE_DO;
	assert_int_equal(fake_walk(f, sqe, 4096, &pieces, &nr), 0);
	from = (const char *)lists->ids[lists->nr_asked++ % 2];
	for (size_t i = 0; i < nr; from += pieces[i++].bytes)
		memcpy(pieces[i].ptr, from, pieces[i].bytes);
	free(pieces);
	cqe->status = 0;
	return FAKE_STATUS;
}

/* The result for a list of these ids that begins after @after. */
static int list(struct env *e, uint32_t after, const uint32_t *ids, size_t bytes)
{
	struct lists *lists = e->f->hook_arg;
	uint32_t got[16];

	memset(lists, 0, sizeof(*lists));
	memcpy(lists->ids[0], ids, bytes);
	return peerlane_nvme_ns_list(e->nvme, after, got, 16);
}

#define LIST(after, ...)                                                                           \
	list(&e, after, (const uint32_t[]){ __VA_ARGS__ },                                         \
	     sizeof((const uint32_t[]){ __VA_ARGS__ }))

/* Ids must rise, or a list could be asked for again and again without an end. */
static void test_order(void **state)
{
	struct env e = { .f = fake_new() };
	struct lists *lists = calloc(1, sizeof(*lists));

	(void)state;
	env_open(&e, NULL, NULL);
	e.f->hook = give_list;
	e.f->hook_arg = lists;
	assert_int_equal(LIST(0, 1, 2, 7), 3);
	assert_int_equal(LIST(0, 0), 0);
	assert_int_equal(LIST(0, 1, 1), -EPROTO);
	assert_int_equal(LIST(0, 2, 1), -EPROTO);
	assert_int_equal(LIST(0, 1, 9, 8), -EPROTO);
	assert_int_equal(LIST(4, 5, 6), 2);
	assert_int_equal(LIST(4, 4), -EPROTO);
	assert_int_equal(LIST(4, 3), -EPROTO);
	assert_int_equal(LIST(0, 1, PL_NVME_NSID_ALL), -EPROTO);
	env_close(&e);
	free(lists);
}

/* More than one list has room for: the next one goes on where that ended. */
static void test_two_lists(void **state)
{
	enum { FULL = PL_NVME_NS_LIST_ENTRIES };
	struct env e = { .f = fake_new() };
	struct lists *lists = calloc(1, sizeof(*lists));
	uint32_t *got = calloc(2 * FULL, sizeof(*got));

	(void)state;
	env_open(&e, NULL, NULL);
	e.f->hook = give_list;
	e.f->hook_arg = lists;
	for (uint32_t i = 0; i < FULL; i++)
		lists->ids[0][i] = i + 1;
	for (uint32_t i = 0; i < 5; i++)
		lists->ids[1][i] = FULL + 1 + i;
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, got, 2 * FULL), FULL + 5);
	for (uint32_t i = 0; i < FULL + 5; i++)
		assert_int_equal(got[i], i + 1);
	assert_int_equal(lists->nr_asked, 2);
	/* No more than there is room for, and no second list for nothing. */
	lists->nr_asked = 0;
	memset(got, 0, 2 * FULL * sizeof(*got));
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, got, FULL), FULL);
	assert_int_equal(lists->nr_asked, 1);
	assert_int_equal(got[FULL], 0);
	/* The second one begins again. */
	lists->nr_asked = 0;
	lists->ids[1][0] = FULL;
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, got, 2 * FULL), -EPROTO);
	env_close(&e);
	free(lists);
	free(got);
}

/* ------------------------------------------------------------------ shutdown */

/* How long a controller that does not finish its shutdown is waited for, by its own clock. */
static uint64_t shutdown_ns(uint32_t rtd3e_us, unsigned int half_seconds)
{
	struct peerlane_nvme *nvme = NULL;
	struct fake *f = fake_new();
	uint64_t began;

	f->cap &= ~((uint64_t)0xff << PL_NVME_CAP_TO_SHIFT);
	f->cap |= (uint64_t)half_seconds << PL_NVME_CAP_TO_SHIFT;
	f->id.rtd3e = rtd3e_us;
	assert_int_equal(fake_open(f, NULL, &nvme), 0);
	f->no_shutdown = true;
	f->tick_ns = SECOND_NS / 100;
	began = f->now_ns;
	peerlane_nvme_close(nvme);
	assert_false(f->ready);
	began = f->now_ns - began;
	fake_free(f);
	return began;
}

/* RTD3E tells how long it may take. Older controllers do not tell, others too little. */
static void test_shutdown(void **state)
{
	(void)state;
	assert_in_range(shutdown_ns(0, 20), 10ull * SECOND_NS, 11ull * SECOND_NS);
	assert_in_range(shutdown_ns(1000, 20), 10ull * SECOND_NS, 11ull * SECOND_NS);
	assert_in_range(shutdown_ns(30000000, 20), 30ull * SECOND_NS, 31ull * SECOND_NS);
	/* No time at all is half a second. */
	assert_in_range(shutdown_ns(0, 0), SECOND_NS / 2, SECOND_NS);
}

/* ------------------------------------------------------------------ what is given back */

/* The pages of a mapping are smaller than the controller's and do not follow each other. */
static void test_no_map(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_map *map = NULL;
	unsigned int before;

	(void)state;
	e.f->cap |= (uint64_t)1 << PL_NVME_CAP_MPSMIN_SHIFT | (uint64_t)1
								      << PL_NVME_CAP_MPSMAX_SHIFT;
	env_open(&e, NULL, NULL);
	e.f->scattered = true;
	before = e.f->nr_maps;
	assert_int_equal(peerlane_nvme_map_host(e.nvme, e.mem, 65536, &map), -EOPNOTSUPP);
	assert_null(map);
	assert_int_equal(e.f->nr_maps, before);
	e.f->scattered = false;
	env_close(&e);
}

/* ------------------------------------------------------------------ errors of long transfers */

static enum fake_do fail_all(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			     struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (!qid)
		return FAKE_DO;
	cqe->status = PL_NVME_CQE_STATUS(sqe->cdw10 ? PL_NVME_SC_INTERNAL : PL_NVME_SC_READ_ERROR);
	return FAKE_STATUS;
}

/* Of several commands that fail, the first one says what the whole failed of; and no more are submitted then. */
static void test_first_error(void **state)
{
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt), .depth = 4 };
	struct peerlane_nvme_completion cpl = { .err = 0 };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_io io;

	(void)state;
	env_open(&e, NULL, &opt);
	e.f->hook = fail_all;
	io = env_io(&e, PL_NVME_READ, 0, 0, TEST_BYTES / 512, 0);
	assert_true(peerlane_nvme_run(e.q, &io, &cpl) < 0);
	assert_in_range(e.f->nr_io, 2, 4);
	assert_int_equal(cpl.status, PL_NVME_SC_READ_ERROR);
	e.f->hook = NULL;
	env_close(&e);
}

/* ------------------------------------------------------------------ completion queues */

static uint32_t acknowledged(const struct env *e)
{
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };

	assert_int_equal(peerlane_nvme_queue_get_info(e->q, &info), 0);
	return pl_nvme_read32(e->f->bar, info.cq_doorbell);
}

/* What was taken from the queue is told to the controller, which has no room for more otherwise. */
static void test_acknowledged(void **state)
{
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt), .depth = 8 };
	struct env e = { .f = fake_new() };

	(void)state;
	env_open(&e, NULL, &opt);
	for (uint32_t i = 1; i < 6; i++) {
		assert_int_equal(env_run(&e, PL_NVME_READ, 0, i, 1, 0), 0);
		assert_int_equal(acknowledged(&e), i);
	}
	env_close(&e);
}

/* The phase of the entries begins again when the queue does. */
static void test_phase(void **state)
{
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt), .depth = 4 };
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->tick_ns = 10000000; /* time-outs pass quickly */
	env_open(&e, NULL, &opt);
	for (unsigned int round = 0; round < 4; round++) {
		/* Each leaves the queue at another place, some of them past its end. */
		memset(e.mem, 0xee, TEST_BYTES);
		env_stress(&e, e.q, 3 + 2 * round);
		assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	}
	assert_int_equal(env_info(&e).nr_resets, 4);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),	    cmocka_unit_test(test_two_lists),
		cmocka_unit_test(test_shutdown),    cmocka_unit_test(test_no_map),
		cmocka_unit_test(test_first_error), cmocka_unit_test(test_acknowledged),
		cmocka_unit_test(test_phase),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
