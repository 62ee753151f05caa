// SPDX-License-Identifier: MIT
/* Queue pairs: depths and wraps, rings in pieces, SGLs, and every refusal. */
#include "nvme_test.h"

static void test_depths(void **state)
{
	static const unsigned int depths[] = { 2, 3, 4, 5, 63, 64, 65, 127, 128, 1000, 1024 };

	(void)state;
	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt),
							    .depth = depths[i] };
		struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
		struct env e = { .f = fake_new() };

		env_open(&e, NULL, &qopt);
		env_stress(&e, e.q, 3 * depths[i] + 7);
		assert_int_equal(peerlane_nvme_queue_get_info(e.q, &info), 0);
		assert_int_equal(info.depth, depths[i]);
		assert_int_equal(info.qid, 1);
		assert_int_equal(info.nr_outstanding, 0);
		assert_int_equal(info.sq_doorbell, 0x1008);
		assert_int_equal(info.cq_doorbell, 0x100c);
		env_close(&e);
	}
}

/* As long as queues can be: ids of commands have no room for a generation. */
static void test_longest(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt),
						    .depth = 65536,
						    .max_transfer_bytes = 8192 };
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->cap |= 0xffff;
	env_open(&e, NULL, &qopt);
	env_stress(&e, e.q, 70000);
	env_close(&e);
}

/* More than 64 Ki commands over a short queue: ids are used again, never wrongly. */
static void test_ids_again(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 9 };
	struct env e = { .f = fake_new() };

	(void)state;
	env_open(&e, NULL, &qopt);
	env_stress(&e, e.q, 140000);
	env_close(&e);
}

static void test_full(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 8 };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done[8];
	struct peerlane_nvme_io io[10];

	(void)state;
	env_open(&e, NULL, &qopt);
	for (unsigned int i = 0; i < 10; i++)
		io[i] = env_io(&e, PL_NVME_READ, 0, i, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, io, 10), 7);
	assert_int_equal(peerlane_nvme_submit(e.q, io, 1), -EAGAIN);
	assert_int_equal(peerlane_nvme_queue_get_info(e.q, &info), 0);
	assert_int_equal(info.nr_outstanding, 7);
	assert_int_equal(peerlane_nvme_poll(e.q, done, 8), 0);
	fake_turn(e.f);
	/* As many as there is room for, the others later. */
	assert_int_equal(peerlane_nvme_poll(e.q, done, 3), 3);
	assert_int_equal(peerlane_nvme_poll(e.q, done, 0), 0);
	assert_int_equal(peerlane_nvme_submit(e.q, io, 10), 3);
	assert_int_equal(peerlane_nvme_wait(e.q, done, 7, 8, -1), 7);
	env_close(&e);
}

/* Nothing completes: waiting ends when its time is over. */
static void test_wait_ends(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;

	(void)state;
	e.f->hook = env_drop_io;
	env_open(&e, NULL, NULL);
	io = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, 5), 0);
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, 0), 0);
	env_close(&e); /* with a command outstanding */
}

/* Rings that are not contiguous are described by a list, if the controller takes that. */
static void test_scattered_rings(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 1024 };
	struct peerlane_nvme_queue *q;
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->scattered = true;
	e.f->cap &= ~((uint64_t)1 << PL_NVME_CAP_CQR_SHIFT);
	env_open(&e, NULL, &qopt);
	assert_true(e.q->sq_list);
	env_stress(&e, e.q, 3000);
	env_close(&e);

	/* Long enough that the list itself is chained. */
	e.f = fake_new();
	e.f->scattered = true;
	e.f->cap &= ~((uint64_t)1 << PL_NVME_CAP_CQR_SHIFT);
	e.f->cap |= 0xffff;
	qopt.depth = 60000;
	qopt.max_transfer_bytes = 4096;
	env_open(&e, NULL, &qopt);
	env_stress(&e, e.q, 61000);
	env_close(&e);

	e.f = fake_new();
	e.f->scattered = true;
	assert_int_equal(fake_open(e.f, NULL, &e.nvme), 0);
	qopt.depth = 1024;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), -EINVAL);
	qopt.depth = 64; /* a page each */
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), 0);
	peerlane_nvme_close(e.nvme);
	fake_free(e.f);
}

static void test_sgl(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt),
						    .flags = PEERLANE_NVME_QUEUE_SGL };
	struct env e = { .f = fake_new() };

	(void)state;
	env_open(&e, NULL, &qopt); /* has none: PRPs it is */
	env_stress(&e, e.q, 100);
	assert_int_equal(e.f->nr_sgl, 0);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 1), -EINVAL);
	env_close(&e);
	for (unsigned int scattered = 0; scattered < 2; scattered++) {
		e.f = fake_new();
		e.f->id.sgls = PL_NVME_SGLS_BYTE;
		e.f->cap &= ~((uint64_t)1 << PL_NVME_CAP_CQR_SHIFT);
		e.f->scattered = scattered;
		env_open(&e, NULL, &qopt);
		env_stress(&e, e.q, 1000);
		assert_true(e.f->nr_sgl >= 1000);
		fill(e.mem, 200000, 9);
		assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 9, 50, 1001), 0);
		assert_memory_equal(e.f->disk[0] + 9 * 512, e.mem + 1001, 50 * 512);
		assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 9, 256, 1000), 0);
		assert_memory_equal(e.f->disk[0] + 9 * 512, e.mem + 1000, 256 * 512);
		env_close(&e);
	}
}

static void test_refused(void **state)
{
	struct peerlane_nvme_queue_options qopt, good = { .size = sizeof(good) };
	struct env e = { .f = fake_new() }, other = { .f = fake_new() };
	struct peerlane_nvme_queue *q;

	(void)state;
	env_open(&e, NULL, NULL);
	env_open(&other, NULL, NULL);
#define REFUSED(what, rc)                                                                          \
	do {                                                                                       \
		qopt = good;                                                                       \
		what;                                                                              \
		assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), rc);               \
	} while (0)
	REFUSED(qopt.size = 1, -EINVAL);
	REFUSED(qopt.flags = 0x80, -EINVAL);
	REFUSED(qopt.depth = 1, -EINVAL);
	REFUSED(qopt.depth = 1025, -EINVAL);
	REFUSED(qopt.max_transfer_bytes = 100, -EINVAL);
	REFUSED(qopt.max_transfer_bytes = 4096 + 1, -EINVAL);
	REFUSED(qopt.max_transfer_bytes = (size_t)33 << 20, -EINVAL);
	REFUSED(qopt.sq = other.map, -EINVAL);
	REFUSED((qopt.sq = e.map, qopt.sq_offset = 512), -EINVAL);
	REFUSED((qopt.sq = e.map, qopt.sq_offset = TEST_BYTES - 4096), -EINVAL);
	REFUSED((qopt.cq = e.map, qopt.cq_offset = SIZE_MAX - 4095), -EINVAL);
	REFUSED((qopt.lists = e.map, qopt.lists_offset = TEST_BYTES - 4096), -EINVAL);
	REFUSED(qopt.sq_offset = 4096, -EINVAL);
	REFUSED((qopt.flags = PEERLANE_NVME_QUEUE_CMB, qopt.sq = e.map), -EINVAL);
#undef REFUSED
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_queue_create(NULL, NULL, &q), -EINVAL);
	assert_int_equal(peerlane_nvme_lists_bytes(e.nvme, 1, 0), 0);
	peerlane_nvme_queue_destroy(NULL);
	/* Eight were granted, one is there. */
	for (unsigned int i = 0; i < 7; i++)
		assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), 0);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), -ENOSPC);
	peerlane_nvme_queue_destroy(e.q);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &e.q), 0);
	env_stress(&e, e.q, 100);
	env_close(&other);
	env_close(&e);
}

static enum fake_do no_sq(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			  struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (qid || sqe->opcode != PL_NVME_ADMIN_CREATE_SQ)
		return FAKE_DO;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INVALID_QUEUE_SIZE);
	return FAKE_STATUS;
}

/* The CQ goes when its SQ cannot be. */
static void test_half_created(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_queue *q;

	(void)state;
	env_open(&e, NULL, NULL);
	e.f->hook = no_sq;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), -EINVAL);
	assert_false(e.f->cq[2].exists);
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), 0);
	assert_true(e.f->cq[2].exists);
	env_close(&e);
}

static enum fake_do no_sq_and_cq_stays(struct fake *f, unsigned int qid,
				       const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe)
{
	if (qid || sqe->opcode != PL_NVME_ADMIN_DELETE_CQ)
		return no_sq(f, qid, sqe, cqe);
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INTERNAL);
	return FAKE_STATUS;
}

/* If the CQ does not go, a reset takes it before its memory is freed, and the other queue goes on. */
static void test_half_deleted(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_queue *q;

	(void)state;
	env_open(&e, NULL, NULL);
	e.f->hook = no_sq_and_cq_stays;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), -EINVAL);
	assert_int_equal(env_info(&e).nr_resets, 1);
	assert_false(e.f->cq[2].exists);
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), 0);
	env_stress(&e, q, 100);
	env_stress(&e, e.q, 100);
	env_close(&e);
}

/* Does what it is told, and says the contrary of a CREATE_CQ: first that it failed, then that it did not. */
static enum fake_do lie(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			struct pl_nvme_cqe *cqe)
{
	if (qid || sqe->opcode != PL_NVME_ADMIN_CREATE_CQ)
		return FAKE_DO;
	if (!f->cq[2].exists)
		cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INVALID_QUEUE_SIZE);
	return FAKE_SAY;
}

/* Its CQ is where memory was that is unmapped by now: it fails, and works after a reset. */
static void test_cq_unmapped(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_io io;

	(void)state;
	env_open(&e, NULL, NULL);
	e.f->hook = lie;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), -EINVAL);
	assert_true(e.f->cq[2].exists);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), 0);
	e.f->hook = NULL;
	io = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
	assert_int_equal(peerlane_nvme_run(q, &io, &done), -ECONNRESET);
	assert_int_equal(env_info(&e).nr_resets, 1);
	env_stress(&e, q, 100);
	env_stress(&e, e.q, 100);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_depths),	     cmocka_unit_test(test_longest),
		cmocka_unit_test(test_ids_again),    cmocka_unit_test(test_full),
		cmocka_unit_test(test_wait_ends),    cmocka_unit_test(test_scattered_rings),
		cmocka_unit_test(test_sgl),	     cmocka_unit_test(test_refused),
		cmocka_unit_test(test_half_created), cmocka_unit_test(test_half_deleted),
		cmocka_unit_test(test_cq_unmapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
