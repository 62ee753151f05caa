// SPDX-License-Identifier: MIT
/*
 * Mappings: what may be mapped and how, in parts, moved, forked, and taken away during I/O.
 */
#include <pthread.h>

#include "guest.h"

int test_map_rules(void)
{
	struct memory memory;
	size_t bytes = MIB;
	off_t at;
	char *map;

	memory_open(&memory, bytes, 0);
	at = (off_t)memory.pin.map_offset;
	expect_errno(mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, memory.dev, at), EINVAL);
	expect_errno(mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_SHARED, memory.dev, at), EINVAL);
	expect_errno(mmap(NULL, bytes + 4096, PROT_READ, MAP_SHARED, memory.dev, at), EINVAL);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.dev, at + (off_t)bytes),
		     EINVAL);
	expect_errno(mmap(NULL, 8192, PROT_READ, MAP_SHARED, memory.dev, at + (off_t)bytes - 4096),
		     EINVAL);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.dev, at - 4096), ENOENT);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.dev, 0), ENOENT);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.dev, 0x7fffffffffff0000LL),
		     ENOENT);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.dev, at);
	expect(map != MAP_FAILED);
	expect_errno(mprotect(map, 4096, PROT_READ | PROT_EXEC), EACCES);
	expect(mprotect(map, 4096, PROT_READ | PROT_WRITE) == 0);
	map[5] = 42;
	expect(memory.map[5] == 42);
	munmap(map, 4096);
	memory_close(&memory);
	return 0;
}

/* Twice, in part, unmapped in the middle, moved, emptied. */
int test_map_parts(void)
{
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);
	size_t bytes = MIB;
	struct memory memory;
	char *second, *part, *moved;
	char *source = host_alloc(bytes);

	memory_open(&memory, bytes, 0);
	expect(pread(drive, source, bytes, 0) == (ssize_t)bytes);
	second = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dev,
		      (off_t)memory.pin.map_offset);
	part = mmap(NULL, 128 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dev,
		    (off_t)memory.pin.map_offset + 256 * 1024);
	expect(second != MAP_FAILED && part != MAP_FAILED);
	expect(dev_counters(memory.dev).mappings == 3);
	expect(pread(drive, memory.map, bytes, 0) == (ssize_t)bytes);
	expect(memcmp(second, source, bytes) == 0);
	expect(memcmp(part, source + 256 * KIB, 128 * KIB) == 0);

	/* A hole in the middle leaves two. */
	expect(munmap(second + 64 * KIB, 64 * KIB) == 0);
	expect(dev_counters(memory.dev).mappings == 4);
	memset(second, 0, 64 * KIB);
	expect(pread(drive, second, 64 * KIB, 0) == 64 * (ssize_t)KIB);
	expect(pread(drive, second + 128 * KIB, 64 * KIB, 128 * KIB) == 64 * (ssize_t)KIB);
	expect_errno(pread(drive, second + 64 * KIB, 4096, 0), EFAULT);

	/* Moved, but not grown. */
	moved = mremap(part, 128 * KIB, 128 * KIB, MREMAP_MAYMOVE | MREMAP_FIXED,
		       second + 64 * KIB + 4 * MIB);
	expect(moved == second + 64 * KIB + 4 * MIB);
	expect(memcmp(moved, source + 256 * KIB, 128 * KIB) == 0);
	expect(pread(drive, moved, 128 * KIB, 0) == 128 * (ssize_t)KIB);
	expect(memcmp(memory.map + 256 * KIB, source, 128 * KIB) == 0);
	expect(mremap(moved, 128 * KIB, 256 * KIB, MREMAP_MAYMOVE) == MAP_FAILED);
	expect(mremap(moved, 0, 128 * KIB, MREMAP_MAYMOVE) == MAP_FAILED);
	expect(mremap(moved, 128 * KIB, 64 * KIB, 0) == moved);

	/* Pages taken out come back by themselves, for the CPU and for I/O. */
	expect(madvise(memory.map, bytes, MADV_DONTNEED) == 0);
	expect(memcmp(memory.map, source, 4096) == 0);
	expect(pread(drive, memory.map, bytes, 0) == (ssize_t)bytes);
	expect(memcmp(memory.map, source, bytes) == 0);

	expect(munmap(second, bytes) == 0);
	expect(munmap(moved, 64 * KIB) == 0);
	expect(dev_counters(memory.dev).mappings == 1);
	say_direct(2 * bytes + 2 * 64 * KIB + 128 * KIB);
	say_bar(&memory, 0, bytes, "raw0", 0);
	memory_close(&memory);
	return 0;
}

static void touch(void *data)
{
	volatile char *at = data;

	(void)*at;
}

static void expect_signal(char *at, int number)
{
	int status;
	pid_t pid = fork();

	expect(pid >= 0);
	if (!pid) {
		touch(at);
		_exit(0);
	}
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFSIGNALED(status) && WTERMSIG(status) == number);
}

static void through_exec(void *data)
{
	struct memory memory;

	(void)data;
	memory_open(&memory, MIB, 0);
	execl("/bin/true", "true", NULL);
	_exit(1);
}

int test_map_fork(void)
{
	struct memory memory;
	int status;
	char *map;
	pid_t pid;

	memory_open(&memory, MIB, 0);
	memory.map[0] = 1;
	/* The mapping is not there in the child... */
	expect_signal(memory.map, SIGSEGV);
	/* ...but the descriptor is, and holds the memory when the parent closes its own. */
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.dev,
			   (off_t)memory.pin.map_offset);
		expect(map != MAP_FAILED);
		expect(map[0] == 1);
		sleep_ms(300);
		expect(map[0] == 1);
		_exit(0);
	}
	sleep_ms(100);
	munmap(memory.map, MIB);
	close(memory.dev);
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	in_child(through_exec, NULL, 0);
	return 0;
}

struct race {
	struct memory memory;
	pthread_barrier_t both;
	char *map;
};

static void *race_map(void *data)
{
	struct race *r = data;

	pthread_barrier_wait(&r->both);
	r->map = mmap(NULL, r->memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->memory.dev,
		      (off_t)r->memory.pin.map_offset);
	return NULL;
}

/* The pin ends while it is being mapped: whichever is first, nothing waits for the mapping. */
int test_map_race(void)
{
	unsigned int i, nr = rounds(150), nr_mapped = 0;
	struct race r;
	pthread_t thread;
	int dev = dev_open();

	expect(pthread_barrier_init(&r.both, NULL, 2) == 0);
	srand(6);
	for (i = 0; i < nr; i++) {
		memory_open(&r.memory, MIB, 0);
		munmap(r.memory.map, r.memory.pin.map_bytes);
		expect(pthread_create(&thread, NULL, race_map, &r) == 0);
		pthread_barrier_wait(&r.both);
		usleep((useconds_t)rand() % 1500);
		/* Neither returns before the memory is let go, and nobody unmaps it. */
		if (i % 2)
			gpu_free(r.memory.gpu, r.memory.address);
		else
			expect(dev_unpin(r.memory.dev, r.memory.pin.handle) == 0);
		expect(pthread_join(thread, NULL) == 0);
		nr_mapped += r.map != MAP_FAILED;
		if (i % 2)
			expect(dev_unpin(r.memory.dev, r.memory.pin.handle) == 0);
		expect(dev_counters(dev).pins == 0);
		if (r.map != MAP_FAILED)
			munmap(r.map, r.memory.bytes);
		close(r.memory.dev);
		close(r.memory.gpu);
		free(r.memory.physical);
	}
	printf("%u rounds, %u mapped\n", nr, nr_mapped);
	pthread_barrier_destroy(&r.both);
	return 0;
}

/* ...nor has it any memory that another pin keeps. */
int test_map_race_shared(void)
{
	unsigned int i, nr = rounds(300), nr_mapped = 0;
	struct peerlane_pin first;
	struct race r;
	pthread_t thread;

	expect(pthread_barrier_init(&r.both, NULL, 2) == 0);
	srand(7);
	memory_open(&r.memory, MIB, 0);
	munmap(r.memory.map, r.memory.pin.map_bytes);
	first = r.memory.pin;
	for (i = 0; i < nr; i++) {
		expect(dev_pin(r.memory.dev, r.memory.address, MIB, 0, &r.memory.pin) == 0);
		expect(pthread_create(&thread, NULL, race_map, &r) == 0);
		pthread_barrier_wait(&r.both);
		usleep((useconds_t)rand() % 1500);
		expect(dev_unpin(r.memory.dev, r.memory.pin.handle) == 0);
		expect(pthread_join(thread, NULL) == 0);
		if (r.map == MAP_FAILED)
			continue;
		nr_mapped++;
		expect(raises_sigbus(r.map) && raises_sigbus(r.map + MIB - 1));
		munmap(r.map, MIB);
	}
	printf("%u rounds, %u mapped\n", nr, nr_mapped);
	pthread_barrier_destroy(&r.both);
	expect(dev_counters(r.memory.dev).mappings == 0);
	expect(dev_unpin(r.memory.dev, first.handle) == 0);
	gpu_free(r.memory.gpu, r.memory.address);
	close(r.memory.dev);
	close(r.memory.gpu);
	free(r.memory.physical);
	return 0;
}

/* The device goes on writing after the mapping is gone, and the memory stays for that long. */
int test_munmap_in_flight(void)
{
	struct memory memory;
	struct slow *slow;
	size_t bytes = 4 * MIB;

	memory_open(&memory, bytes, 0);
	slow = slow_start(memory.map, bytes, 256 * KIB);
	expect(munmap(memory.map, bytes / 2) == 0);
	expect(munmap(memory.map + bytes / 2, bytes / 2) == 0);
	expect(dev_counters(memory.dev).mappings == 0);
	expect(slow_finish(slow) == 0);
	say_direct(bytes);
	say_bar(&memory, 0, bytes, "slow0", 0);
	memory_close(&memory);
	return 0;
}
