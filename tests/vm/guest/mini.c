// SPDX-License-Identifier: MIT
/*
 * The minimal NVMe driver of the tests.
 */
#include "mini.h"

#define PAGE 4096u
/* Pages of the memory: queues, data of Identify, then a list for each command there can be. */
#define AT_ASQ 0u
#define AT_ACQ 1u
#define AT_SQ 2u
#define AT_CQ 3u
#define AT_DATA 4u
#define AT_LISTS 5u
#define NR_PAGES (AT_LISTS + MINI_DEPTH)
#define PIECE (512 * KIB)
#define BLOCK 512u

uint32_t mini_reg(struct mini *m, uint32_t reg)
{
	return *(volatile uint32_t *)((volatile char *)m->t->bar0.ptr + reg);
}

static void put(struct mini *m, uint32_t reg, uint32_t value)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint32_t *)((volatile char *)m->t->bar0.ptr + reg) = value;
}

static void put64(struct mini *m, uint32_t reg, uint64_t value)
{
	put(m, reg, (uint32_t)value);
	put(m, reg + 4, (uint32_t)(value >> 32));
}

static char *cpu(struct mini *m, uint32_t page)
{
	return (char *)m->memory->cpu + (size_t)page * PAGE;
}

/* Where the controller finds a byte of a mapping. */
static uint64_t bus(const struct pl_nvme_mapping *map, size_t at)
{
	at += map->offset;
	return map->pages[at / map->page_bytes] + at % map->page_bytes;
}

static void wait_ready(struct mini *m, uint32_t want)
{
	double end = seconds() + 60;

	while ((mini_reg(m, PL_NVME_REG_CSTS) & PL_NVME_CSTS_RDY) != want)
		if (seconds() > end)
			fail("the controller does not become %s: CC %x CSTS %x",
			     want ? "ready" : "idle", mini_reg(m, PL_NVME_REG_CC),
			     mini_reg(m, PL_NVME_REG_CSTS));
}

static void post(struct mini *m, struct mini_queue *q, struct pl_nvme_sqe *sqe)
{
	sqe->cid = m->next_cid++ % MINI_DEPTH;
	q->sq[q->tail] = *sqe;
	q->tail = (q->tail + 1) % MINI_DEPTH;
	put(m, (uint32_t)PL_NVME_DOORBELL_SQ(q->id, m->stride), q->tail);
}

static unsigned int wait_for(struct mini *m, struct mini_queue *q)
{
	double end = seconds() + 60;
	unsigned int status;

	while ((q->cq[q->head].status & PL_NVME_CQE_PHASE) != q->phase)
		if (seconds() > end)
			fail("no completion within 60 s");
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	status = q->cq[q->head].status;
	q->head = (q->head + 1) % MINI_DEPTH;
	q->phase ^= !q->head;
	put(m, (uint32_t)PL_NVME_DOORBELL_CQ(q->id, m->stride), q->head);
	return status >> 1;
}

static void admin(struct mini *m, struct pl_nvme_sqe sqe)
{
	unsigned int status;

	post(m, &m->admin, &sqe);
	status = wait_for(m, &m->admin);
	if (status)
		fail("admin command %x: status %x", sqe.opcode, status);
}

void mini_raise(struct mini *m)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_IDENTIFY,
				   .dptr.prp.prp1 = bus(m->memory, (size_t)AT_DATA * PAGE),
				   .cdw10 = PL_NVME_CNS_CTRL };
	double end = seconds() + 60;

	post(m, &m->admin, &sqe);
	while ((m->admin.cq[m->admin.head].status & PL_NVME_CQE_PHASE) != m->admin.phase)
		if (seconds() > end)
			fail("no completion within 60 s");
}

void mini_lower(struct mini *m)
{
	expect(wait_for(m, &m->admin) == 0);
}

static void init_queue(struct mini *m, struct mini_queue *q, unsigned int id, uint32_t sq,
		       uint32_t cq)
{
	*q = (struct mini_queue){ .sq = (void *)cpu(m, sq),
				  .cq = (void *)cpu(m, cq),
				  .sq_bus = bus(m->memory, (size_t)sq * PAGE),
				  .cq_bus = bus(m->memory, (size_t)cq * PAGE),
				  .phase = 1,
				  .id = id };
	memset(cpu(m, sq), 0, PAGE);
	memset(cpu(m, cq), 0, PAGE);
}

static void create_queues(struct mini *m)
{
	uint32_t size = (MINI_DEPTH - 1) << PL_NVME_QUEUE_SIZE_SHIFT | 1;

	init_queue(m, &m->io, 1, AT_SQ, AT_CQ);
	admin(m, (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_CQ,
				       .dptr.prp.prp1 = m->io.cq_bus,
				       .cdw10 = size,
				       .cdw11 = PL_NVME_QUEUE_PC });
	admin(m, (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_SQ,
				       .dptr.prp.prp1 = m->io.sq_bus,
				       .cdw10 = size,
				       .cdw11 = 1u << PL_NVME_SQ_CQID_SHIFT | PL_NVME_QUEUE_PC });
}

void mini_enable(struct mini *m)
{
	uint32_t entries = MINI_DEPTH - 1;

	put(m, PL_NVME_REG_CC, 0);
	wait_ready(m, 0);
	init_queue(m, &m->admin, 0, AT_ASQ, AT_ACQ);
	put(m, PL_NVME_REG_AQA,
	    entries << PL_NVME_AQA_ACQS_SHIFT | entries << PL_NVME_AQA_ASQS_SHIFT);
	put64(m, PL_NVME_REG_ASQ, m->admin.sq_bus);
	put64(m, PL_NVME_REG_ACQ, m->admin.cq_bus);
	put(m, PL_NVME_REG_CC,
	    PL_NVME_IOCQES << PL_NVME_CC_IOCQES_SHIFT | PL_NVME_IOSQES << PL_NVME_CC_IOSQES_SHIFT |
		    PL_NVME_CC_EN);
	wait_ready(m, PL_NVME_CSTS_RDY);
	create_queues(m);
}

void mini_open(struct mini *m, const struct pl_nvme_transport_ops *ops, const char *address)
{
	int err;

	memset(m, 0, sizeof(*m));
	err = ops->open(address, &m->t);
	if (err)
		fail("%s:%s: %d", ops->name, address, err);
	/* Whoever had it before, however that ended. */
	expect(!(mini_reg(m, PL_NVME_REG_CC) & PL_NVME_CC_EN));
	expect(!(mini_reg(m, PL_NVME_REG_CSTS) & PL_NVME_CSTS_RDY));
	err = ops->alloc(m->t, NR_PAGES * PAGE, &m->memory);
	if (err)
		fail("memory for queues: %d", err);
	m->stride = (mini_reg(m, PL_NVME_REG_CAP + 4)) & 0xf;
	printf("%s:%s: version %x, BAR %zu bytes, queues at %llx\n", ops->name, address,
	       mini_reg(m, PL_NVME_REG_VS), m->t->bar0.bytes,
	       (unsigned long long)m->memory->pages[0]);
	mini_enable(m);
	admin(m, (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_IDENTIFY,
				       .dptr.prp.prp1 = bus(m->memory, (size_t)AT_DATA * PAGE),
				       .cdw10 = PL_NVME_CNS_CTRL });
	/* Bytes 4 to 23, padded with blanks. */
	memcpy(m->serial, cpu(m, AT_DATA) + 4, 20);
	m->serial[strcspn(m->serial, " ")] = 0;
}

void mini_close(struct mini *m)
{
	put(m, PL_NVME_REG_CC, 0);
	wait_ready(m, 0);
	m->t->ops->free(m->t, m->memory);
	m->t->ops->close(m->t);
}

void mini_submit(struct mini *m, bool write, uint64_t offset, const struct pl_nvme_mapping *map,
		 size_t at, size_t bytes)
{
	uint32_t page = AT_LISTS + m->next_cid % MINI_DEPTH;
	uint64_t *list = (uint64_t *)cpu(m, page), first = bus(map, at);
	size_t done = PAGE - first % PAGE, nr = 0;
	struct pl_nvme_sqe sqe = { .opcode = write ? PL_NVME_WRITE : PL_NVME_READ,
				   .nsid = 1,
				   .dptr.prp.prp1 = first,
				   .cdw10 = (uint32_t)(offset / BLOCK),
				   .cdw12 = (uint32_t)(bytes / BLOCK - 1) };

	expect(bytes <= PIECE && first % 4 == 0);
	for (; done < bytes; done += PAGE)
		list[nr++] = bus(map, at + done);
	if (nr == 1)
		sqe.dptr.prp.prp2 = list[0];
	else if (nr)
		sqe.dptr.prp.prp2 = bus(m->memory, (size_t)page * PAGE);
	post(m, &m->io, &sqe);
}

unsigned int mini_wait(struct mini *m)
{
	return wait_for(m, &m->io);
}

void mini_move(struct mini *m, bool write, uint64_t offset, const struct pl_nvme_mapping *map,
	       size_t at, size_t bytes)
{
	unsigned int status;
	size_t piece;

	for (; bytes; bytes -= piece, at += piece, offset += piece) {
		piece = bytes < PIECE ? bytes : PIECE;
		mini_submit(m, write, offset, map, at, piece);
		status = mini_wait(m);
		if (status)
			fail("%s at %llu: status %x", write ? "write" : "read",
			     (unsigned long long)offset, status);
	}
}
