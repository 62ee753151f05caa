// SPDX-License-Identifier: MIT
/* Peeks seen from the drive: what they read, what they leave alone, and what goes wrong. */
#include "peek_test.h"

#define MILLISECOND ((uint64_t)1000000)

/* ------------------------------------------------------------------ what the drive sees */

/* One group of one lane: the test itself. */
struct alone {
	struct bed b;
	struct pld_array a;
	struct pld_group g;
	struct pld_dma dma[MAX_STORES];
	char *memory;
	const char *data;
};

static void open_alone(struct alone *t, const struct plan *plan)
{
	open_peeks(&t->b, plan);
	t->memory = memory_of(&t->b, 0, t->dma);
	assert_int_equal(pld_array_open(&t->a, &t->g, &t->b.cache, 0, 1), 0);
}

static int peek(struct alone *t, uint64_t at, uint32_t bytes)
{
	return pld_array_peek(&t->a, 1, at, bytes, t->memory, t->dma, &t->data);
}

/* The blocks that have the bytes, and no more; no page comes or goes; what is cached costs nothing. */
static void test_blocks(void **state)
{
	struct plan plan = many(1, 1);
	struct pl_simnvme_counters n;
	struct alone t;
	uint64_t value;

	(void)state;
	plan.served = true;
	open_alone(&t, &plan);
	assert_int_equal(pld_peek_room(&t.a, 1), 512);
	assert_int_equal(pld_peek_room(&t.a, 2), 1024);
	assert_int_equal(pld_peek_room(&t.a, 513), 1024);
	assert_int_equal(pld_peek_room(&t.a, 514), 1536);
	n = counters(&t.b);
	assert_int_equal(peek(&t, 7 * PAGE + 1000, 30), 0);
	assert_ptr_equal(t.data, t.memory + 1000 % 512);
	assert_memory_equal(t.data, t.b.model + 7 * PAGE + 1000, 30);
	assert_int_equal(counters(&t.b).bytes_read - n.bytes_read, 1024);
	/* All of a page, and the last block of the array, which it has in part. */
	assert_int_equal(peek(&t, 8 * PAGE, PAGE), 0);
	assert_memory_equal(t.data, t.b.model + 8 * PAGE, PAGE);
	assert_int_equal(peek(&t, plan.bytes - 1, 1), 0);
	assert_memory_equal(t.data, t.b.model + plan.bytes - 1, 1);
	assert_int_equal(counters(&t.b).bytes_read - n.bytes_read, 1024 + PAGE + 512);
	for (uint32_t f = 0; f < CACHED; f++)
		assert_int_equal(t.b.cache.words[f], 0);
	/* A cached page. */
	assert_int_equal(pld_array_read(&t.a, 1, 9 * PAGE / 8, &value, 8), 0);
	n = counters(&t.b);
	assert_int_equal(peek(&t, 9 * PAGE + 700, 8), 0);
	assert_memory_equal(t.data, t.b.model + 9 * PAGE + 700, 8);
	assert_int_equal(counters(&t.b).io_commands, n.io_commands);
	/* A changed one, of which the drive does not know. */
	value = 0x123456789abcdef0;
	assert_int_equal(pld_array_write(&t.a, 1, 9 * PAGE / 8, &value, 8), 0);
	assert_int_equal(peek(&t, 9 * PAGE, 8), 0);
	assert_memory_equal(t.data, &value, 8);
	assert_int_equal(counters(&t.b).io_commands, n.io_commands);
	/* One that is on its way is waited for. */
	pld_array_prefetch(&t.a, 1, 11 * PAGE, 1);
	assert_int_equal(peek(&t, 11 * PAGE, 8), 0);
	assert_memory_equal(t.data, t.b.model + 11 * PAGE, 8);
	assert_int_equal(counters(&t.b).io_commands, n.io_commands + 1);
	assert_int_equal(pld_array_close(&t.a), 0);
	assert_int_equal(t.b.cache.stats->hits + t.b.cache.stats->misses, 8);
	assert_int_equal(t.b.cache.stats->bytes_read, 1024 + PAGE + 512 + 2 * PAGE);
	check_quiet(&t.b);
	close_peeks(&t.b);
}

/* ------------------------------------------------------------------ what goes wrong */

static void test_refusals(void **state)
{
	struct plan plan = many(1, 1);
	struct alone t;

	(void)state;
	open_alone(&t, &plan);
	assert_int_equal(peek(&t, plan.bytes, 1), -ERANGE);
	assert_int_equal(peek(&t, plan.bytes - 4, 5), -ERANGE);
	assert_int_equal(peek(&t, ~(uint64_t)0, 1), -ERANGE);
	assert_int_equal(peek(&t, ~(uint64_t)0 - 8, 64), -ERANGE);
	assert_int_equal(peek(&t, 0, 0), -EINVAL);
	assert_int_equal(peek(&t, PAGE - 4, 8), -EINVAL);
	assert_int_equal(pld_array_peek(&t.a, 1, 0, 8, t.memory, NULL, &t.data), -EFAULT);
	/* A command cannot say where the second part of such memory is. */
	t.dma[0].first += 3072;
	assert_int_equal(pld_array_peek(&t.a, 1, 0, 1025, t.memory + 3072, t.dma, &t.data),
			 -EINVAL);
	assert_int_equal(pld_array_peek(&t.a, 1, 0, 1024, t.memory + 3072, t.dma, &t.data), 0);
	assert_memory_equal(t.data, t.b.model, 1024);
	t.dma[0].first -= 3072;
	assert_int_equal(pld_array_peek(&t.a, 0, plan.bytes, 8, t.memory, NULL, &t.data), 0);
	assert_int_equal(peek(&t, 0, 8), 0);
	assert_int_equal(pld_array_close(&t.a), 0);
	check_quiet(&t.b);
	close_peeks(&t.b);
}

/* One lane's fault is not that of the others. */
static void faults_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_dma dma[MAX_STORES];
	char *memory = memory_of(b, warp, dma);
	const uint64_t at = pld_lane() == 2 ? b->plan.bytes : (uint64_t)pld_lane() * PAGE;
	const char *data = NULL;
	struct pld_array a;
	struct pld_group g;
	int err;

	note(b, pld_array_open(&a, &g, &b->cache, warp, lanes_of(b->plan.nr_lanes)) != 0);
	err = pld_array_peek(&a, 1, at, 8, memory, pld_lane() == 3 ? NULL : dma, &data);
	note(b, err != (pld_lane() == 1	  ? -EIO
			: pld_lane() == 2 ? -ERANGE
			: pld_lane() == 3 ? -EFAULT
					  : 0));
	note(b, !err && memcmp(data, b->model + at, 8));
	note(b, (g.status & 0x7ff) != 0x281);
	note(b, pld_array_close(&a) != 0);
}

static void test_faults(void **state)
{
	struct plan plan = many(1, 8);
	struct bed b;

	(void)state;
	plan.served = true;
	open_peeks(&b, &plan);
	inject(&b, "status opcode=read lba=8 code=0x281 count=1");
	bed_run(&b, faults_main);
	assert_int_equal(b.wrong, 0);
	assert_int_equal(b.cache.stats->read_errors, 1);
	check_quiet(&b);
	close_peeks(&b);
}

/* A page that could not be read does not keep a block of it from being read. */
static void test_failed_page(void **state)
{
	struct plan plan = many(1, 1);
	struct alone t;
	uint64_t value;
	uint32_t f = 0;

	(void)state;
	plan.served = true;
	open_alone(&t, &plan);
	inject(&t.b, "status opcode=read lba=16 code=0x281 count=1");
	assert_int_equal(pld_array_read(&t.a, 1, 2 * PAGE / 8, &value, 8), -EIO);
	while (pld_state_(t.b.cache.words[f]) != PLD_FAILED)
		assert_true(++f < CACHED);
	/* Another has not seen yet that it failed. */
	t.b.cache.words[f]++;
	assert_int_equal(peek(&t, 2 * PAGE, 8), 0);
	t.b.cache.words[f]--;
	assert_memory_equal(t.data, t.b.model + 2 * PAGE, 8);
	assert_int_equal(pld_array_close(&t.a), 0);
	check_quiet(&t.b);
	close_peeks(&t.b);
}

/* The same of one that is on its way. */
static void test_failing_page(void **state)
{
	struct plan plan = many(1, 1);
	struct alone t;

	(void)state;
	plan.served = true;
	open_alone(&t, &plan);
	inject(&t.b, "status opcode=read lba=16 code=0x281 count=1");
	pl_simnvme_stop(t.b.store[0].c);
	pld_array_prefetch(&t.a, 1, 2 * PAGE, 1);
	pl_simnvme_start(t.b.store[0].c);
	assert_int_equal(peek(&t, 2 * PAGE, 8), 0);
	assert_memory_equal(t.data, t.b.model + 2 * PAGE, 8);
	assert_int_equal(pld_array_close(&t.a), 0);
	assert_int_equal(t.b.cache.stats->read_errors, 1);
	check_quiet(&t.b);
	close_peeks(&t.b);
}

/* The first warp brings a page in, and peeks at what never comes; the other one waits for the page, and then ends that. */
static void duty_main(unsigned int warp, void *arg)
{
	struct bed *b = arg;
	struct pld_cache cache = b->cache;
	struct pld_dma dma[MAX_STORES];
	char *memory = memory_of(b, warp, dma);
	const char *data;
	struct pld_array a;
	struct pld_group g;
	uint64_t value = 0;

	if (warp)
		cache.timeout_ns = 20000 * MILLISECOND;
	note(b, pld_array_open(&a, &g, &cache, warp, 1) != 0);
	if (!warp) {
		pld_array_prefetch(&a, 1, 5 * PAGE, 1);
		note_err(b, pld_array_peek(&a, 1, 0, 8, memory, dma, &data));
	} else {
		while (!pld_cache_has_(&cache, 5))
			sched_yield();
		note(b, pld_array_read(&a, 1, 5 * PAGE / 8, &value, 8) != 0);
		note(b, memcmp(&value, b->model + 5 * PAGE, 8) != 0);
		__atomic_store_n(&b->store[0].s.stop, 1, __ATOMIC_RELAXED);
	}
	note(b, pld_array_close(&a) != 0);
}

/* The controller goes on when both commands are there. */
static void *let_go_on(void *arg)
{
	struct bed *b = arg;

	while (__atomic_load_n(&b->store[0].s.q[0].tail, __ATOMIC_RELAXED) < 2)
		sched_yield();
	pl_simnvme_start(b->store[0].c);
	return NULL;
}

/* Who peeks looks after the pages that others wait for. */
static void test_duty(void **state)
{
	struct plan plan = many(2, 1);
	pthread_t thread;
	struct bed b;

	(void)state;
	plan.served = true;
	open_peeks(&b, &plan);
	inject(&b, "drop opcode=read lba=0 count=1");
	pl_simnvme_stop(b.store[0].c);
	assert_int_equal(pthread_create(&thread, NULL, let_go_on, &b), 0);
	bed_run(&b, duty_main);
	pthread_join(thread, NULL);
	assert_int_equal(b.wrong, 0);
	assert_int_equal(b.err_count[ECANCELED], 1);
	assert_int_equal(b.cache.stats->read_errors, 0);
	assert_int_equal(b.cache.stats->timeouts, 1);
	check_quiet(&b);
	close_peeks(&b);
}

/* A command that does not end costs its slot, and nothing else. */
static void test_lost(void **state)
{
	struct plan plan = many(1, 1);
	struct alone t;

	(void)state;
	plan.served = true;
	plan.slots = 2;
	plan.timeout_ns = 50 * MILLISECOND;
	open_alone(&t, &plan);
	inject(&t.b, "drop opcode=read lba=0 count=1");
	assert_int_equal(peek(&t, 0, 8), -ETIMEDOUT);
	t.b.cache.timeout_ns = FOR_EVER;
	assert_int_equal(peek(&t, 0, 8), 0);
	/* With no slot left there is nothing to wait for but the time. */
	inject(&t.b, "drop opcode=read lba=0 count=1");
	t.b.cache.timeout_ns = 50 * MILLISECOND;
	assert_int_equal(peek(&t, 0, 8), -ETIMEDOUT);
	assert_int_equal(peek(&t, PAGE, 8), -ETIMEDOUT);
	assert_int_equal(pld_array_close(&t.a), 0);
	assert_int_equal(t.b.cache.stats->timeouts, 3);
	check_quiet(&t.b);
	close_peeks(&t.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),	     cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_faults),	     cmocka_unit_test(test_failed_page),
		cmocka_unit_test(test_failing_page), cmocka_unit_test(test_duty),
		cmocka_unit_test(test_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
