// SPDX-License-Identifier: MIT
/*
 * Calls without sense, by an unprivileged user in several threads, for a bounded time. Whatever is
 * mapped in the end must be memory of ours: each mapping is read and written.
 */
#include <pthread.h>
#include <setjmp.h>

#include "guest.h"

#define NR_THREADS 3
#define NR_FILES 4

static int files[NR_FILES];
static int gpus[NR_FILES];
static uint32_t handles[64];
static uint64_t addresses[64];
static double end;
static __thread sigjmp_buf resume;
static unsigned long calls;

static void on_fault(int number)
{
	siglongjmp(resume, number);
}

static uint64_t rnd(unsigned int *seed)
{
	return (uint64_t)rand_r(seed) << 32 ^ (uint64_t)rand_r(seed) << 16 ^ (uint64_t)rand_r(seed);
}

/* A number that is interesting, near something interesting, or any. */
static uint64_t odd_number(unsigned int *seed)
{
	static const uint64_t edges[] = { 0,	      1,	  4095,	      4096,
					  65535,      65536,	  1ULL << 20, 1ULL << 31,
					  1ULL << 32, 1ULL << 40, 1ULL << 62, ~0ULL };

	switch (rnd(seed) % 4) {
	case 0:
		return edges[rnd(seed) % (sizeof(edges) / sizeof(*edges))];
	case 1:
		return edges[rnd(seed) % (sizeof(edges) / sizeof(*edges))] + rnd(seed) % 9 - 4;
	case 2:
		return addresses[rnd(seed) % 64] + (rnd(seed) % 3) * 4096;
	default:
		return rnd(seed);
	}
}

static void fuzz_ioctl(unsigned int *seed, int fd)
{
	static const unsigned long known[] = { PEERLANE_IOC_HELLO,   PEERLANE_IOC_PIN,
					       PEERLANE_IOC_UNPIN,   PEERLANE_IOC_LIST,
					       PEERLANE_IOC_INFO,    PEERLANE_IOC_ROUTE,
					       PEERLANE_IOC_COUNTERS };
	uint64_t words[32] = { 0 };
	size_t i;

	for (i = 0; i < 4; i++)
		if (rnd(seed) % 3)
			words[i] = odd_number(seed);
	if (rnd(seed) % 2)
		memcpy(words, &handles[rnd(seed) % 64], sizeof(*handles));
	if (rnd(seed) % 16 == 0)
		words[rnd(seed) % 32] = odd_number(seed);
	ioctl(fd, rnd(seed) % 16 ? known[rnd(seed) % 7] : rnd(seed),
	      rnd(seed) % 16 ? (uint64_t)(uintptr_t)words : odd_number(seed));
}

static void fuzz_pin(unsigned int *seed, int fd)
{
	struct peerlane_pin pin;
	uint64_t address = addresses[rnd(seed) % 64] + (rnd(seed) % 4) * 1000;

	if (dev_pin(fd, address, rnd(seed) % 300000, (uint32_t)rnd(seed) % 4, &pin) == 0)
		handles[rnd(seed) % 64] = pin.handle;
	if (rnd(seed) % 4 == 0)
		dev_unpin(fd, handles[rnd(seed) % 64]);
}

static void fuzz_map(unsigned int *seed, int fd)
{
	size_t bytes = (size_t)(rnd(seed) % 80 + 1) * 4096;
	uint64_t at = ((uint64_t)handles[rnd(seed) % 64] << 40) + (rnd(seed) % 64) * 4096;
	volatile char *map;

	if (rnd(seed) % 8 == 0)
		at = odd_number(seed) & ~4095ULL;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, rnd(seed) % 16 ? MAP_SHARED : MAP_PRIVATE,
		   fd, (off_t)at);
	if (map == MAP_FAILED)
		return;
	if (sigsetjmp(resume, 1) == 0) {
		map[rnd(seed) % bytes] = (char)rnd(seed);
		(void)map[rnd(seed) % bytes];
		madvise((void *)map, bytes, (int)(rnd(seed) % 26));
	}
	if (rnd(seed) % 2)
		mremap((void *)map, bytes, (size_t)(rnd(seed) % 80) * 4096, (int)(rnd(seed) % 2));
	munmap((void *)(map + 4096 * (rnd(seed) % 2)), bytes);
	munmap((void *)map, bytes);
}

static void fuzz_gpu(unsigned int *seed, int gpu)
{
	struct simgpu_alloc alloc = { .bytes = rnd(seed) % 1000000 };
	size_t slot = rnd(seed) % 64;
	__u64 address = addresses[slot];

	if (ioctl(gpu, SIMGPU_IOC_FREE, &address) == 0 || rnd(seed) % 4 == 0)
		if (ioctl(gpu, SIMGPU_IOC_ALLOC, &alloc) == 0)
			addresses[slot] = alloc.address;
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

static void *fuzz(void *data)
{
	unsigned int seed = *(unsigned int *)data;
	size_t slot;

	while (seconds() < end) {
		slot = rnd(&seed) % NR_FILES;
		switch (rnd(&seed) % 16) {
		case 0:
			fuzz_reopen(&seed, slot);
			break;
		case 1:
		case 2:
			fuzz_gpu(&seed, gpus[slot]);
			break;
		case 3 ... 6:
			fuzz_pin(&seed, files[slot]);
			break;
		case 7 ... 10:
			fuzz_map(&seed, files[slot]);
			break;
		default:
			fuzz_ioctl(&seed, files[slot]);
		}
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void fuzz_all(void *data)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	pthread_t threads[NR_THREADS];
	unsigned int seeds[NR_THREADS], i;

	(void)data;
	expect(setgid(65534) == 0 && setuid(65534) == 0);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	for (i = 0; i < NR_FILES; i++) {
		files[i] = dev_open();
		gpus[i] = gpu_open();
	}
	for (i = 0; i < 64; i++)
		addresses[i] = gpu_alloc(gpus[i % NR_FILES], 200000);
	for (i = 0; i < NR_THREADS; i++) {
		seeds[i] = i * 77 + (unsigned int)(seconds() * 1000);
		printf("seed %u\n", seeds[i]);
		expect(pthread_create(&threads[i], NULL, fuzz, &seeds[i]) == 0);
	}
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu calls\n", calls);
	expect(calls > 1000);
}

int test_fuzz(void)
{
	const char *time = getenv("FUZZ_SECONDS");

	end = seconds() + (time ? strtod(time, NULL) : 8);
	in_child(fuzz_all, NULL, 0);
	return 0;
}
