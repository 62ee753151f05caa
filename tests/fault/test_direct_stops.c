// SPDX-License-Identifier: MIT
/*
 * A vector written with O_DIRECT whose pieces meet inside of pages, so that it goes in stretches, directly and through
 * the page cache. When one stretch fails, those of its kind that come after it are not written.
 */
#include "fault.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES 4
#define PIECE (200 * KIB + 100)
#define BYTES (PIECES * PIECE)
#define PAGE 4096ul

/* Where pieces @i and @i + 1 meet, and the page that has both. */
#define MEET(i) (((i) + 1) * PIECE)
#define PAGE_OF(at) ((at) & ~(PAGE - 1))

static struct peerlane *ctx;
static struct peerlane_file *file;
static const char *path;
static char *gpu;

/* Writes all of it while byte @bad cannot be. */
static ssize_t write_all(int64_t bad)
{
	struct iovec iov[PIECES];
	ssize_t n;

	fault_make_file(path, BYTES, 1);
	fault_make_cold(path);
	file = fault_file(ctx, path, O_RDWR | O_DIRECT);
	for (size_t i = 0; i < PIECES; i++)
		iov[i] = (struct iovec){ gpu + i * PIECE, PIECE };
	shim.write_error_at = bad;
	shim.error = ENOSPC;
	shim_file(path);
	n = peerlane_writev(file, iov, PIECES, 0, 0);
	CHECK(shim_hits() || bad < 0);
	shim_clear();
	CHECK_EQ(peerlane_file_close(file), 0);
	return n;
}

/* [from, to) of the file is what it was, or what was written. */
static void holds(size_t from, size_t to, uint64_t seed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *mem = malloc(to - from);

	CHECK(mem && fd >= 0);
	CHECK_EQ(pread(fd, mem, to - from, (off_t)from), to - from);
	CHECK_EQ(fault_differs(mem, to - from, from, seed), to - from);
	free(mem);
	close(fd);
}

int main(void)
{
	fault_begin(60);
	/* The faults are in calls of this program. */
	ctx = fault_open(PEERLANE_NO_IO_URING, 0);
	path = fault_path("stretches");
	gpu = fault_gpu(ctx, BYTES);
	fault_pattern(fault_see(gpu), BYTES, 0, 2);

	CASE("no fault");
	CHECK_EQ(write_all(-1), BYTES);
	holds(0, BYTES, 2);

	CASE("where the first two pieces meet");
	CHECK_EQ(write_all((int64_t)MEET(0)), MEET(0));
	holds(0, MEET(0), 2);
	holds(PAGE_OF(MEET(1)), PAGE_OF(MEET(1)) + PAGE, 1);
	holds(PAGE_OF(MEET(2)), PAGE_OF(MEET(2)) + PAGE, 1);

	CASE("inside of the first piece");
	CHECK(write_all(100 * KIB) <= (ssize_t)(100 * KIB));
	holds(PAGE_OF(MEET(0)), BYTES, 1);

	CASE("inside of the second piece");
	CHECK(write_all(300 * KIB) <= (ssize_t)(300 * KIB));
	holds(PAGE_OF(MEET(1)), BYTES, 1);

	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
	return 0;
}
