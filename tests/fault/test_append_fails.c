// SPDX-License-Identifier: MIT
/*
 * Writes to a file opened with O_APPEND of which a piece fails: nothing that follows it may be written,
 * because it would land where the missing bytes belong. Vectors, writes of many units, single pieces
 * cut short, buffered and with O_DIRECT, from GPU and host memory.
 */
#include "fault.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES 8

static size_t size_of(const char *path)
{
	struct stat sb;

	CHECK(!stat(path, &sb));
	return (size_t)sb.st_size;
}

/* A vector whose byte @bad cannot be written. */
static void vector(int open_flags, bool host, size_t piece, int64_t bad)
{
	struct peerlane *ctx = fault_open(0, 0);
	const char *path = fault_path("appended");
	size_t bytes = PIECES * piece;
	char *gpu = fault_gpu(ctx, bytes), *mem = host ? malloc(bytes) : gpu,
	     *got = malloc(bytes + 1);
	struct peerlane_file *f;
	struct iovec iov[PIECES];
	ssize_t n;
	int fd;

	CASE("%s, %s memory, pieces of %zu, byte %lld fails",
	     open_flags & O_DIRECT ? "O_DIRECT" : "buffered", host ? "host" : "GPU", piece,
	     (long long)bad);
	fault_pattern(host ? mem : fault_see(gpu), bytes, 0, 7);
	for (size_t i = 0; i < PIECES; i++)
		iov[i] = (struct iovec){ mem + i * piece, piece };
	f = fault_file(ctx, path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | open_flags);
	shim.write_error_at = bad;
	shim.error = ENOSPC;
	shim_file(path);
	n = peerlane_writev(f, iov, PIECES, 0, 0);
	shim_clear();
	CHECK_EQ(n, bad ? bad : -ENOSPC);
	CHECK_EQ(size_of(path), bad);
	fd = open(path, O_RDONLY);
	CHECK_EQ(pread(fd, got, bytes + 1, 0), bad);
	CHECK_EQ(fault_differs(got, (size_t)bad, 0, 7), bad);
	close(fd);
	free(got);
	/* The file takes the rest once there is room. */
	CHECK_EQ(peerlane_write(f, mem, bytes, 0, 0), bytes);
	CHECK_EQ(size_of(path), (size_t)bad + bytes);
	CHECK_EQ(peerlane_file_close(f), 0);
	if (host)
		free(mem);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* Requests of a batch stand each for itself, in order: the second is there, the first is not. */
static void batch(void)
{
	struct peerlane *ctx = fault_open(0, 0);
	const char *path = fault_path("appended");
	char *gpu = fault_gpu(ctx, 32 * KIB), got[4096];
	struct peerlane_io io[2] = {
		{ .addr = gpu, .bytes = 8192, .offset = 0, .op = PEERLANE_WRITE, .cookie = &io[0] },
		{ .addr = gpu + 8192,
		  .bytes = 4096,
		  .offset = 8192,
		  .op = PEERLANE_WRITE,
		  .cookie = &io[1] },
	};
	struct peerlane_event e[2];
	struct peerlane_batch *b;
	int fd;

	CASE("a batch");
	fault_pattern(fault_see(gpu), 32 * KIB, 0, 7);
	io[0].file = io[1].file = fault_file(ctx, path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND);
	shim.write_error_at = 0;
	shim.error = ENOSPC;
	shim_file(path);
	CHECK_EQ(peerlane_batch_create(ctx, 2, &b), 0);
	CHECK_EQ(peerlane_batch_submit(b, io, 2), 0);
	CHECK_EQ(peerlane_batch_wait(b, 2, e, 2, NULL), 2);
	shim_clear();
	for (int i = 0; i < 2; i++)
		CHECK_EQ(e[i].result, e[i].cookie == &io[0] ? -ENOSPC : 4096);
	peerlane_batch_destroy(b);
	fd = open(path, O_RDONLY);
	CHECK_EQ(size_of(path), 4096);
	CHECK_EQ(pread(fd, got, sizeof(got), 0), 4096);
	CHECK_EQ(fault_differs(got, 4096, 8192, 7), 4096);
	close(fd);
	CHECK_EQ(peerlane_file_close(io[0].file), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

int main(void)
{
	static const int open_flags[] = { 0, O_DIRECT };
	static const size_t pieces[] = { 4096, 5001, 300 * KIB };

	fault_begin(60);
	for (size_t o = 0; o < 2; o++)
		for (int host = 0; host < 2; host++)
			for (size_t p = 0; p < 3; p++) {
				vector(open_flags[o], host, pieces[p], 0);
				vector(open_flags[o], host, pieces[p], 10);
				vector(open_flags[o], host, pieces[p], (int64_t)pieces[p] * 3);
				vector(open_flags[o], host, pieces[p], (int64_t)pieces[p] * 5 + 77);
			}
	batch();
	return 0;
}
