// SPDX-License-Identifier: MIT
/*
 * The library's NVMe driver on QEMU's controller.
 */
#include <peerlane/nvme.h>

#include "nvme_lab.h"

#define DRIVE "slow0"
#define BLOCK 512u

struct driver {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns;
};

static struct driver driver_open(const char *transport, struct pci pci, unsigned int timeout_ms)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .timeout_ms = timeout_ms };
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_ns_info ns = { .size = sizeof(ns) };
	struct driver d = { 0 };
	char address[64];
	int err;

	snprintf(address, sizeof(address), "%s:%s", transport, pci.text);
	err = peerlane_nvme_open(&d.nvme, address, &opt);
	if (err)
		fail("%s: %d", address, err);
	expect(peerlane_nvme_get_info(d.nvme, &info) == 0);
	printf("%s: %s, %s, %u queues of %u, at most %llu bytes, dbbuf %u sgl %u\n", address,
	       info.serial, info.model, info.nr_queues, info.max_entries,
	       (unsigned long long)info.max_transfer_bytes, info.has_dbbuf, info.has_sgl);
	expect(strcmp(info.serial, DRIVE) == 0);
	expect(peerlane_nvme_ns_open(d.nvme, 1, &d.ns) == 0);
	expect(peerlane_nvme_ns_get_info(d.ns, &ns) == 0);
	expect(ns.block_bytes == BLOCK && ns.nr_blocks == 16 * MIB / BLOCK);
	return d;
}

static struct peerlane_nvme_map *map_gpu(struct driver *d, const struct memory *memory, size_t at,
					 size_t bytes)
{
	struct peerlane_nvme_memory request = { .size = sizeof(request),
						.flags = PEERLANE_NVME_MEMORY_GPU,
						.ptr = (void *)(uintptr_t)(memory->address + at),
						.bytes = bytes,
						.cpu = memory->map + at,
						.pin_fd = memory->dev,
						.handle = memory->pin.handle,
						.pin_offset = at };
	struct peerlane_nvme_map *map;
	int err = peerlane_nvme_map(d->nvme, &request, &map);

	if (err)
		fail("GPU memory: %d", err);
	return map;
}

/* Much at once, in pieces of which many are under way; as often as fits. */
static void move(struct driver *d, struct peerlane_nvme_queue *queue, bool write, uint64_t offset,
		 struct peerlane_nvme_map *map, size_t at, size_t bytes)
{
	size_t piece = 192 * KIB, sent = 0, done = 0, nr = (bytes + piece - 1) / piece;
	struct peerlane_nvme_completion cpl;
	int ret;

	while (done < nr) {
		size_t from = sent * piece;
		struct peerlane_nvme_io io = {
			.opcode = write ? PL_NVME_WRITE : PL_NVME_READ,
			.nr_blocks =
				(uint32_t)((bytes - from < piece ? bytes - from : piece) / BLOCK),
			.lba = (offset + from) / BLOCK,
			.ns = d->ns,
			.map = map,
			.offset = at + from,
			.user = sent
		};

		ret = sent < nr ? peerlane_nvme_submit(queue, &io, 1) : -EAGAIN;
		if (ret == 1) {
			sent++;
			continue;
		}
		if (ret != -EAGAIN)
			fail("submit: %d", ret);
		ret = peerlane_nvme_wait(queue, &cpl, 1, 1, 60000);
		if (ret != 1 || cpl.err)
			fail("piece %llu: %d, err %d", (unsigned long long)cpl.user, ret, cpl.err);
		done++;
	}
}

static void check_gpu(const struct memory *memory, size_t at, const void *want, size_t bytes)
{
	char *seen = host_alloc(bytes);

	gpu_copy(memory->gpu, memory->address + at, seen, bytes, false);
	expect(memcmp(seen, want, bytes) == 0);
	free(seen);
}

/* Host memory, by a queue pair with everything left to the driver. */
static char *host_part(struct driver *d, size_t bytes)
{
	struct peerlane_nvme_queue *queue;
	struct peerlane_nvme_map *map;
	char *data = host_alloc(bytes);

	expect(peerlane_nvme_queue_create(d->nvme, NULL, &queue) == 0);
	expect(peerlane_nvme_map_host(d->nvme, data, bytes, &map) == 0);
	move(d, queue, false, 4 * MIB, map, 0, bytes);
	move(d, queue, true, 8 * MIB, map, 0, bytes);
	peerlane_nvme_queue_destroy(queue);
	peerlane_nvme_unmap(map);
	return data;
}

int test_nvme_kmod_driver(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct driver d = driver_open("kmod", pci, 0);
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt), .depth = 16 };
	size_t bytes = 4 * MIB;
	struct peerlane_nvme_queue *queue;
	struct peerlane_nvme_map *map, *rings;
	struct memory memory, queues;
	char *want;

	want = host_part(&d, bytes);
	/* The queues and the lists lie in GPU memory as well. */
	memory_open(&queues, MIB, 0);
	memset(queues.map, 0, MIB);
	rings = map_gpu(&d, &queues, 0, MIB);
	opt.sq = opt.cq = opt.lists = rings;
	opt.sq_offset = 0;
	opt.cq_offset = GPU_PAGE;
	opt.lists_offset = 2 * GPU_PAGE;
	opt.max_transfer_bytes = 512 * KIB;
	expect(peerlane_nvme_lists_bytes(d.nvme, opt.depth, opt.max_transfer_bytes) <=
	       MIB - 2 * GPU_PAGE);
	expect(peerlane_nvme_queue_create(d.nvme, &opt, &queue) == 0);

	memory_open(&memory, bytes + GPU_PAGE, 0);
	map = map_gpu(&d, &memory, 4096, bytes);
	move(&d, queue, false, 4 * MIB, map, 0, bytes);
	check_gpu(&memory, 4096, want, bytes);
	move(&d, queue, true, 14 * MIB, map, MIB, MIB);
	/* After a reset all of it works as before. */
	expect(peerlane_nvme_reset(d.nvme) == 0);
	move(&d, queue, false, 4 * MIB, map, 0, MIB);
	say_direct(bytes + MIB + MIB);
	say_bar(&memory, 4096, bytes, DRIVE, 4 * MIB);
	say_disk(DRIVE, 14 * MIB, MIB, &memory, 4096 + MIB);
	peerlane_nvme_queue_destroy(queue);
	peerlane_nvme_unmap(map);
	peerlane_nvme_unmap(rings);
	peerlane_nvme_close(d.nvme);
	nvme_wait_idle();
	memory_close(&memory);
	memory_close(&queues);
	give_back(pci, DRIVE);
	return 0;
}

/* GPU memory goes away under the driver: every command is reported, and all but that memory works on. */
int test_nvme_kmod_driver_freed(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct driver d = driver_open("kmod", pci, 0);
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_completion cpl[8];
	struct peerlane_nvme_queue *queue;
	struct peerlane_nvme_map *map;
	struct peerlane_nvme_io io;
	struct memory memory;
	unsigned int reported = 0, seen = 0, i;
	char *want;
	int ret;

	expect(peerlane_nvme_queue_create(d.nvme, NULL, &queue) == 0);
	memory_open(&memory, 4 * MIB, 0);
	map = map_gpu(&d, &memory, 0, 4 * MIB);
	for (i = 0; i < 8; i++) {
		io = (struct peerlane_nvme_io){ .opcode = PL_NVME_READ,
						.nr_blocks = 512 * KIB / BLOCK,
						.lba = i * 512 * KIB / BLOCK,
						.ns = d.ns,
						.map = map,
						.offset = i * 512 * KIB,
						.user = i };
		expect(peerlane_nvme_submit(queue, &io, 1) == 1);
	}
	gpu_free(memory.gpu, memory.address);
	while (reported < 8) {
		ret = peerlane_nvme_wait(queue, cpl, 1, 8, 60000);
		if (ret <= 0)
			fail("%u of 8 reported, then %d", reported, ret);
		for (i = 0; i < (unsigned int)ret; i++) {
			expect(cpl[i].user < 8 && !(seen & 1u << cpl[i].user));
			seen |= 1u << cpl[i].user;
		}
		reported += (unsigned int)ret;
	}
	expect(peerlane_nvme_get_info(d.nvme, &info) == 0);
	expect(info.nr_resets == 1 && !info.dead);
	expect(peerlane_nvme_run(queue, &io, NULL) == -EFAULT);
	peerlane_nvme_unmap(map);
	munmap(memory.map, memory.pin.map_bytes);
	close(memory.dev);
	close(memory.gpu);
	/* Host memory and other memory of the GPU go on. */
	want = host_part(&d, MIB);
	memory_open(&memory, MIB, 0);
	map = map_gpu(&d, &memory, 0, MIB);
	move(&d, queue, false, 4 * MIB, map, 0, MIB);
	check_gpu(&memory, 0, want, MIB);
	peerlane_nvme_close(d.nvme);
	memory_close(&memory);
	nvme_wait_idle();
	give_back(pci, DRIVE);
	return 0;
}

int test_nvme_vfio_driver(void)
{
	struct pci pci = take_drive(DRIVE, "vfio");
	struct driver d = driver_open("vfio", pci, 0);
	size_t bytes = 4 * MIB;
	char *want = host_part(&d, bytes), *seen = host_alloc(bytes);
	int fd;

	expect(peerlane_nvme_reset(d.nvme) == 0);
	free(host_part(&d, MIB));
	peerlane_nvme_close(d.nvme);
	give_back(pci, DRIVE);
	fd = drive_open(DRIVE, O_RDONLY | O_DIRECT);
	expect(pread(fd, seen, bytes, 8 * MIB) == (ssize_t)bytes);
	expect(memcmp(seen, want, bytes) == 0);
	close(fd);
	return 0;
}
