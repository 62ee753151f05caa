// SPDX-License-Identifier: MIT
/* Reverses a file: it is read into GPU memory, turned round there by a kernel and written back. */
#include <peerlane/gpu.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "reverse_ptx.h"

#define NR_BLOCKS 128u
#define NR_THREADS 256u

/* What reverse.cu does, for the simulated GPU: here a block is one thread. */
static void reverse_on_host(unsigned int block, unsigned int nr_blocks, void **args)
{
	void *addr = *(void **)args[0];
	unsigned long long n = *(unsigned long long *)args[1];
	char *s = peerlane_sim_host(addr);

	if (!s)
		return;
	for (unsigned long long i = block; i < n / 2; i += nr_blocks) {
		char c = s[i];

		s[i] = s[n - 1 - i];
		s[n - 1 - i] = c;
	}
}

static const struct peerlane_kernel reverse = {
	.name = "reverse",
	.ptx = reverse_ptx,
	.host = reverse_on_host,
};

/* Prints why @what failed, in the library's words where it has some; returns @err. */
static int complain(const char *what, int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	if (!peerlane_error(&info) && info.err == err && *info.text)
		fprintf(stderr, "strrev: %s\n", info.text);
	else
		fprintf(stderr, "strrev: %s: %s\n", what, peerlane_strerror(err));
	return err;
}

/* A transfer that must be whole: a short one means that the file changed or the disk is full. */
static int whole(const char *what, ssize_t got, size_t bytes)
{
	if (got < 0)
		return complain(what, (int)got);
	if ((size_t)got == bytes)
		return 0;
	fprintf(stderr, "strrev: %s: only %zd of %zu bytes\n", what, got, bytes);
	return -EIO;
}

static int reverse_in_gpu(struct peerlane *ctx, void *addr, size_t bytes)
{
	unsigned long long n = bytes;
	void *args[] = { &addr, &n };
	const size_t arg_bytes[] = { sizeof(addr), sizeof(n) };
	void *stream;
	int err = peerlane_gpu_stream_create(ctx, 0, &stream);

	if (err)
		return complain("no stream", err);
	err = peerlane_gpu_launch(ctx, stream, &reverse, NR_BLOCKS, NR_THREADS, args, arg_bytes, 2);
	if (!err)
		err = peerlane_gpu_stream_sync(ctx, stream);
	peerlane_gpu_stream_destroy(ctx, stream);
	return err ? complain("the kernel failed", err) : 0;
}

/* Copies the content out of GPU memory and prints it. */
static int show(struct peerlane *ctx, const void *addr, size_t bytes)
{
	char *text = malloc(bytes);
	int err;

	if (!text)
		return complain("no memory", -ENOMEM);
	err = peerlane_gpu_copy(ctx, text, addr, bytes);
	if (err)
		complain("cannot copy from the GPU", err);
	else if (fwrite(text, 1, bytes, stdout) != bytes || putchar('\n') == EOF)
		err = complain("standard output", -errno);
	free(text);
	return err;
}

static int reverse_file(struct peerlane *ctx, struct peerlane_file *file, const char *path,
			size_t bytes)
{
	void *addr;
	int err = peerlane_gpu_alloc(ctx, 0, bytes, &addr);

	if (err)
		return complain("no GPU memory", err);
	err = whole(path, peerlane_read(file, addr, bytes, 0), bytes);
	if (!err)
		err = reverse_in_gpu(ctx, addr, bytes);
	if (!err)
		err = whole(path, peerlane_write(file, addr, bytes, 0, 0), bytes);
	if (!err)
		err = show(ctx, addr, bytes);
	peerlane_gpu_free(ctx, addr);
	if (!err)
		printf("See also %s\n", path);
	return err;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "test.txt";
	struct peerlane_file *file;
	struct peerlane *ctx;
	struct stat st;
	int err;

	if (argc > 2) {
		fprintf(stderr, "usage: strrev [FILE]\n");
		return EXIT_FAILURE;
	}
	err = peerlane_open(&ctx, NULL);
	if (err) {
		complain("cannot start", err);
		return EXIT_FAILURE;
	}
	err = peerlane_file_open(ctx, path, O_RDWR, 0, &file);
	if (!err && stat(path, &st))
		err = -errno;
	if (err) {
		complain(path, err);
		goto out_close;
	}
	printf("sys_len : %lld\n", (long long)st.st_size);
	if (st.st_size)
		err = reverse_file(ctx, file, path, (size_t)st.st_size);
out_close:
	peerlane_close(ctx); /* and the file, if it is open */
	if (fflush(stdout))
		err = complain("standard output", -errno);
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
