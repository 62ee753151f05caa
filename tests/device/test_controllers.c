// SPDX-License-Identifier: MIT
/* Queues of NVMe controllers: several of them, both ways of data, every fault, kills and resets. */
#include "serve_test.h"

#include <peerlane/gpu.h>

#include <simnvme.h>

#include <pthread.h>

#define BLOCKS 1024u
#define MAX_CTRLS 3u

struct setup {
	struct peerlane_nvme *nvme[MAX_CTRLS];
	unsigned int nr;
	struct peerlane_device *dev;
};

/* Every block of a controller with its pattern. */
static void fill_blocks(struct peerlane_nvme *nvme, uint64_t name)
{
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	struct peerlane_nvme_ns *ns;
	void *memory;

	assert_int_equal(peerlane_nvme_ns_open(nvme, 1, &ns), 0);
	assert_int_equal(peerlane_nvme_queue_create(nvme, NULL, &q), 0);
	assert_int_equal(peerlane_nvme_map_alloc(nvme, (size_t)BLOCKS * BLOCK, &memory, &map), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		fill_block((char *)memory + (size_t)i * BLOCK, name + i);
	assert_int_equal(peerlane_nvme_run(q,
					   &(struct peerlane_nvme_io){ .opcode = PL_NVME_WRITE,
								       .nr_blocks = BLOCKS,
								       .ns = ns,
								       .map = map },
					   NULL),
			 0);
	peerlane_nvme_unmap(map);
	peerlane_nvme_queue_destroy(q);
}

static void setup_open(struct setup *s, unsigned int nr, const char *config,
		       const struct peerlane_device_options *opt)
{
	struct peerlane_nvme_options nvme_opt = { .size = sizeof(nvme_opt),
						  .flags = PEERLANE_NVME_NO_DBBUF };

	s->nr = nr;
	for (unsigned int i = 0; i < nr; i++) {
		assert_int_equal(peerlane_nvme_open(&s->nvme[i], config, &nvme_opt), 0);
		fill_blocks(s->nvme[i], (uint64_t)i * 1000000);
	}
	assert_int_equal(peerlane_device_open_nvme(&s->dev, opt, s->nvme, nr, 1), 0);
}

static void setup_close(struct setup *s)
{
	peerlane_device_close(s->dev);
	for (unsigned int i = 0; i < s->nr; i++)
		peerlane_nvme_close(s->nvme[i]);
}

static void load_of(struct load *l, struct setup *s, unsigned int nr_lanes)
{
	load_init(l, s->dev, nr_lanes);
	l->nr_blocks = BLOCKS;
	l->one_space_each = 1;
	if (!l->info.has_bounce)
		load_map(l);
}

/* One page, two, and as many as need a list. */
static void check_lengths(unsigned int flags, const char *config)
{
	static const uint32_t lengths[] = { 1, 8, 16, 24, 128 };
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .flags = flags,
					       .nr_queues = 6,
					       .depth = 16,
					       .ports_per_queue = 2,
					       .max_transfer_bytes = PIECE };
	struct setup s;
	struct load l;

	setup_open(&s, 3, config, &opt);
	load_of(&l, &s, 3);
	assert_int_equal(l.info.nr_controllers, 3);
	assert_int_equal(l.info.has_bounce, flags == PEERLANE_DEVICE_BOUNCE);
	assert_true(l.info.emulated);
	assert_true(!peerlane_device_map_dma(l.map, 0) == (flags == PEERLANE_DEVICE_BOUNCE));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		l.io_blocks = lengths[i];
		l.rounds = 4;
		l.opcode = PL_NVME_READ;
		load_run_well(&l);
	}
	/* Written by kernels, read by kernels. */
	l.io_blocks = 8;
	l.opcode = PL_NVME_WRITE;
	load_run_well(&l);
	l.opcode = PL_NVME_READ;
	load_run_well(&l);
	assert_int_equal(TOTAL(s.dev, bad_completions), 0);
	load_fini(&l);
	setup_close(&s);
}

static void test_direct(void **state)
{
	(void)state;
	check_lengths(0, "sim:size=1M");
	/* Each page somewhere else. */
	check_lengths(0, "sim:size=1M,scatter=1");
}

static void test_bounce(void **state)
{
	(void)state;
	check_lengths(PEERLANE_DEVICE_BOUNCE, "sim:size=1M");
	check_lengths(PEERLANE_DEVICE_BOUNCE, "sim:size=1M,scatter=1");
}

/* The controller takes less at a time than was asked for. */
static void test_short_transfers(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .flags = PEERLANE_DEVICE_BOUNCE,
					       .max_transfer_bytes = PIECE };
	struct peerlane_nvme_memory m = { .size = sizeof(m), .pin_fd = -1, .bytes = PIECE };
	struct setup s;
	struct load l;

	(void)state;
	setup_open(&s, 1, "sim:size=1M,mdts=1", &opt);
	load_of(&l, &s, 2);
	assert_int_equal(l.info.max_transfer_bytes, 8192);
	/* Nothing needs to be mapped, and nothing is. */
	m.ptr = l.memory;
	assert_int_equal(peerlane_device_map(s.dev, &m, 4096, &l.map), 0);
	assert_null(peerlane_device_map_dma(l.map, 0));
	l.io_blocks = 16;
	load_run_well(&l);
	load_fini(&l);
	setup_close(&s);
}

/* ------------------------------------------------------------------ faults */

struct fault {
	const char *rule;
	int may_be_late; /* commands may never end */
	int fails;	 /* some do */
	int bad;	 /* completions that make no sense come */
};

static void read_one(struct load *l, uint32_t queue)
{
	const struct pld_dma *dma = peerlane_device_map_dma(l->map, 0);
	struct pld_io io = { .opcode = PL_NVME_READ,
			     .nsid = 1,
			     .nr_blocks = 1,
			     .bytes = BLOCK,
			     .memory = l->memory,
			     .dma = dma };
	struct pld_port port;

	pld_port_open(&port, &l->info.queues[queue], 0, 1);
	assert_int_equal(one_status(&port, &io), 0);
	assert_true(block_is(io.memory, 0));
}

static void check_fault(const struct fault *f, unsigned int flags)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .flags = flags,
					       .nr_queues = 2,
					       .depth = 16,
					       .ports_per_queue = 2,
					       .max_transfer_bytes = PIECE };
	char config[256];
	struct setup s;
	struct load l;

	snprintf(config, sizeof(config), "sim:size=1M,rule=%s", f->rule);
	setup_open(&s, 1, config, &opt);
	load_of(&l, &s, 2);
	l.rounds = 20;
	if (f->may_be_late)
		l.timeout_ns = 1000000000;
	/* load_run() sees to it that what succeeded has brought its block. */
	load_run(&l);
	assert_true(f->may_be_late || !l.late);
	assert_true(!f->fails == !l.failed);
	if (f->fails)
		assert_int_equal(l.last_status & 0x7ff, 0x281);
	/* Kernels may have given up before they saw it: another read has them see all before. */
	for (uint32_t q = 0; f->bad && q < l.info.nr_queues; q++)
		read_one(&l, q);
	assert_true(!f->bad || TOTAL(s.dev, bad_completions) > 0);
	assert_int_equal(l.stopped, 0);
	/* Whatever happened, after a reset all is well: the rules have come true as often as they may. */
	assert_int_equal(peerlane_device_reset(s.dev), 0);
	l.timeout_ns = FOR_EVER;
	load_run_well(&l);
	load_fini(&l);
	setup_close(&s);
}

static void test_faults(void **state)
{
	static const struct fault faults[] = {
		{ "status opcode=read code=0x281 count=9", 0, 1, 0 },
		{ "drop opcode=read nth=7 count=1", 1, 0, 0 },
		{ "delay opcode=read every=3 steps=300 count=20", 0, 0, 0 },
		{ "reorder opcode=read window=2 count=20", 0, 0, 0 },
		{ "corrupt opcode=read field=cid nth=5 count=1", 1, 0, 1 },
		{ "corrupt opcode=read field=sqid nth=5 count=1", 1, 0, 1 },
		{ "corrupt opcode=read field=phase value=1 nth=5 count=1", 1, 0, 0 },
		{ "duplicate opcode=read every=4 count=5", 0, 0, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		check_fault(&faults[i], i % 2 ? PEERLANE_DEVICE_BOUNCE : 0);
}

static void *stop_after(void *arg)
{
	struct load *l = arg;

	while (TOTAL(l->dev, commands) < 20)
		sched_yield();
	peerlane_device_stop(l->dev);
	return NULL;
}

/* Killed while the controller has commands that never end. */
static void test_kill(void **state)
{
	struct peerlane_device_options opt = {
		.size = sizeof(opt), .nr_queues = 4, .depth = 16, .max_transfer_bytes = PIECE
	};
	pthread_t thread;
	struct setup s;
	struct load l;

	(void)state;
	setup_open(&s, 2, "sim:size=1M,rule=hold opcode=read every=50 count=3", &opt);
	load_of(&l, &s, 4);
	for (int i = 0; i < 3; i++) {
		l.rounds = 1000000;
		assert_int_equal(pthread_create(&thread, NULL, stop_after, &l), 0);
		load_run(&l);
		pthread_join(thread, NULL);
		assert_int_equal(l.failed + l.late, 0);
		assert_int_equal(l.stopped, 16);
		assert_int_equal(peerlane_device_reset(s.dev), 0);
		assert_int_equal(TOTAL(s.dev, commands), 0);
	}
	/* The rule has come true as often as it may, or does so now and is waited for. */
	l.rounds = 20;
	l.timeout_ns = 1000000000;
	load_run(&l);
	assert_int_equal(l.failed + l.stopped, 0);
	assert_int_equal(peerlane_device_reset(s.dev), 0);
	load_fini(&l);
	setup_close(&s);
}

/* Rings and data in memory of the simulated GPU, which kernels on the CPU reach elsewhere. */
static void test_gpu_memory(void **state)
{
	const struct peerlane_options ctx_opt = { .size = sizeof(ctx_opt), .backend = "sim" };
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .nr_queues = 2,
					       .depth = 128,
					       .ports_per_queue = 2,
					       .max_transfer_bytes = PIECE };
	struct peerlane_nvme_memory rings = { .size = sizeof(rings),
					      .flags = PEERLANE_NVME_MEMORY_GPU,
					      .pin_fd = -1 };
	struct peerlane_nvme_memory data = rings;
	struct peerlane *ctx;
	char text[1024], *plain;
	struct setup s;
	struct load l;

	(void)state;
	assert_int_equal(peerlane_open(&ctx, &ctx_opt), 0);
	rings.bytes = peerlane_device_rings_bytes(&opt);
	assert_int_equal(rings.bytes, 2 * 128 * 64 + 2 * 4096);
	data.bytes = 8 * PIECE;
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, rings.bytes, &rings.ptr), 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, data.bytes, &data.ptr), 0);
	data.cpu = peerlane_sim_host(data.ptr);
	opt.ctx = ctx;
	opt.rings = &rings;
	/* Nobody says where the CPU reaches them. */
	setup_open(&s, 1, "sim:size=1M", NULL);
	peerlane_device_close(s.dev);
	assert_int_equal(peerlane_device_open_nvme(&s.dev, &opt, s.nvme, 1, 1), -EINVAL);
	rings.cpu = peerlane_sim_host(rings.ptr);
	rings.bytes--;
	assert_int_equal(peerlane_device_open_nvme(&s.dev, &opt, s.nvme, 1, 1), -EINVAL);
	rings.bytes++;
	assert_int_equal(peerlane_device_open_nvme(&s.dev, &opt, s.nvme, 1, 1), 0);
	peerlane_device_describe(s.dev, text, sizeof(text));
	assert_non_null(strstr(text, "rings: in GPU memory"));
	load_init(&l, s.dev, 2);
	assert_false(l.info.on_gpu);
	l.nr_blocks = BLOCKS;
	assert_int_equal(peerlane_device_map(s.dev, &data, PIECE, &l.map), 0);
	plain = l.memory;
	l.memory = data.cpu;
	for (int i = 0; i < 2; i++) {
		l.io_blocks = i ? 128 : 1;
		load_run_well(&l);
		assert_int_equal(peerlane_device_reset(s.dev), 0);
	}
	l.memory = plain;
	load_fini(&l);
	setup_close(&s);
	assert_int_equal(peerlane_gpu_free(ctx, rings.ptr), 0);
	assert_int_equal(peerlane_gpu_free(ctx, data.ptr), 0);
	peerlane_close(ctx);
}

/* A controller that is reached by a socket, as one of another process: it maps the rings and slots. */
static void test_served_by_socket(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .flags = PEERLANE_DEVICE_BOUNCE,
					       .nr_queues = 2,
					       .max_transfer_bytes = PIECE };
	char dir[] = "/tmp/peerlane-device-XXXXXX", path[64], address[80], why[128];
	struct pl_simnvme_server *server;
	struct pl_simnvme *c;
	struct setup s;
	struct load l;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	snprintf(address, sizeof(address), "sim-unix:%s", path);
	assert_int_equal(pl_simnvme_create("sim:size=1M", &c, why, sizeof(why)), 0);
	assert_int_equal(pl_simnvme_start(c), 0);
	assert_int_equal(pl_simnvme_serve(c, path, &server), 0);
	setup_open(&s, 1, address, &opt);
	load_of(&l, &s, 4);
	l.io_blocks = 128;
	load_run_well(&l);
	load_fini(&l);
	setup_close(&s);
	pl_simnvme_unserve(server);
	pl_simnvme_destroy(c);
	unlink(path);
	assert_int_equal(rmdir(dir), 0);
}

static void test_words(void **state)
{
	struct peerlane_device_stats st = { .size = sizeof(st) };
	struct peerlane_device_space space = { .size = sizeof(space) };
	char text[1024];
	struct setup s;

	(void)state;
	setup_open(&s, 2, "sim:size=1M", NULL);
	peerlane_device_describe(s.dev, text, sizeof(text));
	assert_non_null(strstr(text, "2 queues of depth 64"));
	assert_non_null(strstr(text, "EMULATED"));
	assert_non_null(strstr(text, "by DMA of the controllers"));
	assert_int_equal(peerlane_device_get_stats(s.dev, 1, &st), 0);
	assert_true(st.errors == PEERLANE_DEVICE_UNKNOWN);
	assert_int_equal(peerlane_device_get_space(s.dev, 1, &space), 0);
	assert_int_equal(space.controller, 1);
	assert_int_equal(space.nsid, 1);
	assert_int_equal(space.nr_blocks, 2048);
	setup_close(&s);
}

static void test_refusals(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt), .nr_queues = 3 };
	struct peerlane_nvme_options dbbuf = { .size = sizeof(dbbuf) };
	struct peerlane_nvme *nvme[2];
	struct peerlane_device_map *map = NULL;
	struct peerlane_nvme_memory m = { .size = sizeof(m), .pin_fd = -1, .bytes = 8192 };
	struct peerlane_device *dev = NULL;
	struct setup s;

	(void)state;
	assert_int_equal(peerlane_nvme_open(&nvme[0], "sim:size=1M,dbbuf=poll", &dbbuf), 0);
	nvme[1] = nvme[0];
	assert_int_equal(peerlane_device_open_nvme(&dev, NULL, nvme, 1, 1), -EOPNOTSUPP);
	assert_int_equal(peerlane_device_open_nvme(&dev, &opt, nvme, 2, 1), -EINVAL);
	assert_int_equal(peerlane_device_open_nvme(&dev, NULL, nvme, 1, 7), -ENXIO);
	assert_int_equal(peerlane_device_open_nvme(&dev, NULL, nvme, 0, 1), -EINVAL);
	peerlane_nvme_close(nvme[0]);
	/* More queues than it has: those that were made are given back. */
	dbbuf.flags = PEERLANE_NVME_NO_DBBUF;
	assert_int_equal(peerlane_nvme_open(&nvme[0], "sim:size=1M,queues=2", &dbbuf), 0);
	assert_int_equal(peerlane_device_open_nvme(&dev, &opt, nvme, 1, 1), -ENOSPC);
	opt.nr_queues = 2;
	assert_int_equal(peerlane_device_open_nvme(&dev, &opt, nvme, 1, 1), 0);
	peerlane_device_close(dev);
	peerlane_nvme_close(nvme[0]);

	setup_open(&s, 1, "sim:size=1M", NULL);
	assert_int_equal(peerlane_device_map(s.dev, &m, 4096, &map), -EINVAL);
	m.ptr = aligned_alloc(4096, 8192);
	assert_int_equal(peerlane_device_map(s.dev, &m, 8192, &map), -EINVAL);
	assert_int_equal(peerlane_device_map(s.dev, &m, 1000, &map), -EINVAL);
	/* In the middle of a page. */
	m.ptr = (char *)m.ptr + 512;
	m.bytes = 4096;
	assert_int_equal(peerlane_device_map(s.dev, &m, 4096, &map), -EINVAL);
	assert_null(map);
	assert_int_equal(peerlane_device_map(s.dev, &m, 512, &map), 0);
	assert_non_null(peerlane_device_map_dma(map, 0));
	assert_null(peerlane_device_map_dma(map, 1));
	peerlane_device_unmap(map);
	peerlane_device_unmap(NULL);
	free((char *)m.ptr - 512);
	setup_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_direct),
		cmocka_unit_test(test_bounce),
		cmocka_unit_test(test_short_transfers),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_gpu_memory),
		cmocka_unit_test(test_served_by_socket),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
