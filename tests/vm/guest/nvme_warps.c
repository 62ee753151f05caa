// SPDX-License-Identifier: MIT
/*
 * The code of GPU kernels on QEMU's controller: warps of threads submit and complete commands of shared
 * queue pairs themselves, whose data land in GPU memory.
 */
#include <peerlane/device/io.h>
#include <peerlane/nvme.h>

#include "nvme_lab.h"

#define DRIVE "slow0"
#define BLOCK 512u
#define PIECE 4096u
#define NR_QUEUES 2u
#define NR_PORTS 2u /* of each */
#define NR_LANES 4u
#define DEPTH 16u

struct kernel {
	struct pld_queue q[NR_QUEUES];
	uint64_t slots[NR_QUEUES][DEPTH], marks[NR_QUEUES][DEPTH];
	uint32_t stop;
	char *memory;
	struct pld_dma *dma;
	size_t nr_pieces;
	uint8_t opcode;
	uint64_t offset; /* on the drive */
	uint32_t failed;
};

/* Every lane moves every so many-th piece. */
static void move_pieces(unsigned int warp, void *arg)
{
	struct kernel *k = arg;
	const unsigned int stride = NR_QUEUES * NR_PORTS * NR_LANES;
	size_t piece = warp * NR_LANES + pld_lane();
	struct pld_completion cpl;
	struct pld_port port;

	pld_port_open(&port, &k->q[warp / NR_PORTS], warp % NR_PORTS, (1u << NR_LANES) - 1);
	while (pld_ballot(port.lanes, piece < k->nr_pieces)) {
		struct pld_io io = { .opcode = k->opcode,
				     .nsid = 1,
				     .lba = (k->offset + piece * PIECE) / BLOCK,
				     .nr_blocks = PIECE / BLOCK,
				     .bytes = PIECE,
				     .memory = k->memory + piece * PIECE,
				     .dma = &k->dma[piece] };
		int started = !pld_io_start(&port, piece < k->nr_pieces, &io);

		if (pld_io_wait(&port, &io, (uint64_t)120 * 1000000000u, &cpl))
			__atomic_fetch_add(&k->failed, 1, __ATOMIC_RELAXED);
		if (started)
			piece += stride;
	}
}

static void queue_open(struct kernel *k, struct peerlane_nvme *nvme, unsigned int i)
{
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt), .depth = DEPTH };
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	struct peerlane_nvme_queue *pair;
	struct pld_queue *q = &k->q[i];

	expect(peerlane_nvme_queue_create(nvme, &opt, &pair) == 0);
	expect(peerlane_nvme_queue_get_info(pair, &info) == 0);
	q->sq = info.sq;
	q->cq = info.cq;
	q->sq_doorbell = (uint32_t *)((char *)(uintptr_t)info.bar0 + info.sq_doorbell);
	q->cq_doorbell = (uint32_t *)((char *)(uintptr_t)info.bar0 + info.cq_doorbell);
	q->slots = k->slots[i];
	q->marks = k->marks[i];
	q->stop = &k->stop;
	q->page_bytes = PIECE;
	q->depth = DEPTH;
	q->log_depth = 4;
	q->nr_ports = NR_PORTS;
	/* Fewer slots than lanes: some wait for others. */
	q->slots_per_port = NR_LANES - 1;
	q->slot_bits = 3;
	q->qid = info.qid;
}

static void run(struct kernel *k, uint8_t opcode, uint64_t offset, size_t bytes)
{
	k->opcode = opcode;
	k->offset = offset;
	k->nr_pieces = bytes / PIECE;
	expect(peerlane_cpu_run(NR_QUEUES * NR_PORTS, NR_LANES, move_pieces, k) == 0);
	expect(k->failed == 0);
	for (unsigned int i = 0; i < NR_QUEUES; i++)
		expect(k->q[i].nr_bad == 0);
}

int test_nvme_kmod_warps(void)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .flags = PEERLANE_NVME_NO_DBBUF };
	struct peerlane_nvme_memory request = { .size = sizeof(request),
						.flags = PEERLANE_NVME_MEMORY_GPU,
						.bytes = MIB };
	struct kernel *k = aligned_alloc(128, (sizeof(*k) + 127) / 128 * 128);
	struct pci pci = take_drive(DRIVE, "kmod");
	struct peerlane_nvme_map *map;
	struct peerlane_nvme *nvme;
	struct memory memory;
	char address[64];

	snprintf(address, sizeof(address), "kmod:%s", pci.text);
	expect(peerlane_nvme_open(&nvme, address, &opt) == 0);
	memory_open(&memory, MIB, 0);
	request.ptr = (void *)(uintptr_t)memory.address;
	request.cpu = memory.map;
	request.pin_fd = memory.dev;
	request.handle = memory.pin.handle;
	expect(peerlane_nvme_map(nvme, &request, &map) == 0);
	memset(k, 0, sizeof(*k));
	k->memory = memory.map;
	k->dma = calloc(MIB / PIECE, sizeof(*k->dma));
	for (size_t i = 0; i < MIB / PIECE; i++)
		expect(peerlane_nvme_map_address(map, i * PIECE, &k->dma[i].first, NULL) == 0);
	for (unsigned int i = 0; i < NR_QUEUES; i++)
		queue_open(k, nvme, i);
	run(k, PL_NVME_READ, 4 * MIB, MIB);
	run(k, PL_NVME_WRITE, 15 * MIB, MIB / 2);
	say_direct(MIB + MIB / 2);
	say_bar(&memory, 0, MIB, DRIVE, 4 * MIB);
	say_disk(DRIVE, 15 * MIB, MIB / 2, &memory, 0);
	peerlane_nvme_close(nvme);
	nvme_wait_idle();
	memory_close(&memory);
	give_back(pci, DRIVE);
	free(k->dma);
	free(k);
	return 0;
}
