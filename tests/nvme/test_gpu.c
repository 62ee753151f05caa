// SPDX-License-Identifier: MIT
/* Memory of a GPU: queues and data in it, and what happens when it goes away. */
#include "nvme_test.h"

#define GPU_BYTES ((size_t)1 << 20)

/* Memory that stands for a GPU's, and its map. */
struct gpu {
	char *mem;
	struct peerlane_nvme_map *map;
};

static int gpu_map(struct env *e, struct gpu *g, bool has_cpu)
{
	struct peerlane_nvme_memory memory = {
		.size = sizeof(memory),
		.flags = PEERLANE_NVME_MEMORY_GPU,
		.ptr = g->mem,
		.bytes = GPU_BYTES,
		.cpu = has_cpu ? g->mem : NULL,
		.pin_fd = -1,
	};

	return peerlane_nvme_map(e->nvme, &memory, &g->map);
}

static void gpu_new(struct env *e, struct gpu *g, bool has_cpu)
{
	g->mem = aligned_alloc(65536, GPU_BYTES);
	assert_non_null(g->mem);
	memset(g->mem, 0, GPU_BYTES);
	assert_int_equal(gpu_map(e, g, has_cpu), 0);
}

static void gpu_free(struct gpu *g)
{
	peerlane_nvme_unmap(g->map);
	free(g->mem);
}

/* A command that writes what is in GPU memory, and the look at the disk. */
static void write_from(struct env *e, struct peerlane_nvme_queue *q, const struct gpu *g,
		       size_t offset)
{
	struct peerlane_nvme_io io = env_io(e, PL_NVME_WRITE, 0, 0, 40, offset);

	io.map = g->map;
	fill(g->mem + offset, (size_t)40 * 512, offset);
	assert_int_equal(peerlane_nvme_run(q, &io, NULL), 0);
	assert_memory_equal(e->f->disk[0], g->mem + offset, 40 * 512);
}

/* SQ, CQ and lists in memory of a GPU, which has pages of 64 KiB. */
static void test_queue(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 64 };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_queue *q;
	uint64_t pages[256];
	struct gpu g;
	size_t run;

	(void)state;
	env_open(&e, NULL, NULL);
	e.f->scattered = true;
	gpu_new(&e, &g, true);
	assert_int_equal(peerlane_nvme_map_pages(g.map, 0, pages, 256), 256);
	for (unsigned int i = 1; i < 256; i++)
		assert_int_equal(pages[i] == pages[i - 1] + 4096, i % 16 != 0);
	assert_int_equal(peerlane_nvme_map_address(g.map, 65536 + 4096, pages, &run), 0);
	assert_int_equal(run, 65536 - 4096);
	qopt.sq = qopt.cq = qopt.lists = g.map;
	qopt.cq_offset = 4096;
	qopt.lists_offset = 65536;
	assert_true(peerlane_nvme_lists_bytes(e.nvme, 64, 0) == 63 * 256);
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), 0);
	assert_int_equal(peerlane_nvme_queue_get_info(q, &info), 0);
	assert_ptr_equal(info.sq, g.mem);
	assert_ptr_equal(info.cq, g.mem + 4096);
	env_stress(&e, q, 1000);
	/* Data in it as well, over the edge of one of its pages, and more than two of the controller's. */
	write_from(&e, q, &g, 131072 + 65536 - 10240);
	for (run = 0; run < 63 * 256 && !g.mem[65536 + run]; run++)
		;
	assert_true(run < 63 * 256); /* the list was there */
	peerlane_nvme_queue_destroy(q);
	gpu_free(&g);
	env_close(&e);
}

/* Where the CPU cannot reach it: for programs on the GPU only. */
static void test_queue_of_gpu(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 64 };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done;
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_io io;
	struct gpu g;

	(void)state;
	env_open(&e, NULL, NULL);
	gpu_new(&e, &g, false);
	io = env_io(&e, PL_NVME_WRITE, 0, 0, 40, 0);
	qopt.sq = qopt.cq = g.map;
	qopt.cq_offset = 4096;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), 0);
	assert_int_equal(peerlane_nvme_queue_get_info(q, &info), 0);
	assert_null(info.sq);
	assert_int_equal(peerlane_nvme_submit(q, &io, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_poll(q, &done, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(peerlane_nvme_submit(q, &io, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_poll(q, &done, 1), -EOPNOTSUPP);
	qopt.lists = g.map; /* which the driver writes */
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), -EINVAL);
	/* Its queue lies in it until the controller is closed. */
	env_close(&e);
	free(g.mem);
}

static void open_env(struct env *e)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .timeout_ms = 1000 };

	*e = (struct env){ .f = fake_new() };
	e->f->tick_ns = 100000;
	env_open(e, &opt, NULL);
}

/*
 * The kernel stops the controller because memory went away: every command is reported once, nothing is
 * ever sent to GPU memory mapped before, and all else goes on.
 */
static void test_stopped(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 64 };
	struct peerlane_nvme_completion done[8];
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_io io;
	unsigned int nr_io;
	struct env e;
	struct gpu g, other;

	(void)state;
	open_env(&e);
	gpu_new(&e, &g, true);
	gpu_new(&e, &other, true);
	e.f->hook = env_drop_io;
	for (unsigned int i = 0; i < 5; i++) {
		io = env_io(&e, PL_NVME_READ, 0, i, 1, 0);
		io.map = i == 4 ? e.map : g.map;
		assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), 1);
	}
	fake_stop(e.f);
	assert_int_equal(peerlane_nvme_wait(e.q, done, 5, 8, -1), 5);
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(done[i].err, -ECONNRESET);
	assert_int_equal(env_info(&e).nr_resets, 1);
	assert_int_equal(env_info(&e).dead, 0);
	assert_int_equal(e.f->nr_flr, 1);

	e.f->hook = NULL;
	assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 100, 8, 0), 0);
	nr_io = e.f->nr_io;
	for (unsigned int i = 0; i < 4; i++) {
		io = env_io(&e, PL_NVME_WRITE, 0, 0, i & 2 ? 1000 : 1, 0);
		io.flags = i & 1 ? PEERLANE_NVME_FUA : 0;
		io.map = i ? g.map : other.map;
		assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), -EFAULT);
	}
	qopt.sq = g.map;
	assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), -EFAULT);
	assert_int_equal(e.f->nr_io, nr_io);

	peerlane_nvme_unmap(g.map);
	assert_int_equal(gpu_map(&e, &g, true), 0);
	write_from(&e, e.q, &g, 4096);
	gpu_free(&g);
	gpu_free(&other);
	env_close(&e);
}

/* A queue in memory that may have gone is not made anew. */
static void test_stopped_queue(void **state)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 64 };
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_io io;
	struct env e;
	struct gpu g;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		open_env(&e);
		gpu_new(&e, &g, true);
		qopt.sq = i == 0 ? g.map : NULL;
		qopt.cq = i == 1 ? g.map : NULL;
		qopt.lists = i == 2 ? g.map : NULL;
		assert_int_equal(peerlane_nvme_queue_create(e.nvme, &qopt, &q), 0);
		env_stress(&e, q, 100);
		fake_stop(e.f);
		assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
		io = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
		assert_int_equal(peerlane_nvme_run(q, &io, NULL), -EFAULT);
		assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 1, 0), 0);
		peerlane_nvme_queue_destroy(q);
		gpu_free(&g);
		env_close(&e);
	}
}

static unsigned int nr_stops;

static enum fake_do stop_again(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			       struct pl_nvme_cqe *cqe)
{
	(void)cqe;
	if (qid || sqe->opcode != PL_NVME_ADMIN_IDENTIFY || !nr_stops)
		return FAKE_DO;
	nr_stops--;
	fake_stop(f);
	return FAKE_DROP;
}

/* More memory goes away while the controller is started again. */
static void test_stopped_again(void **state)
{
	struct env e;

	(void)state;
	open_env(&e);
	e.f->hook = stop_again;
	nr_stops = 3;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(nr_stops, 0);
	assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 100, 8, 0), 0);
	/* Not for ever. */
	nr_stops = 1000;
	assert_int_equal(peerlane_nvme_reset(e.nvme), -EIO);
	assert_true(nr_stops > 900);
	assert_int_equal(env_info(&e).dead, -EIO);
	nr_stops = 0;
	assert_int_equal(peerlane_nvme_reset(e.nvme), 0);
	assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 100, 8, 0), 0);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queue),	      cmocka_unit_test(test_queue_of_gpu),
		cmocka_unit_test(test_stopped),	      cmocka_unit_test(test_stopped_queue),
		cmocka_unit_test(test_stopped_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
