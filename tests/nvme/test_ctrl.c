// SPDX-License-Identifier: MIT
/* Opening and closing a controller, and all it can refuse or fail on the way. */
#include "nvme_test.h"

static void test_open_close(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_info info;

	(void)state;
	env_open(&e, NULL, NULL);
	info = env_info(&e);
	assert_string_equal(info.serial, "FAKE1");
	assert_string_equal(info.model, "fake");
	assert_int_equal(info.page_bytes, 4096);
	assert_int_equal(info.max_entries, 1024);
	assert_int_equal(info.nr_queues, 8);
	assert_int_equal(info.max_transfer_bytes, 128 << 10);
	assert_int_equal(info.nr_resets, 0);
	assert_int_equal(e.f->nr_enables, 1);
	peerlane_nvme_close(e.nvme);
	assert_int_equal(e.f->nr_shutdowns, 1);
	assert_int_equal(e.f->nr_maps, 0);
	assert_false(e.f->ready);

	/* And again: the first opening left nothing behind. */
	free(e.mem);
	env_open(&e, NULL, NULL);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), 0);
	env_close(&e);
	peerlane_nvme_close(NULL);
}

/* It was left running by somebody else. */
static void test_was_enabled(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->ready = true;
	pl_nvme_write32(e.f->bar, PL_NVME_REG_CC, PL_NVME_CC_EN);
	fake_turn(e.f);
	env_open(&e, NULL, NULL);
	assert_int_equal(e.f->nr_enables, 1);
	env_close(&e);
}

static void refused(void (*change)(struct fake *f), int rc)
{
	struct peerlane_nvme *nvme = NULL;
	struct fake *f = fake_new();

	f->tick_ns = 10000000; /* time-outs pass quickly */
	change(f);
	assert_int_equal(fake_open(f, NULL, &nvme), rc);
	assert_null(nvme);
	assert_int_equal(f->nr_opens, 0);
	assert_int_equal(f->nr_maps, 0);
	fake_free(f);
}

static void set_gone(struct fake *f)
{
	f->gone = true;
}

static void set_all_ones(struct fake *f)
{
	f->cap = UINT64_MAX;
}

static void set_no_entries(struct fake *f)
{
	f->cap &= ~(uint64_t)0xffff;
}

static void set_no_nvm(struct fake *f)
{
	f->cap &= ~((uint64_t)0xff << PL_NVME_CAP_CSS_SHIFT);
}

static void set_odd_pages(struct fake *f)
{
	f->cap |= (uint64_t)1 << PL_NVME_CAP_MPSMIN_SHIFT; /* more than MPSMAX */
}

static void set_never_ready(struct fake *f)
{
	f->never_ready = true;
}

static void set_fatal(struct fake *f)
{
	f->fatal = true;
}

static void set_small_bar(struct fake *f)
{
	f->t.bar0.bytes = 4096;
}

static void set_far_doorbells(struct fake *f)
{
	f->cap |= (uint64_t)15 << PL_NVME_CAP_DSTRD_SHIFT; /* 128 KiB apart */
}

static void set_wrong_entry_size(struct fake *f)
{
	f->id.sqes = 0x77;
}

static enum fake_do silent(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			   struct pl_nvme_cqe *cqe)
{
	(void)f;
	(void)qid;
	(void)sqe;
	(void)cqe;
	return FAKE_DROP;
}

static void set_silent(struct fake *f)
{
	f->hook = silent;
}

static enum fake_do failing(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			    struct pl_nvme_cqe *cqe)
{
	(void)f;
	(void)qid;
	(void)sqe;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INTERNAL);
	return FAKE_STATUS;
}

static void set_failing(struct fake *f)
{
	f->hook = failing;
}

static void test_refused(void **state)
{
	(void)state;
	refused(set_gone, -ENODEV);
	refused(set_all_ones, -ENODEV);
	refused(set_no_entries, -EPROTO);
	refused(set_no_nvm, -EOPNOTSUPP);
	refused(set_odd_pages, -EPROTO);
	refused(set_never_ready, -ETIMEDOUT);
	refused(set_fatal, -EIO);
	refused(set_small_bar, -EPROTO);
	refused(set_far_doorbells, -EPROTO);
	refused(set_wrong_entry_size, -EOPNOTSUPP);
	refused(set_silent, -ETIMEDOUT);
	refused(set_failing, -EIO);
}

/* CAP.TO is what is waited, not less. */
static void test_ready_in_time(void **state)
{
	struct peerlane_nvme *nvme = NULL;
	struct fake *f = fake_new();
	uint64_t start;

	(void)state;
	f->never_ready = true;
	f->tick_ns = 50000000;
	start = f->now_ns;
	assert_int_equal(fake_open(f, NULL, &nvme), -ETIMEDOUT);
	assert_true(f->now_ns - start >= (uint64_t)20 * 500000000);

	/* 0 means that it is quick, not that there is no time. */
	f->cap &= ~((uint64_t)0xff << PL_NVME_CAP_TO_SHIFT);
	start = f->now_ns;
	assert_int_equal(fake_open(f, NULL, &nvme), -ETIMEDOUT);
	assert_true(f->now_ns - start >= 500000000);
	f->never_ready = false;
	assert_int_equal(fake_open(f, NULL, &nvme), 0);
	peerlane_nvme_close(nvme);
	fake_free(f);
}

/* A shutdown that does not end in time does not keep the program. */
static void test_no_shutdown(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->no_shutdown = true;
	e.f->tick_ns = 1000000;
	env_open(&e, NULL, NULL);
	env_close(&e);
}

static void test_bad_options(void **state)
{
	struct peerlane_nvme_options opt = { .size = 1 };
	struct peerlane_nvme *nvme = NULL;
	struct fake *f = fake_new();

	(void)state;
	assert_int_equal(fake_open(f, &opt, &nvme), -EINVAL);
	opt = (struct peerlane_nvme_options){ .size = sizeof(opt), .flags = 0x80 };
	assert_int_equal(fake_open(f, &opt, &nvme), -EINVAL);
	opt = (struct peerlane_nvme_options){ .size = sizeof(opt), .nr_queues = 65536 };
	assert_int_equal(fake_open(f, &opt, &nvme), -EINVAL);
	assert_int_equal(f->nr_opens, 0);
	assert_int_equal(f->nr_enables, 0);
	assert_int_equal(peerlane_nvme_open(&nvme, "nothing", NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_open(&nvme, "no-such:x", NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_open(&nvme, ":", NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_open(NULL, "sim:x", NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_open(&nvme, NULL, NULL), -EINVAL);
	fake_free(f);
}

/* The halves of the number of queues differ; the doorbells that are mapped are fewer still. */
static void test_nr_queues(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .nr_queues = 5 };

	(void)state;
	e.f->granted = 2 << 16 | 6;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).nr_queues, 3);
	env_close(&e);

	e.f = fake_new();
	e.f->granted = 6 << 16 | 1;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).nr_queues, 2);
	env_close(&e);

	e.f = fake_new();
	e.f->granted = 0xffffffff; /* more than was asked for */
	env_open(&e, &opt, NULL);
	assert_int_equal(env_info(&e).nr_queues, 5);
	env_close(&e);

	e.f = fake_new();
	e.f->t.bar0.bytes = 0x1000 + 3 * 8 + 4;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).nr_queues, 2);
	env_close(&e);
}

/* The smallest queues there can be: admin commands one at a time, no events. */
static void test_smallest(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->cap = (e.f->cap & ~(uint64_t)0xffff) | 1;
	env_open(&e, NULL, NULL);
	for (unsigned int i = 0; i < 10; i++)
		assert_int_equal(env_run(&e, PL_NVME_WRITE, 1, i, 1, 0), 0);
	assert_int_equal(env_info(&e).nr_resets, 0);
	env_close(&e);
}

/* Every stride that fits. */
static void test_strides(void **state)
{
	(void)state;
	for (uint64_t dstrd = 0; dstrd < 12; dstrd++) {
		struct env e = { .f = fake_new() };

		e.f->cap |= dstrd << PL_NVME_CAP_DSTRD_SHIFT;
		assert_int_equal(fake_open(e.f, NULL, &e.nvme), 0);
		/* Of 60 KiB of doorbells. */
		if (dstrd < 11)
			assert_true(env_info(&e).nr_queues >= 1);
		peerlane_nvme_close(e.nvme);
		if (dstrd < 11) {
			env_open(&e, NULL, NULL);
			assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 0, 1, 0), 0);
			env_close(&e);
		} else {
			fake_free(e.f);
		}
	}
}

/* Pages of 8 KiB, made of smaller ones that happen to lie together. */
static void test_large_pages(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->cap |= (uint64_t)1 << PL_NVME_CAP_MPSMIN_SHIFT | (uint64_t)2
								      << PL_NVME_CAP_MPSMAX_SHIFT;
	e.f->next_frame = 257; /* the first one begins in the middle of a page */
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).page_bytes, 8192);
	fill(e.mem, 65536, 1);
	assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 5, 100, 512), 0);
	assert_memory_equal(e.f->disk[0] + 5 * 512, e.mem + 512, 100 * 512);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_close),  cmocka_unit_test(test_was_enabled),
		cmocka_unit_test(test_refused),	    cmocka_unit_test(test_ready_in_time),
		cmocka_unit_test(test_no_shutdown), cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_nr_queues),   cmocka_unit_test(test_smallest),
		cmocka_unit_test(test_strides),	    cmocka_unit_test(test_large_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
