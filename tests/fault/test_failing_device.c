// SPDX-License-Identifier: MIT
/*
 * A block device that fails from some place on: a loop device whose image was cut short under it.
 * Reads and writes of the device itself and of a file on it give the good prefix, then -EIO.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BYTES (64 * MIB)
#define GOOD (37 * MIB + 4096)

static char loop[64];

static void detach(void)
{
	int fd = *loop ? open(loop, O_RDWR) : -1;

	if (fd >= 0) {
		ioctl(fd, LOOP_CLR_FD, 0);
		close(fd);
	}
}

static void attach(const char *image)
{
	struct loop_config config = { .block_size = 512 };
	int control, fd, nr;

	if (geteuid() != 0)
		fault_skip("a loop device needs root");
	control = open("/dev/loop-control", O_RDWR);
	if (control < 0)
		fault_skip("no loop devices here");
	config.fd = (uint32_t)open(image, O_RDWR);
	for (int i = 0; i < 20; i++) {
		nr = ioctl(control, LOOP_CTL_GET_FREE);
		CHECK(nr >= 0);
		snprintf(loop, sizeof(loop), "/dev/loop%d", nr);
		fd = open(loop, O_RDWR);
		/* Another test may have been faster. */
		if (fd >= 0 && !ioctl(fd, LOOP_CONFIGURE, &config)) {
			close(fd);
			close(control);
			close((int)config.fd);
			atexit(detach);
			return;
		}
		if (fd >= 0)
			close(fd);
	}
	*loop = '\0';
	fault_skip("no free loop device");
}

static void run(unsigned int flags, int open_flags, enum fault_how how)
{
	struct peerlane *ctx = fault_open(flags, 0);
	struct peerlane_file *f = fault_file(ctx, loop, O_RDWR | open_flags);
	char *gpu = fault_gpu(ctx, BYTES);
	int64_t least = GOOD & ~4095l;
	ssize_t n;

	CASE("%s, flags %#x, open %#o", fault_how_name[how], flags, (unsigned int)open_flags);
	fault_make_cold(loop);
	memset(fault_see(gpu), 0x5a, BYTES);
	n = fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0);
	/* The loop driver may fail the whole request that meets the end. */
	CHECK(n <= (ssize_t)least && n > (ssize_t)(least - (ssize_t)(2 * MIB)));
	CHECK_EQ(fault_differs(fault_see(gpu), (size_t)n, 0, 4), n);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, MIB, 40 * MIB), -EIO);
	/* Beside the bad place all is well. */
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, 3 * MIB + 5, 1), 3 * MIB + 5);
	CHECK_EQ(fault_differs(fault_see(gpu), 3 * MIB + 5, 1, 4), 3 * MIB + 5);
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

int main(void)
{
	const char *image;

	fault_begin(40);
	image = fault_path("image");
	fault_make_file(image, BYTES, 4);
	fault_make_cold(image);
	attach(image);
	CHECK(!truncate(image, GOOD));
	for (int how = 0; how < FAULT_NR_HOW; how++) {
		run(0, 0, (enum fault_how)how);
		run(0, O_DIRECT, (enum fault_how)how);
		run(PEERLANE_NO_IO_URING, O_DIRECT, (enum fault_how)how);
	}
	return 0;
}
