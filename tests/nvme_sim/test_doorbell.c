// SPDX-License-Identifier: MIT
/* Shadow doorbells (DBBUF), and the controller memory buffer. */
#include "host.h"

static struct host h;
static uint64_t at, shadow_at, event_at;
static uint32_t *shadow, *event;

static void configure(void)
{
	shadow = host_alloc(&h, 4096, &shadow_at);
	event = host_alloc(&h, 4096, &event_at);
	host_alloc(&h, 4096, &at);
	assert_int_equal(host_status(&h, 0,
				     (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_DBBUF,
							   .dptr.prp.prp1 = shadow_at,
							   .dptr.prp.prp2 = event_at }),
			 0);
}

static uint32_t load(uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

/* As a driver does: the shadow, then the register if the event index asks for it. */
static bool ring(uint32_t *cell, uint32_t *index, size_t reg, uint32_t value)
{
	uint16_t old = (uint16_t)load(cell), wanted;

	__atomic_store_n(cell, value, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	wanted = (uint16_t)load(index);
	if ((uint16_t)(value - wanted - 1) >= (uint16_t)(value - old))
		return false;
	host_write32(&h, reg, value);
	return true;
}

static bool ring_sq(uint32_t qid)
{
	return ring(shadow + 2 * qid, event + 2 * qid, PL_NVME_DOORBELL_SQ(qid, 0), h.q[qid].tail);
}

static bool ring_cq(uint32_t qid)
{
	return ring(shadow + 2 * qid + 1, event + 2 * qid + 1, PL_NVME_DOORBELL_CQ(qid, 0),
		    h.q[qid].head);
}

static void put(uint32_t qid)
{
	host_put(&h, qid, host_rw(PL_NVME_READ, 1, 0, 1, at, 0));
}

static void wait(uint32_t qid)
{
	struct pl_nvme_cqe cqe;

	for (int i = 0; !host_peek(&h, qid, &cqe); i++) {
		if (i == 100000)
			fail_msg("no completion in queue %u", qid);
		host_turn(&h);
	}
	assert_int_equal(status_of(&cqe), 0);
	ring_cq(qid);
}

static void shadow_by_event(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	host_start(&h, "sim:dbbuf=event");
	host_create(&h, 1, 8);
	configure();
	host_create(&h, 2, 8);
	for (uint32_t qid = 1; qid <= 2; qid++) {
		/* Asleep, the controller wants to be told. */
		for (int i = 0; i < 30; i++) {
			put(qid);
			assert_true(ring_sq(qid));
			wait(qid);
		}
		/* Told already, and not come round to it: no need to say it again. */
		put(qid);
		assert_true(ring_sq(qid));
		put(qid);
		assert_false(ring_sq(qid));
		wait(qid);
		wait(qid);
		/* Without the register it sees nothing: it said which write it wants to know of. */
		put(qid);
		__atomic_store_n(shadow + 2 * qid, h.q[qid].tail, __ATOMIC_SEQ_CST);
		host_turns(&h, 2000);
		assert_false(host_peek(&h, qid, &cqe));
		host_write32(&h, PL_NVME_DOORBELL_SQ(qid, 0), h.q[qid].tail);
		wait(qid);
	}
	/* The admin queue goes on by its registers, for drivers that leave it there. */
	assert_int_equal(host_status(&h, 0,
				     (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_GET_FEATURES,
							   .cdw10 = PL_NVME_FEAT_ARBITRATION }),
			 0);
	assert_int_equal(host_counters(&h).bad_doorbells, 0);
	/* A reset forgets them. */
	host_disable(&h);
	host_set_admin(&h, 8);
	host_enable(&h);
	host_create(&h, 1, 8);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0)), 0);
	host_close(&h);
}

static void admin_by_shadow(void **state)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_GET_FEATURES,
				   .cdw10 = PL_NVME_FEAT_ARBITRATION };

	(void)state;
	host_start(&h, "sim:dbbuf=event");
	configure();
	shadow[0] = h.q[0].tail;
	shadow[1] = h.q[0].head;
	for (int i = 0; i < 100; i++) {
		host_put(&h, 0, sqe);
		ring_sq(0);
		wait(0);
	}
	assert_int_equal(host_counters(&h).bad_doorbells, 0);
	host_close(&h);
}

static void shadow_by_polling(void **state)
{
	(void)state;
	host_start(&h, "sim:dbbuf=poll");
	configure();
	host_create(&h, 1, 8);
	for (int i = 0; i < 50; i++) {
		put(1);
		__atomic_store_n(shadow + 2, h.q[1].tail, __ATOMIC_SEQ_CST);
		wait(1);
	}
	host_close(&h);
}

/* The completion queue is full, and its head moves by the shadow. */
static void full_with_shadow(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	host_start(&h, "sim:dbbuf=event");
	configure();
	host_queue_init(&h, 1, 64, 3);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 3, h.q[1].cq_iova)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 64, h.q[1].sq_iova)), 0);
	for (int i = 0; i < 60; i++)
		put(1);
	ring_sq(1);
	for (int i = 0; i < 60; i++) {
		wait(1);
		if (i % 7 == 0)
			host_turns(&h, 20);
	}
	host_turns(&h, 10);
	assert_false(host_peek(&h, 1, &cqe));
	assert_int_equal(host_counters(&h).bad_doorbells, 0);
	host_close(&h);
}

static void dbbuf_errors(void **state)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_DBBUF };

	(void)state;
	host_start(&h, "sim:");
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_OPCODE);
	host_close(&h);
	host_start(&h, "sim:dbbuf=event");
	host_alloc(&h, 65536, &at);
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe.dptr.prp.prp1 = at;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe.dptr.prp.prp2 = at + 4096 + 4;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe.dptr.prp.prp2 = 0x10000;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_DATA_TRANSFER);
	host_close(&h);
}

#define CMB_BASE 0x80000000000ull

static uint8_t *cmb(void)
{
	uint32_t loc = host_read32(&h, PL_NVME_REG_CMBLOC), sz = host_read32(&h, PL_NVME_REG_CMBSZ);

	assert_int_equal(PL_NVME_CMBLOC_BIR(loc), 0);
	assert_int_equal(PL_NVME_CMB_UNIT(sz), 4096);
	return h.bar + PL_NVME_CMBLOC_OFST(loc) * PL_NVME_CMB_UNIT(sz);
}

static void turn_cmb_on(uint64_t base)
{
	host_write64(&h, PL_NVME_REG_CMBMSC, base | PL_NVME_CMBMSC_CRE | PL_NVME_CMBMSC_CMSE);
}

/* A queue, a list and data in the controller's memory. */
static void controller_memory(void **state)
{
	uint8_t *memory;
	uint64_t list;

	(void)state;
	host_start(&h, "sim:cmb=64K,size=1M");
	memory = cmb();
	assert_int_equal(PL_NVME_CMBSZ_SZ(host_read32(&h, PL_NVME_REG_CMBSZ)), 16);
	host_alloc(&h, 65536, &at);
	/* Turned off, it is no memory. */
	host_queue_init(&h, 1, 64, 64);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 64, h.q[1].cq_iova)), 0);
	turn_cmb_on(CMB_BASE);
	h.q[1].sq = (struct pl_nvme_sqe *)memory;
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 64, CMB_BASE)), 0);
	list = CMB_BASE + 4096;
	for (uint64_t i = 0; i < 8; i++)
		((uint64_t *)(memory + 4096))[i] = i % 2 ? at + 4096 * i
							 : CMB_BASE + 8192 + 4096 * (i / 2);
	memset(h.memory + (at - HOST_IOVA), 0x31, 65536);
	memset(memory + 8192, 0x32, 32768);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 72, at, list)), 0);
	for (uint32_t i = 0; i < 9; i++) {
		assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 8 * i, 1, at, 0)), 0);
		assert_int_equal(h.memory[at - HOST_IOVA], i && i % 2 ? 0x32 : 0x31);
	}
	assert_int_equal(host_read32(&h, PL_NVME_REG_CMBSTS), 0);
	assert_int_equal(host_counters(&h).mappings, 1);
	assert_int_equal(host_counters(&h).dma_faults, 0);
	host_close(&h);
}

static void controller_memory_limits(void **state)
{
	struct pl_nvme_sqe sqe;
	uint64_t list_at;

	(void)state;
	host_start(&h, "sim:cmb=64K,cmbuse=c");
	host_alloc(&h, 65536, &at);
	host_alloc(&h, 4096, &list_at);
	/* An address where memory is already is not possible. */
	turn_cmb_on(HOST_IOVA + 8192);
	host_turns(&h, 3);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CMBSTS), PL_NVME_CMBSTS_CBAI);
	turn_cmb_on(CMB_BASE);
	host_turns(&h, 3);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CMBSTS), 0);
	/* Completion queues only, and all of one or nothing. */
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 1024, CMB_BASE + 65536 - 4096)),
			 PL_NVME_SC_INVALID_CMB);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 256, CMB_BASE + 65536 - 4096)),
			 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 64, CMB_BASE)),
			 PL_NVME_SC_INVALID_CMB);
	host_create(&h, 2, 16);
	assert_int_equal(host_status(&h, 2, host_rw(PL_NVME_READ, 1, 0, 1, CMB_BASE, 0)),
			 PL_NVME_SC_INVALID_CMB);
	assert_int_equal(host_status(&h, 2, host_rw(PL_NVME_WRITE, 1, 0, 1, CMB_BASE, 0)),
			 PL_NVME_SC_INVALID_CMB);
	sqe = host_rw(PL_NVME_READ, 1, 0, 24, at, CMB_BASE);
	assert_int_equal(host_status(&h, 2, sqe), PL_NVME_SC_INVALID_CMB);
	host_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shadow_by_event),
		cmocka_unit_test(admin_by_shadow),
		cmocka_unit_test(shadow_by_polling),
		cmocka_unit_test(full_with_shadow),
		cmocka_unit_test(dbbuf_errors),
		cmocka_unit_test(controller_memory),
		cmocka_unit_test(controller_memory_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
