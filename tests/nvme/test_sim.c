// SPDX-License-Identifier: MIT
/*
 * The driver against the software controller, which is strict and somebody else's reading of the
 * specification: all shapes of controllers, data compared, and every fault it can be told to have.
 */
#include "nvme_test.h"

#include <simnvme.h>
#include <stdio.h>
#include <unistd.h>

#define BYTES ((size_t)2 << 20)

/* A controller of this process, served to the driver over a socket, so that its counters can be read. */
struct sim_env {
	struct pl_simnvme *c;
	struct pl_simnvme_server *server;
	char path[64];
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	char *mem;
	uint32_t block;
};

static void sim_start(struct sim_env *s, const char *config)
{
	char why[200] = "", patient[200];

	memset(s, 0, sizeof(*s));
	/* It has a minute to get ready, however busy the machine is. */
	snprintf(patient, sizeof(patient), "%s%sto=120", config, strlen(config) > 4 ? "," : "");
	snprintf(s->path, sizeof(s->path), "/tmp/peerlane-nvme-test-%d", (int)getpid());
	unlink(s->path);
	if (pl_simnvme_create(patient, &s->c, why, sizeof(why)))
		fail_msg("%s: %s", config, why);
	assert_int_equal(pl_simnvme_start(s->c), 0);
	assert_int_equal(pl_simnvme_serve(s->c, s->path, &s->server), 0);
}

static void sim_open(struct sim_env *s, const struct peerlane_nvme_options *opt,
		     const struct peerlane_nvme_queue_options *qopt)
{
	struct peerlane_nvme_ns_info info = { .size = sizeof(info) };
	char address[80];

	snprintf(address, sizeof(address), "sim-unix:%s", s->path);
	assert_int_equal(peerlane_nvme_open(&s->nvme, address, opt), 0);
	assert_int_equal(peerlane_nvme_ns_open(s->nvme, 1, &s->ns), 0);
	assert_int_equal(peerlane_nvme_ns_get_info(s->ns, &info), 0);
	s->block = info.block_bytes;
	assert_int_equal(peerlane_nvme_queue_create(s->nvme, qopt, &s->q), 0);
	assert_int_equal(peerlane_nvme_map_alloc(s->nvme, BYTES, (void **)&s->mem, &s->map), 0);
}

/* Nothing the driver did was wrong in the controller's eyes, and nothing is left there. */
static void sim_close(struct sim_env *s)
{
	struct pl_simnvme_counters n;

	peerlane_nvme_close(s->nvme);
	pl_simnvme_counters(s->c, &n);
	assert_int_equal(n.bad_doorbells, 0);
	assert_int_equal(n.bad_registers, 0);
	assert_int_equal(n.dma_faults, 0);
	assert_int_equal(n.mappings, 0);
	assert_int_equal(n.io_queues, 0);
	assert_int_equal(n.held, 0);
	pl_simnvme_unserve(s->server);
	pl_simnvme_destroy(s->c);
	unlink(s->path);
}

static int one(struct sim_env *s, uint8_t opcode, uint64_t lba, uint32_t nr, size_t offset)
{
	struct peerlane_nvme_io io = {
		.opcode = opcode,
		.ns = s->ns,
		.lba = lba,
		.nr_blocks = nr,
		.map = s->map,
		.offset = offset,
	};

	return peerlane_nvme_run(s->q, &io, NULL);
}

/* Random writes, as many at a time as the queue takes, in places of their own; then read back. */
static void exchange(struct sim_env *s, unsigned int nr)
{
	size_t piece = BYTES / nr / s->block * s->block;
	uint32_t blocks = (uint32_t)(piece / s->block);
	struct peerlane_nvme_completion done[32];
	char *copy = malloc(BYTES);
	int rc;

	fill(s->mem, BYTES, nr);
	memcpy(copy, s->mem, BYTES);
	for (unsigned int turn = 0; turn < 2; turn++) {
		unsigned int taken = 0, nr_done = 0;

		if (turn)
			memset(s->mem, 0, BYTES);
		while (nr_done < nr) {
			struct peerlane_nvme_io io = {
				.opcode = turn ? PL_NVME_READ : PL_NVME_WRITE,
				.ns = s->ns,
				.lba = (uint64_t)(taken * 7 % nr) * blocks,
				.nr_blocks = 1 + taken * 5 % blocks,
				.map = s->map,
				.offset = taken * piece,
				.user = taken,
			};

			if (taken < nr && peerlane_nvme_submit(s->q, &io, 1) == 1) {
				taken++;
				continue;
			}
			rc = peerlane_nvme_wait(s->q, done, 1, 32, -1);
			assert_true(rc > 0);
			for (int i = 0; i < rc; i++)
				assert_int_equal(done[i].err, 0);
			nr_done += (unsigned int)rc;
		}
	}
	for (unsigned int i = 0; i < nr; i++)
		assert_memory_equal(s->mem + i * piece, copy + i * piece,
				    (1 + i * 5 % blocks) * (size_t)s->block);
	free(copy);
}

static void test_shapes(void **state)
{
	static const struct {
		const char *config;
		unsigned int depth, flags;
	} shapes[] = {
		{ "sim:", 0, 0 },
		{ "sim:bs=4096,mdts=0", 2, 0 },
		{ "sim:bs=4096,mdts=1,mqes=1", 0, 0 },
		{ "sim:mqes=126,cqr=1,dstrd=3", 127, 0 },
		{ "sim:mqes=65535,dstrd=1", 5000, 0 },
		{ "sim:dbbuf=event", 33, 0 },
		{ "sim:dbbuf=poll,dstrd=2", 64, 0 },
		{ "sim:cmb=256K", 500, PEERLANE_NVME_QUEUE_CMB },
		{ "sim:sgl=1", 64, PEERLANE_NVME_QUEUE_SGL },
		{ "sim:sgl=2,bs=4096", 64, PEERLANE_NVME_QUEUE_SGL },
		{ "sim:mpsmin=1,mpsmax=1", 64, 0 },
		{ "sim:ready=200", 16, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt),
							    .depth = shapes[i].depth,
							    .flags = shapes[i].flags };
		struct pl_simnvme_counters n;
		struct sim_env s;

		sim_start(&s, shapes[i].config);
		sim_open(&s, NULL, &qopt);
		exchange(&s, 4);
		exchange(&s, 300);
		assert_int_equal(peerlane_nvme_reset(s.nvme), 0);
		exchange(&s, 300);
		pl_simnvme_counters(s.c, &n);
		assert_int_equal(n.errors, 0);
		assert_int_equal(n.enables, 2);
		sim_close(&s);
	}
}

static void test_commands(void **state)
{
	struct peerlane_nvme_io io;
	struct pl_nvme_dsm_range *range;
	struct pl_nvme_smart smart;
	struct pl_nvme_firmware firmware;
	struct pl_nvme_error_entry entry;
	struct sim_env s;
	uint32_t ids[8], value;

	(void)state;
	sim_start(&s, "sim:ns=3,nn=5,vwc=1");
	sim_open(&s, NULL, NULL);
	assert_int_equal(peerlane_nvme_ns_list(s.nvme, 0, ids, 8), 3);
	fill(s.mem, 65536, 1);
	assert_int_equal(one(&s, PL_NVME_WRITE, 10, 128, 0), 0);
	assert_int_equal(one(&s, PL_NVME_COMPARE, 10, 128, 0), 0);
	s.mem[65535] ^= 1;
	assert_int_equal(one(&s, PL_NVME_COMPARE, 10, 128, 0), -EILSEQ);
	io = (struct peerlane_nvme_io){ .opcode = PL_NVME_FLUSH, .ns = s.ns };
	assert_int_equal(peerlane_nvme_run(s.q, &io, NULL), 0);
	io = (struct peerlane_nvme_io){
		.opcode = PL_NVME_WRITE_ZEROES, .ns = s.ns, .lba = 20, .nr_blocks = 10
	};
	assert_int_equal(peerlane_nvme_run(s.q, &io, NULL), 0);
	range = (void *)s.mem;
	*range = (struct pl_nvme_dsm_range){ .nr_blocks = 5, .first_block = 40 };
	io = (struct peerlane_nvme_io){ .opcode = PL_NVME_DSM,
					.flags = PEERLANE_NVME_DEALLOCATE,
					.ns = s.ns,
					.nr_blocks = 1,
					.map = s.map };
	assert_int_equal(peerlane_nvme_run(s.q, &io, NULL), 0);
	memset(s.mem, 1, 65536);
	assert_int_equal(one(&s, PL_NVME_READ, 10, 128, 0), 0);
	for (unsigned int i = 0; i < 10 * 512; i++)
		assert_int_equal(s.mem[10 * 512 + i], 0);
	assert_int_equal(peerlane_nvme_log_page(s.nvme, PL_NVME_LOG_SMART, PL_NVME_NSID_ALL, 0,
						&smart, sizeof(smart)),
			 0);
	assert_int_equal(peerlane_nvme_log_page(s.nvme, PL_NVME_LOG_FIRMWARE, 0, 0, &firmware,
						sizeof(firmware)),
			 0);
	assert_int_equal(
		peerlane_nvme_log_page(s.nvme, PL_NVME_LOG_ERROR, 0, 0, &entry, sizeof(entry)), 0);
	assert_int_equal(peerlane_nvme_get_feature(s.nvme, PL_NVME_FEAT_WRITE_CACHE, 0, 0, &value),
			 0);
	assert_int_equal(peerlane_nvme_set_feature(s.nvme, PL_NVME_FEAT_WRITE_CACHE, 0, !value), 0);
	assert_int_equal(peerlane_nvme_get_feature(s.nvme, 0x7f, 0, 0, &value), -EINVAL);
	sim_close(&s);
}

static void inject(struct sim_env *s, const char *rule)
{
	char why[200] = "";

	if (pl_simnvme_inject(s->c, rule, why, sizeof(why)))
		fail_msg("%s: %s", rule, why);
}

/* 40 reads with a fault among them: each is reported once; the errors are counted. */
static unsigned int reads(struct sim_env *s, int err, bool may_be_late)
{
	struct peerlane_nvme_completion done[16];
	unsigned int seen[40] = { 0 }, nr = 0, failed = 0;
	int rc;

	for (unsigned int i = 0; i < 40; i++) {
		struct peerlane_nvme_io io = {
			.opcode = PL_NVME_READ,
			.ns = s->ns,
			.lba = i * 1000,
			.nr_blocks = i % 8 ? 8 : 900,
			.map = s->map,
			.user = i,
		};

		assert_int_equal(peerlane_nvme_submit(s->q, &io, 1), 1);
	}
	while (nr < 40) {
		rc = peerlane_nvme_wait(s->q, done, 1, 16, -1);
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++, nr++) {
			assert_int_equal(seen[done[i].user]++, 0);
			if (!done[i].err)
				continue;
			failed++;
			if (done[i].err != err && (!may_be_late || (done[i].err != -ECONNRESET &&
								    done[i].err != -ETIMEDOUT)))
				fail_msg("error %d, not %d", done[i].err, err);
		}
	}
	return failed;
}

/*
 * Where something is lost, time-outs are short; on a machine that is very busy others may then be late, too,
 * which is what they are reported as.
 */
static const struct peerlane_nvme_options quick = { .size = sizeof(quick), .timeout_ms = 1000 };

static void test_faults(void **state)
{
	static const struct {
		const char *rule;
		int err;
		bool lost; /* something is never answered */
		bool gone; /* and never will */
	} faults[] = {
		{ "status opcode=read nth=3 code=0x281 dnr=1", -ENODATA, false, false },
		{ "hold opcode=read nth=5", -ETIMEDOUT, true, false },
		{ "drop opcode=read nth=5", -ETIMEDOUT, true, false },
		{ "reorder opcode=read window=5", 0, false, false },
		{ "delay opcode=read nth=4 steps=5000", 0, false, false },
		{ "duplicate opcode=read every=3", 0, false, false },
		{ "corrupt opcode=read nth=7 field=cid value=0x3f", -ETIMEDOUT, true, false },
		{ "corrupt opcode=read nth=7 field=status value=0xfffe", -EIO, false, false },
		{ "fatal opcode=read nth=9 count=1", -ECONNRESET, true, false },
		{ "remove opcode=read nth=9", -ENODEV, true, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 256 };
		struct pl_simnvme_counters n;
		struct sim_env s;
		unsigned int failed;

		sim_start(&s, "sim:");
		sim_open(&s, faults[i].lost ? &quick : NULL, &qopt);
		inject(&s, faults[i].rule);
		failed = reads(&s, faults[i].err, faults[i].lost);
		pl_simnvme_counters(s.c, &n);
		assert_true(n.faults_injected >= 1);
		assert_int_equal(failed > 0, faults[i].err != 0);
		if (!faults[i].gone) {
			s.q->tick_limit = UINT32_MAX / 4; /* from now on nothing is lost */
			exchange(&s, 100);
			sim_close(&s);
			continue;
		}
		assert_int_equal(one(&s, PL_NVME_READ, 0, 1, 0), faults[i].err);
		peerlane_nvme_close(s.nvme);
		pl_simnvme_unserve(s.server);
		pl_simnvme_destroy(s.c);
		unlink(s.path);
	}
}

static void test_stuck(void **state)
{
	struct peerlane_nvme *nvme;

	(void)state;
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:to=1,rule=stuck-ready on=enable", NULL),
			 -ETIMEDOUT);
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:to=120,rule=fatal on=enable", NULL), -EIO);
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:to=120,rule=remove opcode=identify", NULL),
			 -ENODEV);
	assert_int_equal(peerlane_nvme_open(
				 &nvme, "sim:to=120,rule=status opcode=identify code=0x006", NULL),
			 -EIO);
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:no=such", NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_open(&nvme, "sim-unix:/no/such/socket", NULL), -ENODEV);
}

/* Of each failure of this thread, and of no other. */
static void *open_badly(void *arg)
{
	struct peerlane_nvme *nvme;

	(void)arg;
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:another=one", NULL), -EINVAL);
	assert_non_null(strstr(peerlane_nvme_why(), "another=one"));
	return NULL;
}

static void test_why(void **state)
{
	struct peerlane_nvme *nvme;
	pthread_t thread;

	(void)state;
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:size=1M,no=such", NULL), -EINVAL);
	assert_non_null(strstr(peerlane_nvme_why(), "no=such"));
	assert_int_equal(pthread_create(&thread, NULL, open_badly, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_non_null(strstr(peerlane_nvme_why(), "no=such"));
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:rule=nonsense", NULL), -EINVAL);
	assert_non_null(strstr(peerlane_nvme_why(), "nonsense"));
	assert_int_equal(peerlane_nvme_open(&nvme, "nothing", NULL), -EINVAL);
	assert_non_null(strstr(peerlane_nvme_why(), "address"));
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:to=120,rule=fatal on=enable", NULL), -EIO);
	assert_non_null(strstr(peerlane_nvme_why(), "fatal"));
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:size=1M", NULL), 0);
	assert_string_equal(peerlane_nvme_why(), "");
	peerlane_nvme_close(nvme);
}

/* In the driver's own thread, with every page somewhere else, and memory of a GPU. */
static void test_one_thread(void **state)
{
	struct peerlane_nvme_memory memory = { .size = sizeof(memory),
					       .flags = PEERLANE_NVME_MEMORY_GPU,
					       .bytes = 1 << 20,
					       .pin_fd = -1 };
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 300 };
	char *gpu = aligned_alloc(65536, 1 << 20), *copy = malloc(1 << 20);
	struct peerlane_nvme_map *map;
	struct peerlane_nvme_io io;
	struct sim_env s = { .c = NULL };

	(void)state;
	assert_int_equal(peerlane_nvme_open(&s.nvme, "sim:thread=0,scatter=1", NULL), 0);
	assert_int_equal(peerlane_nvme_ns_open(s.nvme, 1, &s.ns), 0);
	memory.ptr = memory.cpu = gpu;
	memset(gpu, 0, 1 << 20);
	assert_int_equal(peerlane_nvme_map(s.nvme, &memory, &map), 0);
	qopt.cq = qopt.lists = map;
	qopt.lists_offset = 65536;
	assert_int_equal(peerlane_nvme_queue_create(s.nvme, &qopt, &s.q), 0);
	io = (struct peerlane_nvme_io){ .opcode = PL_NVME_WRITE,
					.ns = s.ns,
					.nr_blocks = 1001,
					.map = map,
					.offset = (512 << 10) + 20 };
	fill(gpu + io.offset, 1001 * 512, 5);
	memcpy(copy, gpu + io.offset, 1001 * 512);
	assert_int_equal(peerlane_nvme_run(s.q, &io, NULL), 0);
	memset(gpu + io.offset, 0, 1001 * 512);
	io.opcode = PL_NVME_READ;
	assert_int_equal(peerlane_nvme_run(s.q, &io, NULL), 0);
	assert_memory_equal(gpu + io.offset, copy, 1001 * 512);
	peerlane_nvme_close(s.nvme);
	free(gpu);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes), cmocka_unit_test(test_commands),
		cmocka_unit_test(test_faults), cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_why),    cmocka_unit_test(test_one_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
