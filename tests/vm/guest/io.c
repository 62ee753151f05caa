// SPDX-License-Identifier: MIT
/*
 * Direct I/O between drives and GPU memory.
 */
#include <liburing.h>

#include "guest.h"

/* What the CPU sees through the mapping and what the GPU sees is what the drive has. */
static void check_both(const struct memory *memory, size_t at, size_t bytes, const void *want)
{
	void *seen = host_alloc(bytes);

	expect(memcmp(memory->map + at, want, bytes) == 0);
	gpu_copy(memory->gpu, memory->address + at, seen, bytes, false);
	expect(memcmp(seen, want, bytes) == 0);
	free(seen);
}

static void *read_host(int fd, size_t offset, size_t bytes)
{
	void *data = host_alloc(bytes);

	expect(pread(fd, data, bytes, (off_t)offset) == (ssize_t)bytes);
	return data;
}

int test_io_pread(void)
{
	int fd = drive_open("raw0", O_RDWR | O_DIRECT);
	size_t bytes = 8 * MIB;
	struct memory memory;
	char *source;

	memory_open(&memory, bytes, 0);
	expect(pread(fd, memory.map, bytes, 4 * MIB) == (ssize_t)bytes);
	source = read_host(fd, 4 * MIB, bytes);
	check_both(&memory, 0, bytes, source);
	/* Back to the drive, from GPU memory. */
	expect(pwrite(fd, memory.map, bytes, RAW_WRITE) == (ssize_t)bytes);
	say_direct(2 * bytes);
	say_bar(&memory, 0, bytes, "raw0", 4 * MIB);
	say_disk("raw0", RAW_WRITE, bytes, &memory, 0);
	memory_close(&memory);
	return 0;
}

/* Many requests at once, each reading or writing a piece. */
static void ring_all(struct io_uring *ring, int fd, bool write, char *map, size_t offset, size_t nr,
		     size_t piece)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	size_t i;

	for (i = 0; i < nr; i++) {
		sqe = io_uring_get_sqe(ring);
		expect(sqe);
		if (write)
			io_uring_prep_write(sqe, fd, map + i * piece, (unsigned int)piece,
					    offset + i * piece);
		else
			io_uring_prep_read(sqe, fd, map + i * piece, (unsigned int)piece,
					   offset + i * piece);
	}
	expect(io_uring_submit(ring) == (int)nr);
	for (i = 0; i < nr; i++) {
		expect(io_uring_wait_cqe(ring, &cqe) == 0);
		if (cqe->res != (int)piece)
			fail("request %zu: %d", i, cqe->res);
		io_uring_cqe_seen(ring, cqe);
	}
}

int test_io_uring(void)
{
	int fd = drive_open("raw0", O_RDWR | O_DIRECT);
	size_t piece = 128 * KIB, nr = 64;
	struct io_uring ring;
	struct memory memory;
	char *source;

	memory_open(&memory, nr * piece, PEERLANE_PIN_WRITE_COMBINE);
	expect(io_uring_queue_init(128, &ring, 0) == 0);
	ring_all(&ring, fd, false, memory.map, 16 * MIB, nr, piece);
	source = read_host(fd, 16 * MIB, nr * piece);
	check_both(&memory, 0, nr * piece, source);
	ring_all(&ring, fd, true, memory.map, RAW_WRITE + 16 * MIB, nr, piece);
	say_direct(2 * nr * piece);
	say_bar(&memory, 0, nr * piece, "raw0", 16 * MIB);
	say_disk("raw0", RAW_WRITE + 16 * MIB, nr * piece, &memory, 0);
	io_uring_queue_exit(&ring);
	memory_close(&memory);
	return 0;
}

/* Sizes and places that are not whole pages; GPU addresses that are not either. */
int test_io_unaligned(void)
{
	static const struct {
		size_t at, bytes, offset;
	} cases[] = {
		{ 0, 512, 512 },
		{ 512, 512, 0 },
		{ 65536 - 512, 1024, 4096 },
		{ 3 * 65536 + 4096, 65536, 1024 },
		{ 7 * 65536 + 4, 4096, 512 },
		{ 9 * 65536 - 4096, 200 * 1024, 8192 },
	};
	int fd = drive_open("raw0", O_RDONLY | O_DIRECT);
	size_t bytes = 16 * GPU_PAGE, total = 0, i;
	char *source = read_host(fd, 0, MIB);
	struct peerlane_pin pin;
	struct memory memory;
	char *guard, *map;

	memory_open(&memory, bytes, 0);
	guard = host_alloc(bytes);
	fill(guard, bytes, 7);
	gpu_copy(memory.gpu, memory.address, guard, bytes, true);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		expect(pread(fd, memory.map + cases[i].at, cases[i].bytes,
			     (off_t)cases[i].offset) == (ssize_t)cases[i].bytes);
		memcpy(guard + cases[i].at, source + cases[i].offset, cases[i].bytes);
		total += cases[i].bytes;
	}
	/* All of it, so that bytes beside a transfer are seen to be as before. */
	check_both(&memory, 0, bytes, guard);
	expect_errno(pread(fd, memory.map + 1, 512, 0), EINVAL);
	expect_errno(pread(fd, memory.map, 100, 0), EINVAL);

	/* A pin of a part, beginning inside a GPU page. */
	expect(dev_pin(memory.dev, memory.address + 70000, 1000, 0, &pin) == 0);
	expect(pin.map_bytes == GPU_PAGE && pin.skip_bytes == 70000 - GPU_PAGE);
	map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, memory.dev, (off_t)pin.map_offset + 4096);
	expect(map != MAP_FAILED);
	expect(memcmp(map, guard + GPU_PAGE + 4096, 8192) == 0);
	/* It cannot be written, so nothing can be read into it. */
	expect_errno(pread(fd, map, 512, 0), EFAULT);
	munmap(map, 8192);
	expect(dev_unpin(memory.dev, pin.handle) == 0);
	say_direct(total);
	memory_close(&memory);
	return 0;
}

int test_io_ext4(void)
{
	int source_fd = open("/mnt/src", O_RDONLY | O_DIRECT);
	int target_fd = open("/mnt/dst", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	size_t bytes = 4 * MIB;
	struct memory memory;
	char *source;

	expect(source_fd >= 0 && target_fd >= 0);
	memory_open(&memory, bytes, 0);
	expect(pread(source_fd, memory.map, bytes, MIB) == (ssize_t)bytes);
	source = read_host(source_fd, MIB, bytes);
	check_both(&memory, 0, bytes, source);
	expect(pwrite(target_fd, memory.map, bytes, 0) == (ssize_t)bytes);
	expect(fsync(target_fd) == 0);
	say_direct(2 * bytes);
	say_bar(&memory, 0, bytes, "src", MIB);
	say_disk("dst", 0, bytes, &memory, 0);
	close(source_fd);
	close(target_fd);
	memory_close(&memory);
	return 0;
}

/* A pin without an end would keep the GPU's driver waiting: refused on every kernel. */
int test_io_registered(void)
{
	struct io_uring ring;
	struct memory memory;
	struct iovec iov;
	int err;

	memory_open(&memory, MIB, 0);
	iov.iov_base = memory.map;
	iov.iov_len = MIB;
	expect(io_uring_queue_init(8, &ring, 0) == 0);
	err = io_uring_register_buffers(&ring, &iov, 1);
	printf("registering a buffer: %d\n", err);
	expect(err == -EFAULT || err == -EOPNOTSUPP || err == -EREMOTEIO);
	io_uring_queue_exit(&ring);
	memory_close(&memory);
	return 0;
}

/* A drive that fails: the error arrives, and nothing stays behind, also when the memory is freed. */
int test_io_errors(void)
{
	int fd = drive_open("bad0", O_RDONLY | O_DIRECT);
	struct io_uring ring;
	struct memory memory;
	int i;

	expect(io_uring_queue_init(32, &ring, 0) == 0);
	for (i = 0; i < 20; i++) {
		struct io_uring_cqe *cqe;
		int failed = 0, at;

		memory_open(&memory, 2 * MIB, 0);
		/* Which of the two depends on what the drive says was wrong. */
		expect(pread(fd, memory.map, 64 * KIB, MIB) == -1);
		expect(errno == EIO || errno == ENODATA);
		for (at = 0; at < 16; at++)
			io_uring_prep_read(io_uring_get_sqe(&ring), fd,
					   memory.map + (size_t)at * 128 * KIB, 128 * KIB,
					   (size_t)at * 128 * KIB);
		expect(io_uring_submit(&ring) == 16);
		if (i % 2)
			gpu_free(memory.gpu, memory.address);
		for (at = 0; at < 16; at++) {
			expect(io_uring_wait_cqe(&ring, &cqe) == 0);
			expect(cqe->res == 128 * (int)KIB || cqe->res == -EIO ||
			       cqe->res == -ENODATA);
			failed += cqe->res < 0;
			io_uring_cqe_seen(&ring, cqe);
		}
		/* More than one where the kernel has merged requests. */
		expect(failed >= 1 && failed < 16);
		if (i % 2) {
			munmap(memory.map, memory.pin.map_bytes);
			close(memory.dev);
			close(memory.gpu);
		} else {
			memory_close(&memory);
		}
	}
	io_uring_queue_exit(&ring);
	return 0;
}

/* With forced bouncing the data is right, nothing of it is direct, and the route says so. */
int test_bounced(void)
{
	int fd = drive_open("raw0", O_RDONLY | O_DIRECT);
	struct peerlane_route route = { 0 };
	struct memory memory;
	char *source;

	memory_open(&memory, 2 * MIB, 0);
	expect(pread(fd, memory.map, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	source = read_host(fd, 0, 2 * MIB);
	check_both(&memory, 0, 2 * MIB, source);
	route.handle = memory.pin.handle;
	route.fd = fd;
	expect(ioctl(memory.dev, PEERLANE_IOC_ROUTE, &route) == 0);
	printf("route: verdict %u reason %u\n", route.verdict, route.reason);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_SWIOTLB);
	say_direct(0);
	say_bar(&memory, 0, 2 * MIB, "raw0", 0);
	memory_close(&memory);
	return 0;
}

static struct peerlane_route ask(const struct memory *memory, int fd)
{
	struct peerlane_route route = { .handle = memory->pin.handle, .fd = fd };

	expect(ioctl(memory->dev, PEERLANE_IOC_ROUTE, &route) == 0);
	printf("route: verdict %u reason %u distance %d flags %x gpu %x device %x (%u:%u)\n",
	       route.verdict, route.reason, route.distance, route.flags, route.gpu_pci,
	       route.device_pci, route.device_major, route.device_minor);
	return route;
}

/* What is said of a drive must be what happens with it. */
int test_route(void)
{
	int fd = drive_open("raw0", O_RDONLY | O_DIRECT);
	struct peerlane_route route;
	struct memory memory;
	ssize_t got;
	int file;

	memory_open(&memory, MIB, 0);
	route = ask(&memory, fd);
	got = pread(fd, memory.map, MIB, 0);
	printf("read: %zd\n", got);
	expect((route.verdict != PEERLANE_ROUTE_NO) == (got == (ssize_t)MIB));
	if (memory.pin.page_kind == PEERLANE_PAGES_GENERIC)
		expect(route.verdict == PEERLANE_ROUTE_TEST);
	else
		expect(route.verdict == PEERLANE_ROUTE_YES ||
		       route.reason == PEERLANE_REASON_TOPOLOGY);
	expect(route.gpu_pci == memory.pin.gpu_pci && route.device_pci);
	file = open("/mnt/src", O_RDONLY);
	expect(file >= 0);
	expect(ask(&memory, file).device_pci);
	file = open("/proc/version", O_RDONLY);
	expect(ask(&memory, file).reason == PEERLANE_REASON_NO_DEVICE);
	say_direct(got > 0 ? (size_t)got : 0);
	memory_close(&memory);
	return 0;
}
