// SPDX-License-Identifier: MIT
/* A small driver for tests. */
#include "host.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 120

static void make_memory(struct host *h)
{
	void *memory;

	h->fd = memfd_create("host", MFD_CLOEXEC);
	assert_true(h->fd >= 0);
	assert_int_equal(ftruncate(h->fd, HOST_MEMORY), 0);
	memory = mmap(NULL, HOST_MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	h->memory = memory;
}

static void look_around(struct host *h)
{
	h->dstrd = PL_NVME_CAP_DSTRD(host_read64(h, PL_NVME_REG_CAP));
	h->page = 4096u << PL_NVME_CAP_MPSMIN(host_read64(h, PL_NVME_REG_CAP));
}

void host_open(struct host *h, const char *config)
{
	char why[256] = "";

	memset(h, 0, sizeof(*h));
	h->iova = HOST_IOVA;
	if (pl_simnvme_create(config, &h->c, why, sizeof(why)))
		fail_msg("%s: %s", config, why);
	h->bar = pl_simnvme_bar(h->c, &h->bar_bytes);
	make_memory(h);
	assert_int_equal(pl_simnvme_map(h->c, HOST_IOVA, h->memory, HOST_MEMORY, RW), 0);
	look_around(h);
}

void host_connect(struct host *h, const char *path, uint64_t iova)
{
	memset(h, 0, sizeof(*h));
	h->iova = iova;
	assert_int_equal(pl_simnvme_connect(path, &h->client), 0);
	h->bar = pl_simnvme_client_bar(h->client, &h->bar_bytes);
	make_memory(h);
	assert_int_equal(pl_simnvme_client_map(h->client, iova, h->fd, 0, HOST_MEMORY, RW), 0);
	look_around(h);
}

void host_close(struct host *h)
{
	pl_simnvme_destroy(h->c);
	pl_simnvme_disconnect(h->client);
	munmap(h->memory, HOST_MEMORY);
	close(h->fd);
}

void host_turn(struct host *h)
{
	if (h->turn)
		h->turn(h->turn_arg);
	else if (h->c)
		pl_simnvme_step(h->c);
	else
		sched_yield();
}

void host_turns(struct host *h, unsigned int nr)
{
	while (nr--)
		host_turn(h);
}

uint32_t host_read32(struct host *h, size_t at)
{
	return __atomic_load_n((uint32_t *)(h->bar + at), __ATOMIC_ACQUIRE);
}

uint64_t host_read64(struct host *h, size_t at)
{
	return host_read32(h, at) | (uint64_t)host_read32(h, at + 4) << 32;
}

void host_write32(struct host *h, size_t at, uint32_t value)
{
	__atomic_store_n((uint32_t *)(h->bar + at), value, __ATOMIC_RELEASE);
}

void host_write64(struct host *h, size_t at, uint64_t value)
{
	host_write32(h, at, (uint32_t)value);
	host_write32(h, at + 4, (uint32_t)(value >> 32));
}

void *host_alloc(struct host *h, size_t bytes, uint64_t *iova)
{
	uint64_t align = bytes > 4096 || h->page > 4096 ? 65536 : 4096;
	uint64_t at = (h->used + align - 1) / align * align;

	assert_true(at + bytes <= HOST_MEMORY);
	h->used = at + bytes;
	memset(h->memory + at, 0, bytes);
	*iova = h->iova + at;
	return h->memory + at;
}

void host_queue_init(struct host *h, uint32_t qid, uint32_t sq_entries, uint32_t cq_entries)
{
	struct host_queue *q = &h->q[qid];

	memset(q, 0, sizeof(*q));
	q->sq = host_alloc(h, sq_entries * sizeof(*q->sq), &q->sq_iova);
	q->cq = host_alloc(h, cq_entries * sizeof(*q->cq), &q->cq_iova);
	q->sq_entries = sq_entries;
	q->cq_entries = cq_entries;
	q->phase = PL_NVME_CQE_PHASE;
}

void host_set_admin(struct host *h, uint32_t entries)
{
	host_queue_init(h, 0, entries, entries);
	host_write32(h, PL_NVME_REG_AQA,
		     (entries - 1) << PL_NVME_AQA_ACQS_SHIFT | (entries - 1)
								       << PL_NVME_AQA_ASQS_SHIFT);
	host_write64(h, PL_NVME_REG_ASQ, h->q[0].sq_iova);
	host_write64(h, PL_NVME_REG_ACQ, h->q[0].cq_iova);
}

uint32_t host_cc(void)
{
	return PL_NVME_CC_EN | PL_NVME_IOSQES << PL_NVME_CC_IOSQES_SHIFT |
	       PL_NVME_IOCQES << PL_NVME_CC_IOCQES_SHIFT;
}

/* Bounded waiting: a fault of the controller must not hang the test. */
static bool patient(struct host *h, time_t *begin)
{
	if (!*begin)
		*begin = time(NULL);
	host_turn(h);
	return time(NULL) - *begin < PATIENCE_S;
}

void host_wait_csts(struct host *h, uint32_t mask, uint32_t value)
{
	time_t begin = 0;

	while ((host_read32(h, PL_NVME_REG_CSTS) & mask) != value)
		if (!patient(h, &begin))
			fail_msg("CSTS is %x", host_read32(h, PL_NVME_REG_CSTS));
}

void host_enable(struct host *h)
{
	uint32_t mps = PL_NVME_CAP_MPSMIN(host_read64(h, PL_NVME_REG_CAP));

	host_write32(h, PL_NVME_REG_CC, host_cc() | mps << PL_NVME_CC_MPS_SHIFT);
	host_wait_csts(h, PL_NVME_CSTS_RDY | PL_NVME_CSTS_CFS, PL_NVME_CSTS_RDY);
}

void host_disable(struct host *h)
{
	host_write32(h, PL_NVME_REG_CC, 0);
	host_wait_csts(h, PL_NVME_CSTS_RDY, 0);
}

void host_start(struct host *h, const char *config)
{
	host_open(h, config);
	host_set_admin(h, 64);
	host_enable(h);
}

uint16_t host_put(struct host *h, uint32_t qid, struct pl_nvme_sqe sqe)
{
	struct host_queue *q = &h->q[qid];

	if (!sqe.cid)
		sqe.cid = ++h->next_cid ? h->next_cid : ++h->next_cid;
	q->sq[q->tail] = sqe;
	q->tail = (q->tail + 1) % q->sq_entries;
	return sqe.cid;
}

void host_ring(struct host *h, uint32_t qid)
{
	host_write32(h, PL_NVME_DOORBELL_SQ(qid, h->dstrd), h->q[qid].tail);
}

bool host_peek(struct host *h, uint32_t qid, struct pl_nvme_cqe *cqe)
{
	struct host_queue *q = &h->q[qid];
	uint16_t status = __atomic_load_n(&q->cq[q->head].status, __ATOMIC_ACQUIRE);

	if ((status & PL_NVME_CQE_PHASE) != q->phase)
		return false;
	*cqe = q->cq[q->head];
	if (++q->head == q->cq_entries) {
		q->head = 0;
		q->phase ^= PL_NVME_CQE_PHASE;
	}
	return true;
}

bool host_poll(struct host *h, uint32_t qid, struct pl_nvme_cqe *cqe)
{
	if (!host_peek(h, qid, cqe))
		return false;
	host_write32(h, PL_NVME_DOORBELL_CQ(qid, h->dstrd), h->q[qid].head);
	return true;
}

struct pl_nvme_cqe host_wait(struct host *h, uint32_t qid)
{
	struct pl_nvme_cqe cqe;
	time_t begin = 0;

	while (!host_poll(h, qid, &cqe))
		if (!patient(h, &begin))
			fail_msg("no completion in queue %u", qid);
	return cqe;
}

struct pl_nvme_cqe host_do(struct host *h, uint32_t qid, struct pl_nvme_sqe sqe)
{
	uint16_t cid = host_put(h, qid, sqe);
	struct pl_nvme_cqe cqe;

	host_ring(h, qid);
	cqe = host_wait(h, qid);
	assert_int_equal(cqe.cid, cid);
	assert_int_equal(cqe.sqid, qid);
	assert_int_equal(cqe.sqhd, h->q[qid].tail);
	/* The controller is to see the doorbell before the next is written. */
	host_turn(h);
	return cqe;
}

unsigned int status_of(const struct pl_nvme_cqe *cqe)
{
	return PL_NVME_SC(PL_NVME_CQE_SCT(cqe->status), PL_NVME_CQE_SC(cqe->status));
}

unsigned int host_status(struct host *h, uint32_t qid, struct pl_nvme_sqe sqe)
{
	struct pl_nvme_cqe cqe = host_do(h, qid, sqe);

	return status_of(&cqe);
}

struct pl_nvme_sqe host_create_cq(struct host *h, uint32_t qid, uint32_t entries, uint64_t iova)
{
	(void)h;
	return (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_CQ,
				     .dptr.prp.prp1 = iova,
				     .cdw10 = (entries - 1) << PL_NVME_QUEUE_SIZE_SHIFT | qid,
				     .cdw11 = PL_NVME_QUEUE_PC };
}

struct pl_nvme_sqe host_create_sq(struct host *h, uint32_t qid, uint32_t cqid, uint32_t entries,
				  uint64_t iova)
{
	(void)h;
	return (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_CREATE_SQ,
				     .dptr.prp.prp1 = iova,
				     .cdw10 = (entries - 1) << PL_NVME_QUEUE_SIZE_SHIFT | qid,
				     .cdw11 = cqid << PL_NVME_SQ_CQID_SHIFT | PL_NVME_QUEUE_PC };
}

void host_create(struct host *h, uint32_t qid, uint32_t entries)
{
	struct host_queue *q = &h->q[qid];

	host_queue_init(h, qid, entries, entries);
	assert_int_equal(host_status(h, 0, host_create_cq(h, qid, entries, q->cq_iova)), 0);
	assert_int_equal(host_status(h, 0, host_create_sq(h, qid, qid, entries, q->sq_iova)), 0);
}

void host_delete(struct host *h, uint32_t qid)
{
	struct pl_nvme_sqe sq = { .opcode = PL_NVME_ADMIN_DELETE_SQ, .cdw10 = qid };
	struct pl_nvme_sqe cq = { .opcode = PL_NVME_ADMIN_DELETE_CQ, .cdw10 = qid };

	assert_int_equal(host_status(h, 0, sq), 0);
	assert_int_equal(host_status(h, 0, cq), 0);
}

struct pl_nvme_sqe host_rw(uint8_t opcode, uint32_t nsid, uint64_t block, uint32_t nr_blocks,
			   uint64_t prp1, uint64_t prp2)
{
	return (struct pl_nvme_sqe){ .opcode = opcode,
				     .nsid = nsid,
				     .dptr.prp.prp1 = prp1,
				     .dptr.prp.prp2 = prp2,
				     .cdw10 = (uint32_t)block,
				     .cdw11 = (uint32_t)(block >> 32),
				     .cdw12 = nr_blocks - 1 };
}

struct pl_simnvme_counters host_counters(struct host *h)
{
	struct pl_simnvme_counters counters;

	if (h->c)
		pl_simnvme_counters(h->c, &counters);
	else
		assert_int_equal(pl_simnvme_client_counters(h->client, &counters), 0);
	return counters;
}

void host_inject(struct host *h, const char *script)
{
	char why[256] = "";

	if (pl_simnvme_inject(h->c, script, why, sizeof(why)))
		fail_msg("%s: %s", script, why);
}
