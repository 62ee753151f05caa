// SPDX-License-Identifier: MIT
/* Starting and stopping a controller, by its own clock: how long it is waited for, and what ends the waiting. */
#include "nvme_test.h"

#define SECOND_NS 1000000000ull
#define TICK_NS (SECOND_NS / 100)

/* Opens what was set up, which does not work, and says how long that took. */
static int fails(struct fake *f, uint64_t *ns)
{
	struct peerlane_nvme *nvme = NULL;
	int rc;

	f->tick_ns = TICK_NS;
	*ns = f->now_ns;
	rc = fake_open(f, NULL, &nvme);
	*ns = f->now_ns - *ns;
	assert_null(nvme);
	assert_int_equal(f->nr_opens, 0);
	assert_int_equal(f->nr_maps, 0);
	fake_free(f);
	return rc;
}

static struct fake *slow(unsigned int half_seconds)
{
	struct fake *f = fake_new();

	f->cap &= ~((uint64_t)0xff << PL_NVME_CAP_TO_SHIFT);
	f->cap |= (uint64_t)half_seconds << PL_NVME_CAP_TO_SHIFT;
	f->never_ready = true;
	return f;
}

/* CAP.TO, or CRTO where there is one that tells more; and the same again before it is switched off. */
static void test_time(void **state)
{
	struct fake *f = slow(4);
	uint64_t ns;

	(void)state;
	assert_int_equal(fails(f, &ns), -ETIMEDOUT);
	assert_in_range(ns, 2 * SECOND_NS, 5 * SECOND_NS);
	f = slow(4);
	f->cap |= (uint64_t)1 << PL_NVME_CAP_CRWMS_SHIFT;
	pl_nvme_write32(f->bar, PL_NVME_REG_CRTO, 60);
	assert_int_equal(fails(f, &ns), -ETIMEDOUT);
	assert_in_range(ns, 30 * SECOND_NS, 61 * SECOND_NS);
	f = slow(4);
	f->cap |= (uint64_t)1 << PL_NVME_CAP_CRWMS_SHIFT;
	pl_nvme_write32(f->bar, PL_NVME_REG_CRTO, 1);
	assert_int_equal(fails(f, &ns), -ETIMEDOUT);
	assert_in_range(ns, 2 * SECOND_NS, 5 * SECOND_NS);
}

/* A fatal error, and registers that read as all ones since nothing is there, are not waited out. */
static void test_no_hope(void **state)
{
	struct fake *f = slow(20);
	uint64_t ns;

	(void)state;
	f->fatal = true;
	assert_int_equal(fails(f, &ns), -EIO);
	assert_in_range(ns, 0, SECOND_NS);
	f = fake_new();
	f->all_ones = true;
	assert_int_equal(fails(f, &ns), -ENODEV);
	assert_in_range(ns, 0, SECOND_NS);
}

/* Entries of queues have one size, which the controller must take. */
static void test_entry_sizes(void **state)
{
	static const uint8_t sqes[] = { 0x66, 0x76, 0x65, 0x77, 0x55 };
	static const uint8_t cqes[] = { 0x44, 0x54, 0x43, 0x55, 0x33 };
	struct fake *f;
	uint64_t ns;

	(void)state;
	for (unsigned int i = 0; i < 5; i++) {
		struct env e = { .f = fake_new() };

		e.f->tick_ns = TICK_NS;
		e.f->id.sqes = sqes[i < 3 ? i : 0];
		e.f->id.cqes = cqes[i < 3 ? i : 0];
		env_open(&e, NULL, NULL);
		env_close(&e);
		if (i < 3)
			continue;
		f = fake_new();
		f->id.sqes = sqes[i];
		assert_int_equal(fails(f, &ns), -EOPNOTSUPP);
		f = fake_new();
		f->id.cqes = cqes[i];
		assert_int_equal(fails(f, &ns), -EOPNOTSUPP);
	}
}

/* A controller that is closed is shut down first, and is not waited for when it is done. */
static void test_close(void **state)
{
	struct peerlane_nvme *nvme = NULL;
	struct fake *f = fake_new();
	uint64_t began;

	(void)state;
	f->tick_ns = TICK_NS;
	assert_int_equal(fake_open(f, NULL, &nvme), 0);
	began = f->now_ns;
	peerlane_nvme_close(nvme);
	assert_in_range(f->now_ns - began, 0, SECOND_NS);
	assert_in_range(f->nr_shutdowns, 1, 10);
	assert_false(f->ready);
	fake_free(f);
}

static enum fake_do no_delete(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			      struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (qid || sqe->opcode != PL_NVME_ADMIN_DELETE_SQ)
		return FAKE_DO;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INTERNAL);
	return FAKE_STATUS;
}

/* A queue that cannot be deleted may still be written to: only a reset ends that, before its memory is freed. */
static void test_no_delete(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->tick_ns = TICK_NS;
	env_open(&e, NULL, NULL);
	e.f->hook = no_delete;
	peerlane_nvme_queue_destroy(e.q);
	assert_int_equal(env_info(&e).nr_resets, 1);
	assert_int_equal(e.f->nr_enables, 2);
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &e.q), 0);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), 0);
	env_close(&e);
}

/* A read that is submitted now ends, as far as the queue has noticed what happened to it. */
static int try_read(struct env *e)
{
	struct peerlane_nvme_io io = env_io(e, PL_NVME_READ, 0, 0, 1, 0);
	struct peerlane_nvme_completion done = { .err = -EIO };
	int rc = peerlane_nvme_submit(e->q, &io, 1);

	if (rc != 1)
		return rc;
	rc = peerlane_nvme_wait(e->q, &done, 1, 1, 2000);
	return rc == 1 ? done.err : -ETIME;
}

/* A reset deletes all queues: what was outstanding is lost, which is told, and then they are there again. */
static void test_reset(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;

	(void)state;
	e.f->tick_ns = TICK_NS;
	env_open(&e, NULL, NULL);
	assert_int_equal(try_read(&e), 0);
	e.f->hook = env_drop_io;
	io = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, 2000), 1);
	assert_int_equal(done.err, -ECONNRESET);
	assert_int_equal(try_read(&e), 0);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time),	    cmocka_unit_test(test_no_hope),
		cmocka_unit_test(test_entry_sizes), cmocka_unit_test(test_close),
		cmocka_unit_test(test_no_delete),   cmocka_unit_test(test_reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
