// SPDX-License-Identifier: MIT
/*
 * Fuzzes the software controller: commands, PRP and SGL lists, doorbells and registers.
 * Called as fuzz.h says.
 *
 * Whatever comes, memory that was not mapped is not touched, no completion is overwritten before the
 * host gave its place back, and after a reset the controller works as it did.
 */
#include "../fuzz.h"

#include <peerlane/nvme_spec.h>

#include <simnvme.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define NR_PAGES 64u
#define IOVA 0x10000u
#define DEPTH 8u
#define CANARY 0xc5
#define OP_BYTES 72u /* a byte of what to do, seven of parameters, a command */

static struct pl_simnvme *c;
static uint8_t *bar, *memory;
static size_t bar_bytes;

/* Every third page is not mapped for the controller. */
static bool is_mapped(uint32_t page)
{
	return page % 3 != 2;
}

static uint8_t *at(uint64_t iova)
{
	return memory + (iova - IOVA);
}

static void write32(size_t reg, uint32_t value)
{
	__atomic_store_n((uint32_t *)(bar + reg), value, __ATOMIC_RELEASE);
}

static uint32_t read32(size_t reg)
{
	return __atomic_load_n((uint32_t *)(bar + reg), __ATOMIC_ACQUIRE);
}

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_nvme_sqe: %s\n", what);
	abort();
}

/* Pages 0, 1: admin queues; 3, 4: queue pair 1. */
#define ASQ IOVA
#define ACQ (IOVA + PAGE)
#define SQ1 (IOVA + 3 * PAGE)
#define CQ1 (IOVA + 4 * PAGE)

static void steps(unsigned int nr)
{
	while (nr--)
		pl_simnvme_step(c);
}

static void enable(void)
{
	pl_simnvme_reset(c);
	memset(at(ASQ), 0, PAGE);
	memset(at(ACQ), 0, PAGE);
	write32(PL_NVME_REG_AQA, (DEPTH - 1) << 16 | (DEPTH - 1));
	write32(PL_NVME_REG_ASQ, ASQ);
	write32(PL_NVME_REG_ACQ, ACQ);
	write32(PL_NVME_REG_CC, PL_NVME_CC_EN | PL_NVME_IOSQES << PL_NVME_CC_IOSQES_SHIFT |
					PL_NVME_IOCQES << PL_NVME_CC_IOCQES_SHIFT);
	steps(2);
	check(read32(PL_NVME_REG_CSTS) == PL_NVME_CSTS_RDY, "a reset does not help");
}

static void put(uint32_t qid, uint32_t slot, const struct pl_nvme_sqe *sqe)
{
	memcpy(at(qid ? SQ1 : ASQ) + 64 * slot, sqe, 64);
}

static void admin(uint32_t slot, struct pl_nvme_sqe sqe)
{
	const struct pl_nvme_cqe *cqe = (const struct pl_nvme_cqe *)at(ACQ) + slot;

	sqe.cid = (uint16_t)slot;
	put(0, slot, &sqe);
	write32(PL_NVME_DOORBELL_SQ(0, 0), slot + 1);
	steps(2);
	check(cqe->status == PL_NVME_CQE_PHASE && cqe->cid == slot, "a good command fails");
	write32(PL_NVME_DOORBELL_CQ(0, 0), slot + 1);
	steps(1);
}

static void create_queues(void)
{
	memset(at(SQ1), 0, PAGE);
	memset(at(CQ1), 0, PAGE);
	admin(0, (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_CQ,
				       .dptr.prp.prp1 = CQ1,
				       .cdw10 = (DEPTH - 1) << 16 | 1,
				       .cdw11 = PL_NVME_QUEUE_PC });
	admin(1, (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_SQ,
				       .dptr.prp.prp1 = SQ1,
				       .cdw10 = (DEPTH - 1) << 16 | 1,
				       .cdw11 = 1u << PL_NVME_SQ_CQID_SHIFT | PL_NVME_QUEUE_PC });
}

static void start(void)
{
	static const char config[] = "size=1M,ns=2,nn=3,bs=512:4096,mdts=3,queues=4,sgl=1,cmb=16K,"
				     "dbbuf=event,mqes=15";
	char why[256];

	if (pl_simnvme_create(config, &c, why, sizeof(why)))
		abort();
	bar = pl_simnvme_bar(c, &bar_bytes);
	memory = mmap(NULL, NR_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED)
		abort();
	for (uint32_t page = 0; page < NR_PAGES; page++) {
		if (!is_mapped(page))
			memset(memory + PAGE * page, CANARY, PAGE);
		else if (pl_simnvme_map(c, IOVA + PAGE * page, memory + PAGE * page, PAGE,
					PL_SIMNVME_READ | PL_SIMNVME_WRITE))
			abort();
	}
}

static void check_canaries(void)
{
	for (uint32_t page = 0; page < NR_PAGES; page++)
		for (uint32_t i = 0; !is_mapped(page) && i < PAGE; i++)
			check(memory[PAGE * page + i] == CANARY, "memory not mapped was touched");
}

/* Addresses are drawn to where there is something. */
static void draw_near(struct pl_nvme_sqe *sqe, uint8_t how)
{
	if (how & 1)
		sqe->dptr.prp.prp1 = IOVA + sqe->dptr.prp.prp1 % (NR_PAGES * PAGE);
	if (how & 2)
		sqe->dptr.prp.prp2 = IOVA + sqe->dptr.prp.prp2 % (NR_PAGES * PAGE);
	if (how & 4)
		sqe->dptr.prp.prp1 &= ~7ull;
	if (how & 8)
		sqe->dptr.prp.prp2 &= ~(uint64_t)(PAGE - 1);
	if (how & 16) {
		sqe->nsid = 1 + sqe->nsid % 3;
		sqe->flags &= PL_NVME_PSDT_MASK;
	}
	if (how & 32) {
		sqe->cdw10 %= 2100;
		sqe->cdw11 = 0;
		sqe->cdw12 %= 64;
		sqe->cdw2 = sqe->cdw3 = sqe->cdw13 = sqe->cdw14 = sqe->cdw15 = 0;
	}
	if (how & 64)
		sqe->opcode %= 13;
}

static uint32_t tails[2];

static void run_op(const uint8_t *op)
{
	static const uint32_t regs[] = { PL_NVME_REG_CC,     PL_NVME_REG_AQA,
					 PL_NVME_REG_ASQ,    PL_NVME_REG_ACQ,
					 PL_NVME_REG_CMBMSC, PL_NVME_REG_CMBMSC + 4,
					 PL_NVME_REG_CSTS,   PL_NVME_REG_CAP,
					 PL_NVME_REG_INTMS };
	struct pl_nvme_sqe sqe;
	uint32_t value, qid = op[1] & 1;

	memcpy(&value, op + 4, sizeof(value));
	memcpy(&sqe, op + 8, sizeof(sqe));
	switch (op[0] % 8) {
	case 0: /* a doorbell, any value */
		write32(PL_NVME_DOORBELL_SQ(op[2] % 5, 0) + 4 * (op[3] & 1),
			op[1] & 2 ? value % (DEPTH + 1) : value);
		break;
	case 1: /* a register */
		write32(regs[op[2] % (sizeof(regs) / sizeof(*regs))], value);
		break;
	case 2: /* a list: any bytes, some of them drawn near */
		for (uint32_t i = 0; i < 8; i++) {
			uint64_t entry;

			memcpy(&entry, op + 8 + 8 * i, sizeof(entry));
			if (op[1] >> i & 1)
				entry = IOVA + entry % NR_PAGES * PAGE;
			memcpy(memory + PAGE * 6 + (op[2] * 16 + 8 * i) % PAGE, &entry,
			       sizeof(entry));
		}
		break;
	case 3: /* completions were seen */
		write32(PL_NVME_DOORBELL_CQ(qid, 0), op[2] % DEPTH);
		break;
	default: /* commands */
		draw_near(&sqe, op[3]);
		put(qid, tails[qid], &sqe);
		tails[qid] = (tails[qid] + 1) % DEPTH;
		if (op[1] & 4)
			write32(PL_NVME_DOORBELL_SQ(qid, 0), tails[qid]);
		break;
	}
	if (op[1] & 8)
		steps(1 + op[2] % 4);
}

/* A completion queue that nobody reads: it may fill but not wrap. */
static void check_full(void)
{
	const struct pl_nvme_cqe *cq = (const struct pl_nvme_cqe *)at(CQ1);

	enable();
	create_queues();
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < DEPTH - 1; i++) {
			struct pl_nvme_sqe sqe = { .opcode = PL_NVME_FLUSH,
						   .nsid = 1,
						   .cid = (uint16_t)(100 * round + i) };

			put(1, (round * (DEPTH - 1) + i) % DEPTH, &sqe);
		}
		write32(PL_NVME_DOORBELL_SQ(1, 0), (round + 1) * (DEPTH - 1) % DEPTH);
		steps(3);
	}
	for (uint32_t i = 0; i < DEPTH - 1; i++)
		check(cq[i].cid == i && cq[i].status == PL_NVME_CQE_PHASE,
		      "a completion was overwritten");
	check(!cq[DEPTH - 1].status, "a full queue was written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!c)
		start();
	enable();
	create_queues();
	tails[0] = 2;
	tails[1] = 0;
	for (size_t i = 0; i + OP_BYTES <= size; i += OP_BYTES)
		run_op(data + i);
	steps(4);
	check_canaries();
	check_full();
	return 0;
}

#ifndef FUZZ_LIB
/* A command that is right but for a few bits. */
static void make_command(struct pl_nvme_sqe *sqe, bool is_io)
{
	static const uint8_t io[] = { 0, 1, 2, 2, 1, 5, 8, 9 };
	static const uint8_t adm[] = { 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 0x7c };
	uint8_t *bytes = (uint8_t *)sqe;

	memset(sqe, 0, sizeof(*sqe));
	sqe->cid = (uint16_t)fuzz_rnd();
	sqe->dptr.prp.prp1 = IOVA + fuzz_rnd() % NR_PAGES * PAGE +
			     (fuzz_rnd() & 1 ? fuzz_rnd() % PAGE & ~3ull : 0);
	/* Mostly a page, or the list. */
	sqe->dptr.prp.prp2 = IOVA + (fuzz_rnd() & 1 ? 6 : fuzz_rnd() % NR_PAGES) * PAGE;
	if (is_io) {
		sqe->opcode = io[fuzz_rnd() % sizeof(io)];
		sqe->nsid = 1 + (uint32_t)(fuzz_rnd() & 1);
		sqe->cdw10 = (uint32_t)(fuzz_rnd() % 256);
		if (sqe->opcode != PL_NVME_DSM)
			sqe->cdw12 = (uint32_t)(fuzz_rnd() % 40);
		if (fuzz_rnd() % 4 == 0) {
			sqe->flags = PL_NVME_PSDT_SGL;
			sqe->dptr.sgl.length =
				(uint32_t)(fuzz_rnd() % 8 * (fuzz_rnd() & 1 ? 16 : 512));
			sqe->dptr.sgl.type = (uint8_t)(fuzz_rnd() % 4 << 4);
		}
	} else {
		sqe->opcode = adm[fuzz_rnd() % sizeof(adm)];
		sqe->cdw10 =
			(uint32_t)(fuzz_rnd() % 12 | (fuzz_rnd() & 1 ? fuzz_rnd() % 20 << 16 : 0));
		sqe->cdw11 = (uint32_t)(fuzz_rnd() % 4 | fuzz_rnd() % 5 << 16);
		sqe->nsid = fuzz_rnd() % 3 ? 0 : (uint32_t)(fuzz_rnd() % 5);
	}
	if (fuzz_rnd() % 3 == 0)
		bytes[fuzz_rnd() % sizeof(*sqe)] ^= (uint8_t)(1u << fuzz_rnd() % 8);
}

/* A run of operations: mostly commands, and now and then a list, a doorbell or a register. */
static size_t make(uint8_t *data, size_t room)
{
	size_t nr = 1 + fuzz_rnd() % (room / OP_BYTES);

	for (size_t i = 0; i < nr * OP_BYTES; i++)
		data[i] = (uint8_t)fuzz_rnd();
	for (size_t i = 0; i < nr; i++) {
		uint8_t *op = data + i * OP_BYTES;
		struct pl_nvme_sqe sqe;

		if (fuzz_rnd() % 8 == 0)
			continue;
		op[0] = fuzz_rnd() % 6 ? 7 : (uint8_t)(2 + fuzz_rnd() % 2);
		op[1] |= op[0] == 7 ? 12 : 0;
		op[3] = 0;
		make_command(&sqe, op[1] & 1);
		if (op[0] == 7)
			memcpy(op + 8, &sqe, sizeof(sqe));
	}
	return nr * OP_BYTES;
}

static void end(void)
{
	struct pl_simnvme_counters counters;

	pl_simnvme_counters(c, &counters);
	printf("%lu commands, %lu errors, %lu DMA faults, %lu blocks moved\n",
	       (unsigned long)(counters.admin_commands + counters.io_commands),
	       (unsigned long)counters.errors, (unsigned long)counters.dma_faults,
	       (unsigned long)(counters.blocks_read + counters.blocks_written));
	pl_simnvme_destroy(c);
	munmap(memory, NR_PAGES * PAGE);
}

const struct fuzz fuzz_program = {
	.room = (size_t)64 * OP_BYTES,
	.least = 500,
	.make = make,
	.end = end,
};
#endif
