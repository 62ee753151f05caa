// SPDX-License-Identifier: MIT
/*
 * How pins end: killed, closed, freed by the program, during I/O or not.
 */
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "guest.h"

static void die_in_flight(void *data)
{
	struct memory memory;

	(void)data;
	memory_open(&memory, 4 * MIB, 0);
	slow_start(memory.map, 4 * MIB, 256 * KIB);
	sleep_ms(10000);
}

/* Killed while a device writes: whatever dies first, GPU memory or module's file. */
int test_kill_in_flight(void)
{
	unsigned int ms;

	for (ms = 100; ms <= 400; ms += 100)
		in_child(die_in_flight, NULL, ms);
	return 0;
}

/* Everything is closed while a device writes: the pin lingers, and ends by itself. */
int test_close_in_flight(void)
{
	struct peerlane_counters now;
	struct memory memory;
	struct slow *slow;
	int dev = dev_open(), i;

	memory_open(&memory, 4 * MIB, PEERLANE_PIN_PERSISTENT);
	slow = slow_start(memory.map, 4 * MIB, 256 * KIB);
	munmap(memory.map, memory.pin.map_bytes);
	close(memory.dev);
	/* Freed as well; the persistent pin keeps it. */
	gpu_free(memory.gpu, memory.address);
	now = dev_counters(dev);
	printf("lingering %llu\n", (unsigned long long)now.lingering);
	expect(now.lingering == 1 && now.pins == 1);
	expect(gpu_state(memory.gpu).nr_persistent == 1);
	expect(slow_finish(slow) == 0);
	for (i = 0; i < 200 && dev_counters(dev).pins; i++)
		sleep_ms(20);
	now = dev_counters(dev);
	expect(now.pins == 0 && now.lingering == 0 && now.mappings == 0);
	expect(gpu_state(memory.gpu).nr_allocs == 0);
	say_direct(4 * MIB);
	say_bar(&memory, 0, 4 * MIB, "slow0", 0);
	return 0;
}

/* Giving memory up waits for the device; when it may not wait that long, the module does the rest. */
int test_unpin_in_flight(void)
{
	static const char wait[] = "/sys/module/peerlane/parameters/unpin_wait_ms";
	struct memory memory;
	struct slow *slow;
	double start;
	int i, dev = dev_open();

	memory_open(&memory, 4 * MIB, 0);
	slow = slow_start(memory.map, 4 * MIB, 256 * KIB);
	start = seconds();
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	printf("the unpin took %.2f s\n", seconds() - start);
	expect(seconds() - start > 0.05);
	expect(slow_finish(slow) == 0);
	say_direct(8 * MIB);
	say_bar(&memory, 0, 4 * MIB, "slow0", 0);
	munmap(memory.map, memory.pin.map_bytes);
	close(memory.dev);
	close(memory.gpu);

	expect(echo(wait, "20") == 0);
	memory_open(&memory, 4 * MIB, 0);
	slow = slow_start(memory.map, 4 * MIB, 256 * KIB);
	expect_errno(dev_unpin(memory.dev, memory.pin.handle), EINPROGRESS);
	expect_errno(dev_unpin(memory.dev, memory.pin.handle), ENOENT);
	expect(dev_counters(dev).lingering == 1);
	expect(echo(wait, "5000") == 0);
	expect(slow_finish(slow) == 0);
	for (i = 0; i < 200 && dev_counters(dev).pins; i++)
		sleep_ms(20);
	expect(dev_counters(dev).lingering == 0 && dev_counters(dev).pins == 0);
	expect(gpu_state(memory.gpu).nr_pins == 0);
	say_bar(&memory, 0, 4 * MIB, "slow0", 0);
	return 0;
}

/* What remains of a handle whose memory is gone. */
static void check_revoked(struct memory *memory)
{
	struct peerlane_info info = { .handle = memory->pin.handle };
	struct peerlane_route route = { .handle = memory->pin.handle };
	uint64_t physical;
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);

	expect(ioctl(memory->dev, PEERLANE_IOC_INFO, &info) == 0);
	expect(info.state & PEERLANE_INFO_REVOKED);
	info = (struct peerlane_info){ .handle = memory->pin.handle,
				       .physical = (uintptr_t)&physical,
				       .nr_room = 1 };
	expect_errno(ioctl(memory->dev, PEERLANE_IOC_INFO, &info), ENODEV);
	route.fd = drive;
	expect(ioctl(memory->dev, PEERLANE_IOC_ROUTE, &route) == 0);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_REVOKED);
	expect_errno(
		mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory->dev, (off_t)memory->pin.map_offset),
		ENODEV);
	/* Mappings are emptied a moment later. */
	wait_sigbus(memory->map);
	expect_errno(pread(drive, memory->map, 4096, 0), EFAULT);
	close(drive);
}

int test_revoke(void)
{
	struct peerlane_counters before, after;
	struct memory memory;

	memory_open(&memory, MIB, 0);
	before = dev_counters(memory.dev);
	memset(memory.map, 1, MIB);
	gpu_free(memory.gpu, memory.address);
	after = dev_counters(memory.dev);
	expect(after.nr_revoke == before.nr_revoke + 1);
	expect(gpu_state(memory.gpu).nr_callbacks >= 1 && gpu_state(memory.gpu).nr_pins == 0);
	check_revoked(&memory);
	wait_given_back(&memory);
	expect(raises_sigbus(memory.map));
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	expect(raises_sigbus(memory.map));
	munmap(memory.map, memory.pin.map_bytes);
	expect(dev_counters(memory.dev).pins == 0);

	/* Unpinned by its owner: the same for the mapping, and the GPU's memory lives on. */
	close(memory.dev);
	close(memory.gpu);
	memory_open(&memory, MIB, 0);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	expect(raises_sigbus(memory.map));
	munmap(memory.map, memory.pin.map_bytes);
	gpu_free(memory.gpu, memory.address);
	return 0;
}

/* Freeing waits for no device, and the memory is nobody else's before the device is done with it. */
int test_revoke_in_flight(void)
{
	struct memory memory;
	struct slow *slow;
	bool found;

	memory_open(&memory, 16 * MIB, 0);
	slow = slow_start(memory.map, 16 * MIB, 256 * KIB);
	gpu_free(memory.gpu, memory.address);
	/* The drive takes two seconds for all of it. */
	expect(!slow_done(slow));
	check_revoked(&memory);
	found = pages_reused(&memory);
	expect(!found || slow_done(slow));
	expect(slow_finish(slow) == 0);
	wait_given_back(&memory);
	expect(pages_reused(&memory));
	say_direct(16 * MIB);
	munmap(memory.map, memory.pin.map_bytes);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	return 0;
}

static void *free_later(void *data)
{
	struct memory *memory = data;

	usleep((useconds_t)(rand() % 3000));
	gpu_free(memory->gpu, memory->address);
	return NULL;
}

/* A pipe that holds a page: freeing waits for nobody, but the memory is kept while it can be read. */
int test_revoke_spliced(void)
{
	struct memory memory;
	struct iovec iov;
	ssize_t got;
	int pipes[2];

	expect(pipe(pipes) == 0);
	memory_open(&memory, MIB, 0);
	iov.iov_base = memory.map;
	iov.iov_len = 4096;
	got = vmsplice(pipes[1], &iov, 1, 0);
	printf("vmsplice: %zd, errno %d\n", got, got < 0 ? errno : 0);
	/* Peer-to-peer pages go nowhere but to drives. */
	if (memory.pin.page_kind != PEERLANE_PAGES_GENERIC)
		expect(got == -1);
	gpu_free(memory.gpu, memory.address);
	if (got > 0) {
		sleep_ms(300);
		expect(dev_counters(memory.dev).pins == 1);
		expect(!pages_reused(&memory));
	}
	close(pipes[0]);
	close(pipes[1]);
	wait_given_back(&memory);
	expect(pages_reused(&memory));
	munmap(memory.map, memory.pin.map_bytes);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	return 0;
}

/* Without persistent pins of the GPU's driver nothing is pinned: freeing would have to wait. */
int test_no_persistent(void)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t address = gpu_alloc(gpu, MIB);
	struct peerlane_pin pin;

	gpu_fault(gpu, SIMGPU_FAULT_PERSISTENT, 524, 2);
	expect_errno(dev_pin(dev, address, MIB, 0, &pin), EOPNOTSUPP);
	expect_errno(dev_pin(dev, address, MIB, PEERLANE_PIN_PERSISTENT, &pin), EOPNOTSUPP);
	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	expect(gpu_state(gpu).nr_pins == 1 && gpu_state(gpu).nr_persistent == 1);
	return 0;
}

/* Frees, unpins and reads that race, many times. */
int test_revoke_loop(void)
{
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);
	unsigned int round, nr = rounds(150), nr_cut = 0;
	struct memory memory;
	pthread_t thread;
	ssize_t got;

	srand(1);
	for (round = 0; round < nr; round++) {
		memory_open(&memory, 512 * KIB, 0);
		expect(pthread_create(&thread, NULL, free_later, &memory) == 0);
		do {
			got = pread(drive, memory.map, 512 * KIB, 0);
			/* Part of it may have been read when the memory went. */
			if (got < 0 && errno != EFAULT)
				fail("read: errno %d", errno);
		} while (got == 512 * (ssize_t)KIB && rand() % 8);
		nr_cut += got != 512 * (ssize_t)KIB;
		if (round % 3 == 0)
			munmap(memory.map, memory.pin.map_bytes);
		if (round % 2)
			expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
		if (round % 5 == 0)
			close(memory.dev);
		pthread_join(thread, NULL);
		if (round % 3)
			munmap(memory.map, memory.pin.map_bytes);
		if (round % 5)
			close(memory.dev);
		close(memory.gpu);
		free(memory.physical);
	}
	printf("%u rounds, %u reads cut short\n", nr, nr_cut);
	return 0;
}

/* Freed by the program, but kept by the pin. */
int test_persistent(void)
{
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);
	struct memory memory;
	char *source = host_alloc(MIB);

	memory_open(&memory, MIB, PEERLANE_PIN_PERSISTENT);
	gpu_free(memory.gpu, memory.address);
	expect(gpu_state(memory.gpu).nr_callbacks == gpu_state(memory.gpu).nr_callbacks);
	expect(pread(drive, memory.map, MIB, 0) == (ssize_t)MIB);
	expect(pread(drive, source, MIB, 0) == (ssize_t)MIB);
	expect(memcmp(memory.map, source, MIB) == 0);
	say_direct(MIB);
	say_bar(&memory, 0, MIB, "raw0", 0);
	munmap(memory.map, MIB);
	expect(gpu_state(memory.gpu).nr_allocs == 1);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	expect(gpu_state(memory.gpu).nr_allocs == 0);
	return 0;
}

/* One piece of memory pinned several times; each end leaves the others alone, or ends all. */
int test_shared(void)
{
	struct peerlane_pin second, third;
	struct memory memory;
	struct slow *slow;
	char *map, *kept;
	double start;

	memory_open(&memory, 2 * MIB, 0);
	expect(dev_pin(memory.dev, memory.address + 65536, 65536, 0, &second) == 0);
	map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dev,
		   (off_t)second.map_offset);
	expect(map != MAP_FAILED);
	map[0] = 17;
	expect(memory.map[65536] == 17);
	/* One may go at once: the other keeps the memory, even with I/O under way. */
	slow = slow_start(memory.map, 2 * MIB, 256 * KIB);
	start = seconds();
	expect(dev_unpin(memory.dev, second.handle) == 0);
	expect(seconds() - start < 0.2);
	expect(raises_sigbus(map));
	munmap(map, 65536);
	expect(slow_finish(slow) == 0);

	/* Freed: both that want to know go, the persistent one stays. */
	expect(dev_pin(memory.dev, memory.address, 65536, 0, &second) == 0);
	expect(dev_pin(memory.dev, memory.address, 2 * 65536, PEERLANE_PIN_PERSISTENT, &third) ==
	       0);
	map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dev,
		   (off_t)second.map_offset);
	kept = mmap(NULL, 2 * 65536, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dev,
		    (off_t)third.map_offset);
	expect(map != MAP_FAILED && kept != MAP_FAILED);
	kept[1] = 5;
	gpu_free(memory.gpu, memory.address);
	wait_sigbus(map);
	wait_sigbus(memory.map);
	expect(kept[1] == 5);
	munmap(kept, 2 * 65536);
	expect(dev_unpin(memory.dev, third.handle) == 0);
	return 0;
}

/* The provider fails, lies, or takes the memory back at once. */
int test_provider_faults(void)
{
	static const struct {
		uint32_t what, value, flags;
		int error;
	} cases[] = {
		{ SIMGPU_FAULT_GET, ENOMEM, 0, ENOMEM },
		{ SIMGPU_FAULT_GET, 524, 0, EOPNOTSUPP },
		{ SIMGPU_FAULT_GET, EIO, 0, EIO },
		{ SIMGPU_FAULT_PERSISTENT, ENODEV, PEERLANE_PIN_PERSISTENT, ENODEV },
		{ SIMGPU_FAULT_PERSISTENT, ENOMEM, 0, ENOMEM },
		{ SIMGPU_FAULT_VERSION, 0x00030000, 0, EOPNOTSUPP },
		{ SIMGPU_FAULT_PAGE_SIZE, 0, 0, EOPNOTSUPP },
		{ SIMGPU_FAULT_OUTSIDE, 0, 0, ENXIO },
		{ SIMGPU_FAULT_OUTSIDE, 0, PEERLANE_PIN_PERSISTENT, ENXIO },
		{ SIMGPU_FAULT_EARLY_FREE, 0, 0, ENODEV },
	};
	int gpu = gpu_open(), dev = dev_open();
	struct peerlane_pin pin;
	uint64_t address;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		printf("case %zu\n", i);
		address = gpu_alloc(gpu, MIB);
		/* Twice: for the notice and for what holds the memory. */
		gpu_fault(gpu, cases[i].what, cases[i].value, 2);
		expect_errno(dev_pin(dev, address, MIB, cases[i].flags, &pin), cases[i].error);
		gpu_fault(gpu, cases[i].what, 0, 0);
		expect(dev_counters(dev).pins == 0);
		expect(gpu_state(gpu).nr_pins == 0 && gpu_state(gpu).nr_persistent == 0);
		if (cases[i].what != SIMGPU_FAULT_EARLY_FREE) {
			/* The older layout of the table is understood too. */
			gpu_fault(gpu, SIMGPU_FAULT_VERSION, 0x00010002, 2);
			expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
			expect(dev_unpin(dev, pin.handle) == 0);
			gpu_free(gpu, address);
		}
	}
	return 0;
}

/* The GPU loses its driver while its memory is mapped and a drive writes into it. */
int test_unbind_in_flight(void)
{
	struct peerlane_info info = { 0 };
	struct memory memory;
	struct slow *slow;
	char name[32];
	double start;
	int i;

	memory_open(&memory, 4 * MIB, 0);
	snprintf(name, sizeof(name), "%04x:%02x:%02x.%x", memory.pin.gpu_pci >> 16,
		 memory.pin.gpu_pci >> 8 & 0xff, memory.pin.gpu_pci >> 3 & 0x1f,
		 memory.pin.gpu_pci & 7);
	slow = slow_start(memory.map, 4 * MIB, 256 * KIB);
	start = seconds();
	expect(echo("/sys/bus/pci/drivers/simgpu/unbind", name) == 0);
	printf("taking the driver away took %.2f s\n", seconds() - start);
	expect(slow_finish(slow) == 0);
	expect(raises_sigbus(memory.map));
	expect(dev_counters(memory.dev).page_bytes == 0);
	info.handle = memory.pin.handle;
	expect(ioctl(memory.dev, PEERLANE_IOC_INFO, &info) == 0);
	expect(info.state & PEERLANE_INFO_REVOKED);
	munmap(memory.map, memory.pin.map_bytes);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	close(memory.dev);
	close(memory.gpu);
	expect(echo("/sys/bus/pci/drivers/simgpu/bind", name) == 0);
	for (i = 0; i < 100 && access("/dev/simgpu", F_OK); i++)
		sleep_ms(20);
	expect(chmod("/dev/simgpu", 0666) == 0);
	say_direct(4 * MIB);
	say_bar(&memory, 0, 4 * MIB, "slow0", 0);
	/* And again, as if nothing had been. */
	memory_open(&memory, MIB, 0);
	memory.map[0] = 1;
	memory_close(&memory);
	return 0;
}

/* None of the modules goes while it is in use, and trying does no harm. */
int test_unload_refused(void)
{
	struct memory memory;
	struct slow *slow;
	int dev;

	memory_open(&memory, 8 * MIB, PEERLANE_PIN_PERSISTENT);
	expect_errno(rmmod("simgpu"), EWOULDBLOCK);
	expect_errno(rmmod("peerlane"), EWOULDBLOCK);
	expect_errno(rmmod("peerlane_nvidia"), EWOULDBLOCK);
	slow = slow_start(memory.map, 8 * MIB, 256 * KIB);
	munmap(memory.map, memory.pin.map_bytes);
	close(memory.dev);
	/* Nobody has the handle, but the pin lingers. */
	dev = dev_open();
	expect(dev_counters(dev).lingering == 1);
	close(dev);
	expect_errno(rmmod("peerlane_nvidia"), EWOULDBLOCK);
	expect(rmmod("peerlane") == -1);
	expect(slow_finish(slow) == 0);
	return 0;
}
