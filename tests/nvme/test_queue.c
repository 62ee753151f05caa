// SPDX-License-Identifier: MIT
/* Queue pairs: depths and wraps, memory of every kind, shadow doorbells, and every refusal. */
#include "nvme_test.h"

/* Many reads with as many outstanding as the queue takes; every one comes back once, with its data. */
static void stress(struct env *e, unsigned int nr)
{
	struct peerlane_nvme_completion done[64];
	unsigned char *seen = calloc(nr, 1);
	unsigned int taken = 0, nr_done = 0;
	int rc;

	for (unsigned int i = 0; i < 512; i++)
		memset(e->f->disk[0] + i * 512, (int)i, 512);
	while (nr_done < nr) {
		struct peerlane_nvme_io io =
			env_io(e, PL_NVME_READ, 0, taken % 512, 1, taken % 4096 * 512);

		io.user = taken;
		if (taken < nr && peerlane_nvme_submit(e->q, &io, 1) == 1) {
			taken++;
			continue;
		}
		rc = peerlane_nvme_wait(e->q, done, 1, 64, -1);
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++) {
			assert_int_equal(done[i].err, 0);
			assert_int_equal(seen[done[i].user]++, 0);
			assert_int_equal((unsigned char)e->mem[done[i].user % 4096 * 512],
					 done[i].user % 512 % 256);
		}
		nr_done += (unsigned int)rc;
	}
	free(seen);
	assert_int_equal(env_info(e).nr_bad_completions, 0);
}

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
		stress(&e, 3 * depths[i] + 7);
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
	stress(&e, 70000);
	env_close(&e);
}

/* More than 64 Ki commands over a short queue: ids are used again, never wrongly. */
static void test_ids_again(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 9 };
	struct env e = { .f = fake_new() };

	(void)state;
	env_open(&e, NULL, &qopt);
	stress(&e, 140000);
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
static enum fake_do drop_io(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			    struct pl_nvme_cqe *cqe)
{
	(void)f;
	(void)sqe;
	(void)cqe;
	return qid ? FAKE_DROP : FAKE_DO;
}

static void test_wait_ends(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;

	(void)state;
	e.f->hook = drop_io;
	env_open(&e, NULL, NULL);
	io = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
	assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, 5), 0);
	assert_int_equal(peerlane_nvme_wait(e.q, &done, 1, 1, 0), 0);
	env_close(&e); /* with a command outstanding */
}

/* Shadow doorbells: all is done without the registers once the controller has told so. */
static void test_dbbuf(void **state)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .flags = PEERLANE_NVME_NO_DBBUF };
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 1);
	assert_true(e.f->shadow);
	stress(&e, 2000);
	/* The queue is used again after a reset, which makes the controller forget the shadows. */
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_true(e.f->shadow);
	stress(&e, 2000);
	env_close(&e);

	e.f = fake_new();
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	env_open(&e, &opt, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 0);
	assert_false(e.f->shadow);
	stress(&e, 500);
	env_close(&e);
}

static enum fake_do no_dbbuf(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			     struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (qid || sqe->opcode != PL_NVME_ADMIN_DBBUF)
		return FAKE_DO;
	cqe->status = PL_NVME_CQE_STATUS(PL_NVME_SC_INTERNAL);
	return FAKE_STATUS;
}

/* It offers them and then refuses: the registers do. */
static void test_dbbuf_refused(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	e.f->id.oacs = PL_NVME_OACS_DBBUF;
	e.f->hook = no_dbbuf;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_info(&e).has_dbbuf, 0);
	stress(&e, 500);
	/* And the other way round after a reset. */
	e.f->hook = NULL;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(env_info(&e).has_dbbuf, 1);
	stress(&e, 500);
	e.f->hook = no_dbbuf;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	stress(&e, 500);
	env_close(&e);
}

/* A register is written only for values that the controller asked to be told about. */
static void test_dbbuf_events(void **state)
{
	volatile uint32_t reg = 99, shadow = 0;
	uint32_t event = 0;
	struct pl_nvme_doorbell db = { .reg = &reg, .shadow = &shadow, .event = &event };

	(void)state;
	pl_nvme_ring_bell(&db, 0, 1);
	assert_int_equal(reg, 1);
	event = 9; /* not yet */
	pl_nvme_ring_bell(&db, 1, 4);
	assert_int_equal(reg, 1);
	assert_int_equal(shadow, 4);
	pl_nvme_ring_bell(&db, 4, 12);
	assert_int_equal(reg, 12);
	event = 12;
	pl_nvme_ring_bell(&db, 12, 2); /* round the end */
	assert_int_equal(reg, 2);
	event = 1; /* it has seen less than it was told */
	pl_nvme_ring_bell(&db, 2, 3);
	assert_int_equal(reg, 2);
	/* The admin queue's: both, always. */
	db.event = NULL;
	pl_nvme_ring_bell(&db, 3, 4);
	assert_int_equal(reg, 4);
	assert_int_equal(shadow, 4);
}

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
	stress(&e, 2000);
	/* Three queues of 16 KiB are in; the rest is too small for a fourth. */
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[1]), 0);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[2]), 0);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[3]), -ENOSPC);
	peerlane_nvme_queue_destroy(q[1]);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q[1]), 0);
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	stress(&e, 500);
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
	stress(&e, 3000);
	env_close(&e);

	/* Long enough that the list itself is chained. */
	e.f = fake_new();
	e.f->scattered = true;
	e.f->cap &= ~((uint64_t)1 << PL_NVME_CAP_CQR_SHIFT);
	e.f->cap |= 0xffff;
	qopt.depth = 60000;
	qopt.max_transfer_bytes = 4096;
	env_open(&e, NULL, &qopt);
	stress(&e, 61000);
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

/* SQ, CQ and lists in memory of a GPU, which has pages of 64 KiB. */
static void test_gpu_memory(void **state)
{
	struct peerlane_nvme_memory memory = {
		.size = sizeof(memory),
		.flags = PEERLANE_NVME_MEMORY_GPU,
		.bytes = 1 << 20,
		.pin_fd = -1,
	};
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 64 };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_io io;
	uint64_t pages[256];
	size_t run;
	char *gpu = aligned_alloc(65536, 1 << 20);

	(void)state;
	memset(gpu, 0, 1 << 20);
	env_open(&e, NULL, NULL);
	e.f->scattered = true;
	memory.ptr = memory.cpu = gpu;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 0, pages, 256), 256);
	for (unsigned int i = 1; i < 256; i++)
		assert_int_equal(pages[i] == pages[i - 1] + 4096, i % 16 != 0);
	assert_int_equal(peerlane_nvme_map_address(map, 65536 + 4096, pages, &run), 0);
	assert_int_equal(run, 65536 - 4096);
	qopt.sq = qopt.cq = qopt.lists = map;
	qopt.cq_offset = 4096;
	qopt.lists_offset = 65536;
	assert_true(peerlane_nvme_lists_bytes(e.nvme, 64, 0) == 63 * 256);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), 0);
	assert_int_equal(peerlane_nvme_queue_get_info(q, &info), 0);
	assert_ptr_equal(info.sq, gpu);
	assert_ptr_equal(info.cq, gpu + 4096);
	peerlane_nvme_queue_destroy(e.q);
	e.q = q;
	stress(&e, 1000);
	/* Data in it as well, over the edge of one of its pages, and more than two of the controller's. */
	io = env_io(&e, PL_NVME_WRITE, 0, 0, 40, 131072 + 65536 - 10240);
	io.map = map;
	fill(gpu + io.offset, 40 * 512, 3);
	assert_int_equal(peerlane_nvme_run(q, &io, NULL), 0);
	assert_memory_equal(e.f->disk[0], gpu + io.offset, 40 * 512);
	for (run = 0; run < 63 * 256 && !gpu[65536 + run]; run++)
		;
	assert_true(run < 63 * 256); /* the list was there */
	peerlane_nvme_queue_destroy(q);
	peerlane_nvme_unmap(map);

	/* Where the CPU cannot reach it: for programs on the GPU only. */
	memory.cpu = NULL;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), 0);
	qopt.sq = qopt.cq = map;
	qopt.lists = NULL;
	qopt.lists_offset = 0;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), 0);
	assert_int_equal(peerlane_nvme_queue_get_info(q, &info), 0);
	assert_null(info.sq);
	assert_int_equal(peerlane_nvme_submit(q, &io, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_poll(q, &done, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(peerlane_nvme_submit(q, &io, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_poll(q, &done, 1), -EOPNOTSUPP);
	qopt.lists = map; /* which the driver writes */
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), -EINVAL);
	env_close(&e);
	free(gpu);
}

static void test_sgl(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt),
						    .flags = PEERLANE_NVME_QUEUE_SGL };
	struct env e = { .f = fake_new() };

	(void)state;
	env_open(&e, NULL, &qopt); /* has none: PRPs it is */
	stress(&e, 100);
	assert_int_equal(e.f->nr_sgl, 0);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 1), -EINVAL);
	env_close(&e);
	for (unsigned int scattered = 0; scattered < 2; scattered++) {
		e.f = fake_new();
		e.f->id.sgls = PL_NVME_SGLS_BYTE;
		e.f->cap &= ~((uint64_t)1 << PL_NVME_CAP_CQR_SHIFT);
		e.f->scattered = scattered;
		env_open(&e, NULL, &qopt);
		stress(&e, 1000);
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
	stress(&e, 100);
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

static void test_maps(void **state)
{
	struct peerlane_nvme_memory memory = { .size = sizeof(memory), .pin_fd = -1 };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_map *map;
	uint64_t address, pages[4];
	void *ptr;

	(void)state;
	env_open(&e, NULL, NULL);
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	memory.ptr = e.mem;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	memory.bytes = SIZE_MAX;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	memory.bytes = 4096;
	memory.flags = 0x80;
	assert_int_equal(peerlane_nvme_map(e.nvme, &memory, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map(e.nvme, NULL, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map_host(NULL, e.mem, 1, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map_alloc(e.nvme, 0, &ptr, &map), -EINVAL);
	assert_int_equal(peerlane_nvme_map_alloc(e.nvme, SIZE_MAX, &ptr, &map), -EINVAL);
	peerlane_nvme_unmap(NULL);

	/* Not at a page, and ending in the middle of one. */
	assert_int_equal(peerlane_nvme_map_host(e.nvme, e.mem + 100, 8192, &map), 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 0, pages, 4), 3);
	assert_int_equal(pages[0] & 4095, 100);
	assert_int_equal(pages[1] & 4095, 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 2, pages, 4), 1);
	assert_int_equal(peerlane_nvme_map_pages(map, 3, pages, 4), 0);
	assert_int_equal(peerlane_nvme_map_pages(map, 0, NULL, 4), -EINVAL);
	assert_int_equal(peerlane_nvme_map_address(map, 8191, &address, NULL), 0);
	assert_ptr_equal(fake_at(e.f, address, 1), e.mem + 100 + 8191);
	assert_int_equal(peerlane_nvme_map_address(map, 8192, &address, NULL), -EINVAL);
	peerlane_nvme_unmap(map);

	assert_int_equal(peerlane_nvme_map_alloc(e.nvme, 10000, &ptr, &map), 0);
	memset(ptr, 1, 10000);
	assert_int_equal(peerlane_nvme_map_address(map, 9999, &address, NULL), 0);
	env_close(&e); /* what is left is unmapped */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_depths),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_ids_again),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_wait_ends),
		cmocka_unit_test(test_dbbuf),
		cmocka_unit_test(test_dbbuf_refused),
		cmocka_unit_test(test_dbbuf_events),
		cmocka_unit_test(test_cmb),
		cmocka_unit_test(test_bad_cmb),
		cmocka_unit_test(test_scattered_rings),
		cmocka_unit_test(test_gpu_memory),
		cmocka_unit_test(test_sgl),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_half_created),
		cmocka_unit_test(test_maps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
