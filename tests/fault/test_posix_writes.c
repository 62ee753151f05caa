// SPDX-License-Identifier: MIT
/*
 * POSIX meaning on files opened with O_DIRECT: random writes of every kind, whose pieces meet inside
 * blocks and pages, leave exactly the bytes that pwrite() would have left. Threads with two contexts
 * write parts of one file that border on each other at any byte, by single calls, vectors, batches and
 * streams, from GPU memory and from host memory of any alignment. After each round the file is made
 * durable and read back cold; no byte may be wrong, no descriptor may be told EIO, and the kernel
 * must not log that direct and buffered I/O collided. Because a collision does harm only now and then,
 * the last rounds also count direct and buffered writes that meet at all.
 *
 *   test_fault_posix_writes [SECONDS [SEED [DIR]]]    longer; again with a seed that failed; on another file system
 */
#include "fault.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 6u
#define MAX_PART (256 * KIB)
#define MAX_TOTAL (MAX_THREADS * MAX_PART)
#define PIECES 48u
#define OPS 24u

/* How the file is laid out before a round. */
enum layout { WRITTEN, SPARSE, ALLOCATED, EMPTY, NR_LAYOUTS };

struct writer {
	uint64_t random;
	struct peerlane *ctx;
	struct peerlane_file *file;
	char *gpu, *see;    /* MAX_PART bytes */
	char *host;	    /* of no alignment */
	size_t base, bytes; /* the part of the file that is this thread's */
	char *model;	    /* of the whole file */
};

static unsigned long nr_calls, nr_rounds;

static uint32_t draw(struct writer *w, size_t below)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 16) % below);
}

/* A stretch of the thread's part: tiny, around a few blocks, or long. */
static size_t stretch(struct writer *w, size_t *bytes)
{
	size_t most = draw(w, 4) ? 6 * KIB : w->bytes, from;

	if (!draw(w, 4))
		most = 600;
	from = draw(w, w->bytes);
	*bytes = 1 + draw(w, most);
	if (*bytes > w->bytes - from)
		*bytes = w->bytes - from;
	/* Whole blocks, as programs that know O_DIRECT write them. */
	if (!draw(w, 3)) {
		size_t a = (w->base + from + 511) & ~511ul, b = (w->base + from + *bytes) & ~511ul;

		if (a < b) {
			from = a - w->base;
			*bytes = b - a;
		}
	}
	return from;
}

/* New content for [@from, @from + @bytes) of the part, in memory and in the model. */
static void compose(struct writer *w, char *mem, size_t from, size_t bytes)
{
	fault_pattern(mem, bytes, draw(w, 1u << 20), draw(w, 1u << 30));
	memcpy(w->model + w->base + from, mem, bytes);
}

static unsigned int flags(struct writer *w)
{
	return draw(w, 8) ? 0 : PEERLANE_DURABLE;
}

static void write_one(struct writer *w)
{
	size_t bytes, from = stretch(w, &bytes), odd = draw(w, 3) ? 0 : draw(w, 64);
	bool host = !draw(w, 4);
	char *see = (host ? w->host : w->see) + odd;

	if (odd + bytes > MAX_PART)
		return;
	compose(w, see, from, bytes);
	CHECK_EQ(peerlane_write(w->file, host ? see : w->gpu + odd, bytes, (off_t)(w->base + from),
				flags(w)),
		 bytes);
}

/* Each three pieces: blocks, then two that together are one. */
static void write_vector(struct writer *w)
{
	struct iovec iov[PIECES];
	size_t from = draw(w, 2) ? (-w->base & 511) : draw(w, 5000), at = from, x = 0, n;
	unsigned int nr = 0, most = 1 + draw(w, PIECES);
	bool host = !draw(w, 6);
	char *see = host ? w->host : w->see;

	while (nr < most && at < w->bytes) {
		if (nr % 3 == 0)
			n = 512 * draw(w, 8);
		else if (nr % 3 == 1)
			n = x = draw(w, 512);
		else
			n = 512 - x;
		if (n > w->bytes - at)
			n = w->bytes - at;
		compose(w, see + at, at, n);
		iov[nr].iov_base = (host ? w->host : w->gpu) + at;
		iov[nr++].iov_len = n;
		at += n;
	}
	if (nr)
		CHECK_EQ(peerlane_writev(w->file, iov, (int)nr, (off_t)(w->base + from), flags(w)),
			 at - from);
}

/* Requests side by side, as long as one lies behind the other. */
static void write_batch(struct writer *w)
{
	enum { NR = 16 };
	struct peerlane_event events[NR];
	struct peerlane_io io[NR];
	struct peerlane_batch *b;
	size_t at = draw(w, w->bytes), n;
	unsigned int nr = 0;
	bool host;

	CHECK_EQ(peerlane_batch_create(w->ctx, NR, &b), 0);
	/* Half of the batches begin with whole blocks. */
	if (draw(w, 2))
		at += -(w->base + at) & 511;
	for (; nr < NR && at < w->bytes; at += n) {
		n = draw(w, 2) ? 512 * (1 + draw(w, 12)) : 1 + draw(w, 3000);
		if (n > w->bytes - at)
			n = w->bytes - at;
		/* Memory that O_DIRECT cannot use, also for whole blocks. */
		host = !draw(w, 3);
		compose(w, host ? w->host + 1 + at : w->see + at, at, n);
		io[nr] = (struct peerlane_io){ .file = w->file,
					       .addr = host ? w->host + 1 + at : w->gpu + at,
					       .bytes = n,
					       .offset = (off_t)(w->base + at),
					       .op = PEERLANE_WRITE,
					       .flags = flags(w),
					       .cookie = &io[nr] };
		nr++;
		/* Now and then a gap. */
		if (!draw(w, 4))
			n += draw(w, 700);
	}
	CHECK_EQ(peerlane_batch_submit(b, io, nr), 0);
	CHECK_EQ(peerlane_batch_wait(b, nr, events, NR, NULL), nr);
	for (unsigned int i = 0; i < nr; i++)
		CHECK_EQ(events[i].result, ((struct peerlane_io *)events[i].cookie)->bytes);
	peerlane_batch_destroy(b);
}

static void write_stream(struct writer *w)
{
	size_t bytes, from = stretch(w, &bytes);

	compose(w, w->see, from, bytes);
	CHECK_EQ(fault_io(FAULT_STREAM, w->ctx, w->file, PEERLANE_WRITE, w->gpu, bytes,
			  (off_t)(w->base + from)),
		 bytes);
}

/* What lies past the end of the file comes short; what comes is right. */
static void read_back(struct writer *w)
{
	size_t bytes, from = stretch(w, &bytes);
	bool host = draw(w, 2);
	char *mem = host ? w->host + 1 : w->gpu, *see = host ? mem : w->see;
	ssize_t n;

	if (bytes >= MAX_PART)
		bytes--;
	memset(see, 0x5a, bytes);
	n = peerlane_read(w->file, mem, bytes, (off_t)(w->base + from));
	CHECK(n >= 0 && n <= (ssize_t)bytes);
	CHECK(!memcmp(see, w->model + w->base + from, (size_t)n));
}

static void *work(void *arg)
{
	static void (*const kinds[])(struct writer *) = { write_one,   write_vector, write_vector,
							  write_batch, write_stream, read_back,
							  read_back };
	struct writer *w = arg;

	for (unsigned int i = 0; i < OPS && w->bytes; i++)
		kinds[draw(w, sizeof(kinds) / sizeof(kinds[0]))](w);
	return NULL;
}

static void lay_out(int fd, enum layout layout, char *model, size_t total)
{
	CHECK(!ftruncate(fd, 0));
	memset(model, 0, total);
	if (layout == WRITTEN) {
		fault_pattern(model, total, 0, 3);
		CHECK_EQ(pwrite(fd, model, total, 0), total);
	} else if (layout == SPARSE) {
		CHECK(!ftruncate(fd, (off_t)total));
	} else if (layout == ALLOCATED && posix_fallocate(fd, 0, (off_t)total)) {
		CHECK(!ftruncate(fd, (off_t)total));
	}
	CHECK(!fdatasync(fd));
	CHECK(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
}

/* What is on the device, past the page cache. */
static void compare_cold(const char *path, const char *model, size_t total)
{
	int fd = open(path, O_RDONLY | O_DIRECT);
	char *mem = aligned_alloc(4096, MAX_TOTAL);
	struct stat sb;
	ssize_t n;

	CHECK(fd >= 0 && mem && !fstat(fd, &sb));
	CHECK(sb.st_size <= (off_t)total);
	n = pread(fd, mem, MAX_TOTAL, 0);
	CHECK_EQ(n, sb.st_size);
	for (size_t i = 0; i < (size_t)n; i++)
		if (mem[i] != model[i])
			fault_check_eq(__FILE__, __LINE__, "first wrong byte", (long long)i, "none",
				       -1);
	free(mem);
	close(fd);
}

/* Lines of the kernel's log since the last call that tell of a collision on our file. */
static int kernel_log = -1;

static void check_kernel_log(void)
{
	char line[1024];
	bool found = false;
	ssize_t n;

	while ((n = read(kernel_log, line, sizeof(line) - 1)) > 0 || (n < 0 && errno == EPIPE)) {
		if (n < 0)
			continue;
		line[n] = '\0';
		if (strstr(line, "File:") &&
		    (strstr(line, "peerlane-fault") || strstr(line, "peerlane-fs")))
			found = true;
	}
	if (found)
		fault_fail(__FILE__, __LINE__, "the kernel logged a collision");
}

static void start_log(void)
{
	kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	if (kernel_log >= 0)
		lseek(kernel_log, 0, SEEK_END);
	else
		printf("the kernel's log cannot be read: %s\n", strerror(errno));
}

static struct writer writers[MAX_THREADS];

/* One file, all threads; then the disk is looked at. */
static void play_round(const char *path, uint64_t seed)
{
	struct writer dice = { .random = seed * 0x9e3779b97f4a7c15 | 1 };
	unsigned int nr = 1 + draw(&dice, MAX_THREADS);
	enum layout layout = draw(&dice, NR_LAYOUTS);
	char *model = malloc(MAX_TOTAL);
	pthread_t threads[MAX_THREADS];
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	size_t at = draw(&dice, 3000);

	CASE("seed %llu: %u threads, layout %u", (unsigned long long)seed, nr, layout);
	CHECK(fd >= 0 && model);
	lay_out(fd, layout, model, MAX_TOTAL);
	for (unsigned int i = 0; i < nr; i++) {
		struct writer *w = &writers[i];

		w->random = (seed + i + 1) * 0xd1b54a32d192ed03 | 1;
		w->base = at;
		w->bytes = 1 + draw(&dice, draw(&dice, 2) ? 20 * KIB : MAX_PART - 3 * KIB);
		w->model = model;
		at += w->bytes;
		w->file = fault_file(w->ctx, path, O_RDWR | O_DIRECT);
	}
	for (unsigned int i = 0; i < nr; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, &writers[i]));
	for (unsigned int i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < nr; i++) {
		CHECK_EQ(peerlane_file_sync(writers[i].file), 0);
		CHECK_EQ(peerlane_file_close(writers[i].file), 0);
	}
	CHECK_EQ(fdatasync(fd) ? errno : 0, 0);
	CHECK(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	compare_cold(path, model, MAX_TOTAL);
	if (kernel_log >= 0)
		check_kernel_log();
	close(fd);
	free(model);
	nr_rounds++;
	nr_calls += nr * OPS;
}

static const char *path_of(const char *dir)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/odd", dir);
	return path;
}

/* Rounds on one directory, until @seconds have passed, @least at least. */
static void play(const char *what, const char *dir, uint64_t seed, double seconds,
		 unsigned int least)
{
	double until = fault_now() + seconds;

	for (unsigned int i = 0; i < least || fault_now() < until; i++)
		play_round(path_of(dir), seed++);
	printf("%s: %lu rounds, %lu calls\n", what, nr_rounds, nr_calls);
}

static void open_writers(struct peerlane *contexts[2], unsigned int flags_0, unsigned int flags_1)
{
	contexts[0] = fault_open(flags_0, 0);
	contexts[1] = fault_open(flags_1, 0);
	for (unsigned int i = 0; i < MAX_THREADS; i++) {
		writers[i].ctx = contexts[i % 2];
		writers[i].gpu = fault_gpu(writers[i].ctx, MAX_PART);
		writers[i].see = fault_see(writers[i].gpu);
		writers[i].host = malloc(MAX_PART + 64);
		CHECK(writers[i].host);
	}
}

static void close_writers(struct peerlane *contexts[2])
{
	for (unsigned int i = 0; i < MAX_THREADS; i++) {
		CHECK_EQ(peerlane_gpu_free(writers[i].ctx, writers[i].gpu), 0);
		free(writers[i].host);
	}
	for (int i = 0; i < 2; i++)
		peerlane_close(contexts[i]);
}

/* Only on the file system of @dir. */
static void play_there(const char *dir, uint64_t seed, double seconds)
{
	struct peerlane *contexts[2];

	open_writers(contexts, 0, PEERLANE_NO_IO_URING);
	play(dir, dir, seed, seconds, 20);
	close_writers(contexts);
	CHECK(!unlink(path_of(dir)));
}

/* Direct and buffered writes must not meet. The shim sees system calls only, no io_uring. */
static void play_watched(const char *dir, uint64_t seed)
{
	struct peerlane *contexts[2];
	unsigned long nr[2];

	open_writers(contexts, PEERLANE_NO_IO_URING, PEERLANE_NO_IO_URING);
	shim.apart = true;
	shim.delay_us = 500;
	shim_file(path_of(dir));
	play("watched", dir, seed, 0, 10);
	CHECK_EQ(shim_collisions(nr), 0);
	CHECK(nr[0] && nr[1]);
	/* What is refused in the middle goes through the page cache, and not beside direct writes. */
	shim.refuse_of = 3;
	shim_hits();
	play("refused now and then", dir, seed, 0, 10);
	CHECK(shim_hits());
	CHECK_EQ(shim_collisions(nr), 0);
	close_writers(contexts);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
	struct peerlane *contexts[2];
	const char *sector_512, *sector_4096;

	/* One of the day, so that it can be had again. */
	if (!seed)
		seed = (uint64_t)time(NULL) / 86400;
	fault_begin(90 + (unsigned int)seconds);
	printf("seed %llu\n", (unsigned long long)seed);
	start_log();
	if (argc > 3) {
		play_there(argv[3], seed, seconds);
		return 0;
	}
	sector_512 = fault_mount_sector("ext4", 64, "-q -F -O ^has_journal", "", 512);
	sector_4096 = fault_mount_sector("ext4", 64, "-q -F", "", 4096);
	open_writers(contexts, 0, PEERLANE_NO_IO_URING);
	play("blocks of 512 bytes", sector_512, seed, seconds / 2, 60);
	play("blocks of 4096 bytes", sector_4096, seed, seconds / 2, 60);
	close_writers(contexts);
	play_watched(sector_512, seed);
	return 0;
}
