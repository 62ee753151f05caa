// SPDX-License-Identifier: MIT
/*
 * block_size DEVICE: reads and writes of odd places of a block device whose blocks are larger than
 * a page. O_DIRECT then needs more room around small pieces than a page. Run by run.sh.
 */
#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024ul * 1024)
#define BYTES (16 * MIB)

static void fail(int line, const char *text, long long a, long long b)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	printf("FAIL %s:%d: %s: %lld, not %lld; last error %d %s\n", __FILE__, line, text, a, b,
	       info.err, info.text);
	exit(1);
}

#define SAME(a, b)                                                                                 \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_)                                                                      \
			fail(__LINE__, #a, a_, b_);                                                \
	} while (0)

int main(int argc, char **argv)
{
	enum { NR = 64 };
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	struct peerlane_io io[NR];
	struct peerlane_event e[NR];
	struct peerlane_batch *b;
	struct peerlane_file *f;
	struct peerlane *ctx;
	char *model = malloc(BYTES), *see;
	void *gpu;
	int fd;

	if (argc < 2) {
		printf("usage: %s DEVICE\n", argv[0]);
		return 77;
	}
	alarm(60);
	for (size_t i = 0; i < BYTES; i++)
		model[i] = (char)(i * 2654435761u >> 13);
	fd = open(argv[1], O_RDWR);
	SAME(pwrite(fd, model, BYTES, 0), BYTES);
	SAME(fsync(fd), 0);
	SAME(peerlane_open(&ctx, &opt), 0);
	SAME(peerlane_gpu_alloc(ctx, 0, BYTES, &gpu), 0);
	see = peerlane_sim_host(gpu);
	SAME(peerlane_file_open(ctx, argv[1], O_RDWR | O_DIRECT, 0, &f), 0);
	SAME(peerlane_batch_create(ctx, NR, &b), 0);
	/* Side by side in one lane: a piece that starts before its slot hits its neighbour. */
	for (size_t i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){ .file = f,
					      .addr = (char *)gpu + i * 4096,
					      .bytes = 4096,
					      .offset = (off_t)(i * 61440 + 12288),
					      .cookie = &io[i] };
	for (int round = 0; round < 20; round++) {
		memset(see, 0, BYTES);
		SAME(peerlane_batch_submit(b, io, NR), 0);
		SAME(peerlane_batch_wait(b, NR, e, NR, NULL), NR);
		for (size_t i = 0; i < NR; i++) {
			SAME(e[i].result, 4096);
			SAME(memcmp(see + i * 4096, model + i * 61440 + 12288, 4096), 0);
		}
	}
	for (size_t at = 1; at < 200000; at += 12345) {
		SAME(peerlane_read(f, gpu, 70001, (off_t)at), 70001);
		SAME(memcmp(see, model + at, 70001), 0);
		SAME(peerlane_read(f, gpu, 100, (off_t)at), 100);
		SAME(memcmp(see, model + at, 100), 0);
		memset(see, (int)at, 3 * MIB);
		memset(model + at, (int)at, 3 * MIB - at);
		SAME(peerlane_write(f, gpu, 3 * MIB - at, (off_t)at, 0), 3 * MIB - at);
	}
	SAME(peerlane_read(f, gpu, BYTES, 0), BYTES);
	SAME(memcmp(see, model, BYTES), 0);
	peerlane_batch_destroy(b);
	peerlane_close(ctx);
	close(fd);
	free(model);
	return 0;
}
