// SPDX-License-Identifier: MIT
/* I/O: every command, both block sizes, splitting, and every refusal. */
#include "nvme_test.h"

static void test_read_write(void **state)
{
	struct env e = { .f = fake_new() };

	(void)state;
	env_open(&e, NULL, NULL);
	for (unsigned int ns = 0; ns < 2; ns++) {
		size_t block = ns ? 4096 : 512;

		/* One, two and more pages, with and without an offset. */
		for (uint32_t nr = 1; nr < 40; nr += 3) {
			size_t offset = nr % 2 ? 0 : 1028, bytes = nr * block;

			fill(e.mem, offset + bytes, nr);
			assert_int_equal(env_run(&e, PL_NVME_WRITE, ns, 7, nr, offset), 0);
			assert_memory_equal(e.f->disk[ns] + 7 * block, e.mem + offset, bytes);
			memset(e.mem, 0, offset + bytes + 8);
			assert_int_equal(env_run(&e, PL_NVME_READ, ns, 7, nr, offset), 0);
			assert_memory_equal(e.f->disk[ns] + 7 * block, e.mem + offset, bytes);
			assert_int_equal(e.mem[offset + bytes], 0);
		}
	}
	env_close(&e);
}

/* Longer than a command: split, and reported as one. */
static void test_split(void **state)
{
	static const struct {
		uint8_t mdts;
		uint32_t blocks;
		unsigned int commands;
	} cases[] = {
		/* 128 KiB a command */
		{ 5, 256, 1 },
		{ 5, 257, 2 },
		{ 5, 8192, 32 },
		/* 8 KiB */
		{ 1, 16, 1 },
		{ 1, 17, 2 },
		{ 1, 8000, 500 },
		/* no limit: the queue's of 1 MiB */
		{ 0, 2048, 1 },
		{ 0, 2049, 2 },
		{ 255, 2049, 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct env e = { .f = fake_new() };
		struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 5 };
		size_t bytes = cases[i].blocks * (size_t)512;

		e.f->id.mdts = cases[i].mdts;
		e.f->scattered = true;
		if (cases[i].mdts == 255)
			e.f->id.mdts = 60; /* 2^72 bytes: no limit either */
		env_open(&e, NULL, &qopt);
		fill(e.mem, bytes, i);
		e.f->nr_io = 0;
		assert_int_equal(env_run(&e, PL_NVME_WRITE, 0, 3, cases[i].blocks, 0), 0);
		assert_int_equal(e.f->nr_io, cases[i].commands);
		assert_memory_equal(e.f->disk[0] + 3 * 512, e.mem, bytes);
		memset(e.mem, 0, bytes);
		assert_int_equal(env_run(&e, PL_NVME_READ, 0, 3, cases[i].blocks, 0), 0);
		assert_memory_equal(e.f->disk[0] + 3 * 512, e.mem, bytes);
		assert_int_equal(env_run(&e, PL_NVME_COMPARE, 0, 3, cases[i].blocks, 0), 0);
		e.mem[bytes - 1] ^= 1;
		assert_int_equal(env_run(&e, PL_NVME_COMPARE, 0, 3, cases[i].blocks, 0), -EILSEQ);
		env_close(&e);
	}
}

/* Several long ones and short ones at a time, over a queue that is too short for them. */
static void test_split_many(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 4 };
	struct peerlane_nvme_completion done[8];
	unsigned int seen[64] = { 0 }, taken = 0, nr_done = 0;
	int rc;

	(void)state;
	e.f->id.mdts = 1;
	env_open(&e, NULL, &qopt);
	fill(e.f->disk[0], TEST_BYTES, 4);
	while (nr_done < 64) {
		struct peerlane_nvme_io io = env_io(&e, PL_NVME_READ, 0, taken * 128,
						    taken % 3 ? 128 : 8, taken * 65536);

		io.user = taken;
		rc = taken < 64 ? peerlane_nvme_submit(e.q, &io, 1) : -EAGAIN;
		if (rc == 1) {
			taken++;
			continue;
		}
		assert_int_equal(rc, -EAGAIN);
		rc = peerlane_nvme_wait(e.q, done, 1, 8, -1);
		assert_true(rc >= 1);
		for (int i = 0; i < rc; i++) {
			assert_int_equal(done[i].err, 0);
			seen[done[i].user]++;
			nr_done++;
		}
	}
	for (unsigned int i = 0; i < 64; i++) {
		assert_int_equal(seen[i], 1);
		assert_memory_equal(e.mem + i * 65536, e.f->disk[0] + i * 65536,
				    i % 3 ? 65536 : 4096);
	}
	env_close(&e);
}

static void test_others(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_io io;
	struct pl_nvme_dsm_range *ranges;

	(void)state;
	env_open(&e, NULL, NULL);
	memset(e.f->disk[0], 1, (size_t)65536 * 512);
	io = (struct peerlane_nvme_io){ .opcode = PL_NVME_FLUSH, .ns = e.ns[0] };
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), 0);
	assert_int_equal(e.f->last_io.opcode, PL_NVME_FLUSH);

	io = (struct peerlane_nvme_io){
		.opcode = PL_NVME_WRITE_ZEROES,
		.flags = PEERLANE_NVME_DEALLOCATE | PEERLANE_NVME_FUA,
		.ns = e.ns[0],
		.lba = 10,
		.nr_blocks = 600,
	};
	e.f->nr_io = 0;
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), 0);
	assert_int_equal(e.f->nr_io, 3);
	assert_int_equal(e.f->last_io.cdw12, (600 - 512 - 1) | PL_NVME_RW_DEAC | PL_NVME_RW_FUA);
	assert_int_equal(e.f->disk[0][10 * 512 - 1], 1);
	assert_int_equal(e.f->disk[0][10 * 512], 0);
	assert_int_equal(e.f->disk[0][610 * 512 - 1], 0);
	assert_int_equal(e.f->disk[0][610 * 512], 1);

	ranges = (void *)(e.mem + 256);
	ranges[0] = (struct pl_nvme_dsm_range){ .nr_blocks = 2, .first_block = 1000 };
	ranges[1] = (struct pl_nvme_dsm_range){ .nr_blocks = 1, .first_block = 2000 };
	io = env_io(&e, PL_NVME_DSM, 0, 0, 2, 256);
	io.flags = PEERLANE_NVME_DEALLOCATE;
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), 0);
	assert_int_equal(e.f->nr_deallocated, 2);
	assert_int_equal(e.f->disk[0][1001 * 512], 0);
	assert_int_equal(e.f->disk[0][1002 * 512], 1);
	assert_int_equal(e.f->disk[0][2000 * 512], 0);

	io = env_io(&e, PL_NVME_WRITE, 0, 1, 1, 0);
	io.flags = PEERLANE_NVME_FUA | PEERLANE_NVME_LIMITED_RETRY;
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), 0);
	assert_int_equal(e.f->last_io.cdw12, PL_NVME_RW_FUA | PL_NVME_RW_LR);
	/* What a command does not use is zero, whatever was in its entry before. */
	assert_int_equal(e.f->last_io.cdw2 | e.f->last_io.cdw3 | e.f->last_io.cdw13 |
				 e.f->last_io.cdw14 | e.f->last_io.cdw15 | e.f->last_io.mptr |
				 e.f->last_io.dptr.prp.prp2,
			 0);
	/* The last blocks of a namespace. */
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 65535, 1, 0), 0);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 8192, 0), 0);
	env_close(&e);
}

static void test_refused(void **state)
{
	struct env e = { .f = fake_new() }, other = { .f = fake_new() };
	struct peerlane_nvme_io io, good;

	(void)state;
	env_open(&e, NULL, NULL);
	env_open(&other, NULL, NULL);
	good = env_io(&e, PL_NVME_READ, 0, 0, 1, 0);
#define REFUSED(what, rc)                                                                          \
	do {                                                                                       \
		io = good;                                                                         \
		what;                                                                              \
		assert_int_equal(peerlane_nvme_submit(e.q, &io, 1), rc);                           \
	} while (0)
	REFUSED(io.opcode = 0x7f, -EINVAL);
	REFUSED(io.opcode = 0x12, -EINVAL); /* 2 with another bit */
	REFUSED(io.opcode = PL_NVME_WRITE_UNCORRECTABLE, -EINVAL);
	REFUSED(io.flags = 0x80, -EINVAL);
	REFUSED(io.flags = PEERLANE_NVME_DEALLOCATE, -EINVAL);
	REFUSED(io.reserved = 1, -EINVAL);
	REFUSED(io.ns = NULL, -EINVAL);
	REFUSED(io.ns = other.ns[0], -EINVAL);
	REFUSED(io.map = NULL, -EINVAL);
	REFUSED(io.map = other.map, -EINVAL);
	REFUSED(io.nr_blocks = 0, -EINVAL);
	REFUSED(io.lba = 65536, -ERANGE);
	REFUSED((io.lba = 65535, io.nr_blocks = 2), -ERANGE);
	REFUSED(io.lba = UINT64_MAX, -ERANGE);
	REFUSED(io.nr_blocks = UINT32_MAX, -ERANGE);
	REFUSED(io.offset = TEST_BYTES, -ERANGE);
	REFUSED(io.offset = TEST_BYTES - 508, -ERANGE);
	REFUSED(io.offset = SIZE_MAX, -ERANGE);
	REFUSED(io.offset = 2, -EINVAL);
	REFUSED(io.nr_blocks = 8193, -ERANGE); /* one more than the memory holds */
	REFUSED((io.opcode = PL_NVME_FLUSH, io.map = NULL), -EINVAL);
	REFUSED((io.opcode = PL_NVME_DSM, io.nr_blocks = 257), -EINVAL);
	REFUSED((io.opcode = PL_NVME_DSM, io.nr_blocks = 0), -EINVAL);
	REFUSED(io.opcode = PL_NVME_WRITE_ZEROES, -EINVAL); /* has memory */
#undef REFUSED
	assert_int_equal(peerlane_nvme_submit(NULL, &good, 1), -EINVAL);
	assert_int_equal(peerlane_nvme_submit(e.q, NULL, 1), -EINVAL);
	assert_int_equal(peerlane_nvme_submit(e.q, NULL, 0), 0);
	assert_int_equal(peerlane_nvme_poll(NULL, NULL, 0), -EINVAL);
	assert_int_equal(peerlane_nvme_poll(e.q, NULL, 1), -EINVAL);
	assert_int_equal(peerlane_nvme_wait(e.q, NULL, 1, 0, 0), -EINVAL);
	assert_int_equal(peerlane_nvme_run(e.q, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_nvme_abort(NULL, 0), -EINVAL);
	assert_int_equal(peerlane_nvme_abort(e.q, 0), -ENOENT);
	/* Nothing of that reached the controller. */
	assert_int_equal(e.f->nr_io, 0);
	env_close(&other);
	env_close(&e);
}

/* The good ones before a bad one are taken. */
static void test_part_taken(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion done[4];
	struct peerlane_nvme_io io[3];

	(void)state;
	env_open(&e, NULL, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		io[i] = env_io(&e, PL_NVME_READ, 0, i, 1, 0);
		io[i].user = i + 10;
	}
	io[2].lba = 1 << 20;
	assert_int_equal(peerlane_nvme_submit(e.q, io, 3), 2);
	assert_int_equal(peerlane_nvme_submit(e.q, io + 2, 1), -ERANGE);
	assert_int_equal(peerlane_nvme_run(e.q, io, NULL), -EBUSY);
	assert_int_equal(peerlane_nvme_wait(e.q, done, 4, 4, -1), 2);
	assert_int_equal(done[0].user, 10);
	assert_int_equal(done[1].user, 11);
	assert_int_equal(peerlane_nvme_wait(e.q, done, 1, 4, -1), 0); /* nothing outstanding */
	env_close(&e);
}

/* What the controller does not have, and what must not be written. */
static void test_lacking(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_io io;

	(void)state;
	e.f->id.oncs = 0;
	e.f->ns[1].nsattr = 1;
	env_open(&e, NULL, NULL);
	assert_int_equal(env_run(&e, PL_NVME_COMPARE, 0, 0, 1, 0), -EOPNOTSUPP);
	assert_int_equal(env_run(&e, PL_NVME_DSM, 0, 0, 1, 0), -EOPNOTSUPP);
	io = (struct peerlane_nvme_io){ .opcode = PL_NVME_WRITE_ZEROES, .ns = e.ns[0] };
	assert_int_equal(peerlane_nvme_run(e.q, &io, NULL), -EOPNOTSUPP);
	assert_int_equal(env_run(&e, PL_NVME_WRITE, 1, 0, 1, 0), -EROFS);
	assert_int_equal(env_run(&e, PL_NVME_READ, 1, 0, 1, 0), 0);
	env_close(&e);
}

static enum fake_do media_error(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
				struct pl_nvme_cqe *cqe)
{
	(void)f;
	if (!qid || sqe->cdw10 < 512)
		return FAKE_DO;
	cqe->status = (uint16_t)(PL_NVME_CQE_STATUS(PL_NVME_SC_READ_ERROR) | PL_NVME_CQE_DNR |
				 PL_NVME_CQE_MORE);
	cqe->result = 77;
	return FAKE_STATUS;
}

static void test_status(void **state)
{
	struct env e = { .f = fake_new() };
	struct peerlane_nvme_completion cpl;
	struct peerlane_nvme_io io;

	(void)state;
	e.f->hook = media_error;
	env_open(&e, NULL, NULL);
	io = env_io(&e, PL_NVME_READ, 0, 600, 1, 0);
	io.user = 0x1122334455667788;
	assert_int_equal(peerlane_nvme_run(e.q, &io, &cpl), -ENODATA);
	assert_int_equal(cpl.user, io.user);
	assert_int_equal(cpl.status, PL_NVME_SC_READ_ERROR);
	assert_int_equal(cpl.dnr, 1);
	assert_int_equal(cpl.more, 1);
	assert_int_equal(cpl.result, 77);
	/* One part of a long one fails: so does the whole. */
	io = env_io(&e, PL_NVME_READ, 0, 0, 1024, 0);
	io.user = 5;
	assert_int_equal(peerlane_nvme_run(e.q, &io, &cpl), -ENODATA);
	assert_int_equal(cpl.user, 5);
	assert_int_equal(cpl.status, PL_NVME_SC_READ_ERROR);
	assert_int_equal(env_run(&e, PL_NVME_READ, 0, 0, 512, 0), 0);
	env_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_write), cmocka_unit_test(test_split),
		cmocka_unit_test(test_split_many), cmocka_unit_test(test_others),
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_part_taken),
		cmocka_unit_test(test_lacking),	   cmocka_unit_test(test_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
