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

/* Many reads with as many outstanding as the queue takes; every one comes back once, with its data. */
static inline void env_stress(struct env *e, struct peerlane_nvme_queue *q, unsigned int nr)
{
	struct peerlane_nvme_completion done[64];
	unsigned char *seen = calloc(nr, 1);
	unsigned int taken = 0, nr_done = 0;
	int rc;

	for (unsigned int i = 0; i < 512; i++)
		memset(e->f->disk[0] + i * 512, (int)i, 512);
	while (nr_done < nr) {
		struct peerlane_nvme_io io =
			env_io(e, PL_NVME_READ, 0, taken % 512, 1, taken % 4096 * 512);

		io.user = taken;
		if (taken < nr && peerlane_nvme_submit(q, &io, 1) == 1) {
			taken++;
			continue;
		}
		rc = peerlane_nvme_wait(q, done, 1, 64, -1);
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++) {
			assert_int_equal(done[i].err, 0);
			assert_int_equal(seen[done[i].user]++, 0);
			assert_int_equal((unsigned char)e->mem[done[i].user % 4096 * 512],
					 done[i].user % 512 % 256);
		}
		nr_done += (unsigned int)rc;
	}
	free(seen);
	assert_int_equal(env_info(e).nr_bad_completions, 0);
}

/* Of a hook: no I/O completes. */
static inline enum fake_do env_drop_io(struct fake *f, unsigned int qid,
				       const struct pl_nvme_sqe *sqe, struct pl_nvme_cqe *cqe)
{
	(void)f;
	(void)sqe;
	(void)cqe;
	return qid ? FAKE_DROP : FAKE_DO;
}

#endif
