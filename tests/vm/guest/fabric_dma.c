// SPDX-License-Identifier: MIT
/*
 * A drive over RDMA whose adapter has a PCI device, by which the kernel maps the memory: the lab's
 * (tests/vm/adapter). It counts the bytes that it moved to and from GPU memory, at the addresses that it
 * was given for them.
 */
#include "engine.h"
#include "fabric.h"

#define BYTES (2 * MIB)
#define SKIP 77

static size_t number_in(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t number = 0;

	expect(file && fscanf(file, "%zu", &number) == 1);
	fclose(file);
	return number;
}

static size_t adapter_bytes(void)
{
	return number_in("/sys/module/rdma_rxe/parameters/gpu_bytes");
}

#define COUNTERS "/sys/class/infiniband/rxe0/ports/1/hw_counters/"

/* How often the adapter sent again what was not acknowledged in time, or came too early. */
static size_t adapter_retries(void)
{
	return number_in(COUNTERS "completer_retry_err") + number_in(COUNTERS "rcvd_rnr_err");
}

struct adapter_count {
	size_t bytes, retries;
};

static struct adapter_count adapter_now(void)
{
	return (struct adapter_count){ adapter_bytes(), adapter_retries() };
}

/* The adapter moved these bytes. What it sent again on a slow machine, it moved more than once. */
static void expect_moved(struct adapter_count before, size_t bytes)
{
	size_t retries = adapter_retries() - before.retries;
	size_t moved = adapter_bytes() - before.bytes;

	printf("the adapter moved %zu bytes of GPU memory, %zu were asked for, %zu retries\n",
	       moved, bytes, retries);
	expect(retries ? moved >= bytes : moved == bytes);
}

/* The PCI address of the adapter. */
static uint32_t adapter_pci(void)
{
	unsigned int domain, bus, slot, function;
	char target[256];
	ssize_t n = readlink("/sys/class/infiniband/rxe0/device", target, sizeof(target) - 1);

	expect(n > 0);
	target[n] = '\0';
	expect(sscanf(strrchr(target, '/'), "/%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4);
	return domain << 16 | bus << 8 | slot << 3 | function;
}

static struct peerlane_route route_by(const struct memory *memory, int fd, uint32_t adapter)
{
	struct peerlane_route route = { .handle = memory->pin.handle,
					.fd = fd,
					.adapter_pci = adapter };

	expect(ioctl(memory->dev, PEERLANE_IOC_ROUTE, &route) == 0);
	printf("route by %x: verdict %u reason %u distance %d\n", adapter, route.verdict,
	       route.reason, route.distance);
	return route;
}

/* What the module says, with the adapter and without, or with something that is none. */
static void routes(const struct memory *memory, int fd)
{
	bool strict = memory->pin.page_kind != PEERLANE_PAGES_GENERIC;
	struct peerlane_route route = route_by(memory, fd, 0);
	int local = drive_open("raw0", O_RDONLY);

	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_NOT_PCI);
	expect(!route.device_pci);
	route = route_by(memory, fd, memory->pin.gpu_pci);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_NOT_PCI);
	route = route_by(memory, fd, 0xfffff8);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_NOT_PCI);
	route = route_by(memory, fd, adapter_pci());
	expect(route.verdict == (strict ? PEERLANE_ROUTE_YES : PEERLANE_ROUTE_TEST));
	expect(route.reason == PEERLANE_REASON_HOST_BRIDGE && route.device_pci == adapter_pci());
	/* A drive that is on PCI has nothing to do with it. */
	route = route_by(memory, local, adapter_pci());
	expect(route.device_pci && route.device_pci != adapter_pci());
	close(local);
}

/* The kernel's own way into the mapping. */
static void into_pages(int fd)
{
	char *seen = host_alloc(2 * BYTES), *want = host_alloc(2 * BYTES);
	struct adapter_count before = adapter_now();
	size_t moved = 2 * BYTES;
	struct memory memory;

	memory_open(&memory, 2 * BYTES, 0);
	routes(&memory, fd);
	fill(want, 2 * BYTES, 5);
	gpu_copy(memory.gpu, memory.address, want, 2 * BYTES, true);
	/* The first half is written to the drive, the second read from it. */
	expect(pwrite(fd, memory.map, BYTES, RAW_WRITE) == (ssize_t)BYTES);
	fabric_pieces(fd, memory.map, RAW_WRITE + BYTES, true);
	fabric_pieces(fd, memory.map + BYTES, 512, false);
	moved += 2 * FABRIC_PIECES * FABRIC_PIECE;
	expect(pread(fd, memory.map + BYTES, BYTES, MIB) == (ssize_t)BYTES);
	expect(pread(fd, want + BYTES, BYTES, MIB) == (ssize_t)BYTES);
	expect_moved(before, moved);
	say_bar(&memory, BYTES, BYTES, "raw0", MIB);
	say_disk("raw0", RAW_WRITE, BYTES, &memory, 0);
	gpu_copy(memory.gpu, memory.address, seen, 2 * BYTES, false);
	expect(memcmp(seen, want, 2 * BYTES) == 0);
	fabric_memory_close(&memory);
	free(seen);
	free(want);
}

/* By the library: it takes the path by itself, after its test. */
static void by_library(void)
{
	struct adapter_count before = adapter_now();
	struct engine e;

	engine_open(&e);
	read_cases(&e, "/mnt/fabric");
	write_cases(&e, "/mnt/fabric");
	batch_cases(&e, "/mnt/fabric");
	unlink("/mnt/fabric");
	expect(p2p_bytes(&e) > 8 * MIB);
	expect_moved(before, p2p_bytes(&e) + TEST_BYTES);
	engine_close(&e);
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	command("peerlane check /mnt/src | grep device", "over rdma");
	command("peerlane check /mnt/src | sed -n '/^A read/,/^A write/p'",
		"taken: the drive's RDMA adapter rxe0 moves the data by DMA");
}

/* The kernel does not allow this adapter and this GPU: nothing goes that way, and the data is right. */
int test_fabric_dma_refused(void)
{
	struct peerlane_route route;
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct memory memory;
	struct fabric fabric;
	struct engine e;
	int fd;

	if (access(DMA_ADAPTER, F_OK))
		return SKIP;
	fabric_start_dma(&fabric);
	fabric_connect(&fabric);
	fabric_mount();
	fd = fabric_open("raw0", O_RDWR | O_DIRECT);
	memory_open(&memory, BYTES, 0);
	route = route_by(&memory, fd, adapter_pci());
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_TOPOLOGY);
	/* Only where the disk is not one of several paths: the kernel tries those again for ever. */
	expect(pread(fd, memory.map, MIB, 0) < 0);
	expect(pwrite(fd, memory.map, MIB, RAW_WRITE) < 0);
	fabric_memory_close(&memory);
	engine_open(&e);
	e.no_p2p = true;
	read_cases(&e, "/mnt/fabric");
	file = open_file(&e, "/mnt/fabric", O_RDONLY | O_DIRECT);
	v = verdict(&e, file, PEERLANE_READ, MIB);
	expect(strstr(v.reason, "drive's RDMA adapter") && strstr(v.fix, "switch"));
	expect(peerlane_file_close(file) == 0);
	unlink("/mnt/fabric");
	expect(p2p_bytes(&e) == 0 && adapter_bytes() == 0);
	engine_close(&e);
	close(fd);
	fabric_unmount();
	say_direct(0);
	fabric_stop(&fabric);
	return 0;
}

int test_fabric_dma(void)
{
	struct fabric fabric;
	int fd;

	if (access(DMA_ADAPTER, F_OK))
		return SKIP;
	fabric_start_dma(&fabric);
	fabric_connect(&fabric);
	fabric_mount();
	fd = fabric_open("raw0", O_RDWR | O_DIRECT);
	into_pages(fd);
	by_library();
	close(fd);
	fabric_unmount();
	/* Of drives: what the adapter moves is not in their trace. */
	say_direct(0);
	fabric_stop(&fabric);
	return 0;
}
