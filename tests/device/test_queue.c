// SPDX-License-Identifier: MIT
/* Queue pairs driven by warps: every depth, full and shared queues, wraps, faults, time-outs, the end. */
#include "device_test.h"

#include <pthread.h>
#include <sched.h>

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
		if (!started) {
			pld_nap(1000);
			continue;
		}
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

/* The counters run over their end. */
static void test_wrap(void **state)
{
	const struct shape shape = { 1, 16, 3, 5, 4, 60 };
	struct run r;

	(void)state;
	run_open(&r, "sim:size=1M", &shape);
	fill_namespace(&r);
	queue_restart(&r.s.q[0], 0u - 2 * shape.depth);
	run_kernel(&r);
	assert_int_equal(r.wrong, 0);
	assert_int_equal(r.served, 3 * 4 * 60);
	assert_true(r.s.q[0].tail < 0x10000);
	assert_int_equal(nr_bad(&r), 0);
	run_close(&r);
}

/* A few threads go through very many queues. */
static void read_all_queues(unsigned int warp, void *arg)
{
	struct run *r = arg;

	for (unsigned int i = warp; i < r->s.nr; i += 8)
		read_blocks(i, r);
}

static void test_many_queues(void **state)
{
	const struct shape shape = { 1024, 4, 1, 2, 1, 3 };
	struct run r;

	(void)state;
	run_open(&r, "sim:size=1M,queues=1100", &shape);
	fill_namespace(&r);
	assert_int_equal(peerlane_cpu_run(8, 1, read_all_queues, &r), 0);
	assert_int_equal(r.served, 1024 * 3);
	assert_int_equal(r.wrong + r.failed, 0);
	assert_int_equal(nr_bad(&r), 0);
	run_close(&r);
}

/* Ids go round, with one thread that has many commands outstanding. */
static void test_ids(void **state)
{
	const struct shape shape = { 1, 64, 1, 32, 32, 0 };
	struct pld_request rq = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 1 };
	struct pld_completion cpl;
	struct pld_port port;
	unsigned int sent = 0, done = 0;
	uint64_t lba[32];
	struct run r;

	(void)state;
	run_open(&r, "sim:size=1M", &shape);
	fill_namespace(&r);
	pld_port_open(&port, &r.s.q[0], 0, 1);
	while (done < 2000) {
		int token = pld_reserve(&port, sent < 2000);

		if (token >= 0) {
			rq.lba = lba[token] = sent++ % r.nr_blocks;
			rq.prp1 = r.p.dma[token].first;
			pld_send(&port, token, &rq);
			continue;
		}
		for (token = 0; token < 32; token++) {
			if (port.free >> token & 1 || !pld_poll(&port, token, &cpl))
				continue;
			assert_int_equal(cpl.err, 0);
			assert_true(block_is(r.p.memory + (size_t)token * r.p.bytes, lba[token]));
			pld_free(&port, token);
			done++;
		}
	}
	assert_int_equal(sent, done);
	assert_int_equal(nr_bad(&r), 0);
	run_close(&r);
}

/* The ids of a slot: none is the one that means none, and two uses in a row differ. */
static void test_numbers(void **state)
{
	uint64_t slots[1u << 12] = { 0 };
	struct pld_port port = { .slots = slots };

	(void)state;
	for (port.slot_bits = 0; port.slot_bits <= 12; port.slot_bits++) {
		const uint32_t last = (1u << port.slot_bits) - 1;

		for (uint32_t slot = 0; slot <= last; slot += last ? last : 1) {
			uint32_t was = PL_NVME_CID_NONE;

			/* From just before the counter wraps, and round all numbers. */
			port.use = (uint32_t)-3;
			for (uint32_t i = 0; i < 2 * 65536 + 10; i++) {
				const uint32_t cid = pld_next_cid_(&port, slot);

				assert_true(cid < PL_NVME_CID_NONE && (cid & last) == slot);
				assert_true(cid != was);
				was = cid;
				slots[slot] = (uint64_t)cid << 48;
				pld_next_use_(&port);
			}
		}
	}
}

/* Completions in another order, late, or twice: each read still gets its own block. */
static void test_disorder(void **state)
{
	static const char *const rules[] = {
		"sim:size=1M,rule=reorder opcode=read window=3",
		"sim:size=1M,rule=delay opcode=read every=3 steps=50",
		"sim:size=1M,rule=duplicate opcode=read every=5",
	};
	const struct shape shape = { 1, 64, 4, 12, 8, 30 };

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct run r;

		run_open(&r, rules[i], &shape);
		fill_namespace(&r);
		run_kernel(&r);
		assert_int_equal(r.wrong, 0);
		assert_int_equal(r.served, 4 * 8 * 30);
		/* A completion that comes twice is seen, and not believed. */
		if (i == 2)
			assert_true(nr_bad(&r) >= 4 * 8 * 30 / 5 - 1);
		else
			assert_int_equal(nr_bad(&r), 0);
		run_close(&r);
	}
}

static void test_status(void **state)
{
	const struct shape shape = { 1, 64, 1, 32, 1, 1 };
	struct pld_request rq = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 1 };
	struct pld_completion cpl;
	struct pld_port port;
	struct run r;
	int token;

	(void)state;
	run_open(&r, "sim:size=1M,rule=status opcode=read lba=7 code=0x281 dnr=1 more=1", &shape);
	pld_port_open(&port, &r.s.q[0], 0, 1);
	rq.prp1 = r.p.dma[0].first;
	for (unsigned int i = 0; i < 3; i++) {
		/* A good one, one that the controller fails, one past the end. */
		rq.lba = i == 1 ? 7 : i == 2 ? 2048 : 0;
		token = pld_submit(&port, 1, &rq);
		assert_true(token >= 0);
		pld_wait(&port, token, FOR_EVER, &cpl);
		assert_int_equal(cpl.err, i ? -EIO : 0);
		assert_int_equal(cpl.status & 0x7ff, i == 1 ? 0x281 : i == 2 ? 0x080 : 0);
		/* Whole: do not retry is the highest bit, more the one below. */
		assert_int_equal(cpl.status >> 13, i ? 3 : 0);
		pld_free(&port, token);
	}
	assert_int_equal(pld_count64(port.free), 32);
	run_close(&r);
}

/* What never completes costs its reader the time-out, and the queue a slot; everything else goes on. */
static void test_dropped(void **state)
{
	const struct shape shape = { 1, 64, 1, 62, 1, 40 };
	struct pld_port port;
	struct run r;

	(void)state;
	run_open(&r, "sim:size=1M,rule=drop opcode=read nth=4", &shape);
	fill_namespace(&r);
	r.timeout_ns = 300 * 1000000u;
	run_kernel(&r);
	assert_int_equal(r.served, 3);
	assert_int_equal(r.late, 1);
	pld_port_open(&port, &r.s.q[0], 0, 1);
	assert_int_equal(pld_count64(port.lost), 1);
	assert_int_equal(pld_count64(port.free), 61);
	r.timeout_ns = FOR_EVER;
	run_kernel(&r);
	assert_int_equal(r.served, 3 + 40);
	assert_int_equal(r.wrong + r.failed, 0);
	run_close(&r);
}

/* What completes after its time-out gives its slot back, and is not taken for the next command's. */
static void test_late(void **state)
{
	const struct shape shape = { 1, 4, 1, 1, 1, 1 };
	struct run r;

	(void)state;
	run_open(&r, "sim:size=1M,rule=delay opcode=read nth=1 steps=2000", &shape);
	fill_namespace(&r);
	r.timeout_ns = 1;
	run_kernel(&r);
	assert_int_equal(r.late, 1);
	/* The only slot: whoever reads next waits for it. */
	r.timeout_ns = FOR_EVER;
	r.rounds = 20;
	run_kernel(&r);
	assert_int_equal(r.served, 20);
	assert_int_equal(r.wrong + r.failed, 0);
	assert_int_equal(nr_bad(&r), 0);
	run_close(&r);
}

/* Completions that name a wrong command or queue reach nobody. */
static void test_corrupt(void **state)
{
	static const char *const rules[] = {
		"sim:size=1M,rule=corrupt opcode=read nth=2 field=cid value=0x0040",
		"sim:size=1M,rule=corrupt opcode=read nth=2 field=cid value=0xffff",
		"sim:size=1M,rule=corrupt opcode=read nth=2 field=sqid value=0x0101",
	};
	const struct shape shape = { 1, 128, 2, 60, 1, 20 };

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct run r;

		run_open(&r, rules[i], &shape);
		fill_namespace(&r);
		r.timeout_ns = 300 * 1000000u;
		run_kernel(&r);
		assert_int_equal(r.wrong + r.failed, 0);
		assert_int_equal(r.late, 1);
		assert_int_equal(nr_bad(&r), 1);
		run_close(&r);
	}
}

static void *run_in_thread(void *arg)
{
	run_kernel(arg);
	return NULL;
}

/* The host ends a kernel whose commands never complete, makes the queue anew, and it can be used again. */
static void test_stop(void **state)
{
	const struct shape shape = { 1, 64, 2, 16, 8, 50 };
	pthread_t thread;
	struct run r;

	(void)state;
	run_open(&r, "sim:size=1M,rule=hold opcode=read count=16", &shape);
	fill_namespace(&r);
	assert_int_equal(pthread_create(&thread, NULL, run_in_thread, &r), 0);
	while (pld_load_relaxed_dev32(&r.s.q[0].tail) < 16)
		sched_yield();
	pld_store_relaxed_sys32(&r.s.stop, 1);
	pthread_join(thread, NULL);
	assert_int_equal(r.stopped, 16);
	assert_int_equal(r.served + r.late + r.failed, 0);

	peerlane_nvme_queue_destroy(r.s.pair[0]);
	free(r.s.q[0].slots);
	free(r.s.q[0].marks);
	queue_open(&r.s, 0, shape.depth, shape.nr_ports, shape.slots_per_port);
	r.s.stop = 0;
	run_kernel(&r);
	assert_int_equal(r.served, 2 * 8 * 50);
	assert_int_equal(r.wrong + r.failed, 0);
	run_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),	    cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_many_queues), cmocka_unit_test(test_ids),
		cmocka_unit_test(test_numbers),	    cmocka_unit_test(test_disorder),
		cmocka_unit_test(test_status),	    cmocka_unit_test(test_dropped),
		cmocka_unit_test(test_late),	    cmocka_unit_test(test_corrupt),
		cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
