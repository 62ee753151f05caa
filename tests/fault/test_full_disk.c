// SPDX-License-Identifier: MIT
/*
 * A file system that fills up in the middle of a write: plain, with O_DIRECT, and through a mapping
 * of a file with holes. The count is a prefix truly in the file, the next write at that place gives
 * -ENOSPC, and no signal comes. Needs root for the mounts.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (64 * MIB)

static void check_prefix(const char *path, size_t bytes, uint64_t seed)
{
	char *mem = malloc(BYTES);
	int fd = open(path, O_RDONLY);

	CHECK(mem && fd >= 0);
	CHECK_EQ(pread(fd, mem, bytes, 0), bytes);
	CHECK_EQ(fault_differs(mem, bytes, 0, seed), bytes);
	/* And on the device. */
	CHECK(!fdatasync(fd));
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	CHECK_EQ(pread(fd, mem, bytes, 0), bytes);
	CHECK_EQ(fault_differs(mem, bytes, 0, seed), bytes);
	close(fd);
	free(mem);
}

static void fill_up(const char *path, unsigned int flags, int open_flags, enum fault_how how,
		    bool use_host)
{
	struct peerlane *ctx = fault_open(flags, 0);
	struct peerlane_file *f = fault_file(ctx, path, O_CREAT | O_RDWR | open_flags);
	char *gpu = fault_gpu(ctx, BYTES), *host = NULL, *mem = gpu;
	ssize_t n, more;
	off_t at;

	if (use_host) {
		host = mem = aligned_alloc(4096, BYTES);
		CHECK(host);
		fault_pattern(host, BYTES, 0, 5);
	} else {
		fault_pattern(fault_see(gpu), BYTES, 0, 5);
	}
	n = fault_io(how, ctx, f, PEERLANE_WRITE, mem, BYTES, 0);
	CHECK(n > 0 && n < (ssize_t)BYTES);
	check_prefix(path, (size_t)n, 5);
	/* Blocks beyond the prefix may have been freed by then, or a page been left over: soon. */
	at = n;
	for (int i = 0; i < 200; i++) {
		more = fault_io(how, ctx, f, PEERLANE_WRITE, mem + at, BYTES - (size_t)at, at);
		if (more <= 0)
			break;
		at += more;
		check_prefix(path, (size_t)at, 5);
	}
	CHECK_EQ(more, -ENOSPC);
	check_prefix(path, (size_t)at, 5);
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
	free(host);
	CHECK(!unlink(path));
}

/* Bytes that went through a mapping so far. */
static uint64_t mapped(struct peerlane *ctx)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	CHECK(!peerlane_stats_get(ctx, &st));
	return st.mapped_write_bytes;
}

/* A file of holes that is all in the page cache: a mapped write meets the full disk at its pages. */
static void holes(const char *type, const char *path, const char *where, size_t piece)
{
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_file *f;
	char *gpu = fault_gpu(ctx, BYTES), other[256];
	struct stat sb;
	ssize_t n = 0, more = 1;
	int fd;

	fd = open(path, O_CREAT | O_RDWR, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, BYTES));
	close(fd);
	fault_make_cached(path);
	f = fault_file(ctx, path, O_RDWR);
	fault_pattern(fault_see(gpu), BYTES, 0, 6);
	do {
		more = peerlane_write(f, gpu + n, piece ? piece : BYTES, n, 0);
		n += more > 0 ? more : 0;
	} while (piece && more == (ssize_t)piece);
	CHECK(n > 0 && n < (ssize_t)BYTES);
	check_prefix(path, (size_t)n, 6);
	CHECK(!stat(path, &sb));
	CHECK_EQ(sb.st_size, BYTES);
	/* On tmpfs holes are never in the page cache. */
	CHECK(mapped(ctx) > 0 || !strcmp(type, "tmpfs"));
	/* What was reserved for later pieces may have come free: not for long. */
	for (int i = 0; i < 200 && more > 0; i++) {
		more = peerlane_write(f, gpu + n, piece ? piece : BYTES - (size_t)n, n, 0);
		if (more > 0)
			n += more;
	}
	CHECK_EQ(more, -ENOSPC);
	check_prefix(path, (size_t)n, 6);
	/* With room again it works. */
	snprintf(other, sizeof(other), "%s/ballast", where);
	CHECK(!unlink(other));
	n = peerlane_write(f, gpu, 4 * MIB, 0, 0);
	CHECK_EQ(n, 4 * MIB);
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
	CHECK(!unlink(path));
}

static void ballast(const char *where, size_t bytes)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/ballast", where);
	fault_make_file(path, bytes, 9);
}

static void on(const char *type)
{
	const char *where = fault_mount(type, 48, "-q -F -m 0", "");
	char path[256];

	snprintf(path, sizeof(path), "%s/file", where);
	for (int how = 0; how < FAULT_NR_HOW; how++) {
		CASE("%s, plain, %s", type, fault_how_name[how]);
		fill_up(path, 0, 0, (enum fault_how)how, how == FAULT_BATCH);
		CASE("%s, O_DIRECT, %s", type, fault_how_name[how]);
		fill_up(path, 0, O_DIRECT, (enum fault_how)how, false);
		CASE("%s, O_DIRECT by threads, %s", type, fault_how_name[how]);
		fill_up(path, PEERLANE_NO_IO_URING, O_DIRECT, (enum fault_how)how,
			how == FAULT_BATCH);
	}
	CASE("%s, mapped", type);
	ballast(where, 8 * MIB);
	holes(type, path, where, 0);
	CASE("%s, mapped, small pieces", type);
	ballast(where, 8 * MIB);
	holes(type, path, where, 4096);
}

int main(void)
{
	fault_begin(50);
	on("tmpfs");
	on("ext4");
	return 0;
}
