// SPDX-License-Identifier: MIT
/*
 * The two messages of a queue pair, and what they carry: a doorbell says that entries are written, a phase
 * that data are. A controller made of nothing but these two reads and writes with plain accesses, so
 * whatever order is missing is wrong data here, or a race for the thread sanitizer.
 */
#include "device_test.h"

#include <pthread.h>
#include <sched.h>

#define COMMANDS 1000u /* of each lane */
#define MAX_DEPTH 16u

struct wire {
	struct pld_queue q;
	struct pl_nvme_sqe sq[MAX_DEPTH];
	struct pl_nvme_cqe cq[MAX_DEPTH];
	uint32_t sq_doorbell, cq_doorbell, stop, end;
	uint64_t slots[MAX_DEPTH], marks[MAX_DEPTH];
	unsigned int nr_lanes;
	uint32_t torn;	/* entries that were not whole, seen by the controller */
	uint32_t stale; /* data that were old, seen by kernels */
	uint32_t served;
} __attribute__((aligned(128)));

static uint64_t mix(uint64_t v)
{
	v ^= v >> 31;
	return v * 0x9e3779b97f4a7c15u;
}

static void serve(struct wire *w, uint32_t head, uint32_t done)
{
	const struct pl_nvme_sqe *sqe = &w->sq[head & (w->q.depth - 1)];
	struct pl_nvme_cqe *cqe = &w->cq[done & (w->q.depth - 1)];
	const uint64_t lba = sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
	uint64_t *data = (uint64_t *)(uintptr_t)sqe->dptr.prp.prp1;

	if (sqe->dptr.prp.prp2 != mix(lba) || sqe->nsid != (uint32_t)mix(lba + 1))
		w->torn++;
	else
		*data = mix(lba + 2);
	cqe->result = (uint32_t)lba;
	cqe->sqhd = (uint16_t)((head + 1) & (w->q.depth - 1));
	cqe->sqid = (uint16_t)w->q.qid;
	cqe->cid = sqe->cid;
	__atomic_store_n(&cqe->status, (uint16_t)(~(done >> w->q.log_depth) & 1), __ATOMIC_RELEASE);
}

static void *controller(void *arg)
{
	struct wire *w = arg;
	const uint32_t mask = w->q.depth - 1;
	uint32_t head = 0, done = 0, tail;

	while (!__atomic_load_n(&w->end, __ATOMIC_ACQUIRE)) {
		tail = __atomic_load_n(&w->sq_doorbell, __ATOMIC_ACQUIRE);
		for (; (head & mask) != tail; head++, done++) {
			/* Never over an entry that was not read. */
			while (((done + 1) & mask) ==
			       __atomic_load_n(&w->cq_doorbell, __ATOMIC_ACQUIRE))
				sched_yield();
			serve(w, head, done);
		}
		sched_yield();
	}
	return NULL;
}

static void kernel(unsigned int warp, void *arg)
{
	struct wire *w = arg;
	const uint32_t lanes = w->nr_lanes == 32 ? ~0u : (1u << w->nr_lanes) - 1;
	uint64_t data, lba = ((uint64_t)warp << 32 | pld_lane()) * 1000003;
	struct pld_request rq = { .opcode = PL_NVME_READ, .nr_blocks = 1 };
	struct pld_completion cpl;
	struct pld_port port;

	pld_port_open(&port, &w->q, warp, lanes);
	rq.prp1 = (uintptr_t)&data;
	for (unsigned int i = 0; pld_ballot(lanes, i < COMMANDS);) {
		int token;

		data = 0;
		rq.lba = ++lba;
		rq.prp2 = mix(lba);
		rq.nsid = (uint32_t)mix(lba + 1);
		token = pld_submit(&port, i < COMMANDS, &rq);
		pld_wait(&port, token, FOR_EVER, &cpl);
		if (token >= 0) {
			i++;
			if (cpl.err || cpl.result != (uint32_t)lba || data != mix(lba + 2))
				__atomic_fetch_add(&w->stale, 1, __ATOMIC_RELAXED);
			__atomic_fetch_add(&w->served, 1, __ATOMIC_RELAXED);
		}
		pld_free(&port, token);
	}
}

static void check(uint32_t depth, uint32_t nr_ports, uint32_t slots, unsigned int nr_lanes)
{
	struct wire *w = aligned_alloc(128, sizeof(*w));
	pthread_t thread;

	memset(w, 0, sizeof(*w));
	w->nr_lanes = nr_lanes;
	w->q = (struct pld_queue){
		.sq = w->sq,
		.cq = w->cq,
		.sq_doorbell = &w->sq_doorbell,
		.cq_doorbell = &w->cq_doorbell,
		.slots = w->slots,
		.marks = nr_ports > 1 ? w->marks : NULL,
		.stop = &w->stop,
		.depth = depth,
		.log_depth = log2_of(depth),
		.nr_ports = nr_ports,
		.slots_per_port = slots,
		.slot_bits = log2_of(nr_ports * slots),
		.qid = 3,
		.page_bytes = 4096,
	};
	assert_int_equal(pthread_create(&thread, NULL, controller, w), 0);
	assert_int_equal(peerlane_cpu_run(nr_ports, nr_lanes, kernel, w), 0);
	__atomic_store_n(&w->end, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_int_equal(w->torn, 0);
	assert_int_equal(w->stale, 0);
	assert_int_equal(w->served, nr_ports * nr_lanes * COMMANDS);
	assert_int_equal(w->q.nr_bad, 0);
	free(w);
}

static void test_one_port(void **state)
{
	(void)state;
	check(2, 1, 1, 1);
	check(4, 1, 3, 2);
}

static void test_ports(void **state)
{
	(void)state;
	check(4, 3, 1, 1);
	check(16, 3, 5, 1);
	check(8, 2, 2, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_port),
		cmocka_unit_test(test_ports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
