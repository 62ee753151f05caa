// SPDX-License-Identifier: MIT
/*
 * Limits of the system: no locked memory, no descriptors left, a largest file, no more threads, no
 * more address space. Where work can go on it does; else the call says what is missing.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (16 * MIB + 99)

static const char *path;

static void limit(int what, rlim_t value)
{
	struct rlimit r = { .rlim_cur = value, .rlim_max = value };

	CHECK(!setrlimit(what, &r));
}

/* Both directions in the three manners, cached and cold, or only those asked for. */
static void works(unsigned int how_mask, int open_flags)
{
	struct peerlane *ctx = fault_open(0, 5000);
	struct peerlane_file *f = fault_file(ctx, path, O_RDWR | open_flags);
	char *gpu = fault_gpu(ctx, BYTES);

	for (int i = 0; i < 2 * FAULT_NR_HOW; i++) {
		enum fault_how how = (enum fault_how)(i % FAULT_NR_HOW);

		if (!(how_mask & 1u << how))
			continue;
		CASE("%s, open %#o", fault_how_name[how], (unsigned int)open_flags);
		if (i >= FAULT_NR_HOW)
			fault_make_cold(path);
		memset(fault_see(gpu), 0, BYTES);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0), BYTES);
		CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_WRITE, gpu, BYTES, 0), BYTES);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu + 3, 7777, 1), 7777);
		CHECK_EQ(fault_differs(fault_see(gpu) + 3, 7777, 1, 1), 7777);
	}
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	peerlane_close(ctx);
}

/* As root the limit would not hold. */
static void drop_root(void)
{
	if (geteuid() != 0)
		return;
	CHECK(!chmod(fault_dir(), 0777) && !chmod(path, 0666));
	CHECK(!setgroups(0, NULL) && !setgid(65534) && !setuid(65534));
}

static void no_locked_memory(void *arg)
{
	(void)arg;
	drop_root();
	limit(RLIMIT_MEMLOCK, 0);
	works(7, 0);
	works(7, O_DIRECT);
}

/* With room for @arg more descriptors. Whatever fails says so; what works is right. */
static void few_descriptors(void *arg)
{
	int room = (int)(intptr_t)arg, first = dup(0);
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim", .nr_threads = 2 };
	struct peerlane *ctx;
	struct peerlane_file *f;
	char *gpu, host[5000];
	int err;

	CHECK(first >= 0);
	close(first);
	err = peerlane_open(&ctx, &opt);
	CHECK_EQ(err, 0);
	gpu = fault_gpu(ctx, BYTES);
	/* The statistics took one already. */
	first = dup(0);
	close(first);
	limit(RLIMIT_NOFILE, (rlim_t)(first + room));
	for (int direct = 0; direct < 2; direct++) {
		CASE("room for %d descriptors%s", room, direct ? ", O_DIRECT" : "");
		err = peerlane_file_open(ctx, path, O_RDWR | (direct ? O_DIRECT : 0), 0, &f);
		if (!room) {
			CHECK_EQ(err, -EMFILE);
			continue;
		}
		/* With O_DIRECT a second one is needed for ends that are not aligned. */
		if (direct && room < 2 && err == -EMFILE)
			continue;
		CHECK_EQ(err, 0);
		memset(fault_see(gpu), 0, BYTES);
		CHECK_EQ(peerlane_read(f, gpu, BYTES, 0), BYTES);
		CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
		CHECK_EQ(peerlane_read(f, gpu + 1, 5000, 77), 5000);
		CHECK_EQ(fault_differs(fault_see(gpu) + 1, 5000, 77, 1), 5000);
		CHECK_EQ(peerlane_write(f, gpu + 1, 4096, 77, 0) < 0 ? -EINVAL : 4096,
			 direct && room < 2 ? -EINVAL : 4096);
		/* Into plain memory of no alignment: right, or an error, but not "end of file". */
		err = (int)peerlane_read(f, host, sizeof(host), 77);
		CHECK(err < 0 || err == (int)sizeof(host));
		if (err > 0)
			CHECK_EQ(fault_differs(host, sizeof(host), 77, 1), sizeof(host));
		CHECK_EQ(peerlane_file_close(f), 0);
	}
	peerlane_close(ctx);
}

static void largest_file(void *arg)
{
	const char *other = fault_path("small");
	size_t most = 5 * MIB + 123;
	struct peerlane *ctx;
	struct peerlane_file *f;
	struct stat sb;
	char *gpu;

	(void)arg;
	signal(SIGXFSZ, SIG_IGN);
	limit(RLIMIT_FSIZE, most);
	for (int how = 0; how < FAULT_NR_HOW; how++) {
		for (int direct = 0; direct < 2; direct++) {
			ssize_t n;

			CASE("largest file, %s%s", fault_how_name[how], direct ? ", O_DIRECT" : "");
			ctx = fault_open(0, 0);
			f = fault_file(ctx, other,
				       O_CREAT | O_TRUNC | O_RDWR | (direct ? O_DIRECT : 0));
			gpu = fault_gpu(ctx, BYTES);
			fault_pattern(fault_see(gpu), BYTES, 0, 2);
			n = fault_io((enum fault_how)how, ctx, f, PEERLANE_WRITE, gpu, BYTES, 0);
			/* A direct transfer that would pass the limit ends at a block before it. */
			if (direct)
				CHECK(n <= (ssize_t)most && n > (ssize_t)(most - MIB));
			else
				CHECK_EQ(n, most);
			memset(fault_see(gpu), 0, BYTES);
			CHECK_EQ(peerlane_read(f, gpu, (size_t)n, 0), n);
			CHECK_EQ(fault_differs(fault_see(gpu), (size_t)n, 0, 2), n);
			CHECK_EQ(fault_io((enum fault_how)how, ctx, f, PEERLANE_WRITE, gpu, MIB,
					  8 * MIB),
				 -EFBIG);
			CHECK(!stat(other, &sb) && sb.st_size <= (off_t)most);
			peerlane_close(ctx);
		}
	}
}

/* Not one thread can be made: the caller does it all. Streams of the simulator are threads. */
static void no_threads(void *arg)
{
	pthread_t t;

	(void)arg;
	drop_root();
	limit(RLIMIT_NPROC, 0);
	if (!pthread_create(&t, NULL, (void *(*)(void *))(uintptr_t)getpid, NULL)) {
		pthread_join(t, NULL);
		printf("RLIMIT_NPROC does not hold here\n");
		return;
	}
	works(1u << FAULT_SYNC | 1u << FAULT_BATCH, 0);
	works(1u << FAULT_SYNC | 1u << FAULT_BATCH, O_DIRECT);
}

/* What is not there is said; a pool smaller than hoped for is used. */
static void little_space(void *arg)
{
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_file *f = fault_file(ctx, path, O_RDWR);
	char *gpu = fault_gpu(ctx, BYTES);
	size_t used = 0, more = (size_t)(uintptr_t)arg;
	unsigned long pages = 0;
	ssize_t n;
	FILE *m = fopen("/proc/self/statm", "r");

	CHECK(m && fscanf(m, "%lu", &pages) == 1);
	fclose(m);
	used = pages * 4096;
	CASE("address space for %zu KiB more", more / KIB);
	limit(RLIMIT_AS, used + more);
	n = peerlane_read(f, gpu, BYTES, 0);
	CHECK(n == (ssize_t)BYTES || n == -ENOMEM || n == -EREMOTEIO);
	if (n > 0)
		CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
	n = fault_io(FAULT_BATCH, ctx, f, PEERLANE_READ, gpu, 9999, 1);
	CHECK(n == 9999 || n == -ENOMEM || n == -EREMOTEIO);
	peerlane_close(ctx);
}

static void child(const char *name, void (*fn)(void *), intptr_t arg)
{
	int status = fault_child(fn, (void *)arg);

	CASE("%s %ld", name, (long)arg);
	CHECK_EQ(status, 0);
}

int main(void)
{
	fault_begin(50);
	path = fault_path("file");
	fault_make_file(path, BYTES, 1);
	fault_path("small");
	child("no locked memory", no_locked_memory, 0);
	for (int room = 0; room < 5; room++)
		child("descriptors", few_descriptors, room);
	child("largest file", largest_file, 0);
	child("no threads", no_threads, 0);
	/* The sanitizers' own memory would be the first to run out. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	for (int i = 0; i < 6; i++)
		child("address space", little_space, (intptr_t)(256 * KIB << 2 * i));
#else
	(void)little_space;
#endif
	return 0;
}
