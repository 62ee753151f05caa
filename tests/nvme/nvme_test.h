/* SPDX-License-Identifier: MIT */
/* What tests of the NVMe driver share: a fake controller that is open, a queue, and memory. */
#ifndef TESTS_NVME_NVME_TEST_H
#define TESTS_NVME_NVME_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

#define TEST_BYTES ((size_t)4 << 20)

struct env {
	struct fake *f;
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns[2]; /* blocks of 512 and of 4096 bytes */
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	char *mem; /* TEST_BYTES */
};

/* Open what was set up in the fake; the queue has the options, or the defaults. */
static inline void env_open(struct env *e, const struct peerlane_nvme_options *opt,
			    const struct peerlane_nvme_queue_options *qopt)
{
	assert_int_equal(fake_open(e->f, opt, &e->nvme), 0);
	assert_int_equal(peerlane_nvme_ns_open(e->nvme, 1, &e->ns[0]), 0);
	assert_int_equal(peerlane_nvme_ns_open(e->nvme, 2, &e->ns[1]), 0);
	assert_int_equal(peerlane_nvme_queue_create(e->nvme, qopt, &e->q), 0);
	e->mem = aligned_alloc(65536, TEST_BYTES);
	assert_non_null(e->mem);
	memset(e->mem, 0, TEST_BYTES);
	assert_int_equal(peerlane_nvme_map_host(e->nvme, e->mem, TEST_BYTES, &e->map), 0);
}

/* Close it; nothing may be left mapped, and nothing may have been described wrongly. */
static inline void env_close(struct env *e)
{
	peerlane_nvme_close(e->nvme);
	assert_int_equal(e->f->nr_maps, 0);
	assert_int_equal(e->f->nr_opens, 0);
	assert_int_equal(e->f->nr_bad, 0);
	fake_free(e->f);
	free(e->mem);
	memset(e, 0, sizeof(*e));
}

static inline struct peerlane_nvme_io env_io(const struct env *e, uint8_t opcode, unsigned int ns,
					     uint64_t lba, uint32_t nr, size_t offset)
{
	return (struct peerlane_nvme_io){
		.opcode = opcode,
		.ns = e->ns[ns],
		.lba = lba,
		.nr_blocks = nr,
		.map = e->map,
		.offset = offset,
	};
}

static inline int env_run(struct env *e, uint8_t opcode, unsigned int ns, uint64_t lba, uint32_t nr,
			  size_t offset)
{
	struct peerlane_nvme_io io = env_io(e, opcode, ns, lba, nr, offset);

	return peerlane_nvme_run(e->q, &io, NULL);
}

static inline void fill(char *to, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		to[i] = (char)(seed >> 56);
	}
}

static inline struct peerlane_nvme_info env_info(struct env *e)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };

	assert_int_equal(peerlane_nvme_get_info(e->nvme, &info), 0);
	return info;
}

#endif
