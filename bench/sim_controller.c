// SPDX-License-Identifier: MIT
/*
 * How many commands per second the software NVMe controller takes on one core: random reads of 512
 * bytes, beside the bare copies of the same bytes (the floor) in the same run.
 *   sim_controller [SECONDS]
 */
#include <simnvme.h>

#include <peerlane/nvme_spec.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NS_BYTES (64u << 20)
#define BLOCK 512u
#define DEPTH 1024u
#define RUN 128u /* commands for one write of the doorbell */
#define SQ_IOVA 0x100000u
#define CQ_IOVA 0x200000u
#define DATA_IOVA 0x1000000u
#define ADMIN_IOVA 0x300000u

static struct pl_simnvme *ctrl;
static volatile uint8_t *bar;
static struct pl_nvme_sqe *sq, *admin_sq;
static struct pl_nvme_cqe *cq, *admin_cq;
static uint8_t *data, *blocks;
static uint32_t block_of[DEPTH];

/* Time that this thread had a core: others may use the machine. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	fprintf(stderr, "sim_controller: %s\n", what);
	exit(1);
}

static void *memory(uint64_t iova, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED ||
	    pl_simnvme_map(ctrl, iova, p, bytes, PL_SIMNVME_READ | PL_SIMNVME_WRITE))
		die("memory cannot be mapped");
	return p;
}

static void write32(size_t at, uint32_t value)
{
	__atomic_store_n((volatile uint32_t *)(bar + at), value, __ATOMIC_RELEASE);
}

static void admin(struct pl_nvme_sqe sqe)
{
	static uint32_t tail;

	sqe.cid = (uint16_t)tail;
	admin_sq[tail] = sqe;
	write32(PL_NVME_DOORBELL_SQ(0, 0), ++tail);
	pl_simnvme_step(ctrl);
	if (admin_cq[tail - 1].status >> 1)
		die("an admin command failed");
}

static void set_up(void)
{
	char why[256] = "";
	size_t bar_bytes;

	if (pl_simnvme_create("size=64M,bs=512", &ctrl, why, sizeof(why)))
		die(why);
	bar = pl_simnvme_bar(ctrl, &bar_bytes);
	admin_sq = memory(ADMIN_IOVA, 4096);
	admin_cq = memory(ADMIN_IOVA + 4096, 4096);
	sq = memory(SQ_IOVA, DEPTH * sizeof(*sq));
	cq = memory(CQ_IOVA, DEPTH * sizeof(*cq));
	data = memory(DATA_IOVA, DEPTH * 4096);
	write32(PL_NVME_REG_AQA, 63u << PL_NVME_AQA_ACQS_SHIFT | 63u);
	write32(PL_NVME_REG_ASQ, ADMIN_IOVA);
	write32(PL_NVME_REG_ACQ, ADMIN_IOVA + 4096);
	write32(PL_NVME_REG_CC, PL_NVME_IOCQES << PL_NVME_CC_IOCQES_SHIFT |
					PL_NVME_IOSQES << PL_NVME_CC_IOSQES_SHIFT | PL_NVME_CC_EN);
	pl_simnvme_step(ctrl);
	admin((struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_CQ,
				    .dptr.prp.prp1 = CQ_IOVA,
				    .cdw10 = (DEPTH - 1) << PL_NVME_QUEUE_SIZE_SHIFT | 1,
				    .cdw11 = PL_NVME_QUEUE_PC });
	admin((struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_SQ,
				    .dptr.prp.prp1 = SQ_IOVA,
				    .cdw10 = (DEPTH - 1) << PL_NVME_QUEUE_SIZE_SHIFT | 1,
				    .cdw11 = 1u << PL_NVME_SQ_CQID_SHIFT | PL_NVME_QUEUE_PC });
	blocks = mmap(NULL, NS_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (blocks == MAP_FAILED)
		die("no memory");
	for (uint32_t i = 0; i < DEPTH; i++) {
		block_of[i] = (uint32_t)((i * 2654435761u) % (NS_BYTES / BLOCK));
		sq[i] = (struct pl_nvme_sqe){ .opcode = PL_NVME_READ,
					      .cid = (uint16_t)i,
					      .nsid = 1,
					      .dptr.prp.prp1 = DATA_IOVA + 4096u * i,
					      .cdw10 = block_of[i] };
	}
}

/* Commands per second. The host does the least it can: doorbells, and a look at the last status. */
static double run_controller(double seconds)
{
	uint32_t tail = 0, head = 0, phase = 1;
	uint64_t nr = 0;
	double begin = now(), end;

	do {
		for (int i = 0; i < 64; i++) {
			tail = (tail + RUN) % DEPTH;
			write32(PL_NVME_DOORBELL_SQ(1, 0), tail);
			for (unsigned int done = 0; done < RUN;)
				done += pl_simnvme_step(ctrl);
			head += RUN;
			if (cq[head - 1].status != phase)
				die("a command failed");
			if (head == DEPTH) {
				head = 0;
				phase ^= 1;
			}
			write32(PL_NVME_DOORBELL_CQ(1, 0), head);
			nr += RUN;
		}
		end = now();
	} while (end - begin < seconds);
	return (double)nr / (end - begin);
}

/* Copies per second: the same sizes and places. */
static double run_floor(double seconds)
{
	uint64_t nr = 0;
	double begin = now(), end;

	do {
		for (int i = 0; i < 64; i++)
			for (uint32_t k = 0; k < DEPTH; k++) {
				memcpy(data + 4096u * k, blocks + (size_t)block_of[k] * BLOCK,
				       BLOCK);
				/* The copies are what is measured: they must happen. */
				__asm__ volatile("" ::: "memory");
			}
		nr += 64u * DEPTH;
		end = now();
	} while (end - begin < seconds);
	return (double)nr / (end - begin);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2.0, commands = 0, copies = 0;

	set_up();
	/* The best of some, turn by turn. */
	for (int i = 0; i < 5; i++) {
		double a = run_controller(seconds / 5), b = run_floor(seconds / 5);

		commands = a > commands ? a : commands;
		copies = b > copies ? b : copies;
	}
	printf("software controller, 512-byte reads, %.2f M commands per second of one core (%.0f "
	       "ns each)\n",
	       commands / 1e6, 1e9 / commands);
	printf("floor, the same copies alone: %.2f M/s (%.0f ns each); ratio %.2f\n", copies / 1e6,
	       1e9 / copies, commands / copies);
	pl_simnvme_destroy(ctrl);
	return 0;
}
