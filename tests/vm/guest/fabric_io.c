// SPDX-License-Identifier: MIT
/*
 * Data of drives over a network, into and out of GPU memory: by the CPU where the kernel takes the
 * pages, refused where it does not, and always right through the library.
 */
#include <liburing.h>

#include "engine.h"
#include "fabric.h"

#define BYTES (2 * MIB)

void fabric_pieces(int fd, char *map, size_t offset, bool write)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	char *want;
	size_t i;

	expect(io_uring_queue_init(FABRIC_PIECES, &ring, 0) == 0);
	for (i = 0; i < FABRIC_PIECES; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		if (write)
			io_uring_prep_write(sqe, fd, map + i * FABRIC_STEP, FABRIC_PIECE,
					    offset + i * FABRIC_STEP);
		else
			io_uring_prep_read(sqe, fd, map + i * FABRIC_STEP, FABRIC_PIECE,
					   offset + i * FABRIC_STEP);
	}
	expect(io_uring_submit(&ring) == FABRIC_PIECES);
	for (i = 0; i < FABRIC_PIECES; i++) {
		expect(io_uring_wait_cqe(&ring, &cqe) == 0);
		if (cqe->res != (int)FABRIC_PIECE)
			fail("piece %zu: %d", i, cqe->res);
		io_uring_cqe_seen(&ring, cqe);
	}
	io_uring_queue_exit(&ring);
	want = host_alloc(FABRIC_PIECE);
	for (i = 0; i < FABRIC_PIECES; i++) {
		expect(pread(fd, want, FABRIC_PIECE, (off_t)(offset + i * FABRIC_STEP)) ==
		       (ssize_t)FABRIC_PIECE);
		expect(memcmp(map + i * FABRIC_STEP, want, FABRIC_PIECE) == 0);
	}
	free(want);
}

/* The kernel's own way into the mapping: the CPU copies, and no drive touches the GPU's memory. */
static void into_pages(int fd, size_t write_at)
{
	struct peerlane_route route = { .fd = fd };
	char *seen = host_alloc(2 * BYTES), *want = host_alloc(2 * BYTES);
	struct memory memory;

	memory_open(&memory, 2 * BYTES, 0);
	route.handle = memory.pin.handle;
	expect(ioctl(memory.dev, PEERLANE_IOC_ROUTE, &route) == 0);
	printf("route: verdict %u reason %u\n", route.verdict, route.reason);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_NOT_PCI);
	fill(want, 2 * BYTES, write_at);
	gpu_copy(memory.gpu, memory.address, want, 2 * BYTES, true);
	if (memory.pin.page_kind != PEERLANE_PAGES_GENERIC) {
		/* P2PDMA pages are for devices that say they take them. */
		expect_errno(pread(fd, memory.map, BYTES, MIB), EREMOTEIO);
		expect_errno(pwrite(fd, memory.map, BYTES, (off_t)write_at), EREMOTEIO);
	} else {
		/* The first half is written to the drive, the second read from it. */
		expect(pwrite(fd, memory.map, BYTES, (off_t)write_at) == (ssize_t)BYTES);
		fabric_pieces(fd, memory.map, write_at + BYTES, true);
		fabric_pieces(fd, memory.map + BYTES, 512, false);
		expect(pread(fd, memory.map + BYTES, BYTES, MIB) == (ssize_t)BYTES);
		expect(pread(fd, want + BYTES, BYTES, MIB) == (ssize_t)BYTES);
		say_bar(&memory, BYTES, BYTES, "raw0", MIB);
		say_disk("raw0", write_at, BYTES, &memory, 0);
		for (size_t i = 0; i < FABRIC_PIECES; i++)
			say_disk("raw0", write_at + BYTES + i * FABRIC_STEP, FABRIC_PIECE, &memory,
				 i * FABRIC_STEP);
	}
	gpu_copy(memory.gpu, memory.address, seen, 2 * BYTES, false);
	expect(memcmp(seen, want, 2 * BYTES) == 0);
	fabric_memory_close(&memory);
	free(seen);
	free(want);
}

/* Where the library's GPU memory lies, for the host; not to be closed as other memory is. */
static void look_at(const struct engine *e, struct memory *memory)
{
	struct peerlane_info info = { 0 };

	*memory = (struct memory){ .dev = dev_open(), .address = (uintptr_t)e->gpu, .bytes = ROOM };
	expect(dev_pin(memory->dev, memory->address, ROOM, 0, &memory->pin) == 0);
	memory->physical = calloc(ROOM / GPU_PAGE, sizeof(uint64_t));
	info.handle = memory->pin.handle;
	info.physical = (uintptr_t)memory->physical;
	info.nr_room = ROOM / GPU_PAGE;
	expect(ioctl(memory->dev, PEERLANE_IOC_INFO, &info) == 0);
	expect(dev_unpin(memory->dev, memory->pin.handle) == 0);
	close(memory->dev);
}

/* Through the library, and seen from outside: the namespace itself, and files on it. */
static void by_library(struct engine *e, int fd, size_t write_at, const char *name)
{
	size_t odd = MIB + 77, at = 2 * MIB;
	unsigned char *data = host_alloc(2 * MIB);
	struct peerlane_file *raw, *src, *copy;
	struct memory memory;
	char path[64];
	int local;

	snprintf(path, sizeof(path), "/mnt/%s", name);
	expect(peerlane_file_from_fd(e->ctx, fd, &raw) == 0);
	src = open_file(e, "/mnt/src", O_RDONLY | O_DIRECT);
	copy = open_file(e, path, O_RDWR | O_CREAT | O_DIRECT);
	expect(!verdict(e, raw, PEERLANE_READ, MIB).usable);
	expect(peerlane_read(raw, e->gpu + 1000, odd, (off_t)(3 * MIB + 1000)) == (ssize_t)odd);
	expect(peerlane_read(src, e->gpu + at, MIB, 4096) == (ssize_t)MIB);
	expect(peerlane_write(raw, e->gpu + at, MIB, (off_t)write_at, PEERLANE_DURABLE) ==
	       (ssize_t)MIB);
	expect(peerlane_write(copy, e->gpu + at + 100, odd, 5000, PEERLANE_DURABLE) ==
	       (ssize_t)odd);
	/* The drive itself has what was written over the network. */
	local = drive_open("raw0", O_RDONLY | O_DIRECT);
	expect(pread(local, data, MIB, (off_t)write_at) == (ssize_t)MIB);
	expect(peerlane_gpu_copy(e->ctx, e->seen, e->gpu, ROOM) == 0);
	expect(memcmp(data, e->seen + at, MIB) == 0);
	close(local);
	look_at(e, &memory);
	say_bar(&memory, 1000, odd, "raw0", 3 * MIB + 1000);
	say_bar(&memory, at, MIB, "src", 4096);
	say_disk("raw0", write_at, MIB, &memory, at);
	say_disk(name, 5000, odd, &memory, at + 100);
	free(memory.physical);
	expect(peerlane_file_close(raw) == 0);
	expect(peerlane_file_close(src) == 0);
	expect(peerlane_file_close(copy) == 0);
	free(data);
}

/* What is said of a file, by the library and by the tool. */
static void said(struct engine *e, const char *transport)
{
	bool tcp = !strcmp(transport, "tcp");
	struct peerlane_file *file = open_file(e, "/mnt/src", O_RDONLY | O_DIRECT);
	struct peerlane_verdict v = verdict(e, file, PEERLANE_READ, MIB);

	expect(!v.usable && strstr(v.reason, "by network") && strstr(v.reason, "the CPU copies"));
	expect(strstr(v.reason, tcp ? "NVMe over TCP" : "soft-RoCE") && strstr(v.fix, "RDMA"));
	expect(peerlane_file_close(file) == 0);
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	command("peerlane check /mnt/src | sed -n '/^A read/,$p'",
		tcp ? "no: the drive is reached by network (NVMe over TCP): the CPU copies"
		    : "no: the drive is reached by network (NVMe over RDMA in software");
	command("peerlane check /mnt/src | grep over", tcp ? "over tcp" : "over rdma");
	command("peerlane cp --sync /mnt/src /mnt/copy && cmp /mnt/src /mnt/copy && echo same",
		"same");
	unlink("/mnt/copy");
}

static int over(const char *transport, size_t write_at, const char *name)
{
	struct fabric fabric;
	struct engine e;
	int fd;

	fabric_start(&fabric, transport);
	fabric_connect(&fabric);
	fabric_mount();
	fd = fabric_open("raw0", O_RDWR | O_DIRECT);
	into_pages(fd, write_at);
	engine_open(&e);
	e.no_p2p = true;
	/* To the library both are the same; software RDMA is slow. */
	if (!strcmp(transport, "tcp")) {
		read_cases(&e, "/mnt/fabric");
		write_cases(&e, "/mnt/fabric");
	}
	batch_cases(&e, "/mnt/fabric");
	unlink("/mnt/fabric");
	said(&e, transport);
	by_library(&e, fd, write_at + 8 * MIB, name);
	expect(p2p_bytes(&e) == 0);
	engine_close(&e);
	close(fd);
	fabric_unmount();
	/* Of drives; what the CPU copies is not counted. */
	say_direct(0);
	fabric_stop(&fabric);
	return 0;
}

int test_fabric_tcp(void)
{
	return over("tcp", RAW_WRITE, "fabric-tcp");
}

int test_fabric_rdma(void)
{
	return over("rdma", RAW_WRITE + 16 * MIB, "fabric-rdma");
}
