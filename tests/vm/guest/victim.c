// SPDX-License-Identifier: MIT
/* Another user with memory pinned and mapped, which nobody else may change; for the fuzzer. */
#include "guest.h"

#define VICTIM 65533
#define VICTIM_BYTES (512 * KIB)

static void unpin(void *data)
{
	const struct peerlane_pin *pin = data;

	expect(dev_unpin((int)pin->flags, pin->handle) == 0);
}

/* Pins other memory, and unpins it here or in a child. No matter if the driver fails, or frees it. */
static void pin_more(int gpu, int dev, bool elsewhere)
{
	__u64 address = gpu_alloc(gpu, GPU_PAGE);
	struct peerlane_pin pin;

	if (dev_pin(dev, address, GPU_PAGE, 0, &pin) == 0) {
		pin.flags = (uint32_t)dev;
		if (elsewhere)
			in_child(unpin, &pin, 0);
		else
			unpin(&pin);
	}
	ioctl(gpu, SIMGPU_IOC_FREE, &address);
}

/* Pins and maps memory, tells its handle, and looks at the memory until told to stop. */
static void be_victim(int stop, int tell)
{
	char *want = host_alloc(VICTIM_BYTES), *seen = host_alloc(VICTIM_BYTES);
	struct peerlane_info info = { 0 };
	struct peerlane_pin pin;
	uint64_t address;
	unsigned long nr = 0;
	int gpu, dev;
	char *map;

	expect(setgid(VICTIM) == 0 && setuid(VICTIM) == 0);
	gpu = gpu_open();
	dev = dev_open();
	address = gpu_alloc(gpu, VICTIM_BYTES);
	expect(dev_pin(dev, address, VICTIM_BYTES, 0, &pin) == 0);
	map = mmap(NULL, VICTIM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, dev,
		   (off_t)pin.map_offset);
	expect(map != MAP_FAILED);
	fill(want, VICTIM_BYTES, 99);
	memcpy(map, want, VICTIM_BYTES);
	expect(write(tell, &pin.handle, sizeof(pin.handle)) == sizeof(pin.handle));
	do {
		gpu_copy(gpu, address, seen, VICTIM_BYTES, false);
		if (memcmp(seen, want, VICTIM_BYTES) != 0 || memcmp(map, want, VICTIM_BYTES) != 0)
			fail("another user's memory has changed");
		info.handle = pin.handle;
		expect(ioctl(dev, PEERLANE_IOC_INFO, &info) == 0);
		expect(info.state == 0 && info.nr_mappings == 1);
		if (nr % 8 == 0)
			pin_more(gpu, dev, nr % 16 == 0);
		nr++;
	} while (read(stop, seen, 1) < 0 && !usleep(20000));
	printf("the other user looked %lu times\n", nr);
}

pid_t victim_start(int *stop, uint32_t *handle)
{
	int stops[2], tells[2];
	pid_t pid;

	expect(pipe2(stops, O_NONBLOCK | O_CLOEXEC) == 0 && pipe2(tells, O_CLOEXEC) == 0);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		close(stops[1]);
		be_victim(stops[0], tells[1]);
		fflush(stdout);
		_exit(0);
	}
	close(stops[0]);
	close(tells[1]);
	expect(read(tells[0], handle, sizeof(*handle)) == sizeof(*handle));
	*stop = stops[1];
	return pid;
}
