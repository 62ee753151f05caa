// SPDX-License-Identifier: MIT
/*
 * What the NVMe driver itself costs: reads of 4 KiB that a controller completes at once, in the same thread,
 * by writing a completion and moving no data.
 *	nvme_cost driver|floor DEPTH NR    prints operations per second
 * The floor is the least that any driver does: write the entry, ring, see the phase, ring. Only the functions
 * cost_* are the driver's part; bench/nvme_cost.py counts their instructions by callgrind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tests/nvme/fake.h"

#define MAX_DEPTH 128u

/* The rings, and where the controller is in them. */
static struct {
	const struct pl_nvme_sqe *sq;
	struct pl_nvme_cqe *cq;
	volatile uint32_t *sq_db;
	uint32_t depth, head, cq_tail;
	uint16_t phase, qid;
} instant;

static __attribute__((noinline)) void complete_all(void)
{
	uint32_t tail = __atomic_load_n(instant.sq_db, __ATOMIC_ACQUIRE);

	while (instant.head != tail) {
		struct pl_nvme_cqe *cqe = &instant.cq[instant.cq_tail];

		cqe->cid = instant.sq[instant.head].cid;
		cqe->sqid = instant.qid;
		if (++instant.head == instant.depth)
			instant.head = 0;
		cqe->sqhd = (uint16_t)instant.head;
		__atomic_store_n(&cqe->status, instant.phase, __ATOMIC_RELEASE);
		if (++instant.cq_tail == instant.depth) {
			instant.cq_tail = 0;
			instant.phase ^= 1;
		}
	}
}

/* ------------------------------------------------------------------ the driver */

__attribute__((noinline)) void cost_driver_submit(struct peerlane_nvme_queue *q,
						  const struct peerlane_nvme_io *io,
						  unsigned int nr);
__attribute__((noinline)) unsigned int cost_driver_poll(struct peerlane_nvme_queue *q,
							struct peerlane_nvme_completion *done,
							unsigned int nr);

void cost_driver_submit(struct peerlane_nvme_queue *q, const struct peerlane_nvme_io *io,
			unsigned int nr)
{
	if (peerlane_nvme_submit(q, io, nr) != (int)nr)
		abort();
}

unsigned int cost_driver_poll(struct peerlane_nvme_queue *q, struct peerlane_nvme_completion *done,
			      unsigned int nr)
{
	int rc = peerlane_nvme_poll(q, done, nr);

	if (rc < 0)
		abort();
	for (int i = 0; i < rc; i++)
		if (done[i].err)
			abort();
	return (unsigned int)rc;
}

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-rc));
	exit(1);
}

static void run_driver(unsigned int depth, uint64_t nr)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt), .depth = 2 * MAX_DEPTH };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct peerlane_nvme_completion done[MAX_DEPTH];
	struct peerlane_nvme_io io[MAX_DEPTH];
	struct fake *f = fake_new();
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme *nvme;
	void *mem;

	check(fake_open(f, NULL, &nvme), "open");
	check(peerlane_nvme_ns_open(nvme, 2, &ns), "namespace");
	check(peerlane_nvme_queue_create(nvme, &qopt, &q), "queue");
	check(peerlane_nvme_map_alloc(nvme, MAX_DEPTH * 4096, &mem, &map), "memory");
	check(peerlane_nvme_queue_get_info(q, &info), "queue");
	instant.sq = info.sq;
	instant.cq = info.cq;
	instant.sq_db = (volatile uint32_t *)((uintptr_t)info.bar0 + info.sq_doorbell);
	instant.depth = info.depth;
	instant.qid = (uint16_t)info.qid;
	for (unsigned int i = 0; i < depth; i++)
		io[i] = (struct peerlane_nvme_io){
			.opcode = PL_NVME_READ,
			.ns = ns,
			.nr_blocks = 1,
			.lba = i,
			.map = map,
			.offset = i * (size_t)4096,
			.user = i,
		};
	for (uint64_t at = 0; at < nr; at += depth) {
		cost_driver_submit(q, io, depth);
		complete_all();
		for (unsigned int got = 0; got < depth;)
			got += cost_driver_poll(q, done, depth - got);
	}
	/* The fake was not asked while the instant one was at work: it has seen nothing of this queue. */
	pl_nvme_write32(f->bar, info.sq_doorbell, 0);
	pl_nvme_write32(f->bar, info.cq_doorbell, 0);
	peerlane_nvme_close(nvme);
	fake_free(f);
}

/* ------------------------------------------------------------------ the floor */

static struct {
	_Alignas(4096) struct pl_nvme_sqe sq[2 * MAX_DEPTH];
	_Alignas(4096) struct pl_nvme_cqe cq[2 * MAX_DEPTH];
	volatile uint32_t sq_db, cq_db;
	uint32_t tail, head;
	uint16_t phase;
} bare;

__attribute__((noinline)) void cost_floor_submit(unsigned int nr);
__attribute__((noinline)) unsigned int cost_floor_poll(unsigned int nr);

void cost_floor_submit(unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		bare.sq[bare.tail] = (struct pl_nvme_sqe){
			.opcode = PL_NVME_READ,
			.nsid = 2,
			.cid = (uint16_t)bare.tail,
			.dptr.prp.prp1 = 0x100000 + i * 4096,
			.cdw10 = i,
		};
		if (++bare.tail == 2 * MAX_DEPTH)
			bare.tail = 0;
	}
	__atomic_store_n(&bare.sq_db, bare.tail, __ATOMIC_RELEASE);
}

unsigned int cost_floor_poll(unsigned int nr)
{
	unsigned int got = 0;

	for (; got < nr; got++) {
		uint16_t status = __atomic_load_n(&bare.cq[bare.head].status, __ATOMIC_ACQUIRE);

		if ((status & 1) != bare.phase)
			break;
		if (status >> 1)
			abort();
		if (++bare.head == 2 * MAX_DEPTH) {
			bare.head = 0;
			bare.phase ^= 1;
		}
	}
	__atomic_store_n(&bare.cq_db, bare.head, __ATOMIC_RELEASE);
	return got;
}

static void run_floor(unsigned int depth, uint64_t nr)
{
	bare.phase = 1;
	instant.sq = bare.sq;
	instant.cq = bare.cq;
	instant.sq_db = &bare.sq_db;
	instant.depth = 2 * MAX_DEPTH;
	for (uint64_t at = 0; at < nr; at += depth) {
		cost_floor_submit(depth);
		complete_all();
		for (unsigned int got = 0; got < depth;)
			got += cost_floor_poll(depth - got);
	}
}

int main(int argc, char **argv)
{
	struct timespec from, to;
	unsigned long depth = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t nr = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
	double seconds;

	if (!depth || depth > MAX_DEPTH || !nr ||
	    (strcmp(argv[1], "driver") != 0 && strcmp(argv[1], "floor") != 0)) {
		fprintf(stderr, "usage: nvme_cost driver|floor DEPTH NR\n");
		return 2;
	}
	nr = (nr + depth - 1) / depth * depth;
	instant.phase = 1;
	clock_gettime(CLOCK_MONOTONIC, &from);
	if (!strcmp(argv[1], "driver"))
		run_driver((unsigned int)depth, nr);
	else
		run_floor((unsigned int)depth, nr);
	clock_gettime(CLOCK_MONOTONIC, &to);
	seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	printf("%.0f\n", (double)nr / seconds);
	return 0;
}
