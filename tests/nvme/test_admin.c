// SPDX-License-Identifier: MIT
/* Admin commands: Identify, namespaces, log pages, features, events, and the whole status. */
#include "nvme_test.h"

static void test_identify(void **state)
{
	struct env e = { .f = fake_new() };
	struct pl_nvme_id_ctrl id;
	uint32_t ids[4];

	(void)state;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_identify(e.nvme, PL_NVME_CNS_CTRL, 0, &id), 0);
	assert_memory_equal(&id, &e.f->id, sizeof(id));
	assert_int_equal(peerlane_nvme_identify(e.nvme, 0x77, 0, &id), -EINVAL);
	assert_int_equal(peerlane_nvme_identify(e.nvme, 0x100, 0, &id), -EINVAL);
	assert_int_equal(peerlane_nvme_identify(e.nvme, 1, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, ids, 4), 2);
	assert_int_equal(ids[0], 1);
	assert_int_equal(ids[1], 2);
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, ids, 1), 1);
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 1, ids, 4), 1);
	assert_int_equal(ids[0], 2);
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 2, ids, 4), 0);
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, NULL, 4), -EINVAL);
	env_close(&e);
}

/* A list that goes round in circles. */
static enum fake_do circle(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			   struct pl_nvme_cqe *cqe)
{
	uint32_t ids[2] = { 5, 4 };
	struct fake_piece *pieces;
	size_t nr;

	if (qid || sqe->opcode != PL_NVME_ADMIN_IDENTIFY ||
	    (sqe->cdw10 & 0xff) != PL_NVME_CNS_NS_ACTIVE)
		return FAKE_DO;
	assert_int_equal(fake_walk(f, sqe, 4096, &pieces, &nr), 0);
	memcpy(pieces[0].ptr, ids, sizeof(ids));
	free(pieces);
	cqe->status = 0;
	return FAKE_STATUS;
}

static void test_bad_list(void **state)
{
	struct env e = { .f = fake_new() };
	uint32_t ids[1024];

	(void)state;
	e.f->hook = circle;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_ns_list(e.nvme, 0, ids, 1024), -EPROTO);
	env_close(&e);
}

static void test_namespaces(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_ns_info info = { .size = sizeof(info) };
	struct peerlane_nvme_ns *ns, *again;
	struct pl_nvme_id_ns *id = &e.f->ns[0];

	(void)state;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_ns_get_info(e.ns[1], &info), 0);
	assert_int_equal(info.nsid, 2);
	assert_int_equal(info.block_bytes, 4096);
	assert_int_equal(info.nr_blocks, 65536);
	info.size = 3;
	assert_int_equal(peerlane_nvme_ns_get_info(e.ns[1], &info), -EINVAL);
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &again), 0);
	assert_ptr_equal(again, e.ns[0]);

	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 0, &ns), -ENXIO);
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 3, &ns), -ENXIO);
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, PL_NVME_NSID_ALL, &ns), -ENXIO);
	id->nsze = 0;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -ENXIO);
	id->nsze = (uint64_t)1 << 60;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -EPROTO);
	id->nsze = 65536;
	id->flbas = 1; /* no such format */
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -EPROTO);
	id->flbas = 0;
	id->lbaf[0] = 8 << 16;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -EPROTO);
	id->lbaf[0] = 17 << 16;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -EOPNOTSUPP);
	id->lbaf[0] = 9 << 16 | 8;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -EOPNOTSUPP);
	id->lbaf[0] = 9 << 16;
	id->dps = 1;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), -EOPNOTSUPP);
	id->dps = 0;
	/* The upper bits of the index count where there are more than 16 formats, and only there. */
	id->flbas = 0x20;
	id->nlbaf = 15;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), 0);
	assert_ptr_equal(ns, e.ns[0]);
	id->nlbaf = 63;
	id->flbas = 0x60 | 0x5; /* 3 << 4 | 5 */
	id->lbaf[53] = 12 << 16;
	id->nsattr = 1;
	assert_int_equal(peerlane_nvme_ns_open(e.nvme, 1, &ns), 0);
	info.size = sizeof(info);
	assert_int_equal(peerlane_nvme_ns_get_info(ns, &info), 0);
	assert_int_equal(info.block_bytes, 4096);
	assert_int_equal(info.read_only, 1);
	env_close(&e);
}

static void check_log(const unsigned char *data, size_t bytes, unsigned int page, uint64_t offset)
{
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(data[i], (unsigned char)(page + (offset + i) / 7));
}

static void test_log_pages(void **state)
{
	struct env e = { .f = fake_new() };
	size_t bytes = 300 << 10;
	unsigned char *data = malloc(bytes);

	(void)state;
	env_open(&e, NULL, NULL);
	memset(data, 0, bytes);
	/* Not a byte more than asked for: the count on the wire is 0-based. */
	assert_int_equal(
		peerlane_nvme_log_page(e.nvme, PL_NVME_LOG_SMART, PL_NVME_NSID_ALL, 0, data, 512),
		0);
	check_log(data, 512, PL_NVME_LOG_SMART, 0);
	assert_int_equal(data[512], 0);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 1, 0, 4, data, 512), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 1, 0, 0, data, bytes), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 1, 0, 0, data, 0), -EINVAL);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 1, 0, 0, data, 6), -EINVAL);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 1, 0, 2, data, 8), -EINVAL);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 256, 0, 0, data, 8), -EINVAL);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 0x70, 0, 0, data, 8), -EINVAL);
	env_close(&e);

	/* Longer than a command may be: in pieces. */
	e.f = fake_new();
	e.f->id.lpa = PL_NVME_LPA_EXTENDED;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_log_page(e.nvme, 1, 0, 8, data, bytes), 0);
	check_log(data, bytes, 1, 8);
	env_close(&e);
	free(data);
}

static void test_features(void **state)
{
	struct env e = { .f = fake_new() };
	uint32_t value = 0;

	(void)state;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, PL_NVME_FEAT_TEMPERATURE, 0, 0x150), 0);
	assert_int_equal(peerlane_nvme_get_feature(e.nvme, PL_NVME_FEAT_TEMPERATURE, 0, 0, &value),
			 0);
	assert_int_equal(value, 0x150);
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, PL_NVME_FEAT_NR_QUEUES, 0, 1), -EPERM);
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, 256, 0, 1), -EINVAL);
	assert_int_equal(peerlane_nvme_get_feature(e.nvme, 1, 4, 0, &value), -EINVAL);
	assert_int_equal(peerlane_nvme_get_feature(e.nvme, 1, 0, 0, NULL), -EINVAL);
	env_close(&e);
}

static enum fake_do whole(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			  struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (qid || sqe->opcode != 0xc5)
		return FAKE_DO;
	cqe->status = (uint16_t)(PL_NVME_CQE_STATUS(0x7a5) | PL_NVME_CQE_DNR | PL_NVME_CQE_MORE |
				 2 << 12);
	cqe->result = 0xdeadbeef;
	return FAKE_STATUS;
}

/* Opcodes of vendors pass through, the status comes back whole. */
static void test_passthrough(void **state)
{
	struct env e = { .f = fake_new() };
	struct pl_nvme_sqe sqe = { .opcode = 0xc5 };
	struct peerlane_nvme_completion cpl;
	static const uint8_t ours[] = {
		PL_NVME_ADMIN_CREATE_SQ, PL_NVME_ADMIN_CREATE_CQ,   PL_NVME_ADMIN_DELETE_SQ,
		PL_NVME_ADMIN_DELETE_CQ, PL_NVME_ADMIN_ASYNC_EVENT, PL_NVME_ADMIN_DBBUF,
	};
	char data[8] = { 0 };

	(void)state;
	e.f->hook = whole;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, NULL, 0, &cpl), -EIO);
	assert_int_equal(cpl.status, 0x7a5);
	assert_int_equal(cpl.dnr, 1);
	assert_int_equal(cpl.more, 1);
	assert_int_equal(cpl.retry_delay, 2);
	assert_int_equal(cpl.result, 0xdeadbeef);
	assert_int_equal(cpl.err, -EIO);
	for (size_t i = 0; i < sizeof(ours); i++) {
		sqe.opcode = ours[i];
		assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, NULL, 0, &cpl), -EPERM);
	}
	sqe.opcode = PL_NVME_ADMIN_IDENTIFY;
	assert_int_equal(peerlane_nvme_admin(e.nvme, NULL, NULL, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, NULL, 4, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, data, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, data, 6, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, data, 1 << 21, NULL), -EINVAL);
	sqe.mptr = 1;
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, data, 8, NULL), -EINVAL);
	/* More admin commands than the queue is long: head, tail and phase go round. */
	for (unsigned int i = 0; i < 300; i++)
		assert_int_equal(peerlane_nvme_set_feature(e.nvme, PL_NVME_FEAT_POWER, 0, i), 0);
	assert_int_equal(env_info(&e).nr_resets, 0);
	env_close(&e);
}

static void test_events(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_event events[40];

	(void)state;
	e.f->id.oaes = PL_NVME_AEC_NS_CHANGED | 1u << 31;
	env_open(&e, NULL, NULL);
	assert_int_equal(e.f->features[PL_NVME_FEAT_ASYNC_EVENT], PL_NVME_AEC_NS_CHANGED | 0x1f);
	assert_int_equal(peerlane_nvme_events(e.nvme, events, 40), 0);
	fake_turn(e.f);
	assert_true(fake_event(e.f, PL_NVME_EVENT_NOTICE, PL_NVME_EVENT_NOTICE_NS_CHANGED,
			       PL_NVME_LOG_CHANGED_NS));
	assert_true(fake_event(e.f, PL_NVME_EVENT_ERROR, PL_NVME_EVENT_ERROR_TRANSIENT, 1));
	assert_int_equal(peerlane_nvme_events(e.nvme, events, 40), 2);
	assert_int_equal(events[0].type, PL_NVME_EVENT_NOTICE);
	assert_int_equal(events[0].log_page, PL_NVME_LOG_CHANGED_NS);
	assert_int_equal(events[1].type, PL_NVME_EVENT_ERROR);
	assert_int_equal(events[1].info, PL_NVME_EVENT_ERROR_TRANSIENT);
	/* Each request was made anew; those that nobody fetches push out the oldest. */
	for (unsigned int i = 0; i < 40; i++) {
		fake_turn(e.f);
		assert_true(fake_event(e.f, PL_NVME_EVENT_SMART, i, 2));
		assert_int_equal(peerlane_nvme_events(e.nvme, NULL, 0), 0);
	}
	assert_int_equal(env_info(&e).nr_lost_events, 8);
	assert_int_equal(peerlane_nvme_events(e.nvme, events, 40), 32);
	assert_int_equal(events[0].info, 8);
	assert_int_equal(events[31].info, 39);
	assert_int_equal(peerlane_nvme_events(e.nvme, NULL, 1), -EINVAL);
	/* Requests outlive a reset. */
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	fake_turn(e.f);
	assert_true(fake_event(e.f, PL_NVME_EVENT_SMART, 1, 2));
	assert_int_equal(peerlane_nvme_events(e.nvme, events, 40), 1);
	env_close(&e);
}

/* A controller that takes fewer requests than it says, and one that was told not to be asked. */
static enum fake_do no_events(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			      struct pl_nvme_cqe *cqe)
{
	unsigned int *nr = f->hook_arg;

	if (qid || sqe->opcode != PL_NVME_ADMIN_ASYNC_EVENT)
		return FAKE_DO;
	++*nr;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_EVENT_LIMIT);
	return FAKE_STATUS;
}

static void test_no_events(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_options opt = { .size = sizeof(opt),
					     .flags = PEERLANE_NVME_NO_EVENTS };
	unsigned int nr = 0;

	(void)state;
	e.f->hook = no_events;
	e.f->hook_arg = &nr;
	env_open(&e, NULL, NULL);
	fake_turn(e.f);
	assert_int_equal(peerlane_nvme_events(e.nvme, NULL, 0), 0);
	fake_turn(e.f);
	assert_int_equal(nr, 4); /* and none again */
	env_close(&e);
	e.f = fake_new();
	nr = 0;
	e.f->hook = no_events;
	e.f->hook_arg = &nr;
	env_open(&e, &opt, NULL);
	assert_int_equal(nr, 0);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identify),   cmocka_unit_test(test_bad_list),
		cmocka_unit_test(test_namespaces), cmocka_unit_test(test_log_pages),
		cmocka_unit_test(test_features),   cmocka_unit_test(test_passthrough),
		cmocka_unit_test(test_events),	   cmocka_unit_test(test_no_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
