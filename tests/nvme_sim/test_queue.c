// SPDX-License-Identifier: MIT
/* Queues at their limits: wrap, full completion queues, shared ones, ids in use, deletion under load. */
#include "host.h"

static struct host h;
static uint64_t at;

static struct pl_nvme_sqe read1(void)
{
	return host_rw(PL_NVME_READ, 1, 0, 1, at, 0);
}

static void start(const char *config)
{
	host_start(&h, config);
	host_alloc(&h, 65536, &at);
}

/* Of every small depth, and of the largest: each place is used, several times round. */
static void wrap(void **state)
{
	static const uint32_t depths[] = { 2, 3, 4, 5, 127, 128, 1024 };

	(void)state;
	for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++) {
		uint32_t depth = depths[i];

		start("sim:");
		host_create(&h, 1, depth);
		for (uint32_t n = 0; n < 3 * depth + 1; n++)
			assert_int_equal(host_status(&h, 1, read1()), 0);
		/* As many at a time as fit. */
		for (int round = 0; round < 5; round++) {
			for (uint32_t n = 0; n < depth - 1; n++)
				host_put(&h, 1, read1());
			host_ring(&h, 1);
			for (uint32_t n = 0; n < depth - 1; n++)
				assert_int_equal(host_wait(&h, 1).status >> 1, 0);
			host_turns(&h, 3);
		}
		assert_int_equal(host_counters(&h).bad_doorbells, 0);
		host_close(&h);
	}
}

static void deepest(void **state)
{
	struct pl_nvme_cqe cqe;
	uint16_t cid = 0;

	(void)state;
	start("sim:mqes=65535");
	host_create(&h, 1, 65536);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 65535; i++) {
			struct pl_nvme_sqe sqe = read1();

			sqe.cid = (uint16_t)(cid + i);
			h.q[1].sq[h.q[1].tail] = sqe;
			h.q[1].tail = (h.q[1].tail + 1) % 65536;
		}
		host_ring(&h, 1);
		for (uint32_t i = 0; i < 65535; i++) {
			while (!host_peek(&h, 1, &cqe))
				host_turn(&h);
			assert_int_equal(cqe.cid, cid++);
			assert_int_equal(status_of(&cqe), 0);
		}
		host_write32(&h, PL_NVME_DOORBELL_CQ(1, 0), h.q[1].head);
		host_turns(&h, 3);
	}
	host_close(&h);
}

/* A completion queue that is smaller than what feeds it: nothing is lost, nothing overwritten. */
static void full_completion_queue(void **state)
{
	struct pl_nvme_cqe cqe;
	uint16_t next;

	(void)state;
	start("sim:");
	host_queue_init(&h, 1, 64, 4);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 4, h.q[1].cq_iova)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 64, h.q[1].sq_iova)), 0);
	for (int i = 0; i < 60; i++)
		host_put(&h, 1, read1());
	next = (uint16_t)(h.next_cid - 59);
	host_ring(&h, 1);
	/* However long it takes, three completions are there and the fourth place is empty. */
	host_turns(&h, 5000);
	assert_int_equal(host_counters(&h).io_commands, 3);
	assert_int_equal(host_counters(&h).cq_stalls, 1);
	assert_int_equal(h.q[1].cq[2].cid, (uint16_t)(next + 2));
	assert_int_equal(h.q[1].cq[3].cid, 0);
	/* The host looks but does not say so: nothing moves. */
	assert_true(host_peek(&h, 1, &cqe));
	assert_int_equal(cqe.cid, next++);
	host_turns(&h, 1000);
	assert_int_equal(host_counters(&h).io_commands, 3);
	host_write32(&h, PL_NVME_DOORBELL_CQ(1, 0), h.q[1].head);
	host_turns(&h, 10);
	assert_int_equal(host_counters(&h).io_commands, 4);
	for (int i = 1; i < 60; i++) {
		cqe = host_wait(&h, 1);
		assert_int_equal(cqe.cid, next++);
		assert_int_equal(status_of(&cqe), 0);
	}
	assert_int_equal(host_counters(&h).bad_doorbells, 0);
	host_close(&h);
}

/* Many submission queues with one completion queue between them. */
static void shared_completion_queue(void **state)
{
	uint32_t seen[HOST_MAX_QUEUES] = { 0 };

	(void)state;
	start("sim:queues=16");
	host_queue_init(&h, 1, 16, 8);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 8, h.q[1].cq_iova)), 0);
	for (uint32_t qid = 1; qid <= 16; qid++) {
		if (qid > 1)
			host_queue_init(&h, qid, 16, 8);
		assert_int_equal(
			host_status(&h, 0, host_create_sq(&h, qid, 1, 16, h.q[qid].sq_iova)), 0);
		for (int i = 0; i < 10; i++)
			host_put(&h, qid, read1());
		host_ring(&h, qid);
	}
	for (int i = 0; i < 160; i++) {
		struct pl_nvme_cqe cqe = host_wait(&h, 1);

		assert_in_range(cqe.sqid, 1, 16);
		assert_int_equal(status_of(&cqe), 0);
		seen[cqe.sqid]++;
		/* Heads do not go back. */
		assert_in_range(cqe.sqhd, seen[cqe.sqid], 10);
	}
	for (uint32_t qid = 1; qid <= 16; qid++)
		assert_int_equal(seen[qid], 10);
	host_close(&h);
}

static void ids_in_use(void **state)
{
	struct pl_nvme_sqe sqe = read1();
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:rule=hold opcode=read nth=1");
	host_create(&h, 1, 16);
	host_create(&h, 2, 16);
	sqe = read1();
	sqe.cid = 77;
	host_put(&h, 1, sqe);
	host_ring(&h, 1);
	host_turns(&h, 3);
	/* The same id again, in the next turn and the one after; in another queue it is free. */
	for (int i = 0; i < 2; i++) {
		host_put(&h, 1, sqe);
		host_ring(&h, 1);
		cqe = host_wait(&h, 1);
		assert_int_equal(cqe.cid, 77);
		assert_int_equal(status_of(&cqe), PL_NVME_SC_CID_CONFLICT);
		host_turns(&h, 2);
	}
	assert_int_equal(host_status(&h, 2, sqe), 0);
	/* Two of one id at once. */
	sqe.cid = 78;
	host_put(&h, 1, sqe);
	host_put(&h, 1, sqe);
	host_ring(&h, 1);
	cqe = host_wait(&h, 1);
	assert_int_equal(status_of(&cqe), 0);
	cqe = host_wait(&h, 1);
	assert_int_equal(status_of(&cqe), PL_NVME_SC_CID_CONFLICT);
	host_close(&h);
	/* After its completion an id can be used again. */
	start("sim:");
	host_create(&h, 1, 16);
	sqe = read1();
	sqe.cid = PL_NVME_CID_NONE;
	for (int i = 0; i < 40; i++)
		assert_int_equal(host_status(&h, 1, sqe), 0);
	host_close(&h);
}

/* Commands under way complete when their queue is deleted, before the deletion does. */
static void deleted_under_load(void **state)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_DELETE_SQ, .cdw10 = 1 };
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:rule=hold opcode=read");
	host_create(&h, 1, 16);
	for (int i = 0; i < 5; i++)
		host_put(&h, 1, read1());
	host_ring(&h, 1);
	host_turns(&h, 3);
	assert_int_equal(host_counters(&h).held, 5);
	assert_int_equal(host_status(&h, 0, sqe), 0);
	for (int i = 0; i < 5; i++) {
		assert_true(host_poll(&h, 1, &cqe));
		assert_int_equal(status_of(&cqe), PL_NVME_SC_SQ_DELETED);
		assert_int_equal(cqe.sqid, 1);
		assert_int_equal(cqe.sqhd, 5);
		host_turn(&h);
	}
	assert_int_equal(host_counters(&h).held, 0);
	sqe.opcode = PL_NVME_ADMIN_DELETE_CQ;
	assert_int_equal(host_status(&h, 0, sqe), 0);
	/* Nothing is left of it: the same ids work in a new queue. */
	host_create(&h, 1, 16);
	host_close(&h);
	/* The same with completions that wait for room: they come, or go with their queue. */
	start("sim:rule=hold opcode=read");
	host_queue_init(&h, 1, 16, 3);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 3, h.q[1].cq_iova)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 16, h.q[1].sq_iova)), 0);
	for (int i = 0; i < 9; i++)
		host_put(&h, 1, read1());
	host_ring(&h, 1);
	host_turns(&h, 20);
	assert_int_equal(host_counters(&h).held, 9);
	sqe.opcode = PL_NVME_ADMIN_DELETE_SQ;
	assert_int_equal(host_status(&h, 0, sqe), 0);
	for (int i = 0; i < 6; i++) {
		cqe = host_wait(&h, 1);
		assert_int_equal(status_of(&cqe), PL_NVME_SC_SQ_DELETED);
	}
	sqe.opcode = PL_NVME_ADMIN_DELETE_CQ;
	assert_int_equal(host_status(&h, 0, sqe), 0);
	host_close(&h);
}

/* A reset with commands everywhere: none completes any more. */
static void reset_under_load(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:rule=delay opcode=read every=2 steps=100");
	host_create(&h, 1, 64);
	for (int i = 0; i < 60; i++)
		host_put(&h, 1, read1());
	host_ring(&h, 1);
	host_turns(&h, 2);
	host_disable(&h);
	assert_int_equal(host_counters(&h).held, 0);
	while (host_poll(&h, 1, &cqe))
		;
	host_turns(&h, 300);
	assert_false(host_poll(&h, 1, &cqe));
	host_set_admin(&h, 8);
	host_enable(&h);
	host_create(&h, 1, 8);
	assert_int_equal(host_status(&h, 1, read1()), 0);
	assert_int_equal(host_status(&h, 1, read1()), 0);
	host_close(&h);
}

/* Memory of a queue that is mapped page by page, at addresses that follow each other. */
static void queue_over_many_mappings(void **state)
{
	uint64_t first = 0x40000000;

	(void)state;
	start("sim:");
	host_queue_init(&h, 1, 256, 256);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(pl_simnvme_map(h.c, first + 4096 * i,
						(uint8_t *)h.q[1].sq + 4096 * i, 4096, RW),
				 0);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 256, h.q[1].cq_iova)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 256, first)), 0);
	for (int i = 0; i < 700; i++)
		assert_int_equal(host_status(&h, 1, read1()), 0);
	/* Taken away while the queue lives: fatal as soon as that page is needed. */
	assert_int_equal(pl_simnvme_unmap(h.c, first, 4096), 0);
	host_put(&h, 1, read1());
	host_ring(&h, 1);
	host_turns(&h, 5);
	for (int i = 0; i < 256 && !host_counters(&h).fatal; i++) {
		host_put(&h, 1, read1());
		host_ring(&h, 1);
		host_turns(&h, 2);
		struct pl_nvme_cqe cqe;

		host_poll(&h, 1, &cqe);
	}
	assert_true(host_counters(&h).fatal);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS) & PL_NVME_CSTS_CFS, PL_NVME_CSTS_CFS);
	host_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrap),
		cmocka_unit_test(deepest),
		cmocka_unit_test(full_completion_queue),
		cmocka_unit_test(shared_completion_queue),
		cmocka_unit_test(ids_in_use),
		cmocka_unit_test(deleted_under_load),
		cmocka_unit_test(reset_under_load),
		cmocka_unit_test(queue_over_many_mappings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
