/* SPDX-License-Identifier: MIT */
/* Queues of the software controller, for kernels that run on threads. */
#ifndef PL_DEVICE_TEST_H
#define PL_DEVICE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <peerlane/device/io.h>
#include <peerlane/nvme.h>

#define BLOCK 512u
/* Long enough for any machine: a test in which it ends has failed. */
#define FOR_EVER ((uint64_t)300 * 1000000000u)

/* Queue pairs of one controller, as kernels see them. */
struct queues {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns;
	unsigned int nr;
	struct pld_queue *q; /* nr of them */
	struct peerlane_nvme_queue **pair;
	uint32_t stop;
};

/* Memory of kernels that the controller reaches, in pieces with addresses of their own. */
struct pieces {
	char *memory;
	struct pld_dma *dma;
	struct peerlane_nvme_map *map, *lists;
	unsigned int nr;
	uint32_t bytes; /* of a piece */
};

/* What block lba holds, as 64-bit words. */
static inline uint64_t pattern(uint64_t lba, uint32_t word)
{
	return lba * 0x9e3779b97f4a7c15u + word;
}

static inline void fill_block(void *block, uint64_t lba)
{
	uint64_t *w = block;

	for (uint32_t i = 0; i < BLOCK / 8; i++)
		w[i] = pattern(lba, i);
}

static inline bool block_is(const void *block, uint64_t lba)
{
	const uint64_t *w = block;

	for (uint32_t i = 0; i < BLOCK / 8; i++)
		if (w[i] != pattern(lba, i))
			return false;
	return true;
}

static inline uint32_t log2_of(uint32_t v)
{
	return v < 2 ? 0 : 32 - (uint32_t)__builtin_clz(v - 1);
}

/* Make the kernels' part of a queue pair new. */
static inline void queue_restart(struct pld_queue *q, uint32_t start)
{
	q->tail = q->rung = q->head = start;
	q->ringing = q->reaping = 0;
	q->nr_bad = 0;
	memset(q->slots, 0, (size_t)q->nr_ports * q->slots_per_port * sizeof(*q->slots));
	if (q->marks)
		memset(q->marks, 0, q->depth * sizeof(*q->marks));
}

static inline void queue_open(struct queues *s, unsigned int i, uint32_t depth, uint32_t nr_ports,
			      uint32_t slots_per_port)
{
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt), .depth = depth };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct peerlane_nvme_info ctrl = { .size = sizeof(ctrl) };
	struct pld_queue *q = &s->q[i];

	assert_true(nr_ports * slots_per_port < depth);
	assert_int_equal(peerlane_nvme_queue_create(s->nvme, &opt, &s->pair[i]), 0);
	assert_int_equal(peerlane_nvme_queue_get_info(s->pair[i], &info), 0);
	assert_int_equal(peerlane_nvme_get_info(s->nvme, &ctrl), 0);
	q->sq = info.sq;
	q->cq = info.cq;
	q->sq_doorbell = (uint32_t *)((char *)(uintptr_t)info.bar0 + info.sq_doorbell);
	q->cq_doorbell = (uint32_t *)((char *)(uintptr_t)info.bar0 + info.cq_doorbell);
	q->depth = depth;
	q->log_depth = log2_of(depth);
	q->nr_ports = nr_ports;
	q->slots_per_port = slots_per_port;
	q->slot_bits = log2_of(nr_ports * slots_per_port);
	q->qid = info.qid;
	q->page_bytes = ctrl.page_bytes;
	q->stop = &s->stop;
	q->slots = calloc(nr_ports * slots_per_port, sizeof(*q->slots));
	q->marks = nr_ports > 1 ? calloc(depth, sizeof(*q->marks)) : NULL;
	queue_restart(q, 0);
}

/* Open the controller of a configuration, with nr queue pairs; one more is left for the test. */
static inline void queues_open(struct queues *s, const char *config, unsigned int nr,
			       uint32_t depth, uint32_t nr_ports, uint32_t slots_per_port)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt),
					     .flags = PEERLANE_NVME_NO_DBBUF,
					     .nr_queues = nr + 1 };

	memset(s, 0, sizeof(*s));
	s->nr = nr;
	s->q = aligned_alloc(128, nr * sizeof(*s->q));
	memset(s->q, 0, nr * sizeof(*s->q));
	s->pair = calloc(nr, sizeof(struct peerlane_nvme_queue *));
	assert_int_equal(peerlane_nvme_open(&s->nvme, config, &opt), 0);
	assert_int_equal(peerlane_nvme_ns_open(s->nvme, 1, &s->ns), 0);
	for (unsigned int i = 0; i < nr; i++)
		queue_open(s, i, depth, nr_ports, slots_per_port);
}

static inline void queues_close(struct queues *s)
{
	for (unsigned int i = 0; i < s->nr; i++) {
		peerlane_nvme_queue_destroy(s->pair[i]);
		free(s->q[i].slots);
		free(s->q[i].marks);
	}
	peerlane_nvme_close(s->nvme);
	free(s->pair);
	free(s->q);
}

static inline void pieces_open(struct pieces *p, struct queues *s, unsigned int nr, uint32_t bytes)
{
	const size_t page = s->q[0].page_bytes;
	void *memory, *lists;

	p->nr = nr;
	p->bytes = bytes;
	p->dma = calloc(nr, sizeof(*p->dma));
	assert_int_equal(peerlane_nvme_map_alloc(s->nvme, (size_t)nr * bytes, &memory, &p->map), 0);
	assert_int_equal(peerlane_nvme_map_alloc(s->nvme, nr * page, &lists, &p->lists), 0);
	p->memory = memory;
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t *list = (uint64_t *)((char *)lists + i * page);
		const size_t at = (size_t)i * bytes;

		assert_int_equal(peerlane_nvme_map_address(p->map, at, &p->dma[i].first, NULL), 0);
		for (size_t k = 1; k * page < bytes; k++)
			assert_int_equal(peerlane_nvme_map_address(p->map, at + k * page,
								   &list[k - 1], NULL),
					 0);
		p->dma[i].second = list[0];
		assert_int_equal(
			peerlane_nvme_map_address(p->lists, i * page, &p->dma[i].list, NULL), 0);
	}
}

static inline void pieces_close(struct pieces *p)
{
	peerlane_nvme_unmap(p->map);
	peerlane_nvme_unmap(p->lists);
	free(p->dma);
}

#endif
