// SPDX-License-Identifier: MIT
/*
 * Time-outs, aborts, resets, removal and completions that make no sense: whatever happens, every I/O is
 * reported exactly once, and what can go on goes on.
 */
#include "nvme_test.h"

#define NR 40u

/* What the hook does, to which blocks. */
static struct {
	uint64_t drop_lba;     /* never completed */
	unsigned int nr_drops; /* so many times */
	bool abort_works;      /* an abort completes what was dropped */
	uint16_t dropped_cid;
	unsigned int dropped_qid;
	unsigned int nr_seen;
	unsigned int fatal_after; /* commands; 0 never */
	unsigned int gone_after;
} plan;

static enum fake_do hook(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			 struct pl_nvme_cqe *cqe)
{
	struct pl_nvme_cqe late = { .status = PL_NVME_CQE_STATUS(PL_NVME_SC_ABORTED) };

	if (!qid && sqe->opcode == PL_NVME_ADMIN_ABORT && plan.abort_works &&
	    sqe->cdw10 == ((uint32_t)plan.dropped_cid << 16 | plan.dropped_qid)) {
		late.cid = plan.dropped_cid;
		late.sqid = (uint16_t)plan.dropped_qid;
		fake_post(f, plan.dropped_qid, &late);
		f->nr_aborts++;
		cqe->status = 0;
		return FAKE_STATUS;
	}
	if (!qid)
		return FAKE_DO;
	plan.nr_seen++;
	if (plan.fatal_after && plan.nr_seen >= plan.fatal_after) {
		f->fatal = true;
		plan.fatal_after = 0;
		return FAKE_DROP;
	}
	if (plan.gone_after && plan.nr_seen >= plan.gone_after) {
		f->gone = true;
		return FAKE_DROP;
	}
	if (plan.nr_drops && sqe->cdw10 == plan.drop_lba) {
		plan.nr_drops--;
		plan.dropped_cid = sqe->cid;
		plan.dropped_qid = qid;
		return FAKE_DROP;
	}
	return FAKE_DO;
}

static void open_env(struct env *e)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .timeout_ms = 1000 };
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 64 };

	memset(&plan, 0, sizeof(plan));
	memset(e, 0, sizeof(*e));
	e->f = fake_new();
	e->f->hook = hook;
	e->f->tick_ns = 100000;
	env_open(e, &opt, &qopt);
}

/* Submit NR reads, take all completions, and see that each came once; errs[] are their errors. */
static void run_all(struct env *e, int errs[NR])
{
	struct peerlane_nvme_completion done[7];
	unsigned int seen[NR] = { 0 }, nr = 0;
	int rc;

	for (unsigned int i = 0; i < NR; i++) {
		struct peerlane_nvme_io io = env_io(e, PL_NVME_READ, 0, i, 1, i * 512);

		io.user = i;
		/* Those with a number that 10 divides are long. */
		if (i % 10 == 0)
			io.nr_blocks = 1000;
		assert_int_equal(peerlane_nvme_submit(e->q, &io, 1), 1);
	}
	while (nr < NR) {
		rc = peerlane_nvme_wait(e->q, done, 1, 7, -1);
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++, nr++) {
			assert_true(done[i].user < NR);
			assert_int_equal(seen[done[i].user]++, 0);
			errs[done[i].user] = done[i].err;
			if (done[i].err && done[i].err != -ETIMEDOUT)
				assert_int_equal(done[i].status, PL_NVME_SC_PATH_HOST_ABORTED);
		}
	}
	assert_int_equal(pl_nvme_queue_outstanding(e->q), 0);
}

static void works_again(struct env *e)
{
	fill(e->mem, 4096, 1);
	assert_int_equal(env_run(e, PL_NVME_WRITE, 0, 100, 8, 0), 0);
	assert_memory_equal(e->f->disk[0] + 100 * 512, e->mem, 4096);
}

static void test_abort_works(void **state)
{
	struct env e;
	int errs[NR];

	(void)state;
	open_env(&e);
	plan.drop_lba = 7;
	plan.nr_drops = 1;
	plan.abort_works = true;
	run_all(&e, errs);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(errs[i], i == 7 ? -ETIMEDOUT : 0);
	assert_int_equal(e.f->nr_aborts, 1);
	assert_int_equal(env_info(&e).nr_resets, 0);
	works_again(&e);
	env_close(&e);
}

static void test_abort_does_not(void **state)
{
	struct env e;
	int errs[NR];

	(void)state;
	open_env(&e);
	plan.drop_lba = 7;
	plan.nr_drops = 1;
	run_all(&e, errs);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(errs[i], i == 7 ? -ETIMEDOUT : 0);
	assert_int_equal(e.f->nr_aborts, 1);
	assert_int_equal(env_info(&e).nr_resets, 1);
	assert_int_equal(e.f->nr_enables, 2);
	works_again(&e);
	env_close(&e);
}

/* A part of a long one is lost. */
static void test_part_lost(void **state)
{
	struct env e;
	int errs[NR];

	(void)state;
	open_env(&e);
	plan.drop_lba = 20 + 256;
	plan.nr_drops = 1;
	run_all(&e, errs);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(errs[i], i == 20 ? -ETIMEDOUT : 0);
	works_again(&e);
	env_close(&e);
}

/* It is not late before its time: the time-out is what was asked for at least, and not twice that. */
static void test_not_too_early(void **state)
{
	struct env e;
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;
	uint64_t start;

	(void)state;
	open_env(&e);
	plan.drop_lba = 3;
	plan.nr_drops = 1;
	plan.abort_works = true;
	io = env_io(&e, PL_NVME_READ, 0, 3, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	start = e.f->now_ns;
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, -1), 1);
	assert_int_equal(done.err, -ETIMEDOUT);
	assert_true(e.f->now_ns - start >= 1000000000);
	assert_true(e.f->now_ns - start <= 1500000000);
	env_close(&e);
}

static void test_fatal(void **state)
{
	struct env e;
	int errs[NR];
	unsigned int lost = 0;

	(void)state;
	open_env(&e);
	plan.fatal_after = 20;
	/* A reset mends it, once the controller is disabled. */
	e.f->hook = hook;
	run_all(&e, errs);
	for (unsigned int i = 0; i < NR; i++) {
		assert_true(errs[i] == 0 || errs[i] == -ENODEV || errs[i] == -ECONNRESET);
		lost += errs[i] != 0;
	}
	assert_true(lost >= NR - 20);
	/* The fake stays fatal when enabled again, so it was given up. */
	assert_int_equal(env_info(&e).dead, -EIO);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), -EIO);
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, 2, 0, 0), -EIO);
	/* Asked to, it is revived. */
	e.f->fatal = false;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(env_info(&e).dead, 0);
	works_again(&e);
	env_close(&e);
}

static void test_removed(void **state)
{
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_event event;
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_io io;
	struct env e;
	int errs[NR];

	(void)state;
	open_env(&e);
	plan.gone_after = 11;
	run_all(&e, errs);
	assert_int_equal(errs[39], -ENODEV);
	io = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), -ENODEV);
	assert_int_equal(peerlane_nvme_poll(e.q, &done, 1), -ENODEV);
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), -ENODEV);
	assert_int_equal(peerlane_nvme_events(e.nvme, &event, 1), -ENODEV);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, NULL, &q), -ENODEV);
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, 2, 0, 0), -ENODEV);
	assert_int_equal(peerlane_nvme_reset(e.nvme), -ENODEV);
	env_close(&e);
}

/* Removed while an admin command is under way. */
static void test_removed_admin(void **state)
{
	struct env e;

	(void)state;
	open_env(&e);
	e.f->gone = true;
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, 2, 0, 0), -ENODEV);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), -ENODEV);
	env_close(&e);
}

/* Reset by hand, with I/O outstanding: what was completed is reported as that. */
static void test_reset(void **state)
{
	struct peerlane_nvme_completion done[NR];
	struct peerlane_nvme_io io;
	struct env e;

	(void)state;
	open_env(&e);
	for (unsigned int i = 0; i < NR; i++) {
		io = env_io(&e, PL_NVME_READ, 0, i, 1, 0);
		io.user = i;
		assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
		if (i == 9)
			fake_turn(e.f);
	}
	/* Ten are completed and nobody has looked; the fake does no more before it is stopped. */
	e.f->fatal = true;
	assert_int_equal(peerlane_nvme_reset(e.nvme), -EIO);
	e.f->fatal = false;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), -EAGAIN);
	/* With little room at a time. */
	for (unsigned int i = 0; i < NR; i += 5)
		assert_int_equal(peerlane_nvme_poll(e.q, done + i, 5), 5);
	for (unsigned int i = 0; i < 10; i++) {
		assert_int_equal(done[i].user, i);
		assert_int_equal(done[i].err, 0);
	}
	for (unsigned int i = 10; i < NR; i++)
		assert_int_equal(done[i].err, -ECONNRESET);
	assert_int_equal(peerlane_nvme_poll(e.q, done, 1), 0);
	works_again(&e);
	/* And one after the other, with nothing outstanding. */
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
		if (i % 2)
			works_again(&e);
	}
	works_again(&e);
	env_close(&e);
}

/* It does not stop when it is told to: the transport's reset does it. */
static void test_stays_ready(void **state)
{
	struct env e;

	(void)state;
	open_env(&e);
	e.f->stays_ready = true;
	e.f->tick_ns = 10000000;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(e.f->nr_flr, 1);
	works_again(&e);
	env_close(&e);
}

/* Another controller is in its place. */
static void test_another(void **state)
{
	struct env e;

	(void)state;
	open_env(&e);
	e.f->id.sn[0] = 'X';
	assert_int_equal(peerlane_nvme_reset(e.nvme), -ENODEV);
	env_close(&e);
}

static void test_admin_timeout(void **state)
{
	struct pl_nvme_sqe sqe = { .opcode = 0xc1 };
	struct env e;

	(void)state;
	open_env(&e);
	e.f->tick_ns = 10000000;
	/* The fake knows no such opcode; and here it does not answer at all. */
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, NULL, 0, NULL), -EOPNOTSUPP);
	plan.nr_drops = 0;
	e.f->sq[0].exists = false; /* it no longer looks */
	assert_int_equal(peerlane_nvme_admin(e.nvme, &sqe, NULL, 0, NULL), -ETIMEDOUT);
	assert_int_equal(env_info(&e).nr_resets, 1);
	works_again(&e);
	env_close(&e);
}

static void test_abort_by_user(void **state)
{
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;
	struct env e;

	(void)state;
	open_env(&e);
	plan.drop_lba = 5;
	plan.nr_drops = 1;
	plan.abort_works = true;
	io = env_io(&e, PL_NVME_READ, 0, 5, 1, 0);
	io.user = 77;
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	fake_turn(e.f);
	assert_int_equal(peerlane_nvme_abort(e.q, 76), -ENOENT);
	assert_int_equal(peerlane_nvme_abort(e.q, 77), 1);
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, -1), 1);
	assert_int_equal(done.user, 77);
	assert_int_equal(done.err, -ECANCELED);
	assert_int_equal(done.status, PL_NVME_SC_ABORTED);
	env_close(&e);
}

/* Completions that make no sense: all are counted, none believed. */
static void test_bad_completions(void **state)
{
	struct peerlane_nvme_completion done[8];
	struct peerlane_nvme_io io;
	struct pl_nvme_cqe cqe;
	uint16_t cid, old;
	struct env e;

	(void)state;
	open_env(&e);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), 0);
	old = e.f->last_io.cid;
	io = env_io(&e, PL_NVME_READ, 0, 3, 1, 0);
	io.user = 9;
	plan.drop_lba = 3;
	plan.nr_drops = 1;
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	fake_turn(e.f);
	cid = plan.dropped_cid;
	assert_int_not_equal(cid, old); /* though it is the same slot */
	assert_int_equal(cid & 63, old & 63);

	cqe = (struct pl_nvme_cqe){ .cid = old, .sqid = 1, .sqhd = 2 }; /* twice */
	fake_post(e.f, 1, &cqe);
	cqe.cid = (uint16_t)(cid + 1); /* nobody's */
	fake_post(e.f, 1, &cqe);
	cqe.cid = 0xffff;
	fake_post(e.f, 1, &cqe);
	cqe.cid = cid;
	cqe.sqid = 2; /* of another queue */
	fake_post(e.f, 1, &cqe);
	cqe.sqid = 0;
	fake_post(e.f, 1, &cqe);
	cqe.sqid = 1;
	cqe.sqhd = 64; /* no such entry */
	fake_post(e.f, 1, &cqe);
	assert_int_equal(peerlane_nvme_poll(e.q, done, 8), 0);
	assert_int_equal(env_info(&e).nr_bad_completions, 6);
	assert_int_equal(pl_nvme_queue_outstanding(e.q), 1);
	/* The good one among them still counts, once. */
	cqe.sqhd = 2;
	fake_post(e.f, 1, &cqe);
	fake_post(e.f, 1, &cqe);
	assert_int_equal(peerlane_nvme_poll(e.q, done, 8), 1);
	assert_int_equal(done[0].user, 9);
	assert_int_equal(done[0].err, 0);
	assert_int_equal(env_info(&e).nr_bad_completions, 7);
	/* On the admin queue, too. */
	cqe.sqid = 0;
	cqe.cid = 0x7abc;
	fake_post(e.f, 0, &cqe);
	assert_int_equal(peerlane_nvme_set_feature(e.nvme, 2, 0, 0), 0);
	assert_int_equal(env_info(&e).nr_bad_completions, 8);
	works_again(&e);
	env_close(&e);
}

/* The queue cannot be made anew after a reset: it says why, and tries again after the next one. */
static enum fake_do no_cq(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			  struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (qid || sqe->opcode != PL_NVME_ADMIN_CREATE_CQ)
		return FAKE_DO;
	plan.nr_seen++;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_NOT_READY);
	return FAKE_STATUS;
}

static void test_queue_lost(void **state)
{
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;
	struct env e;

	(void)state;
	open_env(&e);
	e.f->hook = no_cq;
	plan.nr_seen = 0;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	io = env_io(&e, PL_NVME_READ, 0, 3, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), -EIO);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), -EIO);
	assert_int_equal(peerlane_nvme_poll(e.q, &done, 1), -EIO);
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), -EIO);
	assert_int_equal(plan.nr_seen, 1); /* not tried again and again */
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	works_again(&e);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abort_works),	cmocka_unit_test(test_abort_does_not),
		cmocka_unit_test(test_part_lost),	cmocka_unit_test(test_not_too_early),
		cmocka_unit_test(test_fatal),		cmocka_unit_test(test_removed),
		cmocka_unit_test(test_removed_admin),	cmocka_unit_test(test_reset),
		cmocka_unit_test(test_stays_ready),	cmocka_unit_test(test_another),
		cmocka_unit_test(test_admin_timeout),	cmocka_unit_test(test_abort_by_user),
		cmocka_unit_test(test_bad_completions), cmocka_unit_test(test_queue_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
