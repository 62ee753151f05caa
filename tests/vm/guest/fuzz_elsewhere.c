// SPDX-License-Identifier: MIT
/*
 * The fuzzer's other hands: a process that gets its descriptors and ends its pins, pipes that hold pages
 * of memory which is freed, and a GPU's driver that fails.
 */
#include <sys/uio.h>

#include "kept.h"

#define NR_PIPES 4
#define NR_KEPT 8

/* The GPU's driver goes wrong for whoever comes next. */
void fuzz_fault(unsigned int *seed, int gpu)
{
	static const struct simgpu_fault faults[] = {
		{ .what = SIMGPU_FAULT_GET, .value = ENOMEM },
		{ .what = SIMGPU_FAULT_GET, .value = EINVAL },
		{ .what = SIMGPU_FAULT_PERSISTENT, .value = ENOMEM },
		{ .what = SIMGPU_FAULT_PERSISTENT, .value = 524 },
		{ .what = SIMGPU_FAULT_VERSION, .value = 0x00010002 },
		{ .what = SIMGPU_FAULT_PAGE_SIZE, .value = 2 },
		{ .what = SIMGPU_FAULT_EARLY_FREE },
		{ .what = SIMGPU_FAULT_OUTSIDE },
		{ .what = SIMGPU_FAULT_DELAY, .value = 5 },
	};
	struct simgpu_fault fault =
		faults[(unsigned int)rand_r(seed) % (sizeof(faults) / sizeof(*faults))];

	fault.times = (unsigned int)rand_r(seed) % 3;
	ioctl(gpu, SIMGPU_IOC_FAULT, &fault);
}

void fuzz_calm(int gpu)
{
	uint32_t what;

	for (what = 0; what < SIMGPU_NR_FAULTS; what++)
		gpu_fault(gpu, what, 0, 0);
}

/* Puts pages into a pipe and leaves them there, until it is this pipe's turn again. */
void fuzz_hold(unsigned int *seed, void *map, size_t bytes)
{
	static __thread int pipes[NR_PIPES][2];
	struct iovec iov = { .iov_base = map, .iov_len = bytes };
	int *turn = pipes[(unsigned int)rand_r(seed) % NR_PIPES];

	if (turn[0]) {
		close(turn[0]);
		close(turn[1]);
	}
	if (pipe2(turn, O_CLOEXEC) == 0)
		(void)!vmsplice(turn[1], &iov, 1, SPLICE_F_NONBLOCK);
	else
		turn[0] = 0;
}

static void meddle(unsigned int *seed, int drive, int dev, const struct peerlane_pin *pin)
{
	char *map;

	switch (rand_r(seed) % 3) {
	case 0:
		dev_unpin(dev, pin->handle);
		break;
	case 1:
		map = mmap(NULL, GPU_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dev,
			   (off_t)((uint64_t)pin->handle << 40));
		if (map == MAP_FAILED)
			break;
		raises_sigbus(map);
		(void)!pread(drive, map, GPU_PAGE, 0);
		munmap(map, GPU_PAGE);
		break;
	default:
		break;
	}
}

/* Takes descriptors, does something with their pins, and closes them some time. */
static void be_elsewhere(int from, int drive)
{
	unsigned int seed = (unsigned int)getpid(), turn;
	int kept[NR_KEPT], dev;
	struct peerlane_pin pin;

	memset(kept, -1, sizeof(kept));
	while (fd_receive(from, &dev, &pin)) {
		meddle(&seed, drive, dev, &pin);
		turn = (unsigned int)rand_r(&seed) % NR_KEPT;
		if (kept[turn] >= 0)
			close(kept[turn]);
		kept[turn] = dev;
	}
}

pid_t fuzz_elsewhere_start(int drive, int *to)
{
	int fds[2];
	pid_t pid;

	channel_open(fds);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		close(fds[1]);
		be_elsewhere(fds[0], drive);
		_exit(0);
	}
	close(fds[0]);
	*to = fds[1];
	return pid;
}
