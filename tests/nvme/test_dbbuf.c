// SPDX-License-Identifier: MIT
/* Shadow doorbells. */
#include "nvme_test.h"

/* Shadow doorbells: all is done without the registers once the controller has told so. */
static void test_dbbuf(void **state)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .flags = PEERLANE_NVME_NO_DBBUF };
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 1);
	assert_true(e.f->shadow);
	env_stress(&e, e.q, 2000);
	/* The queue is used again after a reset, which makes the controller forget the shadows. */
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_true(e.f->shadow);
	env_stress(&e, e.q, 2000);
	env_close(&e);

	e.f = fake_new();
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, &opt, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 0);
	assert_false(e.f->shadow);
	env_stress(&e, e.q, 500);
	env_close(&e);
}

static enum fake_do no_dbbuf(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			     struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (qid || sqe->opcode != PL_NVME_ADMIN_DBBUF)
		return FAKE_DO;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INTERNAL);
	return FAKE_STATUS;
}

/* It offers them and then refuses: the registers do. */
static void test_dbbuf_refused(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	e.f->hook = no_dbbuf;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 0);
	env_stress(&e, e.q, 500);
	/* And the other way round after a reset. */
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(env_info(&e).has_dbbuf, 1);
	env_stress(&e, e.q, 500);
	e.f->hook = no_dbbuf;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	env_stress(&e, e.q, 500);
	env_close(&e);
}

/* With doorbells 512 bytes apart a page holds those of queues 0 to 3; the others have only registers. */
static void test_dbbuf_past_page(void **state)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .nr_queues = 7 };
	struct peerlane_nvme_queue *q[6];
	struct env e = { .f = fake_new() };
	unsigned int nr_mmio;

	(void)state;
	e.f->cap |= (uint64_t)7 << PL_NVME_CAP_DSTRD_SHIFT;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, &opt, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 1);
	for (unsigned int i = 0; i < 6; i++)
		assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q[i]), 0);
	for (unsigned int i = 0; i < 6; i++) {
		nr_mmio = e.f->nr_mmio;
		env_stress(&e, q[i], 500);
		/* Queues 2 and 3 are q[0] and q[1]. */
		assert_int_equal(e.f->nr_mmio != nr_mmio, i >= 2);
	}
	env_close(&e);
}

/* A controller that cannot read a shadow has failed until it is reset. */
static void test_dbbuf_unmapped(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, NULL, NULL);
	e.f->shadow = (uint64_t)(FAKE_FRAMES - 1) << 12;
	assert_null(fake_at(e.f, e.f->shadow, 4));
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), -ECONNRESET);
	assert_int_equal(env_info(&e).nr_resets, 1);
	env_stress(&e, e.q, 100);
	env_close(&e);
}

/* A register is written only for values that the controller asked to be told about. */
static void test_dbbuf_events(void **state)
{
	volatile uint32_t reg = 99, shadow = 0;
	uint32_t event = 0;
	struct pl_nvme_doorbell db = { .reg = &reg, .shadow = &shadow, .event = &event };

	(void)state;
	pl_nvme_ring_bell(&db, 0, 1);
	assert_int_equal(reg, 1);
	event = 9; /* not yet */
	pl_nvme_ring_bell(&db, 1, 4);
	assert_int_equal(reg, 1);
	assert_int_equal(shadow, 4);
	pl_nvme_ring_bell(&db, 4, 12);
	assert_int_equal(reg, 12);
	event = 12;
	pl_nvme_ring_bell(&db, 12, 2); /* round the end */
	assert_int_equal(reg, 2);
	event = 1; /* it has seen less than it was told */
	pl_nvme_ring_bell(&db, 2, 3);
	assert_int_equal(reg, 2);
	/* The admin queue's: both, always. */
	db.event = NULL;
	pl_nvme_ring_bell(&db, 3, 4);
	assert_int_equal(reg, 4);
	assert_int_equal(shadow, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dbbuf),		cmocka_unit_test(test_dbbuf_refused),
		cmocka_unit_test(test_dbbuf_past_page), cmocka_unit_test(test_dbbuf_unmapped),
		cmocka_unit_test(test_dbbuf_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
