// SPDX-License-Identifier: MIT
/* Asynchronous events: requests, limits, wrong doorbells, thresholds. */
#include "host.h"

#include <stdio.h>

static struct host h;
static uint64_t at;

static const struct pl_nvme_sqe request = { .opcode = PL_NVME_ADMIN_ASYNC_EVENT };

static void read_log(uint32_t page, bool retain)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_GET_LOG_PAGE,
				   .dptr.prp.prp1 = at,
				   .cdw10 = page | 127u << 16 | (retain ? PL_NVME_LOG_RAE : 0) };

	assert_int_equal(host_status(&h, 0, sqe), 0);
}

static void ask(void)
{
	host_put(&h, 0, request);
	host_ring(&h, 0);
	host_turns(&h, 3);
}

static bool nothing(uint32_t qid)
{
	struct pl_nvme_cqe cqe;

	host_turns(&h, 5);
	return !host_poll(&h, qid, &cqe);
}

static void expect(uint32_t type, uint32_t info, uint32_t log)
{
	struct pl_nvme_cqe cqe = host_wait(&h, 0);

	assert_int_equal(status_of(&cqe), 0);
	assert_int_equal(PL_NVME_EVENT_TYPE(cqe.result), type);
	assert_int_equal(PL_NVME_EVENT_INFO(cqe.result), info);
	assert_int_equal(PL_NVME_EVENT_LOG(cqe.result), log);
	host_turns(&h, 2);
}

static void expect_doorbell(uint32_t info)
{
	expect(PL_NVME_EVENT_ERROR, info, PL_NVME_LOG_ERROR);
}

static void limit(void **state)
{
	struct pl_nvme_sqe abort = { .opcode = PL_NVME_ADMIN_ABORT };
	struct pl_nvme_cqe cqe;
	uint16_t first;

	(void)state;
	host_start(&h, "sim:aerl=1");
	first = host_put(&h, 0, request);
	host_ring(&h, 0);
	host_turns(&h, 2);
	ask();
	assert_true(nothing(0));
	assert_int_equal(host_counters(&h).held, 2);
	assert_int_equal(host_status(&h, 0, request), PL_NVME_SC_EVENT_LIMIT);
	/* One of them can be aborted, and another take its place. */
	abort.cdw10 = (uint32_t)first << PL_NVME_ABORT_CID_SHIFT;
	host_put(&h, 0, abort);
	host_ring(&h, 0);
	cqe = host_wait(&h, 0);
	assert_int_equal(cqe.cid, first);
	assert_int_equal(status_of(&cqe), PL_NVME_SC_ABORTED);
	cqe = host_wait(&h, 0);
	assert_int_equal(status_of(&cqe), 0);
	assert_int_equal(cqe.result, 0);
	host_turns(&h, 2);
	ask();
	assert_true(nothing(0));
	/* A reset forgets them without completions. */
	host_disable(&h);
	assert_int_equal(host_counters(&h).held, 0);
	host_close(&h);
}

/* Write to a doorbell and see the event; the queue still works. */
static void wrong(size_t reg, uint32_t value, uint32_t info)
{
	uint64_t before = host_counters(&h).bad_doorbells;

	ask();
	host_write32(&h, reg, value);
	expect_doorbell(info);
	assert_int_equal(host_counters(&h).bad_doorbells, before + 1);
	read_log(PL_NVME_LOG_ERROR, false);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0)), 0);
}

static void wrong_doorbells(void **state)
{
	const uint32_t value = PL_NVME_EVENT_ERROR_DB_VALUE, reg = PL_NVME_EVENT_ERROR_DB_REGISTER;

	(void)state;
	for (uint32_t dstrd = 0; dstrd <= 15; dstrd += 5) {
		char config[64];

		snprintf(config, sizeof(config), "sim:dstrd=%u,queues=4", dstrd);
		host_start(&h, config);
		host_create(&h, 1, 8);
		host_alloc(&h, 4096, &at);
		/* At or behind the end. */
		wrong(PL_NVME_DOORBELL_SQ(1, dstrd), 8, value);
		wrong(PL_NVME_DOORBELL_SQ(1, dstrd), 0xffff, value);
		wrong(PL_NVME_DOORBELL_SQ(1, dstrd), 0x10001, value);
		wrong(PL_NVME_DOORBELL_CQ(1, dstrd), 8, value);
		/* What it was. */
		wrong(PL_NVME_DOORBELL_SQ(1, dstrd), h.q[1].tail, value);
		wrong(PL_NVME_DOORBELL_CQ(1, dstrd), h.q[1].head, value);
		/* Completions that are not there. */
		wrong(PL_NVME_DOORBELL_CQ(1, dstrd), (h.q[1].head + 1) % 8, value);
		/* Queues that are not there. */
		wrong(PL_NVME_DOORBELL_SQ(2, dstrd), 1, reg);
		wrong(PL_NVME_DOORBELL_SQ(2, dstrd), 0, reg);
		wrong(PL_NVME_DOORBELL_CQ(4, dstrd), 1, reg);
		host_close(&h);
	}
}

/* More entries than are free. The controller must not have taken any: its completion queue is full. */
static void overfull(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	host_start(&h, "sim:");
	host_queue_init(&h, 1, 8, 2);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 2, h.q[1].cq_iova)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 1, 1, 8, h.q[1].sq_iova)), 0);
	host_alloc(&h, 4096, &at);
	ask();
	for (int i = 0; i < 6; i++)
		host_put(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0));
	host_ring(&h, 1);
	host_turns(&h, 4);
	/* One was taken; five wait; two are free. */
	host_write32(&h, PL_NVME_DOORBELL_SQ(1, 0), (h.q[1].tail + 3) % 8);
	expect_doorbell(PL_NVME_EVENT_ERROR_DB_VALUE);
	host_put(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0));
	host_put(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0));
	host_ring(&h, 1);
	for (int i = 0; i < 8; i++) {
		cqe = host_wait(&h, 1);
		assert_int_equal(status_of(&cqe), 0);
	}
	assert_true(nothing(1));
	assert_int_equal(host_counters(&h).bad_doorbells, 1);
	host_close(&h);
}

static void masked_until_read(void **state)
{
	(void)state;
	host_start(&h, "sim:aerl=5");
	host_create(&h, 1, 8);
	host_alloc(&h, 4096, &at);
	ask();
	ask();
	ask();
	host_write32(&h, PL_NVME_DOORBELL_SQ(1, 0), 99);
	expect_doorbell(PL_NVME_EVENT_ERROR_DB_VALUE);
	/* Another one of the type waits until the log was read, and not only looked at. */
	host_write32(&h, PL_NVME_DOORBELL_SQ(2, 0), 1);
	assert_true(nothing(0));
	read_log(PL_NVME_LOG_ERROR, true);
	assert_true(nothing(0));
	read_log(PL_NVME_LOG_SMART, false);
	assert_true(nothing(0));
	host_put(&h, 0,
		 (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_GET_LOG_PAGE,
				       .dptr.prp.prp1 = at,
				       .cdw10 = PL_NVME_LOG_ERROR | 127u << 16 });
	host_ring(&h, 0);
	expect_doorbell(PL_NVME_EVENT_ERROR_DB_REGISTER);
	assert_int_equal(host_wait(&h, 0).status >> 1, 0);
	host_turns(&h, 2);
	/* An event before there is a request is kept. */
	read_log(PL_NVME_LOG_ERROR, false);
	ask();
	host_write32(&h, PL_NVME_DOORBELL_SQ(1, 0), 99);
	expect_doorbell(PL_NVME_EVENT_ERROR_DB_VALUE);
	host_close(&h);
}

static void temperature(void **state)
{
	struct pl_nvme_sqe set = { .opcode = PL_NVME_ADMIN_SET_FEATURES,
				   .cdw10 = PL_NVME_FEAT_TEMPERATURE,
				   .cdw11 = 300 };
	struct pl_nvme_sqe events = { .opcode = PL_NVME_ADMIN_SET_FEATURES,
				      .cdw10 = PL_NVME_FEAT_ASYNC_EVENT,
				      .cdw11 = 0x2 };
	const uint8_t *log;

	(void)state;
	host_start(&h, "sim:");
	log = host_alloc(&h, 4096, &at);
	ask();
	assert_int_equal(host_status(&h, 0, set), 0);
	/* Not asked for. */
	assert_true(nothing(0));
	host_put(&h, 0, events);
	host_ring(&h, 0);
	expect(PL_NVME_EVENT_SMART, 1, PL_NVME_LOG_SMART);
	assert_int_equal(host_wait(&h, 0).status >> 1, 0);
	host_turns(&h, 2);
	read_log(PL_NVME_LOG_SMART, false);
	assert_int_equal(log[0], 0x2);
	events.cdw11 = PL_NVME_AEC_NS_CHANGED;
	assert_int_equal(host_status(&h, 0, events), PL_NVME_SC_INVALID_FIELD);
	host_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limit),       cmocka_unit_test(wrong_doorbells),
		cmocka_unit_test(overfull),    cmocka_unit_test(masked_until_read),
		cmocka_unit_test(temperature),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
