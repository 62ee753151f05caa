// SPDX-License-Identifier: MIT
/*
 * Those who are in the storm. Their calls may fail, as others end what they use; what none of them may
 * see is a wrong byte.
 */
#include <poll.h>

#include "storm.h"

#define PIECE (64 * KIB)
/* Everybody waits for the slow drive. */
#define USER_BYTES (512 * KIB)
#define WATCH_BYTES (6 * MIB)
#define READ_BYTES (256 * KIB)

/* A user; descriptors are -1 and @map is NULL once they are gone. */
struct user {
	struct storm_rng rng;
	int gpu, dev, fd;
	uint64_t address;
	struct peerlane_pin pin;
	char *map;
};

static void count(enum storm_what what)
{
	storm_count(&storm_counts->nr[what]);
}

static void try_unpin(int dev, uint32_t handle)
{
	if (dev_unpin(dev, handle) == 0)
		count(STORM_UNPIN);
	else if (errno == EINPROGRESS)
		count(STORM_IN_PROGRESS);
	else
		expect(errno == ENOENT || errno == EBADF);
}

static void try_free(int gpu, uint64_t address)
{
	__u64 argument = address;

	if (ioctl(gpu, SIMGPU_IOC_FREE, &argument) == 0)
		count(STORM_FREE);
}

static void close_one(int *fd)
{
	if (*fd < 0)
		return;
	count(STORM_CLOSE);
	close(*fd);
	*fd = -1;
}

static void unmap(struct user *user)
{
	if (!user->map)
		return;
	count(STORM_UNMAP);
	munmap(user->map, user->pin.map_bytes);
	user->map = NULL;
}

/* Maps, looks, and leaves it. */
static void try_map(int dev, const struct peerlane_pin *pin)
{
	char *map = mmap(NULL, pin->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev,
			 (off_t)pin->map_offset);

	if (map != MAP_FAILED)
		raises_sigbus(map);
}

/* What may be done to a pin by one who has descriptors of it. */
static void meddle(struct storm_rng *rng, int dev, int gpu, uint64_t address,
		   const struct peerlane_pin *pin)
{
	sleep_ms(storm_rnd(rng, 30));
	switch (storm_rnd(rng, 4)) {
	case 0:
		try_unpin(dev, pin->handle);
		break;
	case 1:
		try_map(dev, pin);
		break;
	case 2:
		try_free(gpu, address);
		break;
	default:
		break;
	}
	if (storm_rnd(rng, 2))
		close(dev);
	sleep_ms(storm_rnd(rng, 30));
}

static void fork_meddler(struct user *user)
{
	pid_t pid = fork();

	expect(pid >= 0);
	if (!pid) {
		user->rng.state ^= 0x5eed;
		meddle(&user->rng, user->dev, user->gpu, user->address, &user->pin);
		_exit(0);
	}
	count(STORM_FORK);
}

static void pass_on(struct user *user)
{
	if (user->dev >= 0 && fd_send(user->fd, user->dev, &user->pin))
		count(STORM_PASS);
}

/* More memory, pinned: what waits for this process is done now. */
static void again(struct user *user)
{
	struct simgpu_alloc alloc = { .bytes = PIECE };
	struct peerlane_pin pin;

	if (user->gpu < 0 || user->dev < 0 || ioctl(user->gpu, SIMGPU_IOC_ALLOC, &alloc))
		return;
	if (dev_pin(user->dev, alloc.address, PIECE, storm_rnd(&user->rng, 2), &pin) == 0)
		count(STORM_AGAIN);
}

static void act(struct user *user, uint32_t what)
{
	switch (what) {
	case 0:
		try_unpin(user->dev, user->pin.handle);
		break;
	case 1:
		try_free(user->gpu, user->address);
		break;
	case 2:
		close_one(&user->dev);
		break;
	case 3:
		close_one(&user->gpu);
		break;
	case 4:
		unmap(user);
		break;
	case 5:
		fork_meddler(user);
		break;
	case 6:
		pass_on(user);
		break;
	default:
		again(user);
	}
}

static void user_open(struct user *user, const struct storm_task *task)
{
	bool dev_first = storm_rnd(&user->rng, 2);

	close(task->close_fd);
	user->fd = task->fd;
	if (dev_first)
		user->dev = dev_open();
	user->gpu = gpu_open();
	if (!dev_first)
		user->dev = dev_open();
	user->address = gpu_alloc(user->gpu, USER_BYTES);
	expect(dev_pin(user->dev, user->address, USER_BYTES, storm_rnd(&user->rng, 4) == 0,
		       &user->pin) == 0);
	user->map = mmap(NULL, user->pin.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, user->dev,
			 (off_t)user->pin.map_offset);
	expect(user->map != MAP_FAILED);
}

/* Becomes another program, which has some of the descriptors. */
static void become(struct user *user)
{
	count(STORM_EXEC);
	if (storm_rnd(&user->rng, 2))
		fcntl(user->dev, F_SETFD, 0);
	if (storm_rnd(&user->rng, 2))
		fcntl(user->gpu, F_SETFD, 0);
	execl("/bin/busybox", "sleep", "0.05", NULL);
	fail("exec: errno %d", errno);
}

void storm_use(const struct storm_task *task)
{
	struct user user = { .rng = task->rng };
	uint32_t order[8], nr = sizeof(order) / sizeof(*order), i, other, kept;

	user_open(&user, task);
	slow_start(user.map, USER_BYTES, PIECE);
	expect(write(task->ready, "", 1) == 1);
	for (i = 0; i < nr; i++)
		order[i] = i;
	for (i = 0; i < nr; i++) {
		other = i + storm_rnd(&user.rng, nr - i);
		kept = order[i];
		order[i] = order[other];
		order[other] = kept;
	}
	for (i = storm_rnd(&user.rng, 4); i < nr; i++) {
		sleep_ms(storm_rnd(&user.rng, 12));
		act(&user, order[i]);
	}
	switch (storm_rnd(&user.rng, 4)) {
	case 0:
		become(&user);
		break;
	case 1:
		/* All is left to the kernel. */
		return;
	default:
		for (;;)
			sleep_ms(1000);
	}
}

void storm_receive(const struct storm_task *task)
{
	struct storm_rng rng = task->rng;
	struct peerlane_pin pin;
	int dev;

	close(task->close_fd);
	while (fd_receive(task->fd, &dev, &pin)) {
		count(STORM_RECEIVED);
		meddle(&rng, dev, -1, 0, &pin);
	}
}

/* Each page of memory with a word of its own, by the CPU. */
static void stamp(char *map, size_t bytes, uint64_t with)
{
	size_t at;

	for (at = 0; at < bytes; at += 4096)
		*(volatile uint64_t *)(map + at) = with + at;
}

static void check_stamps(const char *map, size_t bytes, uint64_t with)
{
	size_t at;

	for (at = 0; at < bytes; at += 4096)
		if (*(const volatile uint64_t *)(map + at) != with + at)
			fail("a wrong byte in memory of a bystander, at %zu", at);
}

static void watch_once(int drive, const char *want, uint64_t with, uint32_t flags)
{
	struct memory memory;

	memory_open(&memory, WATCH_BYTES, flags);
	stamp(memory.map, WATCH_BYTES, with);
	sleep_ms(20);
	check_stamps(memory.map, WATCH_BYTES, with);
	count(STORM_STAMPED);
	expect(pread(drive, memory.map, READ_BYTES, 0) == (ssize_t)READ_BYTES);
	if (memcmp(memory.map, want, READ_BYTES) != 0)
		fail("a wrong byte in what a bystander has read");
	check_stamps(memory.map + READ_BYTES, WATCH_BYTES - READ_BYTES, with + READ_BYTES);
	count(STORM_READ);
	memory_close(&memory);
}

void storm_watch(const struct storm_task *task)
{
	struct pollfd poll_fd = { .fd = task->stop, .events = POLLIN };
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);
	char *want = host_alloc(READ_BYTES);
	struct storm_rng rng = task->rng;

	close(task->close_fd);
	expect(pread(drive, want, READ_BYTES, 0) == (ssize_t)READ_BYTES);
	do {
		watch_once(drive, want, (uint64_t)storm_rnd(&rng, ~0U) << 32, storm_rnd(&rng, 2));
	} while (poll(&poll_fd, 1, 0) == 0);
}
