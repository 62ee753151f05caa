// SPDX-License-Identifier: MIT
/*
 * Calls without sense, by an unprivileged user in several threads and their children, for a bounded
 * time. Whatever can be mapped must be memory of ours: each mapping is read and written, by the CPU
 * and by a drive, and another user's memory must be as it was in the end. Pins end in other processes than
 * their own, memory goes while pipes hold its pages, and the GPU's driver fails: fuzz_elsewhere.c.
 */
#include <pthread.h>
#include <setjmp.h>
#include <sys/uio.h>

#include "kept.h"

#define NR_THREADS 3
#define NR_FILES 4
#define NR_OTHERS 6
#define NR_SLOTS 64
#define FUZZER 65534

/* What is seen to work, so that the fuzzer is known to get somewhere. */
enum success {
	OK_HELLO,
	OK_PIN,
	OK_UNPIN,
	OK_LIST,
	OK_INFO,
	OK_ROUTE,
	OK_COUNTERS,
	OK_MMAP,
	OK_READ,
	OK_MREMAP,
	OK_FORK,
	OK_PASS,
	OK_CHILD_UNPIN,
	NR_SUCCESS,
};

static const char *const words[NR_SUCCESS] = { "hello",	       "pin",	 "unpin",    "list",
					       "info",	       "route",	 "counters", "mmap",
					       "drive",	       "mremap", "fork",     "pass",
					       "child's unpin" };
static const unsigned long known[] = { PEERLANE_IOC_HELLO,   PEERLANE_IOC_PIN,	PEERLANE_IOC_UNPIN,
				       PEERLANE_IOC_LIST,    PEERLANE_IOC_INFO, PEERLANE_IOC_ROUTE,
				       PEERLANE_IOC_COUNTERS };

static int files[NR_FILES];
static int gpus[NR_FILES];
static int others[NR_OTHERS]; /* descriptors of something else */
static int drive_file;
static uint32_t handles[NR_SLOTS];
static uint64_t addresses[NR_SLOTS];
static double end;
static int elsewhere; /* where descriptors are sent */
static __thread sigjmp_buf resume;
static unsigned long calls;
static unsigned long *successes; /* children count too */

static void on_fault(int number)
{
	siglongjmp(resume, number);
}

static uint64_t rnd(unsigned int *seed)
{
	return (uint64_t)rand_r(seed) << 32 ^ (uint64_t)rand_r(seed) << 16 ^ (uint64_t)rand_r(seed);
}

static void note(enum success what, bool good)
{
	if (good)
		__atomic_fetch_add(&successes[what], 1, __ATOMIC_RELAXED);
}

/* A number that is interesting, near something interesting, or any. */
static uint64_t odd_number(unsigned int *seed)
{
	static const uint64_t edges[] = { 0,	      1,	  4095,	      4096,
					  65535,      65536,	  1ULL << 20, 1ULL << 31,
					  1ULL << 32, 1ULL << 38, 1ULL << 40, 1ULL << 62,
					  1ULL << 63, ~0ULL };

	switch (rnd(seed) % 4) {
	case 0:
		return edges[rnd(seed) % (sizeof(edges) / sizeof(*edges))];
	case 1:
		return edges[rnd(seed) % (sizeof(edges) / sizeof(*edges))] + rnd(seed) % 9 - 4;
	case 2:
		return addresses[rnd(seed) % NR_SLOTS] + (rnd(seed) % 3) * 4096;
	default:
		return rnd(seed);
	}
}

/* A handle of a file, by now perhaps gone; of another file, or of the other user; any number. */
static uint32_t some_handle(unsigned int *seed, size_t slot)
{
	switch (rnd(seed) % 16) {
	case 0:
		return (uint32_t)odd_number(seed);
	case 1 ... 3:
		return handles[rnd(seed) % NR_SLOTS];
	default:
		return handles[rnd(seed) % NR_SLOTS / NR_FILES * NR_FILES + slot];
	}
}

/* Any descriptor: ours, another kind, closed, none. */
static int some_fd(unsigned int *seed)
{
	switch (rnd(seed) % 8) {
	case 0:
		return (int)odd_number(seed);
	case 1:
		return files[rnd(seed) % NR_FILES];
	case 2:
		return gpus[rnd(seed) % NR_FILES];
	case 3:
		return drive_file;
	default:
		return others[rnd(seed) % NR_OTHERS];
	}
}

/* Any command with any words, some of them pointers to where nothing is. */
static void fuzz_ioctl(unsigned int *seed, int fd)
{
	uint64_t request[32] = { 0 };
	size_t i, which = rnd(seed) % (sizeof(known) / sizeof(*known));
	unsigned long command = known[which];
	bool whole = rnd(seed) % 16;

	for (i = 0; i < 4; i++)
		if (rnd(seed) % 3)
			request[i] = odd_number(seed);
	if (rnd(seed) % 2)
		memcpy(request, &handles[rnd(seed) % NR_SLOTS], sizeof(*handles));
	if (rnd(seed) % 16 == 0)
		request[rnd(seed) % 32] = odd_number(seed);
	if (rnd(seed) % 16 == 0)
		command = rnd(seed) % 2 ? rnd(seed) : command ^ 1UL << rnd(seed) % 32;
	if (rnd(seed) % 32 == 0)
		fd = some_fd(seed);
	ioctl(fd, command, whole ? (uint64_t)(uintptr_t)request : odd_number(seed));
}

/* Calls that have a chance, with one thing wrong now and then. */
static void fuzz_ask(unsigned int *seed, size_t slot)
{
	int fd = files[slot];
	static __thread uint64_t room[4096];
	struct peerlane_hello hello = { .version = 1, .oldest = 1 };
	struct peerlane_list list = { .handles = (uintptr_t)room,
				      .nr_room = (uint32_t)odd_number(seed) };
	struct peerlane_info info = { .handle = some_handle(seed, slot) };
	struct peerlane_route route = { .handle = some_handle(seed, slot), .fd = some_fd(seed) };
	struct peerlane_counters counters;

	switch (rnd(seed) % 5) {
	case 0:
		note(OK_HELLO, ioctl(fd, PEERLANE_IOC_HELLO, &hello) == 0);
		break;
	case 1:
		note(OK_LIST, ioctl(fd, PEERLANE_IOC_LIST, &list) == 0);
		break;
	case 2:
		room[0] = 0;
		if (rnd(seed) % 2) {
			info.physical = (uintptr_t)room;
			info.nr_room = (uint32_t)odd_number(seed);
			if (ioctl(fd, PEERLANE_IOC_INFO, &info) == 0 || room[0])
				fail("physical addresses without privilege");
		} else {
			note(OK_INFO, ioctl(fd, PEERLANE_IOC_INFO, &info) == 0);
		}
		break;
	case 3:
		note(OK_ROUTE, ioctl(fd, PEERLANE_IOC_ROUTE, &route) == 0);
		break;
	default:
		note(OK_COUNTERS, ioctl(fd, PEERLANE_IOC_COUNTERS, &counters) == 0);
	}
}

static void fuzz_pin(unsigned int *seed, size_t slot)
{
	int fd = files[slot];
	struct peerlane_pin pin;
	uint64_t address = addresses[rnd(seed) % NR_SLOTS] + (rnd(seed) % 4) * 1000;
	bool good = dev_pin(fd, address, rnd(seed) % 300000, (uint32_t)rnd(seed) % 4, &pin) == 0;

	note(OK_PIN, good);
	/* Not over the first, which is the other user's. */
	if (good)
		handles[(rnd(seed) % (NR_SLOTS / NR_FILES - 1) + 1) * NR_FILES + slot] = pin.handle;
	if (rnd(seed) % 4 == 0)
		note(OK_UNPIN, dev_unpin(fd, some_handle(seed, slot)) == 0);
}

/* What can be done to a mapping, also by the kernel on behalf of others. */
static void fuzz_use(unsigned int *seed, volatile char *map, size_t bytes)
{
	struct iovec iov = { .iov_base = (void *)map, .iov_len = bytes };
	char copy[64];
	struct iovec to = { .iov_base = copy, .iov_len = sizeof(copy) };

	switch (rnd(seed) % 8) {
	case 0:
		note(OK_READ, pread(drive_file, (void *)map, bytes, 0) > 0);
		break;
	case 1:
		fuzz_hold(seed, (void *)map, bytes);
		break;
	case 2:
		mprotect((void *)map, bytes, (int)(rnd(seed) % 8));
		break;
	case 3:
		mlock((void *)map, bytes);
		break;
	case 4:
		(void)!process_vm_readv(getpid(), &to, 1, &iov, 1, 0);
		break;
	default:
		madvise((void *)map, bytes, (int)(rnd(seed) % 26));
	}
}

/* Larger, smaller, elsewhere; a second one of it; the old one left in place. */
static volatile char *fuzz_move(unsigned int *seed, volatile char *map, size_t *bytes)
{
	size_t new = (size_t)(rnd(seed) % 80 + 1) * 4096;
	void *moved = MAP_FAILED;

	switch (rnd(seed) % 4) {
	case 0:
		moved = mremap((void *)map, 0, new, MREMAP_MAYMOVE);
		if (moved != MAP_FAILED)
			munmap(moved, new);
		break;
	case 1:
		moved = mremap((void *)map, *bytes, *bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
		if (moved != MAP_FAILED)
			munmap(moved, *bytes);
		break;
	default:
		moved = mremap((void *)map, *bytes, new, (int)(rnd(seed) % 2));
		if (moved != MAP_FAILED) {
			map = moved;
			*bytes = new;
		}
	}
	note(OK_MREMAP, moved != MAP_FAILED);
	return map;
}

static void fuzz_map(unsigned int *seed, size_t slot)
{
	size_t bytes = (size_t)(rnd(seed) % 80 + 1) * 4096, hole, behind;
	uint64_t at = ((uint64_t)some_handle(seed, slot) << 40) + (rnd(seed) % 64) * 4096;
	volatile char *map;

	if (rnd(seed) % 8 == 0)
		at = odd_number(seed) & ~4095ULL;
	if (rnd(seed) % 32 == 0)
		bytes = odd_number(seed) & ~4095ULL;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, rnd(seed) % 16 ? MAP_SHARED : MAP_PRIVATE,
		   files[slot], (off_t)at);
	if (map == MAP_FAILED)
		return;
	note(OK_MMAP, true);
	if (sigsetjmp(resume, 1) == 0) {
		map[rnd(seed) % bytes] = (char)rnd(seed);
		(void)map[rnd(seed) % bytes];
		fuzz_use(seed, map, bytes);
	}
	if (rnd(seed) % 2)
		map = fuzz_move(seed, map, &bytes);
	/* In pieces, and none of them twice: others map things here too. */
	hole = rnd(seed) % bytes & ~4095UL;
	behind = hole + rnd(seed) % (bytes - hole) / 4096 * 4096;
	if (behind > hole)
		munmap((void *)(map + hole), behind - hole);
	if (hole)
		munmap((void *)map, hole);
	munmap((void *)(map + behind), bytes - behind);
}

/* Free memory, which others may be using, and allocate some in its place, or not yet. */
static void fuzz_gpu(unsigned int *seed)
{
	static bool busy[NR_SLOTS];
	struct simgpu_alloc alloc = { .bytes = rnd(seed) % 1000000 };
	size_t slot = rnd(seed) % NR_SLOTS;
	int gpu = gpus[slot % NR_FILES];
	__u64 address;

	/* Of two at a time, both would allocate, and what one has would be lost. */
	if (__atomic_exchange_n(&busy[slot], true, __ATOMIC_ACQUIRE))
		return;
	address = addresses[slot];
	if (ioctl(gpu, SIMGPU_IOC_FREE, &address) || rnd(seed) % 4)
		if (ioctl(gpu, SIMGPU_IOC_ALLOC, &alloc) == 0)
			addresses[slot] = alloc.address;
	__atomic_store_n(&busy[slot], false, __ATOMIC_RELEASE);
}

static void fuzz_reopen(unsigned int *seed, size_t slot)
{
	struct peerlane_hello hello = { .version = 1, .oldest = 1 };
	int fd = open("/dev/peerlane", O_RDWR);

	if (fd < 0)
		return;
	if (rnd(seed) % 8)
		ioctl(fd, PEERLANE_IOC_HELLO, &hello);
	/* Over the old one, which other threads may be using. */
	dup2(fd, files[slot]);
	close(fd);
}

/* Frees memory, and leaves its place empty. */
static void fuzz_free(unsigned int *seed)
{
	size_t slot = rnd(seed) % NR_SLOTS;
	__u64 address = addresses[slot];

	ioctl(gpus[slot % NR_FILES], SIMGPU_IOC_FREE, &address);
}

/* Another process gets a descriptor and a handle. */
static void fuzz_pass(unsigned int *seed, size_t slot)
{
	struct peerlane_pin pin = { .handle = some_handle(seed, slot) };

	note(OK_PASS, fd_send(elsewhere, files[slot], &pin));
}

/* A child has the descriptors, and mappings only where somebody asked for that. */
static void fuzz_fork(unsigned int *seed, size_t slot)
{
	pid_t pid;
	int i;

	pid = fork();
	if (!pid) {
		for (i = 0; i < 8; i++) {
			fuzz_map(seed, slot);
			note(OK_CHILD_UNPIN, dev_unpin(files[slot], some_handle(seed, slot)) == 0);
			fuzz_pin(seed, slot);
			fuzz_ask(seed, slot);
			if (rnd(seed) % 4 == 0)
				fuzz_free(seed);
		}
		_exit(0);
	}
	if (pid < 0)
		return;
	if (rnd(seed) % 2)
		kill(pid, SIGKILL);
	note(OK_FORK, waitpid(pid, NULL, 0) == pid);
}

static void *fuzz(void *data)
{
	unsigned int seed = *(unsigned int *)data;
	size_t slot;

	while (seconds() < end) {
		slot = rnd(&seed) % NR_FILES;
		switch (rnd(&seed) % 32) {
		case 0:
			if (rnd(&seed) % 8 == 0)
				fuzz_reopen(&seed, slot);
			break;
		case 1 ... 4:
			fuzz_gpu(&seed);
			break;
		case 5 ... 12:
			fuzz_pin(&seed, slot);
			break;
		case 13 ... 20:
			fuzz_map(&seed, slot);
			break;
		case 21 ... 26:
			fuzz_ask(&seed, slot);
			break;
		case 27:
			if (rnd(&seed) % 4 == 0)
				fuzz_fork(&seed, slot);
			break;
		case 28:
			fuzz_pass(&seed, slot);
			break;
		case 29:
			if (rnd(&seed) % 4 == 0)
				fuzz_fault(&seed, gpus[slot]);
			break;
		default:
			fuzz_ioctl(&seed, files[slot]);
		}
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* ------------------------------------------------------------------ the test */

static void open_all(void)
{
	int i;

	/* Opened with privilege, as a service might, and handed on. */
	drive_file = open("/mnt/src", O_RDONLY | O_DIRECT);
	others[0] = open("/proc/version", O_RDONLY);
	others[1] = open("/mnt", O_RDONLY | O_DIRECTORY);
	others[2] = open("/dev/null", O_RDWR);
	others[3] = drive_open("raw0", O_RDONLY);
	expect(pipe(&others[4]) == 0);
	expect(drive_file >= 0 && others[0] >= 0 && others[1] >= 0 && others[2] >= 0);
	expect(setgid(FUZZER) == 0 && setuid(FUZZER) == 0);
	for (i = 0; i < NR_FILES; i++) {
		files[i] = dev_open();
		gpus[i] = gpu_open();
	}
	for (i = 0; i < NR_SLOTS; i++)
		addresses[i] = gpu_alloc(gpus[i % NR_FILES], 200000);
}

static void fuzz_all(void *data)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	pthread_t threads[NR_THREADS];
	unsigned int seeds[NR_THREADS], i;
	pid_t pid;

	(void)data;
	open_all();
	pid = fuzz_elsewhere_start(drive_file, &elsewhere);
	successes = mmap(NULL, NR_SUCCESS * sizeof(*successes), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(successes != MAP_FAILED);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	for (i = 0; i < NR_THREADS; i++) {
		seeds[i] = i * 77 + (unsigned int)(seconds() * 1000);
		printf("seed %u\n", seeds[i]);
		expect(pthread_create(&threads[i], NULL, fuzz, &seeds[i]) == 0);
	}
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	fuzz_calm(gpus[0]);
	close(elsewhere);
	expect(waitpid(pid, NULL, 0) == pid);
	printf("%lu calls; successful:", calls);
	for (i = 0; i < NR_SUCCESS; i++)
		printf(" %s %lu", words[i], successes[i]);
	printf("\n");
	for (i = 0; i < NR_SUCCESS; i++)
		if (!successes[i])
			fail("no %s was successful", words[i]);
}

int test_fuzz(void)
{
	const char *time = getenv("FUZZ_SECONDS");
	int stop, status;
	pid_t pid;

	pid = victim_start(&stop, &handles[0]);
	/* Pages in pipes are not waited for. */
	expect(echo(UNPIN_WAIT, "20") == 0);
	end = seconds() + (time ? strtod(time, NULL) : 8);
	in_child(fuzz_all, NULL, 0);
	expect(echo(UNPIN_WAIT, "5000") == 0);
	close(stop);
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
