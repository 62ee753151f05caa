// SPDX-License-Identifier: MIT
/* Creating and deleting queues, and every way in which that is refused. */
#include "host.h"

static struct host h;
static uint64_t at;

static unsigned int cq(uint32_t qid, uint32_t entries, uint64_t iova)
{
	return host_status(&h, 0, host_create_cq(&h, qid, entries, iova));
}

static unsigned int sq(uint32_t qid, uint32_t cqid, uint32_t entries, uint64_t iova)
{
	return host_status(&h, 0, host_create_sq(&h, qid, cqid, entries, iova));
}

static unsigned int delete_queue(uint8_t opcode, uint32_t qid)
{
	return host_status(&h, 0, (struct pl_nvme_sqe){ .opcode = opcode, .cdw10 = qid });
}

static void create_cq_errors(void **state)
{
	struct pl_nvme_sqe sqe;

	(void)state;
	host_start(&h, "sim:queues=4,mqes=126,vectors=5,cqr=1");
	host_alloc(&h, 65536, &at);
	assert_int_equal(cq(0, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(cq(5, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(cq(0xffff, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(cq(1, 1, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	assert_int_equal(cq(1, 128, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	assert_int_equal(cq(1, 65536, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	assert_int_equal(cq(1, 16, at + 64), PL_NVME_SC_PRP_OFFSET);
	sqe = host_create_cq(&h, 1, 16, at);
	sqe.cdw11 |= PL_NVME_CQ_IEN | 5u << PL_NVME_CQ_IV_SHIFT;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_VECTOR);
	sqe = host_create_cq(&h, 1, 16, at);
	sqe.cdw11 = 0;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe = host_create_cq(&h, 1, 16, at);
	sqe.cdw11 |= 4;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe = host_create_cq(&h, 1, 16, at);
	sqe.nsid = 1;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(host_counters(&h).io_queues, 0);
	assert_int_equal(cq(1, 127, at), 0);
	assert_int_equal(cq(1, 16, at), PL_NVME_SC_INVALID_QID);
	sqe = host_create_cq(&h, 2, 16, at);
	sqe.cdw11 |= PL_NVME_CQ_IEN | 4u << PL_NVME_CQ_IV_SHIFT;
	assert_int_equal(host_status(&h, 0, sqe), 0);
	host_close(&h);
}

static void create_sq_errors(void **state)
{
	struct pl_nvme_sqe sqe;

	(void)state;
	host_start(&h, "sim:queues=4,mqes=126,cqr=1");
	host_alloc(&h, 65536, &at);
	assert_int_equal(sq(1, 1, 16, at), PL_NVME_SC_CQ_INVALID);
	assert_int_equal(cq(1, 16, at), 0);
	assert_int_equal(sq(1, 2, 16, at), PL_NVME_SC_CQ_INVALID);
	assert_int_equal(sq(1, 0, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(sq(1, 5, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(sq(0, 1, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(sq(5, 1, 16, at), PL_NVME_SC_INVALID_QID);
	assert_int_equal(sq(1, 1, 1, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	assert_int_equal(sq(1, 1, 128, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	assert_int_equal(sq(1, 1, 16, at + 8), PL_NVME_SC_PRP_OFFSET);
	sqe = host_create_sq(&h, 1, 1, 16, at);
	sqe.cdw11 &= ~PL_NVME_QUEUE_PC;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe = host_create_sq(&h, 1, 1, 16, at);
	sqe.cdw11 |= 8;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(host_counters(&h).io_queues, 1);
	assert_int_equal(sq(1, 1, 127, at), 0);
	assert_int_equal(sq(1, 1, 127, at), PL_NVME_SC_INVALID_QID);
	/* Another one may use the same completion queue. */
	assert_int_equal(sq(4, 1, 2, at), 0);
	host_close(&h);
}

static void entry_sizes_come_first(void **state)
{
	(void)state;
	host_open(&h, "sim:");
	host_set_admin(&h, 16);
	host_write32(&h, PL_NVME_REG_CC, PL_NVME_CC_EN);
	host_wait_csts(&h, PL_NVME_CSTS_RDY, PL_NVME_CSTS_RDY);
	host_alloc(&h, 65536, &at);
	assert_int_equal(cq(1, 16, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	host_write32(&h, PL_NVME_REG_CC, PL_NVME_CC_EN | PL_NVME_IOCQES << PL_NVME_CC_IOCQES_SHIFT);
	assert_int_equal(cq(1, 16, at), 0);
	assert_int_equal(sq(1, 1, 16, at), PL_NVME_SC_INVALID_QUEUE_SIZE);
	host_write32(&h, PL_NVME_REG_CC, host_cc());
	assert_int_equal(sq(1, 1, 16, at), 0);
	host_close(&h);
}

static void delete_errors(void **state)
{
	(void)state;
	host_start(&h, "sim:queues=4");
	host_alloc(&h, 65536, &at);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_SQ, 0), PL_NVME_SC_INVALID_QID);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_CQ, 0), PL_NVME_SC_INVALID_QID);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_SQ, 1), PL_NVME_SC_INVALID_QID);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_CQ, 1), PL_NVME_SC_INVALID_QID);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_CQ, 0xffff), PL_NVME_SC_INVALID_QID);
	assert_int_equal(cq(1, 16, at), 0);
	assert_int_equal(sq(2, 1, 16, at), 0);
	assert_int_equal(sq(3, 1, 16, at), 0);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_CQ, 1),
			 PL_NVME_SC_INVALID_QUEUE_DELETION);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_SQ, 2), 0);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_CQ, 1),
			 PL_NVME_SC_INVALID_QUEUE_DELETION);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_SQ, 3), 0);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_SQ, 3), PL_NVME_SC_INVALID_QID);
	assert_int_equal(delete_queue(PL_NVME_ADMIN_DELETE_CQ, 1), 0);
	assert_int_equal(host_counters(&h).io_queues, 0);
	host_close(&h);
}

/* A queue in scattered pages works as one in a run does. */
static void scattered_queue(void **state)
{
	uint64_t list_at, pages[3], data_at, *list;
	struct pl_nvme_sqe sqe;
	struct pl_nvme_cqe cqe;

	(void)state;
	host_start(&h, "sim:mqes=255");
	host_alloc(&h, 65536, &at);
	list = host_alloc(&h, 4096, &list_at);
	host_alloc(&h, 4096, &data_at);
	/* 130 entries of 64 bytes: three pages, in no order. */
	pages[0] = at + 0x5000;
	pages[1] = at + 0x2000;
	pages[2] = at + 0x9000;
	memcpy(list + 7, pages, sizeof(pages));
	host_queue_init(&h, 1, 130, 256);
	assert_int_equal(cq(1, 256, h.q[1].cq_iova), 0);
	sqe = host_create_sq(&h, 1, 1, 130, list_at + 7 * 8);
	sqe.cdw11 &= ~PL_NVME_QUEUE_PC;
	/* Offsets of pages must be zero, as must those of the list be whole entries. */
	list[8] += 8;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_PRP_OFFSET);
	list[8] -= 8;
	sqe.dptr.prp.prp1 += 4;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_PRP_OFFSET);
	sqe.dptr.prp.prp1 = 0x10;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_DATA_TRANSFER);
	sqe.dptr.prp.prp1 = list_at + 7 * 8;
	assert_int_equal(host_status(&h, 0, sqe), 0);
	for (uint32_t i = 0; i < 400; i++) {
		uint32_t slot = i % 130;

		sqe = host_rw(PL_NVME_READ, 1, i, 1, data_at, 0);
		sqe.cid = (uint16_t)(i + 1000);
		memcpy(h.memory + (pages[slot / 64] - HOST_IOVA) + 64 * (slot % 64), &sqe, 64);
		host_write32(&h, PL_NVME_DOORBELL_SQ(1, 0), (slot + 1) % 130);
		cqe = host_wait(&h, 1);
		assert_int_equal(status_of(&cqe), 0);
		assert_int_equal(cqe.cid, i + 1000);
		assert_int_equal(cqe.sqhd, (slot + 1) % 130);
	}
	host_close(&h);
}

/* A queue that is created again begins anew. */
static void created_again(void **state)
{
	(void)state;
	host_start(&h, "sim:");
	for (int round = 0; round < 5; round++) {
		uint64_t mark = h.used;

		host_create(&h, 1, 5);
		host_alloc(&h, 4096, &at);
		for (int i = 0; i < 7 + round; i++)
			assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0)),
					 0);
		host_delete(&h, 1);
		h.used = mark;
	}
	assert_int_equal(host_counters(&h).bad_doorbells, 0);
	host_close(&h);
}

static void queue_in_no_memory(void **state)
{
	(void)state;
	host_start(&h, "sim:");
	assert_int_equal(cq(1, 16, 0x5000), 0);
	assert_int_equal(sq(1, 1, 16, 0x6000), 0);
	/* Nothing is wrong until the controller goes there; then nothing goes any more. */
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), PL_NVME_CSTS_RDY);
	host_write32(&h, PL_NVME_DOORBELL_SQ(1, 0), 1);
	host_wait_csts(&h, PL_NVME_CSTS_CFS, PL_NVME_CSTS_CFS);
	assert_int_equal(host_counters(&h).dma_faults, 1);
	host_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_cq_errors),	  cmocka_unit_test(create_sq_errors),
		cmocka_unit_test(entry_sizes_come_first), cmocka_unit_test(delete_errors),
		cmocka_unit_test(scattered_queue),	  cmocka_unit_test(created_again),
		cmocka_unit_test(queue_in_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
