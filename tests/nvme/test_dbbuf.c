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
		cmocka_unit_test(test_dbbuf),
		cmocka_unit_test(test_dbbuf_refused),
		cmocka_unit_test(test_dbbuf_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
