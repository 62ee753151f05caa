// SPDX-License-Identifier: MIT
/*
 * Reads a file into GPU memory, asynchronously and in chunks, and says which way the bytes came:
 * what nvme-strom's MEMCPY_SSD2GPU and MEMCPY_WAIT did. Nothing has to be mapped first, the chunks
 * stay in order, and what is in the page cache needs no second copy by the program.
 */
#include <peerlane/gpu.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (1024ul * 1024)
#define IN_FLIGHT 64u

static const char usage[] = "usage: file_to_gpu [-d] [-c] FILE\n"
			    "Reads FILE into GPU memory and says which way the bytes came.\n"
			    "  -d  open it with O_DIRECT: never from the page cache\n"
			    "  -c  compare what is in GPU memory with the file\n";

/* Prints why @what failed, in the library's words where it has some; returns @err. */
static int complain(const char *what, int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	if (!peerlane_error(&info) && info.err == err && *info.text)
		fprintf(stderr, "file_to_gpu: %s: %s\n", what, info.text);
	else
		fprintf(stderr, "file_to_gpu: %s: %s\n", what, peerlane_strerror(err));
	return err;
}

/* Waits for at least one chunk; takes those that are done off *@in_flight. */
static int wait_some(struct peerlane_batch *batch, unsigned int *in_flight)
{
	struct peerlane_event done[IN_FLIGHT];
	int n = peerlane_batch_wait(batch, 1, done, IN_FLIGHT, NULL), err = n < 0 ? n : 0;

	for (int i = 0; i < n; i++) {
		ssize_t want = (ssize_t)(uintptr_t)done[i].cookie;

		if (done[i].result != want && !err)
			err = done[i].result < 0 ? (int)done[i].result : -EIO;
	}
	*in_flight -= n > 0 ? (unsigned int)n : 0;
	return err ? complain("a chunk did not come whole", err) : 0;
}

/* Keeps up to IN_FLIGHT chunks under way. */
static int read_chunks(struct peerlane_batch *batch, struct peerlane_file *file, char *gpu,
		       size_t bytes)
{
	unsigned int in_flight = 0;
	size_t at = 0;
	int err = 0;

	while (!err && (at < bytes || in_flight)) {
		size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
		struct peerlane_io io = { .file = file,
					  .addr = gpu + at,
					  .bytes = n,
					  .offset = (off_t)at,
					  .op = PEERLANE_READ,
					  .cookie = (void *)n };

		if (n && in_flight < IN_FLIGHT) {
			err = peerlane_batch_submit(batch, &io, 1);
			if (err)
				return complain("cannot submit", err);
			in_flight++;
			at += n;
			continue;
		}
		err = wait_some(batch, &in_flight);
	}
	return err;
}

/* The file, read the plain way, and GPU memory. */
static int compare(struct peerlane *ctx, const char *path, const char *gpu, size_t bytes)
{
	char *want = malloc(CHUNK_BYTES), *seen = malloc(CHUNK_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = fd < 0 ? -errno : 0;

	for (size_t at = 0, n; want && seen && !err && at < bytes; at += n) {
		n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
		err = peerlane_gpu_copy(ctx, seen, gpu + at, n);
		if (!err &&
		    (pread(fd, want, n, (off_t)at) != (ssize_t)n || memcmp(want, seen, n) != 0))
			err = -EIO;
	}
	err = want && seen ? err : -ENOMEM;
	if (fd >= 0)
		close(fd);
	free(want);
	free(seen);
	return err ? complain("GPU memory and the file differ", err) : 0;
}

/* The ways, and if none of it came direct, why not. */
static void report(struct peerlane *ctx, struct peerlane_file *file, const void *gpu, size_t bytes)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	const struct peerlane_verdict *v = &ex.verdicts[PEERLANE_PATH_P2P];
	struct peerlane_stats st = { .size = sizeof(st) };
	const uint64_t *by = st.read.path_bytes;

	if (peerlane_stats_get(ctx, &st))
		return;
	printf("%" PRIu64 " bytes direct: from the drive into GPU memory\n"
	       "%" PRIu64 " bytes from the page cache\n"
	       "%" PRIu64 " bytes staged: from the drive by way of host memory\n",
	       by[PEERLANE_PATH_P2P], by[PEERLANE_PATH_COPY] + by[PEERLANE_PATH_IN_PLACE],
	       by[PEERLANE_PATH_DIRECT] + by[PEERLANE_PATH_MAPPED]);
	if (by[PEERLANE_PATH_P2P] || peerlane_explain(file, PEERLANE_READ, gpu, bytes, 0, &ex))
		return;
	printf("not direct: %s\n", v->reason);
	if (v->fix[0])
		printf("what helps: %s\n", v->fix);
}

static int file_to_gpu(struct peerlane *ctx, const char *path, int flags, bool check)
{
	struct peerlane_batch *batch;
	struct peerlane_file *file;
	struct stat st;
	void *gpu;
	int err = peerlane_file_open(ctx, path, O_RDONLY | flags, 0, &file);

	if (!err && stat(path, &st))
		err = -errno;
	else if (!err && !st.st_size)
		err = -ENODATA;
	if (err)
		return complain(path, err);
	err = peerlane_gpu_alloc(ctx, 0, (size_t)st.st_size, &gpu);
	if (err)
		return complain("no GPU memory", err);
	err = peerlane_batch_create(ctx, IN_FLIGHT, &batch);
	if (err) {
		complain("no batch", err);
	} else {
		err = read_chunks(batch, file, gpu, (size_t)st.st_size);
		peerlane_batch_destroy(batch);
	}
	if (!err)
		report(ctx, file, gpu, (size_t)st.st_size);
	if (!err && check)
		err = compare(ctx, path, gpu, (size_t)st.st_size);
	if (!err && check)
		printf("GPU memory holds the file\n");
	peerlane_gpu_free(ctx, gpu);
	return err;
}

int main(int argc, char **argv)
{
	struct peerlane *ctx;
	int opt, flags = 0, err;
	bool check = false;

	while ((opt = getopt(argc, argv, "dc")) != -1) {
		flags |= opt == 'd' ? O_DIRECT : 0;
		check |= opt == 'c';
		if (opt == '?')
			break;
	}
	if (opt != -1 || optind != argc - 1) {
		fputs(usage, stderr);
		return EXIT_FAILURE;
	}
	err = peerlane_open(&ctx, NULL);
	if (err) {
		complain("cannot start", err);
		return EXIT_FAILURE;
	}
	printf("back end %s\n", peerlane_backend(ctx));
	err = file_to_gpu(ctx, argv[optind], flags, check);
	peerlane_close(ctx); /* and the file */
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
