// SPDX-License-Identifier: MIT
/*
 * A fault in the middle of 64 MiB: the count is exactly the prefix that is in place, the next call
 * at that position gives the error, and when the fault is gone the rest goes through. In both
 * directions, cached and direct by threads, in each manner of asking, to GPU and host memory.
 */
#include "fault.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BYTES (64 * MIB)

/* A table row: how the file is opened and what the context may do. */
struct row {
	const char *name;
	unsigned int flags;
	int open_flags;
	bool cold;
};

static const struct row rows[] = {
	{ "cached", PEERLANE_NO_IO_URING, O_RDWR, false },
	{ "cold by threads", PEERLANE_NO_IO_URING, O_RDWR, true },
	{ "O_DIRECT by threads", PEERLANE_NO_IO_URING, O_RDWR | O_DIRECT, true },
	{ "no O_DIRECT", PEERLANE_NO_DIRECT, O_RDWR, true },
	{ "write only", PEERLANE_NO_IO_URING, O_WRONLY, false },
};

static const int64_t places[] = { 0, 1, 4096, 65536 + 7, 33 * MIB + 511, 37 * MIB, BYTES - 1 };

static char *gpu, *host;
static const char *path;

static char *see(char *mem)
{
	return mem == gpu ? fault_see(gpu) : mem;
}

static void read_case(struct peerlane *ctx, struct peerlane_file *f, enum fault_how how, char *mem,
		      int64_t bad)
{
	ssize_t n;

	memset(see(mem), 0x5a, BYTES);
	shim.read_error_at = bad;
	n = fault_io(how, ctx, f, PEERLANE_READ, mem, BYTES, 0);
	CHECK_EQ(n, bad ? bad : -EIO);
	CHECK_EQ(fault_differs(see(mem), n > 0 ? (size_t)n : 0, 0, 7), n > 0 ? n : 0);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, mem, BYTES - (size_t)bad, bad), -EIO);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, mem, 1, bad), -EIO);
	shim.read_error_at = -1;
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, mem + bad, BYTES - (size_t)bad, bad),
		 BYTES - bad);
	CHECK_EQ(fault_differs(see(mem) + bad, BYTES - (size_t)bad, (uint64_t)bad, 7), BYTES - bad);
}

static void check_file(size_t bytes, uint64_t seed)
{
	int fd = open(path, O_RDONLY);
	char *mem = malloc(MIB);

	CHECK(fd >= 0 && mem);
	for (size_t at = 0; at < bytes; at += MIB) {
		size_t n = bytes - at < MIB ? bytes - at : MIB;

		CHECK_EQ(pread(fd, mem, n, (off_t)at), n);
		CHECK_EQ(fault_differs(mem, n, at, seed), n);
	}
	free(mem);
	close(fd);
}

static void write_case(struct peerlane *ctx, struct peerlane_file *f, enum fault_how how, char *mem,
		       bool direct, int64_t bad, int error, uint64_t seed)
{
	ssize_t n;

	fault_pattern(see(mem), BYTES, 0, seed);
	shim.write_error_at = bad;
	shim.error = error;
	n = fault_io(how, ctx, f, PEERLANE_WRITE, mem, BYTES, 0);
	/* With O_DIRECT whole blocks are written or nothing. */
	if (direct && n >= 0 && n == (bad & ~511))
		bad = n;
	CHECK_EQ(n, bad ? bad : -error);
	check_file(n > 0 ? (size_t)n : 0, seed);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_WRITE, mem + bad, BYTES - (size_t)bad, bad),
		 -error);
	shim.write_error_at = -1;
	shim.error = EIO;
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_WRITE, mem + bad, BYTES - (size_t)bad, bad),
		 BYTES - bad);
	check_file(BYTES, seed);
}

/* Where the write would go through a mapping a fault of write(2) is not met: a file beyond its end
 * is not mapped. */
static void shorten(void)
{
	CHECK(!truncate(path, 0));
}

static void run_row(const struct row *row, unsigned int r)
{
	const size_t nr = sizeof(places) / sizeof(places[0]);
	struct peerlane *ctx = fault_open(row->flags, 0);
	struct peerlane_file *f = fault_file(ctx, path, row->open_flags);

	gpu = fault_gpu(ctx, BYTES);
	for (size_t i = 0; i < nr; i++) {
		/* All combinations would take a minute: each row meets each place and manner. */
		enum fault_how how = (enum fault_how)((i + r) % FAULT_NR_HOW);
		char *mem = (i + r) % 4 == 3 ? host : gpu;

		CASE("%s, %s, %s memory, fault at %lld", row->name, fault_how_name[how],
		     mem == gpu ? "GPU" : "host", (long long)places[i]);
		if (row->open_flags & O_RDWR) {
			shim_clear();
			fault_make_file(path, BYTES, 7);
			if (row->cold)
				fault_make_cold(path);
			shim_file(path);
			read_case(ctx, f, how, mem, places[i]);
			CHECK(shim_hits());
		}
		if (i % 2 == r % 2) {
			shorten();
			shim_file(path);
			write_case(ctx, f, how, mem, row->open_flags & O_DIRECT, places[i],
				   i % 3 ? ENOSPC : EIO, i + 100);
			CHECK(shim_hits());
		}
		fault_check_idle(ctx);
	}
	shim_clear();
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	CHECK_EQ(peerlane_file_close(f), 0);
	peerlane_close(ctx);
}

int main(void)
{
	fault_begin(50);
	path = fault_path("file");
	host = malloc(BYTES);
	CHECK(host);
	fault_make_file(path, BYTES, 7);
	for (unsigned int r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		run_row(&rows[r], r);
	free(host);
	return 0;
}
