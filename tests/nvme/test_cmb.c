// SPDX-License-Identifier: MIT
/* Submission queues in memory of the controller. */
#include "nvme_test.h"

static void test_cmb(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt),
						    .flags = PEERLANE_NVME_QUEUE_CMB,
						    .depth = 256 };
	struct peerlane_nvme_queue *q[4];
	struct env e = { .f = fake_new() };

	(void)state;
	assert_int_equal(fake_open(e.f, NULL, &e.nvme), 0);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[0]), -EOPNOTSUPP);
	peerlane_nvme_close(e.nvme);

	/* 64 KiB in BAR 2, the first 4 KiB of which are something else. */
	e.f->cmbsz = 15 << 12 | PL_NVME_CMBSZ_SQS;
	e.f->cmbloc = 1 << 12 | 2;
	env_open(&e, NULL, &qopt);
	assert_int_equal(env_info(&e).cmb_bytes, 15 << 12);
	assert_true((char *)e.q->ring.sq == e.f->cmb + 4096);
	env_stress(&e, e.q, 2000);
	/* Three queues of 16 KiB are in; the rest is too small for a fourth. */
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[1]), 0);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[2]), 0);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[3]), -ENOSPC);
	peerlane_nvme_queue_destroy(q[1]);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[1]), 0);
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	env_stress(&e, e.q, 500);
	env_close(&e);

	/* The kind that is told its address, and one that does not like it. */
	for (unsigned int bad = 0; bad < 2; bad++) {
		e.f = fake_new();
		e.f->cap |= (uint64_t)1 << PL_NVME_CAP_CMBS_SHIFT;
		e.f->cmbsz = 16 << 12 | PL_NVME_CMBSZ_SQS;
		e.f->cmbloc = 2;
		pl_nvme_write32(e.f->bar, PL_NVME_REG_CMBSTS, bad);
		assert_int_equal(fake_open(e.f, NULL, &e.nvme), 0);
		assert_int_equal(env_info(&e).cmb_bytes, bad ? 0 : 1 << 16);
		assert_true(pl_nvme_read64(e.f->bar, PL_NVME_REG_CMBMSC) ==
			    ((uint64_t)FAKE_FRAMES << 12 | 3));
		peerlane_nvme_close(e.nvme);
		fake_free(e.f);
	}
}

/* Registers that lie about it are not believed. */
static void test_bad_cmb(void **state)
{
	static const uint32_t regs[][2] = {
		{ 0xfffff << 12 | 6 << 8 | PL_NVME_CMBSZ_SQS, 2 },   /* clipped to the BAR */
		{ 1 << 12 | 7 << 8 | PL_NVME_CMBSZ_SQS, 2 },	     /* no such unit */
		{ 1 << 12 | PL_NVME_CMBSZ_SQS, 0xfffffu << 12 | 2 }, /* beyond the BAR */
		{ 1 << 12 | PL_NVME_CMBSZ_SQS, 1 },		     /* no such BAR */
		{ 1 << 12 | PL_NVME_CMBSZ_SQS, 3 },
		{ 1 << 12 | PL_NVME_CMBSZ_SQS, 7 },
		{ 1 << 12 | PL_NVME_CMBSZ_CQS, 2 }, /* not for submission queues */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(regs) / sizeof(regs[0]); i++) {
		struct env e = { .f = fake_new() };

		e.f->cmbsz = regs[i][0];
		e.f->cmbloc = regs[i][1];
		assert_int_equal(fake_open(e.f, NULL, &e.nvme), 0);
		assert_int_equal(env_info(&e).cmb_bytes, i ? 0 : FAKE_CMB_BYTES);
		peerlane_nvme_close(e.nvme);
		fake_free(e.f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cmb),
		cmocka_unit_test(test_bad_cmb),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
