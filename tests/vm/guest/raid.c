// SPDX-License-Identifier: MIT
/*
 * Direct I/O to arrays of two drives, made without any tool.
 */
#include <linux/major.h>
#include <linux/raid/md_u.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "engine.h"

static void add(int array, const char *serial, int number)
{
	int drive = drive_open(serial, O_RDWR);
	mdu_disk_info_t disk = { .number = number, .raid_disk = number, .state = 6 };
	struct stat stat;

	expect(fstat(drive, &stat) == 0);
	disk.major = (int)major(stat.st_rdev);
	disk.minor = (int)minor(stat.st_rdev);
	close(drive);
	expect(ioctl(array, ADD_NEW_DISK, &disk) == 0);
}

/* An array that nothing on the drives tells of. */
int array_start(int level)
{
	mdu_array_info_t info = { .major_version = 0,
				  .minor_version = 90,
				  .level = level,
				  .size = level ? 4 * (int)KIB : 0,
				  .state = 1, /* nothing to repair */
				  .nr_disks = 2,
				  .raid_disks = 2,
				  .active_disks = 2,
				  .working_disks = 2,
				  .not_persistent = 1,
				  .chunk_size = 64 * (int)KIB };
	int fd = open("/sys/module/md_mod/parameters/new_array", O_WRONLY);
	int array;

	expect(fd >= 0);
	expect(write(fd, "md0", 3) == 3);
	close(fd);
	array = open("/dev/md0", O_RDWR | O_DIRECT);
	expect(array >= 0);
	expect(ioctl(array, SET_ARRAY_INFO, &info) == 0);
	add(array, "raid0", 0);
	add(array, "raid1", 1);
	expect(ioctl(array, RUN_ARRAY, NULL) == 0);
	/* Opened again: now it has its size. */
	fd = open("/dev/md0", O_RDWR | O_DIRECT);
	expect(fd >= 0);
	close(array);
	return fd;
}

void array_stop(int array)
{
	expect(ioctl(array, STOP_ARRAY, NULL) == 0);
	close(array);
}

int test_io_raid(void)
{
	size_t bytes = 2 * MIB, at;
	int array = array_start(0);
	struct peerlane_route route = { .fd = array };
	struct memory memory;
	char *copy = host_alloc(bytes);

	memory_open(&memory, bytes, 0);
	route.handle = memory.pin.handle;
	expect(ioctl(memory.dev, PEERLANE_IOC_ROUTE, &route) == 0);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_VIRTUAL);
	expect(pread(array, memory.map, bytes, 0) == (ssize_t)bytes);
	expect(pread(array, copy, bytes, 0) == (ssize_t)bytes);
	expect(memcmp(memory.map, copy, bytes) == 0);
	expect(pwrite(array, memory.map, bytes, 8 * MIB) == (ssize_t)bytes);
	say_direct(2 * bytes);
	for (at = 0; at < bytes; at += 64 * KIB) {
		const char *drive = at / (64 * KIB) % 2 ? "raid1" : "raid0";
		size_t offset = at / (128 * KIB) * 64 * KIB;

		say_bar(&memory, at, 64 * KIB, drive, offset);
		say_disk(drive, 4 * MIB + offset, 64 * KIB, &memory, at);
	}
	memory_close(&memory);
	array_stop(array);
	return 0;
}

/* Every member of an array is asked, and data goes to all of them. */
int test_engine_raid(void)
{
	int array = array_start(0);
	unsigned char *data = host_alloc(4 * MIB);
	struct peerlane_file *file;
	struct engine e;

	engine_open(&e);
	expect(peerlane_file_from_fd(e.ctx, array, &file) == 0);
	expect(verdict(&e, file, PEERLANE_READ, 4 * MIB).usable);
	expect(pread(array, data, 4 * MIB, 0) == (ssize_t)(4 * MIB));
	expect(peerlane_read(file, e.gpu, 4 * MIB, 0) == (ssize_t)(4 * MIB));
	memcpy(e.model, data, 4 * MIB);
	check_gpu(&e, "raid", 0);
	expect(peerlane_write(file, e.gpu, 4 * MIB, 8 * MIB, 0) == (ssize_t)(4 * MIB));
	expect(pread(array, data, 4 * MIB, 8 * MIB) == (ssize_t)(4 * MIB));
	expect(memcmp(data, e.model, 4 * MIB) == 0);
	expect(p2p_bytes(&e) == 8 * MIB);
	/* The test read both drives, and the array. */
	say_direct(p2p_bytes(&e) + 3 * TEST_BYTES);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	array_stop(array);
	return 0;
}
