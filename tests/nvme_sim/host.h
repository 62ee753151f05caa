/* SPDX-License-Identifier: MIT */
/*
 * The least of a driver that tests of the software controller need, out of the wire types alone. It
 * checks what it can of every completion: phase, queue, head.
 */
#ifndef NVME_SIM_HOST_H
#define NVME_SIM_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <peerlane/nvme_spec.h>

#include <simnvme.h>

#define HOST_MAX_QUEUES 17u
#define HOST_MEMORY (64u << 20)
#define HOST_IOVA 0x100000000ull
#define RW (PL_SIMNVME_READ | PL_SIMNVME_WRITE)

struct host_queue {
	struct pl_nvme_sqe *sq;
	struct pl_nvme_cqe *cq;
	uint64_t sq_iova, cq_iova;
	uint32_t sq_entries, cq_entries;
	uint32_t tail, head;
	uint16_t phase;
	uint32_t sqhd; /* last told */
};

struct host {
	struct pl_simnvme *c;
	struct pl_simnvme_client *client; /* instead, when the controller is elsewhere */
	void (*turn)(void *);		  /* or somebody else's, who gives it turns */
	void *turn_arg;
	int fd; /* of the memory */
	uint8_t *bar;
	size_t bar_bytes;
	uint8_t *memory;
	uint64_t iova; /* where it is mapped */
	uint64_t used;
	uint32_t dstrd, page;
	uint16_t next_cid;
	struct host_queue q[HOST_MAX_QUEUES];
};

/* Make a controller and map memory; nothing is enabled yet. */
void host_open(struct host *h, const char *config);
/* The same with one that is served elsewhere; memory is mapped at iova. */
void host_connect(struct host *h, const char *path, uint64_t iova);
void host_close(struct host *h);
/* Let the controller work: a turn of it, or a moment if it runs by itself. */
void host_turn(struct host *h);
/* Some turns. */
void host_turns(struct host *h, unsigned int nr);

uint32_t host_read32(struct host *h, size_t at);
uint64_t host_read64(struct host *h, size_t at);
void host_write32(struct host *h, size_t at, uint32_t value);
void host_write64(struct host *h, size_t at, uint64_t value);

/* Zeroed memory, aligned to a page of 64 KiB if large, else to 4 KiB. */
void *host_alloc(struct host *h, size_t bytes, uint64_t *iova);

/* Registers of the admin queue and CC; waits for ready. */
void host_set_admin(struct host *h, uint32_t entries);
void host_enable(struct host *h);
uint32_t host_cc(void);
/* Wait until CSTS has these bits under mask. */
void host_wait_csts(struct host *h, uint32_t mask, uint32_t value);
void host_disable(struct host *h);
/* Open, set the admin queue up and enable. */
void host_start(struct host *h, const char *config);

/* Put a command into a queue, without the doorbell: its id. */
uint16_t host_put(struct host *h, uint32_t qid, struct pl_nvme_sqe sqe);
void host_ring(struct host *h, uint32_t qid);
/* A completion if there is one. The doorbell is rung at once. */
bool host_poll(struct host *h, uint32_t qid, struct pl_nvme_cqe *cqe);
/* The same without the doorbell. */
bool host_peek(struct host *h, uint32_t qid, struct pl_nvme_cqe *cqe);
/* Wait for one. */
struct pl_nvme_cqe host_wait(struct host *h, uint32_t qid);
/* All of it for one command. */
struct pl_nvme_cqe host_do(struct host *h, uint32_t qid, struct pl_nvme_sqe sqe);
/* Its status, as type << 8 | code. */
unsigned int host_status(struct host *h, uint32_t qid, struct pl_nvme_sqe sqe);
unsigned int status_of(const struct pl_nvme_cqe *cqe);

/* Queue pair with both sides of this size. */
void host_create(struct host *h, uint32_t qid, uint32_t entries);
void host_delete(struct host *h, uint32_t qid);
struct pl_nvme_sqe host_create_cq(struct host *h, uint32_t qid, uint32_t entries, uint64_t iova);
struct pl_nvme_sqe host_create_sq(struct host *h, uint32_t qid, uint32_t cqid, uint32_t entries,
				  uint64_t iova);
/* Fresh state of a queue of the host's. */
void host_queue_init(struct host *h, uint32_t qid, uint32_t sq_entries, uint32_t cq_entries);

struct pl_nvme_sqe host_rw(uint8_t opcode, uint32_t nsid, uint64_t block, uint32_t nr_blocks,
			   uint64_t prp1, uint64_t prp2);
struct pl_simnvme_counters host_counters(struct host *h);
void host_inject(struct host *h, const char *script);

#endif
