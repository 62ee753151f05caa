// SPDX-License-Identifier: MIT
/*
 * A file cut short and made long again while it is read and written, in every way the library has:
 * no signal, no count larger than asked for, and every byte counted is the file's or a zero.
 */
#include "fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define BYTES (96 * MIB)

static const char *path;
static atomic_bool stop;
static char *pattern;

static void *cutter(void *arg)
{
	static const off_t sizes[] = { 40 * MIB + 123, 0, 70 * MIB, 4096, 64 * MIB + 1 };
	int fd = open(path, O_RDWR);

	(void)arg;
	CHECK(fd >= 0);
	for (unsigned int i = 0; !atomic_load(&stop); i++) {
		CHECK(!ftruncate(fd, sizes[i % 5]));
		usleep(fault_random() % 3000);
		CHECK(!ftruncate(fd, BYTES));
		/* Some of the data comes back. */
		CHECK(pwrite(fd, pattern, 24 * MIB, 0) == (ssize_t)(24 * MIB));
		usleep(fault_random() % 3000);
	}
	close(fd);
	return NULL;
}

static void check(const char *mem, ssize_t n)
{
	CHECK(n >= 0 && n <= (ssize_t)BYTES);
	for (ssize_t i = 0; i < n; i += 4096) {
		size_t len = n - i < 4096 ? (size_t)(n - i) : 4096;

		if (!memcmp(mem + i, pattern + i, len))
			continue;
		for (size_t k = 0; k < len; k++)
			CHECK(mem[i + (ssize_t)k] == 0 ||
			      mem[i + (ssize_t)k] == pattern[i + (ssize_t)k]);
	}
}

static void run(const char *name, unsigned int flags, int open_flags, bool writes, double seconds)
{
	struct peerlane *ctx = fault_open(flags, 0);
	struct peerlane_file *f;
	char *gpu = fault_gpu(ctx, BYTES);
	double until = fault_now() + seconds;
	pthread_t thread;
	unsigned int rounds = 0;
	ssize_t n;

	CASE("%s", name);
	fault_make_file(path, BYTES, 8);
	f = fault_file(ctx, path, O_RDWR | open_flags);
	stop = false;
	CHECK(!pthread_create(&thread, NULL, cutter, NULL));
	do {
		enum fault_how how = (enum fault_how)(rounds % FAULT_NR_HOW);

		if (writes) {
			memcpy(fault_see(gpu), pattern, BYTES);
			n = fault_io(how, ctx, f, PEERLANE_WRITE, gpu, BYTES, 0);
			CHECK_EQ(n, BYTES);
		} else {
			memset(fault_see(gpu), 0x5a, BYTES);
			n = fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0);
			check(fault_see(gpu), n);
		}
		rounds++;
	} while (fault_now() < until);
	stop = true;
	pthread_join(thread, NULL);
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* The end moves, but never into the part that is written. */
#define FIXED (8 * MIB)

static void *mover(void *arg)
{
	int fd = open(path, O_RDWR);

	(void)arg;
	CHECK(fd >= 0);
	while (!atomic_load(&stop)) {
		CHECK(!ftruncate(fd, FIXED + 4321 + fault_random() % MIB));
		CHECK(!ftruncate(fd, FIXED));
	}
	close(fd);
	return NULL;
}

/* The end moves through the part that is written. */
static void *chopper(void *arg)
{
	int fd = open(path, O_RDWR);

	(void)arg;
	CHECK(fd >= 0);
	while (!atomic_load(&stop)) {
		CHECK(!ftruncate(fd, fault_random() % FIXED));
		CHECK(!ftruncate(fd, FIXED));
		CHECK(pwrite(fd, pattern, FIXED, 0) == (ssize_t)FIXED);
	}
	close(fd);
	return NULL;
}

/* Writes of many sizes beside @other: each is done whole, and none makes the file longer. */
static void pieces(const char *name, void *(*other)(void *), double seconds)
{
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_stats st = { .size = sizeof(st) };
	double until = fault_now() + seconds;
	char *gpu = fault_gpu(ctx, FIXED), *mem = malloc(FIXED);
	struct peerlane_file *f;
	pthread_t thread;
	int fd;

	CASE("%s", name);
	CHECK(mem);
	fault_make_file(path, FIXED, 8);
	f = fault_file(ctx, path, O_RDWR);
	memcpy(fault_see(gpu), pattern, FIXED);
	stop = false;
	CHECK(!pthread_create(&thread, NULL, other, NULL));
	do {
		size_t n = fault_random() % (1u << fault_random() % 22) + 1;
		size_t at = fault_random() % (FIXED - n);

		CHECK_EQ(peerlane_write(f, gpu + at, n, (off_t)at, 0), n);
	} while (fault_now() < until);
	stop = true;
	pthread_join(thread, NULL);
	CHECK(!peerlane_stats_get(ctx, &st));
	CHECK(st.mapped_write_bytes > 0);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), FIXED);
	/* All wrote the same there. */
	CHECK_EQ(pread(fd, mem, FIXED, 0), FIXED);
	CHECK_EQ(fault_differs(mem, FIXED, 0, 8), FIXED);
	close(fd);
	free(mem);
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

int main(void)
{
	fault_begin(50);
	path = fault_path("file");
	pattern = malloc(BYTES);
	CHECK(pattern);
	fault_pattern(pattern, BYTES, 0, 8);
	run("cached reads", 0, 0, false, 0.7);
	run("direct reads", 0, O_DIRECT, false, 0.7);
	run("direct reads by threads", PEERLANE_NO_IO_URING, O_DIRECT, false, 0.7);
	setenv("PEERLANE_SIM_IN_PLACE", "1", 1);
	run("reads in place", PEERLANE_SAVE_CPU, 0, false, 1.2);
	setenv("PEERLANE_SIM_ASYNC", "500", 1);
	run("slow reads in place", PEERLANE_SAVE_CPU, 0, false, 0.7);
	setenv("PEERLANE_SIM_ASYNC", "0", 1);
	run("mapped writes", 0, 0, true, 1);
	pieces("pieces before a moving end", mover, 1);
	pieces("pieces and a moving end", chopper, 1);
	setenv("PEERLANE_SIM_BAR", "1", 1);
	run("mapped writes of mapped memory", 0, 0, true, 0.7);
	run("reads into mapped memory", 0, 0, false, 0.5);
	free(pattern);
	return 0;
}
