// SPDX-License-Identifier: MIT
/* Faults by script: each one happens, to the commands that were meant and no others. */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct host h;
static uint64_t at;
static uint8_t *data;

static void start(const char *config)
{
	host_start(&h, config);
	host_create(&h, 1, 32);
	data = host_alloc(&h, 65536, &at);
}

static struct pl_nvme_sqe read_of(uint64_t block)
{
	return host_rw(PL_NVME_READ, 1, block, 1, at, 0);
}

static unsigned int do_read(uint64_t block)
{
	return host_status(&h, 1, read_of(block));
}

static bool nothing(uint32_t qid)
{
	struct pl_nvme_cqe cqe;

	host_turns(&h, 20);
	return !host_poll(&h, qid, &cqe);
}

static void drop(void **state)
{
	struct pl_nvme_sqe abort = { .opcode = PL_NVME_ADMIN_ABORT };
	uint16_t cid;

	(void)state;
	start("sim:rule=drop opcode=read nth=3");
	assert_int_equal(do_read(0), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 1, at, 0)), 0);
	assert_int_equal(do_read(0), 0);
	cid = host_put(&h, 1, read_of(0));
	host_ring(&h, 1);
	assert_true(nothing(1));
	assert_int_equal(do_read(0), 0);
	/* It is lost: Abort does not find it. */
	abort.cdw10 = 1 | (uint32_t)cid << 16;
	assert_int_equal(host_do(&h, 0, abort).result, PL_NVME_ABORT_NOT_DONE);
	assert_true(nothing(1));
	assert_int_equal(host_counters(&h).faults_injected, 1);
	host_close(&h);
}

static void delay(void **state)
{
	struct pl_nvme_cqe cqe;
	uint16_t cid;

	(void)state;
	start("sim:rule=delay opcode=read lba=5 steps=200");
	data[0] = 0xee;
	cid = host_put(&h, 1, read_of(5));
	host_ring(&h, 1);
	host_turns(&h, 150);
	/* Until then its data are not touched either. */
	assert_int_equal(data[0], 0xee);
	assert_false(host_poll(&h, 1, &cqe));
	host_put(&h, 1, read_of(6));
	host_ring(&h, 1);
	cqe = host_wait(&h, 1);
	assert_int_equal(cqe.cid, cid + 1);
	data[0] = 0xee;
	cqe = host_wait(&h, 1);
	assert_int_equal(cqe.cid, cid);
	assert_int_equal(status_of(&cqe), 0);
	assert_int_equal(data[0], 0);
	host_close(&h);
}

static void reorder(void **state)
{
	struct pl_nvme_cqe cqe;
	uint16_t first;

	(void)state;
	start("sim:rule=reorder opcode=read window=4");
	for (int round = 0; round < 3; round++) {
		first = host_put(&h, 1, read_of(0));
		for (int i = 1; i < 8; i++)
			host_put(&h, 1, read_of(0));
		host_ring(&h, 1);
		for (int i = 7; i >= 0; i--) {
			cqe = host_wait(&h, 1);
			assert_int_equal(status_of(&cqe), 0);
			assert_int_equal(cqe.cid, first + i);
		}
	}
	/* Fewer than it waits for come out as well, in time. */
	assert_int_equal(do_read(0), 0);
	host_close(&h);
}

static void wrong_status(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:rule=status code=0x281 opcode=read lba=8 dnr=1;status code=0x280 opcode=write "
	      "more=1 count=1;status queue=admin opcode=identify code=0x006");
	cqe = host_do(&h, 1, read_of(8));
	assert_int_equal(status_of(&cqe), PL_NVME_SC_READ_ERROR);
	assert_int_equal(cqe.status & (PL_NVME_CQE_DNR | PL_NVME_CQE_MORE), PL_NVME_CQE_DNR);
	assert_int_equal(do_read(7), 0);
	assert_int_equal(do_read(8), PL_NVME_SC_READ_ERROR);
	memset(data, 0x11, 512);
	cqe = host_do(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 1, at, 0));
	assert_int_equal(status_of(&cqe), PL_NVME_SC_WRITE_FAULT);
	assert_int_equal(cqe.status & (PL_NVME_CQE_DNR | PL_NVME_CQE_MORE), PL_NVME_CQE_MORE);
	/* It was not carried out, and happens once. */
	assert_int_equal(do_read(0), 0);
	assert_int_equal(data[0], 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 1, at, 0)), 0);
	assert_int_equal(host_status(&h, 0,
				     (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_IDENTIFY,
							   .dptr.prp.prp1 = at,
							   .cdw10 = PL_NVME_CNS_CTRL }),
			 PL_NVME_SC_INTERNAL);
	host_close(&h);
}

static struct pl_nvme_cqe raw(uint64_t block)
{
	struct pl_nvme_cqe cqe;

	host_put(&h, 1, read_of(block));
	host_ring(&h, 1);
	cqe = host_wait(&h, 1);
	host_turns(&h, 2);
	return cqe;
}

static void corrupted_completion(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:rule=corrupt field=cid value=0x8000 nth=1 opcode=read;"
	      "corrupt field=sqid value=7 nth=2 opcode=read;"
	      "corrupt field=sqhd value=0x4000 nth=3 opcode=read;"
	      "corrupt field=result value=0xdeadbeef nth=4 opcode=read;"
	      "corrupt field=status value=0x4 nth=5 opcode=read;"
	      "corrupt field=phase nth=6 opcode=read");
	cqe = raw(0);
	assert_int_equal(cqe.cid, h.next_cid ^ 0x8000);
	cqe = raw(0);
	assert_int_equal(cqe.sqid, 1 ^ 7);
	cqe = raw(0);
	assert_int_equal(cqe.sqhd, h.q[1].tail ^ 0x4000);
	cqe = raw(0);
	assert_int_equal(cqe.result, 0xdeadbeef);
	cqe = raw(0);
	assert_int_equal(status_of(&cqe), PL_NVME_SC_INVALID_FIELD);
	/* With the wrong phase it looks as if it had not come. */
	host_put(&h, 1, read_of(0));
	host_ring(&h, 1);
	assert_true(nothing(1));
	assert_int_equal(h.q[1].cq[h.q[1].head].cid, h.next_cid);
	host_close(&h);
}

static void duplicate(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:rule=duplicate nth=2 opcode=read");
	assert_int_equal(do_read(0), 0);
	assert_int_equal(do_read(0), 0);
	cqe = host_wait(&h, 1);
	assert_int_equal(cqe.cid, h.next_cid);
	host_turns(&h, 2);
	assert_int_equal(do_read(0), 0);
	assert_true(nothing(1));
	host_close(&h);
}

static void torn_write(void **state)
{
	(void)state;
	start("sim:rule=torn opcode=write blocks=3 nth=2");
	memset(data, 0x11, 4096);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 8, at, 0)), 0);
	memset(data, 0x22, 4096);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 8, at, 0)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 8, at, 0)), 0);
	assert_int_equal(data[0], 0x22);
	assert_int_equal(data[3 * 512 - 1], 0x22);
	assert_int_equal(data[3 * 512], 0x11);
	assert_int_equal(data[4095], 0x11);
	host_close(&h);
}

static void stuck_ready(void **state)
{
	(void)state;
	host_open(&h, "sim:rule=stuck-ready nth=2");
	host_set_admin(&h, 8);
	host_enable(&h);
	host_disable(&h);
	host_write32(&h, PL_NVME_REG_CC, host_cc());
	host_turns(&h, 5000);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), 0);
	host_write32(&h, PL_NVME_REG_CC, 0);
	host_turns(&h, 2);
	host_set_admin(&h, 8);
	host_enable(&h);
	host_close(&h);
}

static void fatal(void **state)
{
	(void)state;
	start("sim:rule=fatal opcode=read nth=2");
	assert_int_equal(do_read(0), 0);
	host_put(&h, 1, read_of(0));
	host_ring(&h, 1);
	assert_true(nothing(1));
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), PL_NVME_CSTS_RDY | PL_NVME_CSTS_CFS);
	/* Nothing works, not even the admin queue, until a reset. */
	host_put(&h, 0, host_create_cq(&h, 2, 8, at));
	host_ring(&h, 0);
	assert_true(nothing(0));
	host_disable(&h);
	host_set_admin(&h, 8);
	host_enable(&h);
	host_create(&h, 1, 8);
	assert_int_equal(do_read(0), 0);
	host_close(&h);
	/* At other moments. */
	host_open(&h, "sim:rule=fatal on=enable count=1;fatal on=shutdown");
	host_set_admin(&h, 8);
	host_write32(&h, PL_NVME_REG_CC, host_cc());
	host_wait_csts(&h, PL_NVME_CSTS_CFS, PL_NVME_CSTS_CFS);
	host_disable(&h);
	host_set_admin(&h, 8);
	host_enable(&h);
	host_write32(&h, PL_NVME_REG_CC, host_cc() | PL_NVME_SHN_NORMAL << PL_NVME_CC_SHN_SHIFT);
	host_wait_csts(&h, PL_NVME_CSTS_CFS, PL_NVME_CSTS_CFS);
	host_close(&h);
}

static void removal(void **state)
{
	(void)state;
	start("sim:rule=remove opcode=read nth=2");
	assert_int_equal(do_read(0), 0);
	host_put(&h, 1, read_of(0));
	host_ring(&h, 1);
	assert_true(nothing(1));
	for (size_t reg = 0; reg < PL_NVME_REG_CRTO; reg += 4)
		assert_int_equal(host_read32(&h, reg), UINT32_MAX);
	assert_true(host_counters(&h).removed);
	/* What is written there is gone, too. */
	host_write32(&h, PL_NVME_REG_CC, 0);
	host_turns(&h, 3);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CC), UINT32_MAX);
	pl_simnvme_reset(h.c);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), UINT32_MAX);
	host_close(&h);
}

static void injected_later(void **state)
{
	(void)state;
	start("sim:");
	assert_int_equal(do_read(0), 0);
	host_inject(&h, "# two rules\n\nstatus code=0x082 every=2 queue=1\n");
	assert_int_equal(do_read(0), 0);
	assert_int_equal(do_read(0), PL_NVME_SC_NOT_READY);
	assert_int_equal(do_read(0), 0);
	assert_int_equal(do_read(0), PL_NVME_SC_NOT_READY);
	host_close(&h);
}

static void bad_scripts(void **state)
{
	static const struct {
		const char *script, *why;
	} cases[] = {
		{ "lose opcode=read", "line 1: no fault \"lose\"" },
		{ "drop\ndrop nth", "line 2: \"nth\" is not key=value" },
		{ "drop\n\n# x\ndrop ntth=3", "line 4: no key \"ntth\"" },
		{ "drop opcode=reed", "line 1: wrong value of \"opcode\"" },
		{ "drop opcode=0x100", "line 1: wrong value of \"opcode\"" },
		{ "drop nth=-1", "line 1: wrong value of \"nth\"" },
		{ "drop nth=3x", "line 1: wrong value of \"nth\"" },
		{ "status code=0x800", "line 1: wrong value of \"code\"" },
		{ "corrupt field=foo", "line 1: wrong value of \"field\"" },
		{ "drop;drop on=never", "line 2: wrong value of \"on\"" },
		{ "torn on=enable", "line 1: torn cannot happen then" },
		{ "stuck-ready on=command", "line 1: stuck-ready cannot happen then" },
		{ "reorder window=1", "line 1: wrong value of \"window\"" },
	};
	char path[] = "/tmp/nvme-sim-fault-XXXXXX", config[128], why[256], wanted[300];
	int fd = mkstemp(path);
	struct pl_simnvme *c;

	(void)state;
	assert_true(fd >= 0);
	host_open(&h, "sim:");
	snprintf(config, sizeof(config), "sim:fault=%s", path);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t len = strlen(cases[i].script);

		assert_int_equal(pl_simnvme_inject(h.c, cases[i].script, why, sizeof(why)), -22);
		assert_string_equal(why, cases[i].why);
		/* The same out of a file, which is named. */
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, cases[i].script, len, 0), len);
		snprintf(wanted, sizeof(wanted), "%s: %s", path, cases[i].why);
		assert_int_equal(pl_simnvme_create(config, &c, why, sizeof(why)), -22);
		assert_string_equal(why, wanted);
	}
	host_close(&h);
	/* A file that is right. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, "status code=0x281 # x\n", 22, 0), 22);
	host_open(&h, config);
	host_set_admin(&h, 8);
	host_enable(&h);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 1, 8, HOST_IOVA)),
			 PL_NVME_SC_READ_ERROR);
	host_close(&h);
	assert_int_equal(pl_simnvme_create("sim:fault=/not/there", &c, why, sizeof(why)), -2);
	close(fd);
	unlink(path);
}

static void bad_configurations(void **state)
{
	static const char *const cases[] = {
		"sim:what=1",
		"sim:size",
		"sim:size=",
		"sim:size=1x",
		"sim:size=100",
		"sim:size=99999T",
		"sim:bs=1024",
		"sim:bs=512:1",
		"sim:ns=65",
		"sim:mdts=256",
		"sim:mqes=0",
		"sim:mqes=65536",
		"sim:dstrd=16",
		"sim:queues=0",
		"sim:queues=65535",
		"sim:mpsmin=3,mpsmax=2",
		"sim:cmb=100",
		"sim:cmbuse=x",
		"sim:dbbuf=2",
		"sim:sgl=3",
		"sim:strict=2",
		"sim:spin=yes",
		"sim:ns=3,nn=2",
		"sim:rule=nonsense",
		"sim:serial=123456789012345678901",
		"sim:to=-1",
	};
	struct pl_simnvme *c;
	char why[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		strcpy(why, "");
		if (pl_simnvme_create(cases[i], &c, why, sizeof(why)) != -22 || !*why)
			fail_msg("%s was taken", cases[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drop),
		cmocka_unit_test(delay),
		cmocka_unit_test(reorder),
		cmocka_unit_test(wrong_status),
		cmocka_unit_test(corrupted_completion),
		cmocka_unit_test(duplicate),
		cmocka_unit_test(torn_write),
		cmocka_unit_test(stuck_ready),
		cmocka_unit_test(fatal),
		cmocka_unit_test(removal),
		cmocka_unit_test(injected_later),
		cmocka_unit_test(bad_scripts),
		cmocka_unit_test(bad_configurations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
