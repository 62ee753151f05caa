// SPDX-License-Identifier: MIT
/*
 * 64 threads share a pool of 1 MiB: none waits for ever, none fails, what they read and write is
 * right, and the pool never holds more than its limit. Also with slots half the size of the pool.
 */
#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB 1024ul
#define MIB (1024 * KIB)
#define THREADS 64
#define ROUNDS 4
#define PART (3 * MIB)
#define MEM (PART + 4096)

static char dir[128], path[160];
static struct peerlane *ctx;
static struct peerlane_file *files[2];
static const char *setting;

static void clean_up(void)
{
	unlink(path);
	rmdir(dir);
}

static void too_long(int sig)
{
	static const char text[] = "FAIL: the threads wait for each other\n";

	(void)sig;
	(void)!write(1, text, sizeof(text) - 1);
	clean_up();
	_exit(1);
}

static void fail(const char *what, long long a, long long b)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	printf("FAIL %s: %s: %lld, not %lld; last error %d %s\n", setting, what, a, b, info.err,
	       info.text);
	fflush(stdout);
	clean_up();
	_exit(1);
}

static void same(const char *what, long long a, long long b)
{
	if (a != b)
		fail(what, a, b);
}

/* All @bytes from @at are @mark. */
static void check_all(const char *mem, size_t at, size_t bytes, unsigned char mark)
{
	if (bytes && ((unsigned char)mem[at] != mark || memcmp(mem + at, mem + at + 1, bytes - 1)))
		fail("memory differs from", (long long)at, mark);
}

static void *work(void *arg)
{
	static const size_t sizes[] = { 1, 4096, 5000, 65536, 65537, 300000, MIB, PART - 77, PART };
	size_t id = (size_t)(uintptr_t)arg;
	off_t base = (off_t)(id * PART);
	void *gpu;
	char *see;

	same("allocation", peerlane_gpu_alloc(ctx, 0, MEM, &gpu), 0);
	see = peerlane_sim_host(gpu);
	for (unsigned int r = 0; r < ROUNDS; r++) {
		size_t bytes = sizes[(id + r * 5) % 9], at = (id * 7 + r) % 4096;
		struct peerlane_file *f = files[(id + r) % 2];
		unsigned char mark = (unsigned char)(1 + id + r * 64);

		memset(see, 0, MEM);
		memset(see + at, mark, bytes);
		same("write", peerlane_write(f, (char *)gpu + at, bytes, base, 0),
		     (long long)bytes);
		memset(see, 0, MEM);
		same("read", peerlane_read(f, (char *)gpu + at, bytes, base), (long long)bytes);
		check_all(see, 0, at, 0);
		check_all(see, at, bytes, mark);
		check_all(see, at + bytes, MEM - at - bytes, 0);
	}
	same("free", peerlane_gpu_free(ctx, gpu), 0);
	return NULL;
}

static void run(const char *name, size_t slot_bytes, const char *async)
{
	struct peerlane_options opt = { .size = sizeof(opt),
					.backend = "sim",
					.pool_bytes = MIB,
					.slot_bytes = slot_bytes,
					.nr_threads = 4 };
	struct peerlane_stats st = { .size = sizeof(st) };
	pthread_t threads[THREADS];

	setting = name;
	setenv("PEERLANE_SIM_ASYNC", async, 1);
	same("open", peerlane_open(&ctx, &opt), 0);
	same("file", peerlane_file_open(ctx, path, O_CREAT | O_RDWR, 0600, &files[0]), 0);
	same("direct file", peerlane_file_open(ctx, path, O_RDWR | O_DIRECT, 0, &files[1]), 0);
	for (size_t i = 0; i < THREADS; i++)
		same("thread", pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	same("statistics", peerlane_stats_get(ctx, &st), 0);
	same("limit", (long long)st.pool_limit, MIB);
	if (!st.pool_peak || st.pool_peak > st.pool_limit)
		fail("peak of the pool", (long long)st.pool_peak, (long long)st.pool_limit);
	same("in flight", (long long)st.in_flight, 0);
	if (!st.pool_waits)
		fail("nobody had to wait", 0, 1);
	printf("%s: peak %llu bytes, %llu waits\n", name, (unsigned long long)st.pool_peak,
	       (unsigned long long)st.pool_waits);
	peerlane_close(ctx);
}

int main(void)
{
	const char *base = getenv("TMPDIR");

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, too_long);
	signal(SIGTERM, too_long);
	signal(SIGINT, too_long);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	alarm(200);
#else
	alarm(getenv("PEERLANE_UNDER_VALGRIND") ? 500 : 55);
#endif
	snprintf(dir, sizeof(dir), "%s/peerlane-pool.XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(dir)) {
		printf("FAIL no temporary directory\n");
		return 1;
	}
	snprintf(path, sizeof(path), "%s/file", dir);
	run("default slots", 0, "0");
	run("slow copies", 0, "50");
	run("slots of half the pool", 512 * KIB, "0");
	clean_up();
	return 0;
}
