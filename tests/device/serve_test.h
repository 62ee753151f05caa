/* SPDX-License-Identifier: MIT */
/* A kernel that reads and writes blocks through the queues of a device, whoever serves them. */
#ifndef PL_SERVE_TEST_H
#define PL_SERVE_TEST_H

#include "device_test.h"

#include <peerlane/device.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE ((size_t)65536)

/* What all lanes do, and how it went. */
struct load {
	struct peerlane_device *dev;
	struct peerlane_device_info info;
	struct peerlane_device_map *map;
	char *memory; /* a piece for each lane */
	unsigned int nr_warps, nr_lanes;
	unsigned int rounds;
	uint8_t opcode;
	uint32_t nsid, nr_blocks;
	uint32_t io_blocks; /* of one I/O */
	uint64_t first;	    /* block */
	uint64_t timeout_ns;
	int one_space_each; /* the controller's blocks have a pattern of their own */
	uint32_t wrong, failed, late, stopped, served; /* counted by all */
	uint32_t last_status;
};

static inline void count(uint32_t *what, int bad)
{
	if (bad)
		__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static inline uint32_t all_lanes(unsigned int nr)
{
	return nr == 32 ? ~0u : (1u << nr) - 1;
}

/* Blocks of controller c hold what blocks of this number would hold on controller 0. */
static inline uint64_t name_of(const struct load *l, uint32_t controller, uint64_t lba)
{
	return l->one_space_each ? lba + (uint64_t)controller * 1000000 : lba;
}

static inline void judge(struct load *l, const struct pld_io *io, uint32_t controller,
			 const struct pld_completion *cpl)
{
	count(&l->late, cpl->err == -ETIMEDOUT);
	count(&l->stopped, cpl->err == -ECANCELED);
	count(&l->failed, cpl->err == -EIO);
	count(&l->served, !cpl->err);
	if (cpl->err == -EIO)
		__atomic_store_n(&l->last_status, cpl->status, __ATOMIC_RELAXED);
	if (cpl->err || io->opcode != PL_NVME_READ)
		return;
	for (uint32_t i = 0; i < io->nr_blocks; i++)
		count(&l->wrong, !block_is(io->memory + (size_t)i * BLOCK,
					   name_of(l, controller, io->lba + i)));
}

/* Each lane has a piece, and does its rounds one after the other. Reads go anywhere; no two lanes write
 * the same block. */
static inline void load_kernel(unsigned int warp, void *arg)
{
	struct load *l = arg;
	const uint32_t ports = l->info.ports_per_queue;
	const unsigned int me = warp * l->nr_lanes + pld_lane(), all = l->nr_warps * l->nr_lanes;
	const uint32_t queue = warp / ports % l->info.nr_queues;
	const uint32_t controller = queue % l->info.nr_controllers;
	const struct pld_dma *dma = peerlane_device_map_dma(l->map, controller);
	struct pld_io io = { .opcode = l->opcode,
			     .nsid = l->nsid,
			     .nr_blocks = l->io_blocks,
			     .bytes = l->io_blocks * BLOCK };
	struct pld_completion cpl;
	struct pld_port port;

	pld_port_open(&port, &l->info.queues[queue], warp % ports, all_lanes(l->nr_lanes));
	io.memory = l->memory + me * PIECE;
	io.dma = dma ? &dma[me] : NULL;
	for (unsigned int done = 0; pld_ballot(port.lanes, done < l->rounds);) {
		int want = done < l->rounds, started;

		if (want && pld_load_relaxed_sys32(port.queue->stop)) {
			count(&l->stopped, 1);
			done = l->rounds;
			want = 0;
		}

		io.lba = l->first + (l->opcode == PL_NVME_WRITE ? me + (uint64_t)done * all
								: me * 31 + done * 7) %
					    (l->nr_blocks / l->io_blocks) * l->io_blocks;
		for (uint32_t i = 0; want && i < l->io_blocks; i++) {
			if (l->opcode == PL_NVME_WRITE)
				fill_block(io.memory + (size_t)i * BLOCK,
					   name_of(l, controller, io.lba + i));
			else
				memset(io.memory + (size_t)i * BLOCK, 0xee, BLOCK);
		}
		started = !pld_io_start(&port, want, &io);
		pld_io_wait(&port, &io, l->timeout_ns, &cpl);
		if (!started)
			continue;
		judge(l, &io, controller, &cpl);
		/* Memory that may still be written is not used again. */
		done = cpl.err == -ETIMEDOUT || cpl.err == -ECANCELED ? l->rounds : done + 1;
	}
}

/* A load for each port of the device. */
static inline void load_init(struct load *l, struct peerlane_device *dev, unsigned int nr_lanes)
{
	struct peerlane_device_space space = { .size = sizeof(space) };

	memset(l, 0, sizeof(*l));
	l->dev = dev;
	l->info.size = sizeof(l->info);
	assert_int_equal(peerlane_device_get_info(dev, &l->info), 0);
	assert_int_equal(peerlane_device_get_space(dev, 0, &space), 0);
	l->nr_warps = l->info.nr_queues * l->info.ports_per_queue;
	l->nr_lanes = nr_lanes;
	l->rounds = 10;
	l->opcode = PL_NVME_READ;
	l->nsid = space.nsid;
	l->nr_blocks = (uint32_t)space.nr_blocks;
	l->io_blocks = 1;
	l->timeout_ns = FOR_EVER;
	l->memory = mmap(NULL, l->nr_warps * l->nr_lanes * PIECE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(l->memory != MAP_FAILED);
}

static inline void load_map(struct load *l)
{
	struct peerlane_nvme_memory m = { .size = sizeof(m),
					  .ptr = l->memory,
					  .bytes = l->nr_warps * l->nr_lanes * PIECE,
					  .pin_fd = -1 };

	assert_int_equal(peerlane_device_map(l->dev, &m, PIECE, &l->map), 0);
}

static inline void load_fini(struct load *l)
{
	munmap(l->memory, l->nr_warps * l->nr_lanes * PIECE);
}

static inline void load_run(struct load *l)
{
	l->wrong = l->failed = l->late = l->stopped = l->served = 0;
	assert_int_equal(peerlane_cpu_run(l->nr_warps, l->nr_lanes, load_kernel, l), 0);
	assert_int_equal(l->wrong, 0);
}

/* All of it must succeed. */
static inline void load_run_well(struct load *l)
{
	load_run(l);
	assert_int_equal(l->failed + l->late + l->stopped, 0);
	assert_int_equal(l->served, l->nr_warps * l->nr_lanes * l->rounds);
}

static inline uint64_t total(struct peerlane_device *dev, size_t member)
{
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct peerlane_device_stats s = { .size = sizeof(s) };
	uint64_t sum = 0;

	assert_int_equal(peerlane_device_get_info(dev, &info), 0);
	for (uint32_t i = 0; i < info.nr_queues; i++) {
		assert_int_equal(peerlane_device_get_stats(dev, i, &s), 0);
		sum += *(const uint64_t *)((const char *)&s + member);
	}
	return sum;
}
#define TOTAL(dev, member) total(dev, offsetof(struct peerlane_device_stats, member))

/* One command of one thread; returns its status. */
static inline uint32_t one_status(struct pld_port *port, struct pld_io *io)
{
	struct pld_completion cpl;

	assert_int_equal(pld_io_start(port, 1, io), 0);
	pld_io_wait(port, io, FOR_EVER, &cpl);
	assert_true(!cpl.err || cpl.err == -EIO);
	assert_true(!cpl.err == !cpl.status);
	return cpl.status & 0x7ff;
}

/* A file of blocks with their pattern in a directory, without a name. */
static inline int file_make(const char *dir, size_t bytes)
{
	char path[256];
	char block[BLOCK];
	int fd;

	snprintf(path, sizeof(path), "%s/peerlane-device-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	assert_true(fd >= 0);
	unlink(path);
	for (size_t at = 0; at < bytes; at += BLOCK) {
		const size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;

		fill_block(block, at / BLOCK);
		assert_int_equal(pwrite(fd, block, n, (off_t)at), n);
	}
	return fd;
}

static inline const char *tmp_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	return tmp && *tmp ? tmp : "/tmp";
}

#endif
