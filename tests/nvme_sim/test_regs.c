// SPDX-License-Identifier: MIT
/* Registers: what is offered, enabling, refusing to, shutdown, reset, writes that are forbidden. */
#include "host.h"

static const uint32_t rdy = PL_NVME_CSTS_RDY, cfs = PL_NVME_CSTS_CFS;

static uint32_t csts(struct host *h)
{
	return host_read32(h, PL_NVME_REG_CSTS);
}

static void capabilities(void **state)
{
	struct host h;
	uint64_t cap;

	(void)state;
	host_open(&h, "sim:mqes=126,dstrd=3,to=7,mpsmin=1,mpsmax=2,cqr=1,cmb=64K");
	cap = host_read64(&h, PL_NVME_REG_CAP);
	assert_int_equal(PL_NVME_CAP_MQES(cap), 126);
	assert_int_equal(PL_NVME_CAP_DSTRD(cap), 3);
	assert_int_equal(PL_NVME_CAP_TO(cap), 7);
	assert_int_equal(PL_NVME_CAP_MPSMIN(cap), 1);
	assert_int_equal(PL_NVME_CAP_MPSMAX(cap), 2);
	assert_int_equal(PL_NVME_CAP_CQR(cap), 1);
	assert_int_equal(PL_NVME_CAP_CMBS(cap), 1);
	assert_int_equal(PL_NVME_CAP_CSS(cap), PL_NVME_CSS_NVM);
	assert_int_equal(host_read32(&h, PL_NVME_REG_VS), PL_NVME_VS(1, 4, 0));
	assert_int_equal(csts(&h), 0);
	host_close(&h);
}

static void enable_and_reset(void **state)
{
	struct host h;

	(void)state;
	host_start(&h, "sim:");
	host_create(&h, 1, 16);
	assert_int_equal(host_counters(&h).io_queues, 2);
	host_disable(&h);
	/* Queues are gone, the registers of the admin queue are not. */
	assert_int_equal(host_counters(&h).io_queues, 0);
	assert_int_equal(host_read32(&h, PL_NVME_REG_AQA), 63u << 16 | 63);
	assert_true(host_read64(&h, PL_NVME_REG_ASQ) == h.q[0].sq_iova);
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 16);
	assert_int_equal(host_counters(&h).resets, 1);
	assert_int_equal(host_counters(&h).enables, 2);
	assert_int_equal(host_counters(&h).bad_registers, 0);
	host_close(&h);
}

static void ready_takes_time(void **state)
{
	struct host h;

	(void)state;
	host_open(&h, "sim:ready=50");
	host_set_admin(&h, 16);
	host_write32(&h, PL_NVME_REG_CC, host_cc());
	host_turns(&h, 49);
	assert_int_equal(csts(&h), 0);
	host_turns(&h, 3);
	assert_int_equal(csts(&h), rdy);
	host_close(&h);
}

/* Each of these must end in CFS and never in RDY. */
static void refused(const char *config, uint32_t aqa, uint64_t asq, uint64_t acq, uint32_t cc)
{
	struct host h;

	host_open(&h, config);
	host_write32(&h, PL_NVME_REG_AQA, aqa);
	host_write64(&h, PL_NVME_REG_ASQ, asq);
	host_write64(&h, PL_NVME_REG_ACQ, acq);
	host_write32(&h, PL_NVME_REG_CC, cc);
	host_turns(&h, 4);
	assert_int_equal(csts(&h), cfs);
	assert_int_equal(host_counters(&h).bad_registers, 1);
	/* A reset clears it. */
	host_write32(&h, PL_NVME_REG_CC, 0);
	host_turns(&h, 4);
	assert_int_equal(csts(&h), 0);
	host_close(&h);
}

static void enable_refused(void **state)
{
	uint32_t aqa = 15u << 16 | 15, cc = host_cc();
	uint64_t asq = HOST_IOVA, acq = HOST_IOVA + 65536;

	(void)state;
	refused("sim:", 0, asq, acq, cc);
	refused("sim:", 15, asq, acq, cc);
	refused("sim:", 15u << 16, asq, acq, cc);
	refused("sim:", aqa, asq + 64, acq, cc);
	refused("sim:", aqa, asq, acq + 2048, cc);
	refused("sim:mpsmin=1,mpsmax=2", aqa, asq, acq, cc);
	refused("sim:mpsmin=1,mpsmax=2", aqa, asq, acq, cc | 3u << PL_NVME_CC_MPS_SHIFT);
	/* Aligned to 4 KiB, but pages are larger. */
	refused("sim:", aqa, asq + 4096, acq, cc | 1u << PL_NVME_CC_MPS_SHIFT);
	refused("sim:", aqa, asq, acq, cc | 6u << PL_NVME_CC_CSS_SHIFT);
	refused("sim:", aqa, asq, acq, cc | 1u << PL_NVME_CC_AMS_SHIFT);
}

static void shutdown_is_final(void **state)
{
	struct host h;
	uint32_t complete = PL_NVME_SHST_COMPLETE << PL_NVME_CSTS_SHST_SHIFT;
	struct pl_nvme_cqe cqe;

	(void)state;
	for (uint32_t shn = PL_NVME_SHN_NORMAL; shn <= PL_NVME_SHN_ABRUPT; shn++) {
		host_start(&h, "sim:");
		host_write32(&h, PL_NVME_REG_CC, host_cc() | shn << PL_NVME_CC_SHN_SHIFT);
		host_wait_csts(&h, 0xc, complete);
		assert_int_equal(csts(&h), complete | rdy);
		/* No command is taken any more. */
		host_put(&h, 0,
			 (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_GET_FEATURES,
					       .cdw10 = PL_NVME_FEAT_ARBITRATION });
		host_ring(&h, 0);
		host_turns(&h, 10);
		assert_false(host_poll(&h, 0, &cqe));
		/* After a reset there is. */
		host_disable(&h);
		assert_int_equal(csts(&h), 0);
		host_set_admin(&h, 16);
		host_enable(&h);
		host_create(&h, 1, 4);
		assert_int_equal(host_counters(&h).shutdowns, 1);
		host_close(&h);
	}
}

static void forbidden_writes(void **state)
{
	struct host h;
	uint64_t cap;

	(void)state;
	host_start(&h, "sim:");
	cap = host_read64(&h, PL_NVME_REG_CAP);
	host_write64(&h, PL_NVME_REG_CAP, 0);
	host_write32(&h, PL_NVME_REG_VS, 0);
	host_write32(&h, PL_NVME_REG_CSTS, 0);
	host_write32(&h, PL_NVME_REG_AQA, 0);
	host_write64(&h, PL_NVME_REG_ASQ, 0);
	host_turns(&h, 2);
	assert_true(host_read64(&h, PL_NVME_REG_CAP) == cap);
	assert_int_equal(host_read32(&h, PL_NVME_REG_VS), PL_NVME_VS(1, 4, 0));
	assert_int_equal(csts(&h), rdy);
	assert_int_equal(host_read32(&h, PL_NVME_REG_AQA), 63u << 16 | 63);
	assert_true(host_read64(&h, PL_NVME_REG_ASQ) == h.q[0].sq_iova);
	/* Both halves of CAP, VS, CSTS, AQA, and the upper half of ASQ: its lower one is zero anyhow. */
	assert_int_equal(host_counters(&h).bad_registers, 6);
	host_close(&h);
}

static void fields_fixed_while_enabled(void **state)
{
	struct host h;

	(void)state;
	host_start(&h, "sim:");
	host_write32(&h, PL_NVME_REG_CC, host_cc() | 1u << PL_NVME_CC_MPS_SHIFT);
	host_turns(&h, 2);
	assert_int_equal(csts(&h), rdy | cfs);
	host_close(&h);
}

static void enable_in_the_middle_of_a_reset(void **state)
{
	struct host h;

	(void)state;
	host_start(&h, "sim:rule=stuck-ready on=disable count=1");
	host_write32(&h, PL_NVME_REG_CC, 0);
	host_turns(&h, 10);
	assert_int_equal(csts(&h), rdy);
	host_write32(&h, PL_NVME_REG_CC, host_cc());
	host_turns(&h, 2);
	assert_int_equal(csts(&h), rdy | cfs);
	/* A reset from outside gets it out of there. */
	pl_simnvme_reset(h.c);
	assert_int_equal(csts(&h), 0);
	assert_int_equal(host_read32(&h, PL_NVME_REG_AQA), 0);
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 4);
	host_close(&h);
}

static void disable_before_ready(void **state)
{
	struct host h;

	(void)state;
	host_open(&h, "sim:ready=1000");
	host_set_admin(&h, 16);
	host_write32(&h, PL_NVME_REG_CC, host_cc());
	host_turns(&h, 2);
	host_write32(&h, PL_NVME_REG_CC, 0);
	host_turns(&h, 2000);
	assert_int_equal(csts(&h), 0);
	assert_int_equal(host_counters(&h).bad_registers, 1);
	host_close(&h);
}

static void pages_of_other_sizes(void **state)
{
	struct host h;

	(void)state;
	for (uint32_t mps = 0; mps <= 4; mps++) {
		uint64_t iova;
		uint8_t *data;

		host_open(&h, "sim:mpsmin=0,mpsmax=4");
		h.page = 65536;
		host_set_admin(&h, 16);
		host_write32(&h, PL_NVME_REG_CC, host_cc() | mps << PL_NVME_CC_MPS_SHIFT);
		host_wait_csts(&h, rdy, rdy);
		host_create(&h, 1, 16);
		data = host_alloc(&h, 131072, &iova);
		memset(data, 0xa5, 8192);
		/* 8 KiB: two pages of 4 KiB, or one of any other size. */
		assert_int_equal(host_status(&h, 1,
					     host_rw(PL_NVME_WRITE, 1, 0, 16, iova,
						     mps ? 0xdead : iova + 4096)),
				 0);
		assert_int_equal(host_counters(&h).bytes_written, 8192);
		host_close(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(capabilities),
		cmocka_unit_test(enable_and_reset),
		cmocka_unit_test(ready_takes_time),
		cmocka_unit_test(enable_refused),
		cmocka_unit_test(shutdown_is_final),
		cmocka_unit_test(forbidden_writes),
		cmocka_unit_test(fields_fixed_while_enabled),
		cmocka_unit_test(enable_in_the_middle_of_a_reset),
		cmocka_unit_test(disable_before_ready),
		cmocka_unit_test(pages_of_other_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
