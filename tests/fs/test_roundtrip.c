// SPDX-License-Identifier: MIT
/*
 * roundtrip DIRECTORY [NAME]: odd sizes and alignments written to and read from files of one file
 * system, cold and cached, buffered and O_DIRECT, extending and over holes. Run by run.sh on each.
 */
#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB 1024ul
#define MIB (1024 * KIB)
#define MOST (24 * MIB)
#define GUARD 4096

static char path[512];
static const char *what;
static struct peerlane *ctx;
static char *gpu, *see, *model;

static void fail(int line, const char *text, long long a, long long b)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	printf("FAIL %s:%d: %s: %s: %lld, not %lld; last error %d %s\n", __FILE__, line, what, text,
	       a, b, info.err, info.text);
	exit(1);
}

#define SAME(a, b)                                                                                 \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_)                                                                      \
			fail(__LINE__, #a, a_, b_);                                                \
	} while (0)

static uint32_t roll(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

static void fill(char *mem, size_t bytes)
{
	uint64_t x = roll();

	for (size_t i = 0; i < bytes; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		mem[i] = (char)(x >> 56);
	}
}

static void make_cold(void)
{
	int fd = open(path, O_RDONLY);

	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

/* Reads what the model says, with guards around it. */
static void check_read(struct peerlane_file *f, size_t size, size_t bytes, size_t offset,
		       size_t align)
{
	size_t n = offset >= size ? 0 : size - offset < bytes ? size - offset : bytes;

	memset(see, 0x77, GUARD + align + bytes + GUARD);
	SAME(peerlane_read(f, gpu + GUARD + align, bytes, (off_t)offset), n);
	SAME(memcmp(see + GUARD + align, model + offset, n), 0);
	for (size_t i = 0; i < GUARD + align; i++)
		SAME(see[i], 0x77);
	for (size_t i = GUARD + align + n; i < GUARD + align + bytes + GUARD; i++)
		SAME(see[i], 0x77);
}

static void check_whole(size_t size)
{
	char *mem = malloc(size + 1);
	int fd = open(path, O_RDONLY);

	SAME(pread(fd, mem, size + 1, 0), size);
	for (size_t i = 0; i < size; i++)
		if (mem[i] != model[i])
			fail(__LINE__, "the file differs at", (long long)i, -1);
	close(fd);
	free(mem);
}

static void round_trips(int open_flags)
{
	static const size_t sizes[] = { 0,	1,    511,     512,	    513,
					4095,	4096, 4097,    65536,	    65537,
					131073, MIB,  MIB + 1, 5 * MIB - 3, 9 * MIB + 777 };
	static const size_t offsets[] = { 0, 1, 512, 4096, 4095, 65536, 100001 };
	struct peerlane_file *f;
	size_t size = 0;

	unlink(path);
	memset(model, 0, MOST);
	SAME(peerlane_file_open(ctx, path, O_CREAT | O_RDWR | open_flags, 0600, &f), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t bytes = sizes[i], offset = offsets[i % 7], align = i * 13 % 600;

		/* Twice: it extends the file, then it writes over what is cached (or mapped). */
		for (int again = 0; again < 2; again++) {
			fill(see + align, bytes);
			memcpy(model + offset, see + align, bytes);
			SAME(peerlane_write(f, gpu + align, bytes, (off_t)offset,
					    i % 8 == 7 ? PEERLANE_DURABLE : 0),
			     bytes);
			if (bytes && offset + bytes > size)
				size = offset + bytes;
			check_read(f, size, bytes, offset, align);
		}
		check_read(f, size, bytes + 5000, offset, 1);
		make_cold();
		check_read(f, size, bytes, offset, 0);
		make_cold();
		check_read(f, size, bytes, offset ? offset - 1 : 3, 77);
	}
	check_whole(size);
	/* A hole, and a write beyond the end. */
	SAME(ftruncate(open(path, O_RDWR | O_CLOEXEC), (off_t)(17 * MIB)), 0);
	size = 17 * MIB;
	make_cold();
	check_read(f, size, 6 * MIB, 11 * MIB + 5, 0);
	fill(see, 3000);
	memcpy(model + 20 * MIB + 9, see, 3000);
	SAME(peerlane_write(f, gpu, 3000, 20 * MIB + 9, 0), 3000);
	size = 20 * MIB + 9 + 3000;
	check_read(f, size, 9 * MIB, 12 * MIB, 3);
	SAME(peerlane_file_sync(f), 0);
	make_cold();
	check_read(f, size, 9 * MIB, 12 * MIB, 3);
	check_whole(size);
	SAME(peerlane_file_close(f), 0);
}

/* Many small ones at once. */
static void batches(int open_flags)
{
	enum { NR = 128 };
	struct peerlane_io io[NR];
	struct peerlane_event e[NR];
	struct peerlane_batch *b;
	struct peerlane_file *f;
	size_t at = 0, size;

	unlink(path);
	SAME(peerlane_file_open(ctx, path, O_CREAT | O_RDWR | open_flags, 0600, &f), 0);
	SAME(peerlane_batch_create(ctx, NR, &b), 0);
	fill(see, MOST / 2);
	memcpy(model, see, MOST / 2);
	for (int i = 0; i < NR; i++) {
		size_t n = 1 + roll() % 20000;

		io[i] = (struct peerlane_io){ .file = f,
					      .addr = gpu + at,
					      .bytes = n,
					      .offset = (off_t)at,
					      .op = PEERLANE_WRITE,
					      .cookie = &io[i] };
		at += n;
	}
	size = at;
	for (int pass = 0; pass < 3; pass++) {
		SAME(peerlane_batch_submit(b, io, NR), 0);
		SAME(peerlane_batch_wait(b, NR, e, NR, NULL), NR);
		for (int i = 0; i < NR; i++) {
			struct peerlane_io *q = e[i].cookie;

			SAME(e[i].result, q->bytes);
			q->op = PEERLANE_READ;
		}
		SAME(memcmp(see, model, size), 0);
		check_whole(size);
		memset(see, 0, size);
		make_cold();
	}
	peerlane_batch_destroy(b);
	SAME(peerlane_file_close(f), 0);
}

/* The leak checker of the address sanitizer asks this; it needs /proc, which one run is without. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return access("/proc/self/maps", F_OK) != 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		unsigned int flags;
		int open_flags;
	} ways[] = {
		{ "buffered", 0, 0 },
		{ "O_DIRECT", 0, O_DIRECT },
		{ "O_DIRECT by threads", PEERLANE_NO_IO_URING, O_DIRECT },
		{ "no O_DIRECT", PEERLANE_NO_DIRECT, 0 },
	};
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_file *f;
	void *p;

	if (argc < 2) {
		printf("usage: %s DIRECTORY\n", argv[0]);
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60);
	snprintf(path, sizeof(path), "%s/roundtrip.%d", argv[1], (int)getpid());
	model = malloc(MOST);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct peerlane_options opt = { .size = sizeof(opt),
						.flags = ways[i].flags,
						.backend = "sim",
						.nr_threads = 2 };

		what = ways[i].name;
		SAME(peerlane_open(&ctx, &opt), 0);
		SAME(peerlane_gpu_alloc(ctx, 0, MOST + 4 * GUARD, &p), 0);
		gpu = p;
		see = peerlane_sim_host(gpu);
		round_trips(ways[i].open_flags);
		batches(ways[i].open_flags);
		if (!i) {
			SAME(peerlane_file_open(ctx, path, O_RDWR, 0, &f), 0);
			SAME(peerlane_explain(f, PEERLANE_READ, gpu, MIB, 0, &ex), 0);
			printf("%s: explained as %s on %s, O_DIRECT alignment %u, %s\n",
			       argc > 2 ? argv[2] : argv[1], ex.fs, *ex.device ? ex.device : "-",
			       ex.dio_align, ex.io_engine);
		}
		unlink(path);
		peerlane_close(ctx);
	}
	free(model);
	return 0;
}
