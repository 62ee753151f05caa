// SPDX-License-Identifier: MIT
/* I/O commands and their refusals. */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct host h;
static uint64_t at;
static uint8_t *data;

static void start(const char *config)
{
	host_start(&h, config);
	host_create(&h, 1, 32);
	data = host_alloc(&h, 1u << 20, &at);
}

static unsigned int rw(uint8_t opcode, uint64_t block, uint32_t nr, uint64_t iova)
{
	return host_status(&h, 1, host_rw(opcode, 1, block, nr, iova, iova + 4096));
}

static void fill(uint8_t *to, size_t bytes, unsigned int seed)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)((i * 31 + i / 509 + seed) & 0xff);
}

static void read_what_was_written(void **state)
{
	static const char *const configs[] = { "sim:bs=512", "sim:bs=4096" };

	(void)state;
	for (int i = 0; i < 2; i++) {
		uint32_t bs = i ? 4096 : 512, nr = 8192 / bs;

		start(configs[i]);
		fill(data, 8192, 5);
		assert_int_equal(rw(PL_NVME_WRITE, 7, nr, at), 0);
		assert_int_equal(rw(PL_NVME_READ, 7, nr, at + 65536), 0);
		assert_memory_equal(data, data + 65536, 8192);
		/* Neighbours are as they were. */
		assert_int_equal(rw(PL_NVME_READ, 6, 1, at + 65536), 0);
		assert_int_equal(data[65536], 0);
		assert_int_equal(rw(PL_NVME_READ, 7 + nr, 1, at + 65536), 0);
		assert_int_equal(data[65536], 0);
		assert_int_equal(host_counters(&h).bytes_written, 8192);
		assert_int_equal(host_counters(&h).blocks_written, nr);
		host_close(&h);
	}
}

static void limits_of_a_namespace(void **state)
{
	(void)state;
	start("sim:size=1M,bs=512,mdts=1");
	assert_int_equal(rw(PL_NVME_READ, 2047, 1, at), 0);
	assert_int_equal(rw(PL_NVME_READ, 2048, 1, at), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(rw(PL_NVME_READ, 2047, 2, at), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(rw(PL_NVME_READ, 2040, 8, at), 0);
	assert_int_equal(rw(PL_NVME_WRITE, UINT64_MAX, 1, at), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(rw(PL_NVME_WRITE, UINT64_MAX - 3, 8, at), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(rw(PL_NVME_COMPARE, 2048, 1, at), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(rw(PL_NVME_WRITE_ZEROES, 2047, 2, at), PL_NVME_SC_LBA_RANGE);
	/* MDTS 1: two pages, and not a block more. */
	assert_int_equal(rw(PL_NVME_READ, 0, 16, at), 0);
	assert_int_equal(rw(PL_NVME_READ, 0, 17, at), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(rw(PL_NVME_READ, 0, 65536, at), PL_NVME_SC_INVALID_FIELD);
	/* Nothing is transferred here, so that is no limit. */
	assert_int_equal(rw(PL_NVME_WRITE_ZEROES, 0, 2048, 0), 0);
	host_close(&h);
}

static void no_limit(void **state)
{
	uint64_t list_at, *list;

	(void)state;
	start("sim:size=64M,bs=4096,mdts=0");
	list = host_alloc(&h, 65536, &list_at);
	/* 16 MiB - 4 KiB: 4095 pages, eight lists and a bit, all pages the same. */
	for (uint32_t i = 0, k = 0; i < 8192; i++)
		if (i % 512 == 511)
			list[i] = list_at + 8u * (i + 1);
		else if (++k < 4095)
			list[i] = at;
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 4095, at, list_at)), 0);
	assert_int_equal(host_counters(&h).bytes_read, 4095 * 4096);
	host_close(&h);
}

static void namespaces(void **state)
{
	struct pl_nvme_sqe sqe;

	(void)state;
	start("sim:ns=2,nn=4,bs=512:4096,size=1M");
	static const struct {
		uint32_t nsid;
		unsigned int status;
	} cases[] = {
		{ 0, PL_NVME_SC_INVALID_NS },
		{ 1, 0 },
		{ 2, 0 },
		{ 3, PL_NVME_SC_INVALID_FIELD }, /* inactive */
		{ 4, PL_NVME_SC_INVALID_FIELD },
		{ 5, PL_NVME_SC_INVALID_NS },
		{ 0xfffffffe, PL_NVME_SC_INVALID_NS },
		{ PL_NVME_NSID_ALL, PL_NVME_SC_INVALID_FIELD },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		static const uint8_t opcodes[] = { PL_NVME_READ, PL_NVME_WRITE, PL_NVME_COMPARE,
						   PL_NVME_WRITE_ZEROES };

		for (size_t k = 0; k < sizeof(opcodes); k++) {
			sqe = host_rw(opcodes[k], cases[i].nsid, 0, 1, at, 0);
			assert_int_equal(host_status(&h, 1, sqe), cases[i].status);
		}
		sqe = (struct pl_nvme_sqe){ .opcode = PL_NVME_FLUSH, .nsid = cases[i].nsid };
		/* Flush takes all at once. */
		assert_int_equal(host_status(&h, 1, sqe),
				 cases[i].nsid == PL_NVME_NSID_ALL ? 0 : cases[i].status);
	}
	/* Namespaces do not share blocks. */
	memset(data, 0x77, 4096);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 2, 0, 1, at, 0)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 8, at, 0)), 0);
	assert_int_equal(data[0], 0);
	host_close(&h);
}

static void compare(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:");
	fill(data, 6144, 9);
	assert_int_equal(rw(PL_NVME_WRITE, 100, 12, at), 0);
	assert_int_equal(rw(PL_NVME_COMPARE, 100, 12, at), 0);
	data[6143] ^= 1;
	cqe = host_do(&h, 1, host_rw(PL_NVME_COMPARE, 1, 100, 12, at, at + 4096));
	assert_int_equal(status_of(&cqe), PL_NVME_SC_COMPARE_FAILED);
	data[6143] ^= 1;
	data[0] ^= 0x80;
	assert_int_equal(rw(PL_NVME_COMPARE, 100, 12, at), PL_NVME_SC_COMPARE_FAILED);
	host_close(&h);
}

static bool is_zero(const uint8_t *p, size_t bytes)
{
	while (bytes--)
		if (*p++)
			return false;
	return true;
}

static void zeroes(void **state)
{
	(void)state;
	start("sim:bs=512,size=8M");
	memset(data, 0xff, 8192);
	for (uint64_t block = 0; block < 16384; block += 16)
		assert_int_equal(rw(PL_NVME_WRITE, block, 16, at), 0);
	/* A few, and so many that they are handed back to the system. */
	assert_int_equal(rw(PL_NVME_WRITE_ZEROES, 3, 5, 0), 0);
	assert_int_equal(rw(PL_NVME_WRITE_ZEROES, 1001, 10000, 0), 0);
	for (uint64_t block = 0; block < 16384; block++) {
		bool wanted = (block >= 3 && block < 8) || (block >= 1001 && block < 11001);

		assert_int_equal(rw(PL_NVME_READ, block, 1, at), 0);
		assert_int_equal(is_zero(data, 512), wanted);
	}
	host_close(&h);
}

static void dataset_management(void **state)
{
	struct pl_nvme_dsm_range *r;
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_DSM, .nsid = 1, .cdw10 = 255, .cdw11 = PL_NVME_DSM_DEALLOCATE
	};

	(void)state;
	start("sim:bs=512,size=1M");
	r = (struct pl_nvme_dsm_range *)(data + 65536);
	memset(data, 0xff, 8192);
	for (uint64_t block = 0; block < 2048; block += 16)
		assert_int_equal(rw(PL_NVME_WRITE, block, 16, at), 0);
	/* 256 ranges, every eighth block; across two pages. */
	r = (struct pl_nvme_dsm_range *)(data + 65536 + 2048);
	for (uint32_t i = 0; i < 256; i++)
		r[i] = (struct pl_nvme_dsm_range){ .nr_blocks = 1, .first_block = 8 * i };
	sqe.dptr.prp.prp1 = at + 65536 + 2048;
	sqe.dptr.prp.prp2 = at + 65536 + 4096;
	/* One range that is not there: then nothing happens to the others. */
	r[255].first_block = 2048;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(rw(PL_NVME_READ, 0, 1, at), 0);
	assert_int_equal(data[0], 0xff);
	r[255] = (struct pl_nvme_dsm_range){ .nr_blocks = 2, .first_block = 2047 };
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_LBA_RANGE);
	r[255] = (struct pl_nvme_dsm_range){ .nr_blocks = 1, .first_block = 2040 };
	/* Hints alone do nothing. */
	sqe.cdw11 = PL_NVME_DSM_READ | PL_NVME_DSM_WRITE;
	assert_int_equal(host_status(&h, 1, sqe), 0);
	assert_int_equal(rw(PL_NVME_READ, 0, 1, at), 0);
	assert_int_equal(data[0], 0xff);
	sqe.cdw11 = PL_NVME_DSM_DEALLOCATE;
	assert_int_equal(host_status(&h, 1, sqe), 0);
	for (uint64_t block = 0; block < 2048; block++) {
		assert_int_equal(rw(PL_NVME_READ, block, 1, at), 0);
		assert_int_equal(is_zero(data, 512), block % 8 == 0);
	}
	sqe.cdw11 = 8;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe.cdw11 = 0;
	sqe.cdw10 = 256;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	host_close(&h);
}

static void opcodes_and_fields(void **state)
{
	static const uint8_t known[] = { 0, 1, 2, 5, 8, 9 };
	struct pl_nvme_sqe sqe;

	(void)state;
	start("sim:");
	for (uint32_t opcode = 0; opcode < 256; opcode++) {
		if (memchr(known, (int)opcode, sizeof(known)))
			continue;
		sqe = host_rw((uint8_t)opcode, 1, 0, 1, at, 0);
		assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_OPCODE);
	}
	/* FUA, limited retry, access hints and protection checks are fine, the rest is not. */
	for (uint32_t bit = 16; bit < 32; bit++) {
		bool fine = bit >= 26;

		sqe = host_rw(PL_NVME_WRITE, 1, 0, 1, at, 0);
		sqe.cdw12 |= 1u << bit;
		assert_int_equal(host_status(&h, 1, sqe), fine ? 0 : PL_NVME_SC_INVALID_FIELD);
	}
	sqe = host_rw(PL_NVME_READ, 1, 0, 1, at, 0);
	sqe.cdw13 = 0xff;
	assert_int_equal(host_status(&h, 1, sqe), 0);
	sqe.cdw13 = 0x100;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	for (uint32_t bit = 0; bit < 8; bit++) {
		sqe = host_rw(PL_NVME_READ, 1, 0, 1, at, 0);
		sqe.flags = (uint8_t)(1u << bit);
		assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	}
	sqe = (struct pl_nvme_sqe){ .opcode = PL_NVME_FLUSH, .nsid = 1, .cdw10 = 1 };
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	host_close(&h);
}

/* A namespace in a file: what was written is there for others, and for the next controller. */
static void file_backed(void **state)
{
	char path[] = "/tmp/nvme-sim-XXXXXX", config[128];
	int fd = mkstemp(path);
	struct pl_simnvme *c;
	struct stat st;
	uint8_t block[4096];
	char why[128];

	(void)state;
	assert_true(fd >= 0);
	snprintf(config, sizeof(config), "sim:file=%s,size=1M,bs=4096", path);
	start(config);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 1u << 20);
	fill(data, 4096, 3);
	struct pl_nvme_sqe sqe = host_rw(PL_NVME_WRITE, 1, 255, 1, at, 0);

	sqe.cdw12 |= PL_NVME_RW_FUA;
	assert_int_equal(host_status(&h, 1, sqe), 0);
	assert_int_equal(pread(fd, block, 4096, 255 * 4096), 4096);
	assert_memory_equal(block, data, 4096);
	assert_int_equal(
		host_status(&h, 1, (struct pl_nvme_sqe){ .opcode = PL_NVME_FLUSH, .nsid = 1 }), 0);
	host_close(&h);
	start(config);
	assert_int_equal(rw(PL_NVME_READ, 255, 1, at), 0);
	assert_memory_equal(block, data, 4096);
	host_close(&h);
	/* A file that holds not even a block, and one that cannot be opened. */
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(pl_simnvme_create(config, &c, why, sizeof(why)), -22);
	assert_int_equal(pl_simnvme_create("sim:file=/nowhere/at/all", &c, why, sizeof(why)), -2);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_what_was_written),
		cmocka_unit_test(limits_of_a_namespace),
		cmocka_unit_test(no_limit),
		cmocka_unit_test(namespaces),
		cmocka_unit_test(compare),
		cmocka_unit_test(zeroes),
		cmocka_unit_test(dataset_management),
		cmocka_unit_test(opcodes_and_fields),
		cmocka_unit_test(file_backed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
