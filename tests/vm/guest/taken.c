// SPDX-License-Identifier: MIT
/*
 * Pages that the GPU's own driver made, and takes away when the last program closes its device, before
 * the memory is freed: simgpu with p2pmem=1.
 */
#include "guest.h"

/* What a program leaves behind when it goes. */
struct leave {
	uint32_t flags;
	/* Which of the two devices is opened first. */
	bool gpu_first;
	bool in_flight;
};

/* As memory_open(), but for the order. */
static void open_in_order(struct memory *memory, const struct leave *leave)
{
	int first = leave->gpu_first ? gpu_open() : dev_open();

	memory_open(memory, 4 * MIB, leave->flags);
	expect(memory->pin.page_kind == PEERLANE_PAGES_FOREIGN);
	/* The one that was opened too early takes the place of the other. */
	if (leave->gpu_first)
		return;
	expect(dup2(memory->dev, first) == first);
	close(memory->dev);
	memory->dev = first;
}

/* The pages are gone, and so is what was pinned; it can be given up, and pinned anew. */
static void check_gone(struct memory *memory)
{
	struct peerlane_info info = { .handle = memory->pin.handle };
	struct memory other;

	expect(raises_sigbus(memory->map));
	expect(ioctl(memory->dev, PEERLANE_IOC_INFO, &info) == 0);
	expect(info.state & PEERLANE_INFO_REVOKED);
	expect(info.page_kind == PEERLANE_PAGES_FOREIGN);
	expect_errno(
		mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory->dev, (off_t)memory->pin.map_offset),
		ENODEV);
	memory_open(&other, MIB, 0);
	expect(other.pin.page_kind == PEERLANE_PAGES_FOREIGN);
	memset(other.map, 3, MIB);
	memory_close(&other);
	munmap(memory->map, memory->pin.map_bytes);
	expect(dev_unpin(memory->dev, memory->pin.handle) == 0);
	close(memory->dev);
}

/* The last program closes the GPU while memory is pinned and mapped. */
int test_taken_close(void)
{
	struct memory memory;
	uint32_t flags;

	for (flags = 0; flags <= PEERLANE_PIN_PERSISTENT; flags += PEERLANE_PIN_PERSISTENT) {
		memory_open(&memory, 4 * MIB, flags);
		expect(memory.pin.page_kind == PEERLANE_PAGES_FOREIGN);
		memset(memory.map, 1, 4 * MIB);
		close(memory.gpu);
		check_gone(&memory);
	}
	return 0;
}

/* ...and while a drive writes into it: the pages stay until it has. */
int test_taken_in_flight(void)
{
	struct memory memory;
	struct slow *slow;
	uint32_t flags;

	for (flags = 0; flags <= PEERLANE_PIN_PERSISTENT; flags += PEERLANE_PIN_PERSISTENT) {
		memory_open(&memory, 4 * MIB, flags);
		slow = slow_start(memory.map, 4 * MIB, 256 * KIB);
		/* On a slow machine they may be done already; usually they are not. */
		printf("%s\n", slow_done(slow) ? "done" : "in flight");
		close(memory.gpu);
		expect(slow_finish(slow) == 0);
		say_bar(&memory, 0, 4 * MIB, "slow0", 0);
		check_gone(&memory);
	}
	say_direct(8 * MIB);
	return 0;
}

static void leave(void *data)
{
	const struct leave *leave = data;
	struct memory memory;

	open_in_order(&memory, leave);
	if (leave->in_flight)
		slow_start(memory.map, 4 * MIB, 256 * KIB);
	else
		memset(memory.map, 2, 4 * MIB);
}

static void leave_slowly(void *data)
{
	leave(data);
	sleep_ms(10000);
}

/* Programs that end, or are killed, with everything open, in any order. */
int test_taken_exit(void)
{
	unsigned int i;

	for (i = 0; i < 16; i++) {
		struct leave how = {
			.flags = i & 1 ? PEERLANE_PIN_PERSISTENT : 0,
			.gpu_first = i & 2,
			.in_flight = i & 4,
		};

		printf("flags %u, GPU %s, %s, %s\n", how.flags, how.gpu_first ? "first" : "last",
		       how.in_flight ? "in flight" : "idle", i & 8 ? "killed" : "exit");
		in_child(i & 8 ? leave_slowly : leave, &how, i & 8 ? 300 : 0);
	}
	return 0;
}

/* What two processes share: the module's file, and this. */
struct shared {
	int dev;
	struct peerlane_pin pin;
};

static void pin_and_go(void *data)
{
	struct shared *shared = data;
	int gpu = gpu_open();

	expect(dev_pin(shared->dev, gpu_alloc(gpu, MIB), MIB, 0, &shared->pin) == 0);
	expect(shared->pin.page_kind == PEERLANE_PAGES_FOREIGN);
}

/* The last program that has the GPU open ends; another still has the file by which it pinned. */
int test_taken_heir(void)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct peerlane_info info = { 0 };

	expect(shared != MAP_FAILED);
	shared->dev = dev_open();
	in_child(pin_and_go, shared, 0);
	info.handle = shared->pin.handle;
	expect(ioctl(shared->dev, PEERLANE_IOC_INFO, &info) == 0);
	expect(info.state & PEERLANE_INFO_REVOKED);
	expect(dev_unpin(shared->dev, shared->pin.handle) == 0);
	return 0;
}
