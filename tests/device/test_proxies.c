// SPDX-License-Identifier: MIT
/* Proxies: killed kernels, resets, many queues, whatever lies in the rings, and emulated drives. */
#include "serve_test.h"

#include "proxy.h"

#include <pthread.h>
#include <sys/uio.h>
#include <time.h>

#define BLOCKS 512u

static void *memory_of(struct peerlane_device **dev, const struct peerlane_device_options *opt)
{
	void *memory;

	assert_int_equal(peerlane_device_open_memory(dev, opt, (size_t)BLOCKS * BLOCK, &memory), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		fill_block((char *)memory + (size_t)i * BLOCK, i);
	return memory;
}

static void test_memory(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .nr_queues = 3,
					       .depth = 16,
					       .ports_per_queue = 3,
					       .nr_threads = 2 };
	struct peerlane_device *dev;
	const char *memory;
	struct load l;

	(void)state;
	memory = memory_of(&dev, &opt);
	load_init(&l, dev, 4);
	assert_true(l.info.emulated);
	assert_int_equal(l.info.nr_threads, 2);
	load_run_well(&l);
	assert_int_equal(TOTAL(dev, bytes_read), l.served * BLOCK);
	/* Writes go through the slots, and lie in the blocks when they have completed. */
	memset((char *)(uintptr_t)memory, 0, (size_t)BLOCKS * BLOCK);
	l.opcode = PL_NVME_WRITE;
	load_run_well(&l);
	assert_int_equal(TOTAL(dev, bytes_written), l.served * BLOCK);
	for (uint32_t i = 0; i < l.served; i++)
		assert_true(block_is(memory + (size_t)i * BLOCK, i));
	load_fini(&l);
	peerlane_device_close(dev);
}

/* Larger blocks, and transfers of several. */
static void test_memory_blocks(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .block_bytes = 4096,
					       .max_transfer_bytes = 65536 };
	struct peerlane_device_space space = { .size = sizeof(space) };
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct pld_io io = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 16, .bytes = 65536 };
	struct peerlane_device *dev;
	struct pld_port port;

	(void)state;
	memory_of(&dev, &opt);
	assert_int_equal(peerlane_device_get_space(dev, 0, &space), 0);
	assert_int_equal(space.block_bytes, 4096);
	assert_int_equal(space.nr_blocks, BLOCKS / 8);
	assert_int_equal(peerlane_device_get_info(dev, &info), 0);
	io.memory = aligned_alloc(16, 65536);
	pld_port_open(&port, info.queues, 0, 1);
	io.lba = 3;
	assert_int_equal(one_status(&port, &io), 0);
	for (uint32_t i = 0; i < 128; i++)
		assert_true(block_is(io.memory + (size_t)i * BLOCK, 24 + i));
	io.lba = 49;
	assert_int_equal(one_status(&port, &io), PL_NVME_SC_LBA_RANGE);
	free(io.memory);
	peerlane_device_close(dev);
}

static void submit_many(unsigned int warp, void *arg)
{
	struct load *l = arg;
	const struct pld_request rq = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 1 };
	struct pld_completion cpl;
	struct pld_port port;
	int token;

	pld_port_open(&port, &l->info.queues[warp], 0, all_lanes(l->nr_lanes));
	for (unsigned int i = 0; i < l->rounds; i++) {
		token = pld_submit(&port, 1, &rq);
		pld_wait(&port, token, l->timeout_ns, &cpl);
		count(&l->served, token >= 0 && !cpl.err);
		pld_free(&port, token);
	}
}

static void test_instant(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt), .nr_queues = 4 };
	struct peerlane_device_stats st = { .size = sizeof(st) };
	struct peerlane_device *dev;
	char text[1024];
	struct load l;

	(void)state;
	assert_int_equal(peerlane_device_open_instant(&dev, &opt), 0);
	load_init(&l, dev, 8);
	l.rounds = 50;
	assert_int_equal(peerlane_cpu_run(4, 8, submit_many, &l), 0);
	assert_int_equal(l.served, 4 * 8 * 50);
	assert_int_equal(TOTAL(dev, commands), 4 * 8 * 50);
	assert_int_equal(peerlane_device_get_stats(dev, 0, &st), 0);
	assert_true(st.bytes_read == PEERLANE_DEVICE_UNKNOWN);
	assert_true(peerlane_device_describe(dev, text, sizeof(text)) < sizeof(text));
	assert_non_null(strstr(text, "EMULATED"));
	load_fini(&l);
	peerlane_device_close(dev);
}

/* ------------------------------------------------------------------ kernels that are killed */

static void wait_for(struct peerlane_device *dev, uint64_t commands)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	while (TOTAL(dev, commands) < commands)
		nanosleep(&nap, NULL);
}

static void *stop_after(void *arg)
{
	struct load *l = arg;

	wait_for(l->dev, 40);
	peerlane_device_stop(l->dev);
	return NULL;
}

/* Stopped in the middle; then everything goes on. */
static void check_kill(struct peerlane_device *dev)
{
	pthread_t thread;
	struct load l;

	load_init(&l, dev, 4);
	for (int i = 0; i < 3; i++) {
		/* More than can be done before the stop is seen. */
		l.rounds = 1000000;
		assert_int_equal(pthread_create(&thread, NULL, stop_after, &l), 0);
		load_run(&l);
		pthread_join(thread, NULL);
		assert_int_equal(l.failed + l.late, 0);
		assert_true(l.stopped > 0);
		/* Until it is reset, nobody waits. */
		l.rounds = 1;
		load_run(&l);
		assert_int_equal(peerlane_device_reset(dev), 0);
		l.rounds = 10;
		load_run_well(&l);
	}
	load_fini(&l);
}

static void test_kill(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .nr_queues = 2,
					       .depth = 32,
					       .ports_per_queue = 2,
					       .nr_threads = 2 };
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK);
	struct peerlane_device *dev;

	(void)state;
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), 0);
	check_kill(dev);
	peerlane_device_close(dev);
	close(fd);
	memory_of(&dev, &opt);
	check_kill(dev);
	peerlane_device_close(dev);
}

/*
 * Proxies that stand still while kernels run: those give up, in time or on command. Served late, what they
 * gave up does not reach what comes after.
 */
static void test_proxies_stand_still(void **state)
{
	struct peerlane_device_options opt = {
		.size = sizeof(opt), .nr_queues = 2, .depth = 16, .ports_per_queue = 2
	};
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK);
	struct peerlane_device *dev;
	struct load l;

	(void)state;
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), 0);
	load_init(&l, dev, 2);
	pl_proxies_park(dev->proxies);
	l.timeout_ns = 1000000;
	load_run(&l);
	assert_int_equal(l.late, 4 * 2);
	assert_int_equal(l.served, 0);
	assert_int_equal(TOTAL(dev, commands), 0);
	pl_proxies_go(dev->proxies);
	l.timeout_ns = FOR_EVER;
	load_run_well(&l);
	/* Stopped while they stand still; the commands are there, and are dropped. */
	pl_proxies_park(dev->proxies);
	peerlane_device_stop(dev);
	load_run(&l);
	assert_int_equal(l.stopped, 4 * 2);
	assert_int_equal(peerlane_device_reset(dev), 0);
	load_run_well(&l);
	assert_int_equal(TOTAL(dev, errors), 0);
	load_fini(&l);
	peerlane_device_close(dev);
	close(fd);
}

/* ------------------------------------------------------------------ many queues */

/* Each warp uses many queues in turn. */
static void visit_queues(unsigned int warp, void *arg)
{
	struct load *l = arg;
	struct pld_io io = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 1, .bytes = BLOCK };
	struct pld_completion cpl;
	struct pld_port port;

	io.memory = l->memory + (warp * l->nr_lanes + pld_lane()) * PIECE;
	for (uint32_t q = warp; q < l->info.nr_queues; q += l->nr_warps) {
		pld_port_open(&port, &l->info.queues[q], 0, all_lanes(l->nr_lanes));
		io.lba = (q * 5 + pld_lane()) % l->nr_blocks;
		while (pld_ballot(port.lanes, pld_io_start(&port, 1, &io) != 0))
			assert_int_equal(0, 1);
		pld_io_wait(&port, &io, l->timeout_ns, &cpl);
		judge(l, &io, 0, &cpl);
	}
}

static void test_1024_queues(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .nr_queues = 1024,
					       .depth = 4,
					       .max_transfer_bytes = 512,
					       .nr_threads = 2 };
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK);
	struct peerlane_device *dev;
	struct load l;

	(void)state;
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), 0);
	load_init(&l, dev, 2);
	l.nr_warps = 4;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(peerlane_cpu_run(4, 2, visit_queues, &l), 0);
		assert_int_equal(l.wrong + l.failed + l.late + l.stopped, 0);
	}
	assert_int_equal(l.served, 3 * 1024 * 2);
	assert_int_equal(TOTAL(dev, commands), 3 * 1024 * 2);
	l.nr_warps = 1024;
	load_fini(&l);
	peerlane_device_close(dev);
	close(fd);
}

/* ------------------------------------------------------------------ many commands at a time */

#define MANY 360u
#define MOST_QUEUES 60u

/* All slots of all queues, found at once by one proxy: reads of blocks from 0 on. Those of @good must succeed,
 * the others fail. */
static void read_many(struct peerlane_device *dev, uint32_t good)
{
	static struct pld_io io[MANY];
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct pld_port port[MOST_QUEUES];
	struct pld_completion cpl;
	char *memory = aligned_alloc(16, (size_t)MANY * BLOCK);
	uint32_t slots;

	assert_int_equal(peerlane_device_get_info(dev, &info), 0);
	slots = info.slots_per_port;
	pl_proxies_park(dev->proxies);
	for (uint32_t i = 0; i < MANY; i++) {
		const uint32_t q = i / slots;

		if (!(i % slots))
			pld_port_open(&port[q], &info.queues[q], 0, 1);
		io[i] = (struct pld_io){ .opcode = PL_NVME_READ,
					 .nsid = 1,
					 .lba = i,
					 .nr_blocks = 1,
					 .bytes = BLOCK,
					 .memory = memory + (size_t)i * BLOCK };
		memset(io[i].memory, 0xee, BLOCK);
		assert_int_equal(pld_io_start(&port[q], 1, &io[i]), 0);
	}
	pl_proxies_go(dev->proxies);
	for (uint32_t i = 0; i < MANY; i++) {
		const int err = pld_io_wait(&port[i / slots], &io[i], FOR_EVER, &cpl);

		assert_int_equal(err, i < good ? 0 : -EIO);
		assert_int_equal(cpl.status & 0x7ff, i < good ? 0 : PL_NVME_SC_READ_ERROR);
		if (i < good)
			assert_true(block_is(memory + (size_t)i * BLOCK, i));
	}
	free(memory);
}

static struct peerlane_device *open_many(int fd, uint32_t nr_queues)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .nr_queues = nr_queues,
					       .depth = 64,
					       .slots_per_port = MANY / nr_queues };
	struct peerlane_device *dev;

	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), 0);
	return dev;
}

/* In the page cache, not in it, and gone. */
static void check_many(uint32_t nr_queues)
{
	int fd = file_make(tmp_dir(), (size_t)MANY * BLOCK);
	struct peerlane_device *dev = open_many(fd, nr_queues);
	char block[BLOCK];
	struct iovec v = { block, BLOCK };
	uint64_t before;

	for (int i = 0; i < 3; i++)
		read_many(dev, MANY);
	assert_int_equal(TOTAL(dev, bytes_read), 3 * MANY * BLOCK);
	if (preadv2(fd, &v, 1, 0, RWF_NOWAIT) == BLOCK)
		assert_true(TOTAL(dev, cached) > 0);
	assert_int_equal(fsync(fd), 0);
	for (int i = 0; i < 3; i++) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		read_many(dev, MANY);
	}
	assert_int_equal(TOTAL(dev, errors), 0);
	before = TOTAL(dev, cached);
	assert_int_equal(ftruncate(fd, 100 * BLOCK), 0);
	read_many(dev, 100);
	assert_int_equal(TOTAL(dev, errors), MANY - 100);
	assert_true(TOTAL(dev, cached) <= before + 100);
	peerlane_device_close(dev);
	close(fd);
}

static void test_many_reads(void **state)
{
	(void)state;
	check_many(6);
	/* Few in each queue. */
	check_many(MOST_QUEUES);
}

/* What the file does not have of its last block is zero. */
#define LAST_SLOTS (MANY / 6)

static void test_many_reads_to_the_end(void **state)
{
	const size_t bytes = (size_t)(MANY - 1) * BLOCK + 100;
	int fd = file_make(tmp_dir(), bytes);
	struct peerlane_device *dev = open_many(fd, 6);
	struct pl_proxy_queue *q = &dev->proxies->queues[5];
	char block[BLOCK];
	const char *last = q->data + (size_t)(LAST_SLOTS - 1) * 4096;

	(void)state;
	fill_block(block, MANY - 1);
	memset(block + 100, 0, BLOCK - 100);
	pl_proxies_park(dev->proxies);
	memset(q->data, 0xee, (size_t)LAST_SLOTS * 4096);
	for (uint32_t i = 0; i < LAST_SLOTS; i++) {
		struct pl_nvme_sqe *sqe = pl_queues_sq(dev, q->index) + i;

		sqe->opcode = PL_NVME_READ;
		sqe->nsid = 1;
		sqe->cid = (uint16_t)i;
		sqe->cdw10 = MANY - LAST_SLOTS + i;
		sqe->dptr.prp.prp1 = q->prp + i * (uint64_t)4096;
	}
	pl_proxies_go(dev->proxies);
	pld_ring(pl_queues_sq_doorbell(dev->control.cpu, q->index), LAST_SLOTS);
	wait_for(dev, LAST_SLOTS);
	pl_proxies_park(dev->proxies);
	assert_int_equal(TOTAL(dev, errors), 0);
	assert_memory_equal(last, block, BLOCK);
	pl_proxies_go(dev->proxies);
	peerlane_device_close(dev);
	close(fd);
}

/* ------------------------------------------------------------------ rings that hold anything */

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* Commands of no sense, with what is likely to be believed mixed in. */
static void spoil(struct peerlane_device *dev, const struct peerlane_device_info *info,
		  uint32_t *seed)
{
	for (uint32_t i = 0; i < info->nr_queues; i++) {
		struct pl_nvme_sqe *sq = pl_queues_sq(dev, i);
		uint32_t *words = (uint32_t *)sq;

		for (uint32_t k = 0; k < info->depth * 16; k++)
			words[k] = next_random(seed) << 16 ^ next_random(seed);
		for (uint32_t k = 0; k < info->depth; k++) {
			sq[k].opcode = (uint8_t)(next_random(seed) % 4);
			sq[k].flags = (uint8_t)(next_random(seed) % 8 ? 0 : sq[k].flags);
			sq[k].nsid = next_random(seed) % 3;
			sq[k].cid = (uint16_t)(next_random(seed) % 64);
			sq[k].cdw10 = next_random(seed) % (2 * BLOCKS);
			sq[k].cdw11 = next_random(seed) % 4 ? 0 : sq[k].cdw11;
			sq[k].cdw12 = next_random(seed) % 24;
			if (next_random(seed) % 8)
				sq[k].dptr.prp.prp1 =
					dev->proxies->queues[i].prp +
					(uint64_t)(sq[k].cid % 8) * info->max_transfer_bytes;
		}
	}
}

/* A kernel that has gone mad: any doorbells at any time. The proxies live on. */
static void check_hostile(struct peerlane_device *dev)
{
	struct peerlane_device_info info = { .size = sizeof(info) };
	uint32_t seed = 1;
	uint64_t taken;
	struct load l;

	assert_int_equal(peerlane_device_get_info(dev, &info), 0);
	for (int round = 0; round < 20; round++) {
		/* While they look elsewhere: two who write one word are a race, here or there. */
		pl_proxies_park(dev->proxies);
		spoil(dev, &info, &seed);
		pl_proxies_go(dev->proxies);
		for (int i = 0; i < 100; i++) {
			const uint32_t q = next_random(&seed) % info.nr_queues;

			pld_ring(pl_queues_sq_doorbell(dev->control.cpu, q),
				 next_random(&seed) % (2 * info.depth));
			pld_ring(pl_queues_cq_doorbell(dev->control.cpu, q),
				 next_random(&seed) % (2 * info.depth));
		}
	}
	/* And commands that are surely taken. */
	assert_int_equal(peerlane_device_reset(dev), 0);
	pl_proxies_park(dev->proxies);
	spoil(dev, &info, &seed);
	taken = TOTAL(dev, commands);
	pl_proxies_go(dev->proxies);
	for (uint32_t q = 0; q < info.nr_queues; q++)
		pld_ring(pl_queues_sq_doorbell(dev->control.cpu, q), info.depth - 1);
	wait_for(dev, taken + info.nr_queues * (info.depth - 1));
	assert_int_equal(peerlane_device_reset(dev), 0);
	load_init(&l, dev, 2);
	load_run_well(&l);
	load_fini(&l);
}

static void test_hostile(void **state)
{
	struct peerlane_device_options opt = {
		.size = sizeof(opt), .nr_queues = 2, .depth = 16, .slots_per_port = 8
	};
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK), ro;
	struct peerlane_device *dev;
	char path[64];

	(void)state;
	/* What they write must not spoil what is read afterwards. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(ro >= 0);
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &ro, 1), 0);
	check_hostile(dev);
	peerlane_device_close(dev);
	close(ro);
	close(fd);
}

/* The same id twice in a row: the second is refused while the first is under way. */
static void test_same_id_twice(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt), .depth = 8 };
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK);
	struct peerlane_device *dev;
	struct pl_nvme_sqe *sq;
	struct pl_nvme_cqe *cq;
	unsigned int conflicts = 0;

	(void)state;
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), 0);
	sq = pl_queues_sq(dev, 0);
	cq = pl_queues_cq(dev, 0);
	for (int i = 0; i < 2; i++) {
		sq[i].opcode = PL_NVME_WRITE;
		sq[i].nsid = 1;
		sq[i].cid = 3;
		sq[i].dptr.prp.prp1 = dev->proxies->queues[0].prp + 3u * 4096;
	}
	pld_ring(pl_queues_sq_doorbell(dev->control.cpu, 0), 2);
	for (int i = 0; i < 2; i++) {
		while (!(__atomic_load_n(&cq[i].status, __ATOMIC_ACQUIRE) & PL_NVME_CQE_PHASE))
			sched_yield();
		assert_int_equal(cq[i].cid, 3);
		conflicts += (cq[i].status >> 1 & 0x7ff) == PL_NVME_SC_CID_CONFLICT;
	}
	assert_int_equal(conflicts, 1);
	peerlane_device_close(dev);
	close(fd);
}

/* Completions that nobody takes: the proxy stops where there is no room, and goes on. */
static void test_full_cq(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt), .depth = 4 };
	struct peerlane_device *dev;
	struct pl_nvme_cqe *cq;
	uint32_t *sq_bell, *cq_bell;

	(void)state;
	assert_int_equal(peerlane_device_open_instant(&dev, &opt), 0);
	cq = pl_queues_cq(dev, 0);
	sq_bell = pl_queues_sq_doorbell(dev->control.cpu, 0);
	cq_bell = pl_queues_cq_doorbell(dev->control.cpu, 0);
	pld_ring(sq_bell, 3);
	wait_for(dev, 3);
	/* Three more; there is room for none. */
	pld_ring(sq_bell, 2);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	assert_int_equal(TOTAL(dev, commands), 3);
	pld_ring(cq_bell, 1);
	wait_for(dev, 4);
	pld_ring(cq_bell, 3);
	wait_for(dev, 6);
	assert_int_equal(TOTAL(dev, commands), 6);
	while (!(__atomic_load_n(&cq[3].status, __ATOMIC_ACQUIRE) & PL_NVME_CQE_PHASE))
		sched_yield();
	/* A doorbell that no queue of this depth can have. */
	pld_ring(sq_bell, 4);
	while (!TOTAL(dev, bad_doorbells))
		sched_yield();
	peerlane_device_close(dev);
}

static void test_words(void **state)
{
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK);
	struct peerlane_device_info info = { .size = 1 };
	struct peerlane_device_stats st = { .size = sizeof(st) };
	struct peerlane_device *dev;
	char text[1024], cut[20];
	size_t length;

	(void)state;
	assert_int_equal(peerlane_device_open_files(&dev, NULL, &fd, 1), 0);
	length = peerlane_device_describe(dev, text, sizeof(text));
	assert_int_equal(length, strlen(text));
	assert_non_null(strstr(text, "1 queue of depth 64"));
	assert_non_null(strstr(text, "threads of the CPU"));
	assert_non_null(strstr(text, "1 file"));
	assert_null(strstr(text, "EMULATED"));
	assert_int_equal(peerlane_device_describe(dev, cut, sizeof(cut)), length);
	assert_int_equal(strlen(cut), sizeof(cut) - 1);
	assert_int_equal(peerlane_device_describe(dev, NULL, 0), length);
	assert_int_equal(peerlane_device_get_info(dev, &info), -EINVAL);
	assert_int_equal(peerlane_device_get_stats(dev, 1, &st), -ENXIO);
	peerlane_device_close(dev);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_memory_blocks),
		cmocka_unit_test(test_instant),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_proxies_stand_still),
		cmocka_unit_test(test_1024_queues),
		cmocka_unit_test(test_many_reads),
		cmocka_unit_test(test_many_reads_to_the_end),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_same_id_twice),
		cmocka_unit_test(test_full_cq),
		cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
