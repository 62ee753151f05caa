// SPDX-License-Identifier: MIT
/* Arrays when things go wrong, and what an array does to its drive: seen from the controller. */
#include "array_test.h"

#define PAGE 4096u
#define PER_PAGE (PAGE / 8)
#define MILLISECOND ((uint64_t)1000000)

static struct plan one_set(unsigned int nr_warps, unsigned int nr_lanes)
{
	return (struct plan){ .served = true,
			      .nr_targets = 1,
			      .page = PAGE,
			      .ways = 4,
			      .nr_frames = 4,
			      .bytes = 64 * PAGE,
			      .element = 8,
			      .nr_warps = nr_warps,
			      .nr_lanes = nr_lanes,
			      .slots = 8 };
}

static bool is_element(uint64_t e, uint32_t changes, uint64_t value)
{
	uint64_t expected;

	make_element(&expected, e, changes, 8);
	return value == expected;
}

/* Some tests are of one group of one lane: the test itself. */
static void alone(struct bed *b, struct pld_array *a, struct pld_group *g, const struct plan *plan)
{
	bed_open(b, plan);
	assert_int_equal(pld_array_open(a, g, &b->cache, 0, 1), 0);
}

static int read_one(struct pld_array *a, uint64_t e)
{
	uint64_t value = 0;
	const int err = pld_array_read(a, 1, e, &value, 8);

	if (!err)
		assert_true(is_element(e, 0, value));
	return err;
}

static int write_one(struct bed *b, struct pld_array *a, uint64_t e)
{
	make_element(b->model + e * 8, e, 1, 8);
	return pld_array_write(a, 1, e, b->model + e * 8, 8);
}

/* ------------------------------------------------------------------ what the drive sees */

static void scan_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_array a;
	struct pld_group g;
	uint64_t value;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	for (uint64_t base = 0; base < b->nr_elements; base += PER_PAGE / 4) {
		const uint64_t e = base + pld_lane() * 3;

		note(b, pld_array_read(&a, 1, e, &value, 8) || !is_element(e, 0, value));
	}
	note(b, pld_array_flush(&a, 0, 1) != 0);
	note(b, pld_array_close(&a) != 0);
}

/* A warp that reads with all lanes from one page reads it once; reading writes nothing. */
static void test_reads_only_read(void **state)
{
	struct plan plan = one_set(1, 32);
	struct pl_simnvme_counters before, after;
	struct bed b;

	(void)state;
	bed_open(&b, &plan);
	before = counters(&b);
	bed_run(&b, scan_main);
	after = counters(&b);
	assert_int_equal(b.wrong, 0);
	assert_int_equal(after.io_commands - before.io_commands, 64);
	assert_int_equal(after.bytes_read - before.bytes_read, 64 * PAGE);
	assert_int_equal(after.blocks_written, before.blocks_written);
	assert_int_equal(b.cache.stats->misses, 64);
	assert_int_equal(b.cache.stats->hits, 3 * 64);
	assert_int_equal(b.cache.stats->evictions, 60);
	assert_int_equal(b.cache.stats->bytes_read, 64 * PAGE);
	assert_int_equal(b.cache.stats->write_backs, 0);
	check_quiet(&b);
	bed_close(&b);
}

static void spread_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_array a;
	struct pld_group g;
	uint64_t value;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	note(b, pld_array_read(&a, 1, pld_lane() / 2 * PER_PAGE, &value, 8) != 0);
	note(b, !is_element(pld_lane() / 2 * PER_PAGE, 0, value));
	note(b, pld_array_close(&a) != 0);
}

/* Lanes that want the same page cost one command and one miss together. */
static void test_one_command(void **state)
{
	struct plan plan = one_set(1, 16);
	struct bed b;

	(void)state;
	plan.nr_frames = 32;
	bed_open(&b, &plan);
	bed_run(&b, spread_main);
	assert_int_equal(b.wrong, 0);
	assert_int_equal(b.store[0].s.q[0].tail, 8);
	assert_int_equal(b.cache.stats->misses, 8);
	bed_close(&b);
}

/* Of changed pages each is written once, whole and nothing else, when there is need or by a flush. */
static void test_writes_what_changed(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pl_simnvme_counters before, after;
	struct pld_array a;
	struct pld_group g;
	struct bed b;

	(void)state;
	alone(&b, &a, &g, &plan);
	before = counters(&b);
	for (uint64_t p = 0; p < 3; p++)
		for (uint64_t k = 0; k < 20; k++)
			assert_int_equal(write_one(&b, &a, p * PER_PAGE + k), 0);
	after = counters(&b);
	assert_int_equal(after.blocks_written, before.blocks_written);
	/* Other pages go through four frames, until the hand has been everywhere. */
	for (uint64_t i = 0; i < 5 * (PLD_STAY + 1); i++)
		assert_int_equal(read_one(&a, (10 + i % 20) * PER_PAGE), 0);
	after = counters(&b);
	assert_int_equal(after.bytes_written - before.bytes_written, 3 * PAGE);
	check_stored(&b);
	assert_int_equal(write_one(&b, &a, 40 * PER_PAGE + 7), 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), 0);
	check_stored(&b);
	after = counters(&b);
	assert_int_equal(after.bytes_written - before.bytes_written, 4 * PAGE);
	assert_int_equal(pld_array_commit(&a), 0);
	assert_int_equal(pld_array_close(&a), 0);
	assert_int_equal(b.cache.stats->write_backs, 4);
	assert_int_equal(b.cache.stats->bytes_written, 4 * PAGE);
	check_quiet(&b);
	bed_close(&b);
}

/* ------------------------------------------------------------------ errors of the drive */

/* All read the same page, whose first read fails. */
static void waiters_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_array a;
	struct pld_group g;
	uint64_t value = 0;
	int err;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	err = pld_array_read(&a, 1, pld_lane(), &value, 8);
	note(b, err ? err != -EIO || value : !is_element(pld_lane(), 0, value));
	note_err(b, err);
	/* Whoever got the error asks again, and gets the page. */
	while (pld_ballot(a.lanes, err != 0)) {
		err = pld_array_read(&a, err != 0, pld_lane(), &value, 8);
		note(b, err && err != -EIO);
	}
	note(b, !is_element(pld_lane(), 0, value));
	note(b, pld_array_close(&a) != 0);
}

/* The controller goes on when all warps wait for the page. */
static void *wake_it(void *arg)
{
	struct bed *b = arg;
	uint64_t refs = 0;

	while (refs != b->plan.nr_warps) {
		refs = 0;
		for (uint32_t f = 0; f < b->plan.nr_frames; f++)
			refs += __atomic_load_n(&b->cache.words[f], __ATOMIC_RELAXED) & PLD_REFS;
		sched_yield();
	}
	pl_simnvme_start(b->store[0].c);
	return NULL;
}

static void test_read_error(void **state)
{
	struct plan plan = one_set(4, 4);
	pthread_t thread;
	struct bed b;

	(void)state;
	bed_open(&b, &plan);
	inject(&b, "status opcode=read lba=0 code=0x281 count=1");
	pl_simnvme_stop(b.store[0].c);
	assert_int_equal(pthread_create(&thread, NULL, wake_it, &b), 0);
	bed_run(&b, waiters_main);
	pthread_join(thread, NULL);
	assert_int_equal(b.wrong, 0);
	assert_int_equal(b.cache.stats->read_errors, 1);
	assert_int_equal(b.err_count[EIO], 16);
	check_quiet(&b);
	bed_close(&b);
}

/* A page that cannot be read never shows; others are not touched by it. */
static void test_bad_page(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pld_ticket t;
	struct pld_array a;
	struct pld_group g;
	struct bed b;
	int err;

	(void)state;
	alone(&b, &a, &g, &plan);
	inject(&b, "status opcode=read lba=16 code=0x281 dnr=1 count=6");
	for (int i = 0; i < 3; i++)
		assert_int_equal(read_one(&a, 2 * PER_PAGE), -EIO);
	assert_int_equal(g.status & 0x7ff, 0x281);
	assert_int_equal(write_one(&b, &a, 2 * PER_PAGE), -EIO);
	make_element(b.model + 2 * PER_PAGE * 8, 2 * PER_PAGE, 0, 8);
	err = pld_array_issue(&a, 1, 2 * PER_PAGE, 8, &t);
	while (!err)
		err = pld_array_ready(&a, &t);
	assert_int_equal(err, -EIO);
	pld_array_prefetch(&a, 1, 2 * PER_PAGE, 8);
	for (uint64_t p = 3; p < 20; p++)
		assert_int_equal(read_one(&a, p * PER_PAGE), 0);
	assert_int_equal(pld_array_close(&a), 0);
	assert_int_equal(b.cache.stats->read_errors, 6);
	assert_int_equal(b.cache.stats->write_backs, 0);
	check_quiet(&b);
	check_stored(&b);
	bed_close(&b);
}

/* What cannot be written stays, and stays changed, until it can. */
static void test_write_error(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pld_array a;
	struct pld_group g;
	struct pld_ticket t[4];
	uint64_t value;
	struct bed b;

	(void)state;
	alone(&b, &a, &g, &plan);
	inject(&b, "status opcode=write code=0x280 count=4");
	assert_int_equal(write_one(&b, &a, 5), 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), -EIO);
	assert_int_equal(g.status & 0x7ff, 0x280);
	assert_int_equal(pld_array_flush(&a, 0, 1), -EIO);
	/* Others come and go, and may fail to write it, too. */
	for (uint64_t i = 0; i < 16 * (PLD_STAY + 1); i++)
		assert_int_equal(read_one(&a, (1 + i % 20) * PER_PAGE), 0);
	assert_int_equal(pld_array_read(&a, 1, 5, &value, 8), 0);
	assert_true(is_element(5, 1, value));
	check_stored(&b);
	/* If all are so there is no room: an error, and not for ever. */
	for (uint64_t p = 0; p < 4; p++) {
		assert_int_equal(write_one(&b, &a, p * PER_PAGE), 0);
		assert_int_equal(pld_array_issue(&a, 1, p * PER_PAGE, 8, &t[p]), 1);
	}
	for (uint64_t p = 0; p < 4; p++)
		pld_array_release(&a, &t[p]);
	inject(&b, "status opcode=write code=0x280 count=9");
	assert_int_equal(read_one(&a, 30 * PER_PAGE), -EIO);
	for (int i = 0; pld_array_flush(&a, 0, 1); i++)
		assert_true(i < 20);
	check_stored(&b);
	assert_int_equal(read_one(&a, 30 * PER_PAGE), 0);
	assert_int_equal(pld_array_close(&a), 0);
	assert_int_equal(b.cache.stats->write_errors, 13);
	check_quiet(&b);
	bed_close(&b);
}

/* A page that can never be written takes a frame, and nothing from the others. */
static void test_never_written(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pld_array a;
	struct pld_group g;
	struct bed b;

	(void)state;
	alone(&b, &a, &g, &plan);
	inject(&b, "status opcode=write lba=0 code=0x280");
	assert_int_equal(write_one(&b, &a, 5), 0);
	for (uint64_t i = 0; i < 2000; i++)
		assert_int_equal(read_one(&a, (1 + i % 20) * PER_PAGE), 0);
	assert_true(g.write_errors > 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), -EIO);
	assert_int_equal(pld_array_close(&a), 0);
	bed_close(&b);
}

/* ------------------------------------------------------------------ time-outs and the end */

/* Count frames in a state. */
static unsigned int frames_in(const struct bed *b, uint32_t state)
{
	unsigned int nr = 0;

	for (uint32_t f = 0; f < b->cache.ways << b->cache.log_sets; f++)
		nr += pld_state_(b->cache.words[f]) == state;
	return nr;
}

/* A command that does not end: its frame is lost to the array, nothing else is. */
static void test_lost_read(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pld_array a;
	struct pld_group g;
	struct bed b;

	(void)state;
	plan.timeout_ns = 50 * MILLISECOND;
	alone(&b, &a, &g, &plan);
	inject(&b, "drop opcode=read lba=0 count=1");
	assert_int_equal(read_one(&a, 0), -ETIMEDOUT);
	b.cache.timeout_ns = FOR_EVER;
	for (uint64_t p = 1; p < 20; p++)
		assert_int_equal(read_one(&a, p * PER_PAGE), 0);
	assert_int_equal(frames_in(&b, PLD_FILLING), 1);
	b.cache.timeout_ns = 50 * MILLISECOND;
	assert_int_equal(read_one(&a, 0), -ETIMEDOUT);
	assert_int_equal(pld_array_close(&a), -ETIMEDOUT);
	/* The next one does not forget it. */
	assert_int_equal(pld_array_open(&a, &g, &b.cache, 0, 1), 0);
	assert_int_equal(pld_array_close(&a), -ETIMEDOUT);
	assert_int_equal(frames_in(&b, PLD_FILLING), 1);
	assert_true(b.cache.stats->timeouts >= 2);
	bed_close(&b);
}

/* A command that ends late: until then its frame is not used, afterwards the page is there. */
static void test_late_read(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pl_simnvme_counters n;
	struct pld_array a;
	struct pld_group g;
	struct bed b;

	(void)state;
	plan.timeout_ns = 1;
	plan.slots = 2;
	alone(&b, &a, &g, &plan);
	/* Carried out together with the next one, which does not come by itself. */
	inject(&b, "reorder opcode=read window=2 count=2");
	assert_int_equal(read_one(&a, 0), -ETIMEDOUT);
	assert_int_equal(frames_in(&b, PLD_FILLING), 1);
	b.cache.timeout_ns = FOR_EVER;
	assert_int_equal(read_one(&a, PER_PAGE), 0);
	while (frames_in(&b, PLD_FILLING))
		pld_array_poll(&a);
	n = counters(&b);
	assert_int_equal(read_one(&a, 0), 0);
	assert_int_equal(counters(&b).io_commands, n.io_commands);
	assert_int_equal(pld_array_close(&a), 0);
	check_quiet(&b);
	bed_close(&b);
}

/* What a kernel leaves is never believed by the next: the page is read again. */
static void test_left_behind(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pld_array a;
	struct pld_group g;
	struct bed b;

	(void)state;
	alone(&b, &a, &g, &plan);
	assert_int_equal(write_one(&b, &a, 2 * PER_PAGE), 0);
	inject(&b, "drop opcode=read lba=0 count=1");
	inject(&b, "drop opcode=write count=1");
	b.cache.timeout_ns = 1;
	assert_int_equal(read_one(&a, 0), -ETIMEDOUT);
	assert_int_equal(pld_array_flush(&a, 0, 1), -ETIMEDOUT);
	assert_int_equal(pld_array_close(&a), -ETIMEDOUT);
	/* Somebody makes the queue new meanwhile: the slots look as if all had gone well. */
	for (uint32_t i = 0; i < plan.slots; i++)
		b.store[0].s.q[0].slots[i] &= ~(PLD_PENDING | UINT32_MAX);
	b.cache.timeout_ns = FOR_EVER;
	assert_int_equal(pld_array_open(&a, &g, &b.cache, 0, 1), 0);
	assert_int_equal(read_one(&a, 0), 0);
	assert_int_equal(frames_in(&b, PLD_WRITING), 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), 0);
	check_stored(&b);
	assert_int_equal(pld_array_close(&a), 0);
	check_quiet(&b);
	bed_close(&b);
}

static void stopped_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_array a;
	struct pld_group g;
	uint64_t value;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	note_err(b, pld_array_read(&a, 1, warp / 2 * PER_PAGE, &value, 8));
	note_err(b, pld_array_close(&a));
}

static void *stop_it(void *arg)
{
	struct bed *b = arg;

	while (counters(b).faults_injected < 2)
		sched_yield();
	__atomic_store_n(&b->store[0].s.stop, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* The host ends all waits, of those who read and of those who wait for them. */
static void test_kill_switch(void **state)
{
	struct plan plan = one_set(4, 4);
	pthread_t thread;
	struct bed b;

	(void)state;
	bed_open(&b, &plan);
	inject(&b, "drop opcode=read");
	assert_int_equal(pthread_create(&thread, NULL, stop_it, &b), 0);
	bed_run(&b, stopped_main);
	pthread_join(thread, NULL);
	assert_int_equal(b.wrong, 0);
	/* Two of four warps have a command outstanding. */
	assert_int_equal(b.err_count[ECANCELED], 4 * 4 + 2 * 4);
	bed_close(&b);
}

/* ------------------------------------------------------------------ frames in use */

/* Pages that are held are not evicted: an error, and room again once one is let go. */
static void test_all_held(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pld_ticket t[4];
	struct pld_array a;
	struct pld_group g;
	const char *data;
	uint32_t bytes;
	struct bed b;

	(void)state;
	plan.busy_ns = 1;
	alone(&b, &a, &g, &plan);
	for (uint64_t p = 0; p < 4; p++) {
		int state_of = pld_array_issue(&a, 1, p * PER_PAGE + p, 8, &t[p]);

		while (!state_of)
			state_of = pld_array_ready(&a, &t[p]);
		assert_int_equal(state_of, 1);
	}
	assert_int_equal(read_one(&a, 9 * PER_PAGE), -EBUSY);
	assert_int_equal(write_one(&b, &a, 9 * PER_PAGE), -EBUSY);
	assert_int_equal(pld_array_hold(&a, 9 * PAGE, &data, &bytes), -EBUSY);
	pld_array_prefetch(&a, 1, 9 * PER_PAGE, 8);
	for (uint64_t p = 0; p < 4; p++)
		assert_memory_equal(pld_ticket_data(&a, &t[p]), b.model + (p * PER_PAGE + p) * 8,
				    8);
	/* They can be read and written all the while, and written back. */
	assert_int_equal(write_one(&b, &a, PER_PAGE), 0);
	assert_int_equal(pld_array_flush(&a, 0, 1), 0);
	pld_array_release(&a, &t[2]);
	make_element(b.model + 9 * PER_PAGE * 8, 9 * PER_PAGE, 0, 8);
	for (uint64_t p = 9; p < 20; p++)
		assert_int_equal(read_one(&a, p * PER_PAGE), 0);
	assert_memory_equal(pld_ticket_data(&a, &t[0]), b.model, 8);
	for (uint64_t p = 0; p < 4; p++)
		pld_array_release(&a, &t[p]);
	assert_int_equal(pld_array_close(&a), 0);
	check_quiet(&b);
	check_stored(&b);
	bed_close(&b);
}

/* A page that is used again and again stays, whatever passes through, once the hand has moved on. */
static void test_second_chance(void **state)
{
	struct plan plan = one_set(1, 1);
	struct pl_simnvme_counters n;
	struct pld_array a;
	struct pld_group g;
	struct bed b;

	(void)state;
	alone(&b, &a, &g, &plan);
	for (uint64_t i = 0; i < 5 * (PLD_STAY + 1); i++) {
		n = counters(&b);
		assert_int_equal(read_one(&a, 0), 0);
		if (i > PLD_STAY)
			assert_int_equal(counters(&b).io_commands, n.io_commands);
		assert_int_equal(read_one(&a, (1 + i % 20) * PER_PAGE), 0);
	}
	assert_int_equal(pld_array_close(&a), 0);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_only_read),
		cmocka_unit_test(test_one_command),
		cmocka_unit_test(test_writes_what_changed),
		cmocka_unit_test(test_read_error),
		cmocka_unit_test(test_bad_page),
		cmocka_unit_test(test_write_error),
		cmocka_unit_test(test_never_written),
		cmocka_unit_test(test_lost_read),
		cmocka_unit_test(test_late_read),
		cmocka_unit_test(test_left_behind),
		cmocka_unit_test(test_kill_switch),
		cmocka_unit_test(test_all_held),
		cmocka_unit_test(test_second_chance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
