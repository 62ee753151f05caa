// SPDX-License-Identifier: MIT
/*
 * Threads write odd pieces of one file with O_DIRECT, by single calls and in batches, each in pages
 * of its own, and then pieces of the same pages. The ends of each piece go through the page cache,
 * the middles past it: neither may cost the other a byte, and making the file durable must not
 * report an error.
 */
#include "fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 200

static struct peerlane *ctx;
static struct peerlane_file *file;
static char *model;
static size_t part; /* bytes of each thread, one after the other */
static bool small;

/* Each thread its own part, in pieces with odd ends and, in small parts, whole blocks too. */
static void *work(void *arg)
{
	size_t id = (size_t)(uintptr_t)arg, base = id * part;
	char *gpu = fault_gpu(ctx, part), *see = fault_see(gpu), *host = malloc(part);

	for (int r = 0; r < ROUNDS; r++) {
		size_t from = fault_random() % part, n = 1 + fault_random() % (part - from);

		for (size_t i = 0; i < id; i++)
			fault_random();
		if (small && r % 2) {
			from &= ~511ul;
			n = 512;
			if (from + n > part)
				continue;
		}
		fault_pattern(see, n, from, id * 1000 + (size_t)r);
		memcpy(model + base + from, see, n);
		CHECK_EQ(peerlane_write(file, gpu, n, (off_t)(base + from), 0), n);
		if (r % 5 == 0) {
			memset(see, 0, n);
			CHECK_EQ(peerlane_read(file, gpu, n, (off_t)(base + from)), n);
			CHECK(!memcmp(see, model + base + from, n));
		}
		/* Into plain memory of no alignment: by way of the page cache. */
		if (r % 3 == 0) {
			CHECK_EQ(peerlane_read(file, host, part - 1, (off_t)base + 1), part - 1);
			CHECK(!memcmp(host, model + base + 1, part - 1));
		}
	}
	free(host);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	return NULL;
}

static size_t block(size_t offset)
{
	return offset & ~511ul;
}

/* The same as one batch: pieces side by side, some that end with a block of the file, some not. */
static void *work_batch(void *arg)
{
	enum { NR = 16 };
	size_t id = (size_t)(uintptr_t)arg, base = id * part, piece = part / NR;
	char *gpu = fault_gpu(ctx, part), *see = fault_see(gpu), *host = malloc(part);
	struct peerlane_event e[NR];
	struct peerlane_batch *b;
	struct peerlane_io io[NR];

	CHECK_EQ(peerlane_batch_create(ctx, NR, &b), 0);
	for (int r = 0; r < ROUNDS; r++) {
		size_t at = 0, end;

		fault_pattern(see, part, 0, id * 1000 + (size_t)r);
		memcpy(model + base, see, part);
		for (size_t i = 0; i < NR; i++, at = end) {
			end = i == NR - 1 ? part : (i + 1) * piece + fault_random() % 512;
			if (fault_random() % 2 && i < NR - 1)
				end = block(base + end) > base + at ? block(base + end) - base
								    : at + 1;
			io[i] = (struct peerlane_io){ .file = file,
						      .addr = gpu + at,
						      .bytes = end - at,
						      .offset = (off_t)(base + at),
						      .op = PEERLANE_WRITE,
						      .cookie = &io[i] };
		}
		CHECK_EQ(peerlane_batch_submit(b, io, NR), 0);
		CHECK_EQ(peerlane_batch_wait(b, NR, e, NR, NULL), NR);
		for (int i = 0; i < NR; i++)
			CHECK_EQ(e[i].result, ((struct peerlane_io *)e[i].cookie)->bytes);
		memset(see, 0, part);
		CHECK_EQ(peerlane_read(file, gpu, part, (off_t)base), part);
		CHECK(!memcmp(see, model + base, part));
		CHECK_EQ(peerlane_read(file, host, part - 1, (off_t)base + 1), part - 1);
		CHECK(!memcmp(host, model + base + 1, part - 1));
	}
	free(host);
	peerlane_batch_destroy(b);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	return NULL;
}

/* Pages in turn: those of even threads are written whole, in batches; those of odd ones in part. */
static void *work_pages(void *arg)
{
	enum { NR = 16, PAGE = 4096 };
	size_t id = (size_t)(uintptr_t)arg;
	char *gpu = fault_gpu(ctx, NR * PAGE), *see = fault_see(gpu),
	     *host = malloc(THREADS * part);
	struct peerlane_event e[NR];
	struct peerlane_batch *b;
	struct peerlane_io io[NR];

	CHECK_EQ(peerlane_batch_create(ctx, NR, &b), 0);
	for (int r = 0; r < ROUNDS; r++) {
		fault_pattern(see, NR * PAGE, 0, id * 1000 + (size_t)r);
		for (size_t i = 0; i < NR; i++) {
			size_t odd = id % 2 ? 1 + fault_random() % 2000 : 0;
			size_t at = (i * THREADS + id) * PAGE + odd, n = PAGE - 2 * odd;

			memcpy(model + at, see + i * PAGE, n);
			io[i] = (struct peerlane_io){ .file = file,
						      .addr = gpu + i * PAGE,
						      .bytes = n,
						      .offset = (off_t)at,
						      .op = PEERLANE_WRITE,
						      .cookie = &io[i] };
		}
		CHECK_EQ(peerlane_batch_submit(b, io, NR), 0);
		CHECK_EQ(peerlane_batch_wait(b, NR, e, NR, NULL), NR);
		for (int i = 0; i < NR; i++)
			CHECK_EQ(e[i].result, ((struct peerlane_io *)e[i].cookie)->bytes);
		/* Through the page cache, which may hold the pages of all in one piece. */
		CHECK_EQ(peerlane_read(file, host, THREADS * part - 1, 1), THREADS * part - 1);
	}
	free(host);
	peerlane_batch_destroy(b);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	return NULL;
}

/* Threads in turn with a batch and with single calls. */
static void *work_mixed(void *arg)
{
	return (uintptr_t)arg % 2 ? work_batch(arg) : work(arg);
}

static void run(void *(*what)(void *), unsigned int flags, size_t part_bytes, bool is_small)
{
	const char *path = fault_path("file");
	size_t total = THREADS * part_bytes;
	char *mem = malloc(total);
	pthread_t threads[THREADS];
	int fd;

	CASE("%sparts of %zu bytes, flags %#x",
	     what == work	  ? ""
	     : what == work_batch ? "batches, "
				  : "batches beside single calls, ",
	     part_bytes, flags);
	part = part_bytes;
	small = is_small;
	model = malloc(total);
	CHECK(mem && model);
	ctx = fault_open(flags, 0);
	fault_make_file(path, total, 3);
	fault_pattern(model, total, 0, 3);
	/* The library is to write it: nothing of it is dirty now. */
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && !fdatasync(fd));
	file = fault_file(ctx, path, O_RDWR | O_DIRECT);
	for (size_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, what, (void *)(uintptr_t)i));
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(pread(fd, mem, total, 0), total);
	for (size_t i = 0; i < total; i++)
		CHECK(mem[i] == model[i]);
	/* What is on the device, not what the page cache says. */
	CHECK_EQ(peerlane_file_sync(file), 0);
	fault_make_cold(path);
	CHECK_EQ(pread(fd, mem, total, 0), total);
	for (size_t i = 0; i < total; i++)
		CHECK(mem[i] == model[i]);
	close(fd);
	CHECK_EQ(peerlane_file_close(file), 0);
	peerlane_close(ctx);
	free(mem);
	free(model);
}

int main(void)
{
	int fd;

	fault_begin(50);
	fd = open(fault_path("probe"), O_CREAT | O_RDWR | O_DIRECT, 0600);
	if (fd < 0)
		fault_skip("no O_DIRECT in %s", fault_dir());
	close(fd);
	run(work, 0, MIB, false);
	run(work_batch, 0, 768 * KIB, false);
	run(work_batch, PEERLANE_NO_IO_URING, 64 * KIB, false);
	run(work, PEERLANE_NO_IO_URING, 64 * KIB, false);
	/* Neighbours in one page. */
	run(work, 0, 1536, true);
	run(work, 0, 5120, true);
	run(work_batch, 0, 9216, false);
	run(work_batch, PEERLANE_NO_IO_URING, 13824, false);
	run(work_pages, 0, 64 * KIB, false);
	run(work_mixed, 0, 9216, true);
	run(work_mixed, 0, 50 * KIB, false);
	run(work_mixed, PEERLANE_NO_IO_URING, 9001, false);
	return 0;
}
