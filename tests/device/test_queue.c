// SPDX-License-Identifier: MIT
/* Queue pairs driven by warps: every depth, full and shared queues, wraps, faults, time-outs, the end. */
#include "device_test.h"

struct run {
	struct queues s;
	struct pieces p;
	unsigned int nr_lanes;
	unsigned int rounds;
	uint32_t nr_blocks; /* of the namespace */
	uint64_t timeout_ns;
	uint32_t wrong, failed, late, stopped, served; /* counted by all */
};

static void count(uint32_t *what, int bad)
{
	if (bad)
		__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static uint32_t all_lanes(unsigned int nr)
{
	return nr == 32 ? ~0u : (1u << nr) - 1;
}

/* Note how a read ended; what succeeded must have brought its block. */
static void judge(struct run *r, const struct pld_io *io, int err)
{
	count(&r->late, err == -ETIMEDOUT);
	count(&r->stopped, err == -ECANCELED);
	count(&r->failed, err == -EIO);
	count(&r->served, !err);
	count(&r->wrong, !err && !block_is(io->memory, io->lba));
}

/* Each lane reads blocks one after the other, as slots allow, each into a piece of its own. */
static void read_blocks(unsigned int warp, void *arg)
{
	struct run *r = arg;
	struct pld_queue *q = &r->s.q[warp / r->s.q[0].nr_ports];
	const unsigned int me = warp * r->nr_lanes + pld_lane();
	struct pld_io io = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 1, .bytes = BLOCK };
	struct pld_completion cpl;
	struct pld_port port;

	pld_port_open(&port, q, warp % q->nr_ports, all_lanes(r->nr_lanes));
	io.memory = r->p.memory + (size_t)me * r->p.bytes;
	io.dma = &r->p.dma[me];
	for (unsigned int done = 0; pld_ballot(port.lanes, done < r->rounds);) {
		int started, err;

		io.lba = (me * 31 + done * 7) % r->nr_blocks;
		if (done < r->rounds)
			memset(io.memory, 0xee, BLOCK);
		started = !pld_io_start(&port, done < r->rounds, &io);
		err = pld_io_wait(&port, &io, r->timeout_ns, &cpl);
		if (!started)
			continue;
		judge(r, &io, err);
		/* Memory that may still be written is not used again. */
		done = err == -ETIMEDOUT || err == -ECANCELED ? r->rounds : done + 1;
	}
}

/* Blocks with their pattern, by the driver's own queue. */
static void fill_namespace(struct run *r)
{
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	void *memory;

	assert_int_equal(peerlane_nvme_queue_create(r->s.nvme, NULL, &q), 0);
	assert_int_equal(
		peerlane_nvme_map_alloc(r->s.nvme, (size_t)r->nr_blocks * BLOCK, &memory, &map), 0);
	for (uint32_t i = 0; i < r->nr_blocks; i++)
		fill_block((char *)memory + (size_t)i * BLOCK, i);
	assert_int_equal(peerlane_nvme_run(q,
					   &(struct peerlane_nvme_io){ .opcode = PL_NVME_WRITE,
								       .nr_blocks = r->nr_blocks,
								       .ns = r->s.ns,
								       .map = map },
					   NULL),
			 0);
	peerlane_nvme_unmap(map);
	peerlane_nvme_queue_destroy(q);
}

struct shape {
	unsigned int nr_queues;
	uint32_t depth, nr_ports, slots_per_port;
	unsigned int nr_lanes, rounds;
};

static void run_open(struct run *r, const char *config, const struct shape *shape)
{
	memset(r, 0, sizeof(*r));
	r->nr_lanes = shape->nr_lanes;
	r->rounds = shape->rounds;
	r->nr_blocks = 256;
	r->timeout_ns = FOR_EVER;
	queues_open(&r->s, config, shape->nr_queues, shape->depth, shape->nr_ports,
		    shape->slots_per_port);
	pieces_open(&r->p, &r->s, shape->nr_queues * shape->nr_ports * shape->nr_lanes, 4096);
}

static void run_kernel(struct run *r)
{
	assert_int_equal(
		peerlane_cpu_run(r->s.nr * r->s.q[0].nr_ports, r->nr_lanes, read_blocks, r), 0);
}

static void run_close(struct run *r)
{
	queues_close(&r->s);
	free(r->p.dma);
}

static uint64_t nr_bad(const struct run *r)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < r->s.nr; i++)
		sum += r->s.q[i].nr_bad;
	return sum;
}

static void check_shape(const struct shape *shape, const char *config)
{
	const uint32_t lanes = shape->nr_queues * shape->nr_ports * shape->nr_lanes;
	struct run r;

	run_open(&r, config, shape);
	fill_namespace(&r);
	run_kernel(&r);
	assert_int_equal(r.wrong, 0);
	assert_int_equal(r.failed + r.late + r.stopped, 0);
	assert_int_equal(r.served, lanes * shape->rounds);
	assert_int_equal(nr_bad(&r), 0);
	/* Again on the same queues: what a kernel leaves behind is what the next one begins with. */
	run_kernel(&r);
	assert_int_equal(r.wrong, 0);
	assert_int_equal(r.served, 2 * lanes * shape->rounds);
	run_close(&r);
}

static void test_shapes(void **state)
{
	static const struct shape shapes[] = {
		{ 1, 2, 1, 1, 1, 50 },	   /* one slot */
		{ 1, 2, 1, 1, 8, 10 },	   /* one slot for all lanes */
		{ 1, 4, 1, 3, 4, 40 },	   /* full, wraps often */
		{ 1, 4, 3, 1, 1, 100 },	   /* shared, full, a slot each */
		{ 2, 64, 4, 8, 8, 20 },	   /* shared, a slot a lane */
		{ 1, 64, 7, 9, 4, 40 },	   /* more slots than lanes */
		{ 1, 1024, 1, 64, 32, 5 }, /* a whole warp */
		{ 3, 128, 1, 16, 32, 3 },  /* fewer slots than lanes */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		check_shape(&shapes[i], "sim:size=1M");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
