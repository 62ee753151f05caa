// SPDX-License-Identifier: MIT
/*
 * Pins whose owner dies: killed while others have its descriptors, or ended with all left to the kernel.
 */
#include "kept.h"

#define KEEP_DEV 1U
#define KEEP_GPU 2U

/* Keeps some of the descriptors until it is told to go on; then unpins, or just ends. */
static void outlive(struct memory *memory, unsigned int keep, bool unpins, int go)
{
	char byte;

	if (!(keep & KEEP_DEV))
		close(memory->dev);
	if (!(keep & KEEP_GPU))
		close(memory->gpu);
	expect(read(go, &byte, 1) == 1);
	if (unpins && keep & KEEP_DEV && dev_unpin(memory->dev, memory->pin.handle))
		expect(errno == EINPROGRESS);
	if (unpins && keep & KEEP_GPU)
		gpu_free(memory->gpu, memory->address);
	_exit(0);
}

/* Its child has some of the descriptors, and lives on. */
static pid_t owner_start(unsigned int keep, bool unpins, int go, int told)
{
	struct memory memory;
	pid_t pid = fork(), keeper;

	expect(pid >= 0);
	if (pid)
		return pid;
	memory_open(&memory, 2 * MIB, 0);
	slow_start(memory.map, 2 * MIB, 256 * KIB);
	keeper = fork();
	expect(keeper >= 0);
	if (!keeper) {
		close(told);
		outlive(&memory, keep, unpins, go);
	}
	expect(write(told, "", 1) == 1);
	for (;;)
		sleep_ms(1000);
}

/* Killed with I/O under way, while somebody else has a descriptor of the memory, the module, or both. */
int test_owner_killed(void)
{
	int go[2], told[2], status;
	unsigned int keep, i;
	char byte;
	pid_t pid;

	for (i = 0; i < 8; i++) {
		keep = i / 2;
		expect(pipe2(go, O_CLOEXEC) == 0 && pipe2(told, O_CLOEXEC) == 0);
		fflush(stdout);
		pid = owner_start(keep, i % 2, go[0], told[1]);
		expect(read(told[0], &byte, 1) == 1);
		expect(kill(pid, SIGKILL) == 0);
		expect(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		expect(write(go[1], "", 1) == 1);
		close(go[0]);
		close(go[1]);
		close(told[0]);
		close(told[1]);
		kept_nothing();
	}
	return 0;
}

/**
 * struct leaving - how a program ends
 * @dev_first: opens the module before the GPU
 * @in_flight: with I/O under way
 * @closes: 0: closes nothing, 1: the GPU first, 2: the module first
 * @unmaps: and unmaps before
 */
struct leaving {
	bool dev_first, in_flight, unmaps;
	int closes;
};

static void leave(void *data)
{
	struct leaving *how = data;
	int first = how->dev_first ? dev_open() : gpu_open();
	int second = how->dev_first ? gpu_open() : dev_open();
	int gpu = how->dev_first ? second : first, dev = how->dev_first ? first : second;
	uint64_t address = gpu_alloc(gpu, MIB);
	struct peerlane_pin pin;
	char *map;

	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, dev, (off_t)pin.map_offset);
	expect(map != MAP_FAILED);
	if (how->in_flight)
		slow_start(map, MIB, 256 * KIB);
	if (how->unmaps)
		munmap(map, MIB);
	if (how->closes) {
		close(how->closes == 1 ? gpu : dev);
		close(how->closes == 1 ? dev : gpu);
	}
}

/* A program ends and leaves everything to the kernel, which closes last what was opened first. */
int test_owner_exit(void)
{
	struct leaving how;
	unsigned int i;

	for (i = 0; i < 24; i++) {
		how = (struct leaving){ .dev_first = i & 1,
					.in_flight = i & 2,
					.unmaps = i & 4,
					.closes = (int)i / 8 };
		in_child(leave, &how, 0);
		kept_nothing();
	}
	return 0;
}
