// SPDX-License-Identifier: MIT
/* The host's memory: PRP and SGL lists with every edge, and addresses that are not mapped. */
#include "host.h"

#include <sys/mman.h>

#define BS 512u
#define PAGE 4096u
#define NOWHERE 0x7000u

static struct host h;
static uint64_t list_at, pages_at, seg_at;
static uint64_t *list;
static uint8_t *pages;
static struct pl_nvme_sgl *seg;

static void start(const char *config)
{
	host_start(&h, config);
	host_create(&h, 1, 32);
	list = host_alloc(&h, 8 * PAGE, &list_at);
	seg = host_alloc(&h, 8 * PAGE, &seg_at);
	pages = host_alloc(&h, 1100u * PAGE, &pages_at);
}

/* Address of the nth page of a transfer: backwards, so that no two follow each other. */
static uint64_t page(uint32_t n)
{
	return pages_at + (uint64_t)PAGE * (1099 - n);
}

static uint8_t *page_memory(uint32_t n)
{
	return pages + (size_t)PAGE * (1099 - n);
}

/* The nth block is filled with what tells it from others. */
static void write_pattern(uint32_t nr_blocks)
{
	uint8_t *block = pages;

	for (uint32_t i = 0; i < nr_blocks; i++) {
		memset(block, (int)(i % 251) + 1, BS);
		memcpy(block, &i, sizeof(i));
		assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, i, 1, pages_at, 0)),
				 0);
	}
}

static void check_byte(uint64_t at, uint8_t found)
{
	uint32_t i = (uint32_t)(at / BS);
	uint8_t wanted = (uint8_t)(i % 251 + 1);

	if (at % BS < sizeof(i))
		wanted = (uint8_t)(i >> (8 * (at % BS)));
	if (wanted != found)
		fail_msg("byte %lu is %u, not %u", (unsigned long)at, found, wanted);
}

/* A read into nr_pages pages, the first with an offset, the list beginning at an entry of its page. */
static void read_prp(uint32_t bytes, uint32_t offset, uint32_t first_entry)
{
	uint32_t nr_pages = (offset + bytes + PAGE - 1) / PAGE, entry = first_entry;
	struct pl_nvme_sqe sqe = host_rw(PL_NVME_READ, 1, 0, bytes / BS, page(0) + offset, 0);

	memset(pages, 0xee, 1100u * PAGE);
	memset(list, 0xee, 8 * PAGE);
	if (nr_pages == 2)
		sqe.dptr.prp.prp2 = page(1);
	if (nr_pages > 2) {
		sqe.dptr.prp.prp2 = list_at + 8 * first_entry;
		for (uint32_t n = 1; n < nr_pages; n++) {
			/* The last slot of a page is data only if nothing comes after it. */
			if (entry % 512 == 511 && n != nr_pages - 1) {
				list[entry] = list_at + 8 * (entry + 1);
				entry++;
			}
			list[entry++] = page(n);
		}
	}
	assert_int_equal(host_status(&h, 1, sqe), 0);
	for (uint32_t i = 0; i < bytes; i++)
		check_byte(i, page_memory((offset + i) / PAGE)[(offset + i) % PAGE]);
	/* Not a byte before or behind. */
	if (offset)
		assert_int_equal(page_memory(0)[offset - 1], 0xee);
	if ((offset + bytes) % PAGE)
		assert_int_equal(page_memory(nr_pages - 1)[(offset + bytes) % PAGE], 0xee);
	assert_int_equal(page_memory(nr_pages)[0], 0xee);
}

static void prp_edges(void **state)
{
	static const uint32_t counts[] = { 1, 2, 3, 511, 512, 513, 514, 1023, 1024 };

	(void)state;
	start("sim:mdts=0,size=8M");
	write_pattern(1024 * PAGE / BS);
	read_prp(BS, 0, 0);
	read_prp(BS, 4, 0);
	read_prp(BS, PAGE - BS, 0);
	read_prp(BS, PAGE - BS + 4, 0);
	read_prp(BS, PAGE - 4, 0);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		uint32_t bytes = counts[i] * PAGE;

		read_prp(bytes, 0, 0);
		read_prp(bytes - BS, 0, 0);
		/* With an offset it is a page more. */
		read_prp(bytes, 2048, 0);
		read_prp(bytes, 8, 3);
		/* The list begins with the last slots of a page. */
		read_prp(bytes, 0, 510);
		read_prp(bytes, 0, 511);
		read_prp(bytes, 4, 511);
	}
	assert_int_equal(host_counters(&h).dma_faults, 0);
	host_close(&h);
}

static unsigned int prp(uint32_t bytes, uint64_t prp1, uint64_t prp2)
{
	return host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, bytes / BS, prp1, prp2));
}

static void prp_errors(void **state)
{
	uint64_t faults = 0;

	(void)state;
	start("sim:mdts=0,size=16M");
	assert_int_equal(prp(BS, page(0) + 1, 0), PL_NVME_SC_PRP_OFFSET);
	assert_int_equal(prp(BS, page(0) + 2, 0), PL_NVME_SC_PRP_OFFSET);
	assert_int_equal(prp(2 * PAGE, page(0), page(1) + 4), PL_NVME_SC_PRP_OFFSET);
	assert_int_equal(prp(2 * PAGE, page(0), page(1) + 512), PL_NVME_SC_PRP_OFFSET);
	assert_int_equal(prp(3 * PAGE, page(0), list_at + 4), PL_NVME_SC_PRP_OFFSET);
	list[0] = page(1);
	list[1] = page(2) + 8;
	assert_int_equal(prp(3 * PAGE, page(0), list_at), PL_NVME_SC_PRP_OFFSET);
	assert_int_equal(host_counters(&h).dma_faults, 0);
	/* Addresses without memory: none at all, PRP 1, PRP 2, list, entry of a list. */
	assert_int_equal(prp(BS, 0, 0), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(prp(BS, NOWHERE, 0), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(prp(2 * PAGE, page(0), NOWHERE), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(prp(2 * PAGE, page(0), 0), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(prp(3 * PAGE, page(0), NOWHERE), PL_NVME_SC_DATA_TRANSFER);
	list[1] = NOWHERE;
	assert_int_equal(prp(3 * PAGE, page(0), list_at), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(prp(BS, UINT64_MAX - 511, 0), PL_NVME_SC_DATA_TRANSFER);
	faults = host_counters(&h).dma_faults;
	assert_int_equal(faults, 7);
	/* The last byte of what is mapped, and the one behind. */
	assert_int_equal(prp(BS, HOST_IOVA + HOST_MEMORY - BS, 0), 0);
	assert_int_equal(prp(2 * BS, HOST_IOVA + HOST_MEMORY - BS, HOST_IOVA + HOST_MEMORY),
			 PL_NVME_SC_DATA_TRANSFER);
	/* Nothing of a transfer that fails is stored. */
	memset(pages, 0, 1100u * PAGE);
	memset(page_memory(0), 0x99, PAGE);
	assert_int_equal(prp(2 * PAGE, page(0), NOWHERE), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, page(5), 0)), 0);
	assert_int_equal(page_memory(5)[0], 0);
	host_close(&h);
}

/* Chains that lead back to themselves end, since a transfer has an end. */
static void prp_loops(void **state)
{
	(void)state;
	start("sim:mdts=0,size=64M");
	for (uint32_t i = 0; i < 512; i++)
		list[i] = page(1);
	list[511] = list_at;
	assert_int_equal(prp(2000 * PAGE, page(0), list_at), 0);
	/* The slot that the chain begins with leads to itself: its offset is wrong. */
	list[511] = list_at + 8 * 511;
	assert_int_equal(prp(3 * PAGE, page(0), list_at + 8 * 511), PL_NVME_SC_PRP_OFFSET);
	host_close(&h);
}

static void access_rights(void **state)
{
	uint8_t *memory =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t ro = 0x10000, wo = 0x11000;

	(void)state;
	start("sim:");
	assert_int_equal(pl_simnvme_map(h.c, ro, memory, PAGE, PL_SIMNVME_READ), 0);
	assert_int_equal(pl_simnvme_map(h.c, wo, memory + PAGE, PAGE, PL_SIMNVME_WRITE), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 1, ro, 0)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, ro, 0)),
			 PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, wo, 0)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 1, wo, 0)),
			 PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_COMPARE, 1, 0, 1, wo, 0)),
			 PL_NVME_SC_DATA_TRANSFER);
	/* Ranges that overlap, that are not whole pages, that wrap, that nobody may use. */
	assert_int_equal(pl_simnvme_map(h.c, ro, memory, PAGE, RW), -17);
	assert_int_equal(pl_simnvme_map(h.c, ro - PAGE, memory, 2 * PAGE, RW), -17);
	assert_int_equal(pl_simnvme_map(h.c, 0x20100, memory, PAGE, RW), -22);
	assert_int_equal(pl_simnvme_map(h.c, 0x20000, memory, 100, RW), -22);
	assert_int_equal(pl_simnvme_map(h.c, 0x20000, memory + 8, PAGE, RW), -22);
	assert_int_equal(pl_simnvme_map(h.c, 0x20000, memory, 0, RW), -22);
	assert_int_equal(pl_simnvme_map(h.c, -(uint64_t)PAGE, memory, 2 * PAGE, RW), -22);
	assert_int_equal(pl_simnvme_map(h.c, 0x20000, memory, PAGE, 0), -22);
	assert_int_equal(pl_simnvme_unmap(h.c, ro, 2 * PAGE), -2);
	assert_int_equal(pl_simnvme_unmap(h.c, ro + PAGE - 1, PAGE), -2);
	assert_int_equal(host_counters(&h).mappings, 3);
	assert_int_equal(pl_simnvme_unmap(h.c, ro, PAGE), 0);
	assert_int_equal(pl_simnvme_unmap(h.c, ro, PAGE), -2);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 0, 1, ro, 0)),
			 PL_NVME_SC_DATA_TRANSFER);
	host_close(&h);
	munmap(memory, 2 * PAGE);
}

static struct pl_nvme_sgl sgl(unsigned int type, uint64_t addr, uint32_t length)
{
	return (struct pl_nvme_sgl){ .addr = addr, .length = length, .type = (uint8_t)(type << 4) };
}

static unsigned int do_sgl(uint8_t opcode, uint32_t nr_blocks, struct pl_nvme_sgl first)
{
	struct pl_nvme_sqe sqe = host_rw(opcode, 1, 0, nr_blocks, 0, 0);

	sqe.flags = PL_NVME_PSDT_SGL;
	sqe.dptr.sgl = first;
	return host_status(&h, 1, sqe);
}

static void sgl_good(void **state)
{
	(void)state;
	start("sim:sgl=1");
	write_pattern(16);
	memset(pages, 0xee, 16 * PAGE);
	/* One piece of any alignment. */
	assert_int_equal(do_sgl(PL_NVME_READ, 3, sgl(PL_NVME_SGL_DATA, pages_at + 7, 3 * BS)), 0);
	for (uint32_t i = 0; i < 3 * BS; i++)
		check_byte(i, pages[7 + i]);
	assert_int_equal(pages[6], 0xee);
	assert_int_equal(pages[7 + 3 * BS], 0xee);
	/* Two segments: 100 bytes, the next 1000 thrown away, then the rest; a piece of nothing. */
	seg[0] = sgl(PL_NVME_SGL_DATA, pages_at + PAGE + 1, 100);
	seg[1] = sgl(PL_NVME_SGL_BIT_BUCKET, 0, 1000);
	seg[2] = sgl(PL_NVME_SGL_LAST_SEGMENT, seg_at + 1024, 2 * 16);
	seg[64] = sgl(PL_NVME_SGL_DATA, pages_at + 2 * PAGE, 8 * BS - 1100);
	seg[65] = sgl(PL_NVME_SGL_DATA, NOWHERE, 0);
	assert_int_equal(do_sgl(PL_NVME_READ, 8, sgl(PL_NVME_SGL_SEGMENT, seg_at, 48)), 0);
	for (uint32_t i = 0; i < 100; i++)
		check_byte(i, pages[PAGE + 1 + i]);
	for (uint32_t i = 1100; i < 8 * BS; i++)
		check_byte(i, pages[2 * PAGE + i - 1100]);
	assert_int_equal(pages[PAGE + 101], 0xee);
	/* To the controller a bucket is nothing. */
	memset(pages + 5 * PAGE, 0x42, BS);
	seg[0] = sgl(PL_NVME_SGL_BIT_BUCKET, 0, 1u << 30);
	seg[1] = sgl(PL_NVME_SGL_DATA, pages_at + 5 * PAGE, BS);
	assert_int_equal(do_sgl(PL_NVME_WRITE, 1, sgl(PL_NVME_SGL_LAST_SEGMENT, seg_at, 32)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, pages_at, 0)), 0);
	assert_int_equal(pages[BS - 1], 0x42);
	host_close(&h);
}

static void sgl_errors(void **state)
{
	const unsigned int last = PL_NVME_SGL_LAST_SEGMENT, data = PL_NVME_SGL_DATA;
	struct pl_nvme_sqe sqe;

	(void)state;
	start("sim:sgl=2");
	/* Too short, too long. */
	assert_int_equal(do_sgl(PL_NVME_READ, 2, sgl(data, pages_at, BS)), PL_NVME_SC_SGL_LENGTH);
	assert_int_equal(do_sgl(PL_NVME_READ, 2, sgl(data, pages_at, 3 * BS)),
			 PL_NVME_SC_SGL_LENGTH);
	/* Multiples of 4 only, here. */
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(data, pages_at + 2, BS)),
			 PL_NVME_SC_SGL_GRANULARITY);
	/* Types that are not there, and offsets instead of addresses. */
	for (unsigned int type = 4; type < 16; type++)
		assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(type, pages_at, BS)),
				 PL_NVME_SC_SGL_TYPE);
	sqe = host_rw(PL_NVME_READ, 1, 0, 1, 0, 0);
	sqe.flags = PL_NVME_PSDT_SGL;
	sqe.dptr.sgl = sgl(data, pages_at, BS);
	sqe.dptr.sgl.type |= 1;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_SGL_TYPE);
	/* Both kinds of pointer as SGL, and what is reserved. */
	sqe.dptr.sgl.type = 0;
	sqe.flags = PL_NVME_PSDT_SGL_MPTR;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	sqe.flags = PL_NVME_PSDT_MASK;
	assert_int_equal(host_status(&h, 1, sqe), PL_NVME_SC_INVALID_FIELD);
	/* Segments: empty, not whole descriptors, more of them behind the last, none behind another. */
	seg[0] = sgl(data, pages_at, BS);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(last, seg_at, 0)), PL_NVME_SC_SGL_SEGMENT);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(last, seg_at, 24)), PL_NVME_SC_SGL_SEGMENT);
	seg[1] = sgl(last, seg_at, 16);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(last, seg_at, 32)), PL_NVME_SC_SGL_SEGMENT);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(PL_NVME_SGL_SEGMENT, seg_at, 16)),
			 PL_NVME_SC_SGL_SEGMENT);
	seg[0] = sgl(last, seg_at + 1024, 16);
	seg[64] = sgl(data, pages_at, BS);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(PL_NVME_SGL_SEGMENT, seg_at, 32)),
			 PL_NVME_SC_SGL_SEGMENT);
	/* A chain without end. */
	seg[0] = sgl(PL_NVME_SGL_SEGMENT, seg_at, 16);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(PL_NVME_SGL_SEGMENT, seg_at, 16)),
			 PL_NVME_SC_SGL_COUNT);
	assert_int_equal(host_counters(&h).dma_faults, 0);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(data, NOWHERE, BS)), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(last, NOWHERE, 16)), PL_NVME_SC_DATA_TRANSFER);
	assert_int_equal(host_counters(&h).dma_faults, 2);
	host_close(&h);
	/* A controller that has no SGLs. */
	start("sim:");
	assert_int_equal(do_sgl(PL_NVME_READ, 1, sgl(data, pages_at, BS)),
			 PL_NVME_SC_INVALID_FIELD);
	host_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prp_edges), cmocka_unit_test(prp_errors),
		cmocka_unit_test(prp_loops), cmocka_unit_test(access_rights),
		cmocka_unit_test(sgl_good),  cmocka_unit_test(sgl_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
