// SPDX-License-Identifier: MIT
/*
 * Calls that come short, are interrupted or take their time in every other place: everything
 * arrives all the same, in full and in the right place. Mapped writes whose copy fails fall back
 * to plain ones.
 */
#include "fault.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BYTES (24 * MIB + 1234)

static void faults(const char *path, unsigned int delay_us)
{
	shim_clear();
	shim.short_of = 3;
	shim.eintr_of = 3;
	shim.delay_us = delay_us;
	shim.copy_of = 2;
	shim_file(path);
}

static void run(unsigned int flags, int open_flags, unsigned int delay_us)
{
	const char *path = fault_path("file");
	struct peerlane *ctx = fault_open(flags, 0);
	struct peerlane_file *f;
	char *gpu = fault_gpu(ctx, BYTES), *mem = malloc(BYTES);
	int fd;

	CHECK(mem);
	fault_make_file(path, BYTES, 1);
	f = fault_file(ctx, path, open_flags);
	fd = open(path, O_RDONLY);
	for (int how = 0; how < FAULT_NR_HOW; how++) {
		uint64_t seed = 2 + (uint64_t)how;

		CASE("flags %#x, open %#o, %s", flags, (unsigned int)open_flags,
		     fault_how_name[how]);
		fault_pattern(fault_see(gpu), BYTES, 0, seed);
		faults(path, delay_us);
		CHECK_EQ(fault_io((enum fault_how)how, ctx, f, PEERLANE_WRITE, gpu, BYTES, 0),
			 BYTES);
		CHECK(shim_hits() || !(flags & PEERLANE_NO_IO_URING));
		shim_clear();
		CHECK_EQ(pread(fd, mem, BYTES, 0), BYTES);
		CHECK_EQ(fault_differs(mem, BYTES, 0, seed), BYTES);
		memset(fault_see(gpu), 0, BYTES);
		if (how)
			fault_make_cold(path);
		faults(path, delay_us);
		CHECK_EQ(fault_io((enum fault_how)how, ctx, f, PEERLANE_READ, gpu, BYTES, 0),
			 BYTES);
		CHECK(shim_hits() || !(flags & PEERLANE_NO_IO_URING));
		/* At the end a short count is the end. */
		CHECK_EQ(
			fault_io((enum fault_how)how, ctx, f, PEERLANE_READ, gpu, 5000, BYTES - 17),
			17);
		shim_clear();
		CHECK_EQ(fault_differs(fault_see(gpu) + 17, BYTES - 17, 17, seed), BYTES - 17);
		CHECK_EQ(fault_differs(fault_see(gpu), 17, BYTES - 17, seed), 17);
		fault_check_idle(ctx);
	}
	/* A durable write whose sync fails is an error, once. */
	shim_file(path);
	shim.sync_error = EIO;
	CASE("fdatasync fails");
	CHECK_EQ(peerlane_write(f, gpu, MIB, 0, PEERLANE_DURABLE), -EIO);
	CHECK_EQ(peerlane_file_sync(f), -EIO);
	shim_clear();
	CHECK_EQ(peerlane_write(f, gpu, MIB, 0, PEERLANE_DURABLE), MIB);
	CHECK_EQ(peerlane_file_sync(f), 0);
	close(fd);
	free(mem);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* The back end with a copy engine reads the page cache by another way (nt_copy.h); a fake libcuda
 * is enough to take it. */
static void run_cuda(size_t bytes)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda", .nr_threads = 3 };
	struct peerlane_stats st = { .size = sizeof(st) };
	const char *path = fault_path("file"), *fake = getenv("FAKE_LIBCUDA");
	struct peerlane *ctx = NULL;
	struct peerlane_file *f;
	char *gpu, *mem = calloc(1, bytes);

	CASE("%zu bytes past the CPU's caches", bytes);
	if (!fake)
		fault_skip("FAKE_LIBCUDA does not name the fake libcuda");
	setenv("PEERLANE_LIBCUDA", fake, 1);
	CHECK(mem);
	CHECK_EQ(peerlane_open(&ctx, &opt), 0);
	gpu = fault_gpu(ctx, bytes);
	fault_make_file(path, bytes, 7);
	f = fault_file(ctx, path, O_RDONLY);
	faults(path, 0);
	CHECK_EQ(peerlane_read(f, gpu, bytes, 0), bytes);
	CHECK(shim_hits());
	shim_clear();
	CHECK_EQ(peerlane_gpu_copy(ctx, mem, gpu, bytes), 0);
	CHECK_EQ(fault_differs(mem, bytes, 0, 7), bytes);
	CHECK_EQ(peerlane_stats_get(ctx, &st), 0);
	CHECK_EQ(st.read.path_bytes[PEERLANE_PATH_COPY], bytes);
	free(mem);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

int main(void)
{
	fault_begin(40);
	run(PEERLANE_NO_IO_URING, O_RDWR, 100);
	run(PEERLANE_NO_IO_URING, O_RDWR | O_DIRECT, 100);
	run(PEERLANE_NO_DIRECT, O_RDWR, 0);
	run(0, O_RDWR | O_DIRECT, 500);
	run_cuda(BYTES);
	return 0;
}
