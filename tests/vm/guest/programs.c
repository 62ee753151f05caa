// SPDX-License-Identifier: MIT
/* The tool, and the examples for those who come from older systems, on the test GPU. */
#include <sys/stat.h>

#include "engine.h"

#define SOURCE_BYTES (8 * MIB)

/* Some other user: @arg is what the program is to say. */
static void unprivileged(void *arg)
{
	expect(setuid(1000) == 0);
	command("pin_mmap 100 2>&1 || true", arg);
}

/* gpudma, donard: pin, list, map, look. */
int test_example_pin_mmap(void)
{
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	command("pin_mmap >/tmp/pin && cat /tmp/pin && grep -q '^handle [1-9]' /tmp/pin && "
		"grep -q '16 pages of 65536 bytes' /tmp/pin && "
		"grep -q '^page 15 at physical address 0x' /tmp/pin && echo listed",
		"the GPU has all 262144 numbers that the CPU wrote; the last one read back is "
		"786430\nlisted\n");
	in_child(unprivileged, "physical addresses are for CAP_SYS_RAWIO only\n", 0);
	/* What is missing is said. */
	expect(chmod("/dev/peerlane", 0600) == 0);
	in_child(unprivileged, "/dev/peerlane: Permission denied\n", 0);
	expect(chmod("/dev/peerlane", 0666) == 0);
	command("PEERLANE_BACKEND=sim pin_mmap 2>&1 || true", "PIN: Invalid argument\n");
	say_direct(0);
	unlink("/tmp/pin");
	return 0;
}

/* nvme-strom: a file straight into GPU memory, or from the page cache if it is there. */
int test_example_file_to_gpu(void)
{
	int fd = open("/mnt/src", O_RDONLY);
	char *data = host_alloc(SOURCE_BYTES);

	setenv("PEERLANE_BACKEND", "simgpu", 1);
	expect(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	command("file_to_gpu -d -c /mnt/src", "8388608 bytes direct: ");
	expect(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	command("file_to_gpu /mnt/src", "8388608 bytes direct: ");
	say_direct(2 * (SOURCE_BYTES + TEST_BYTES));
	/* Cached, it comes from there; and through the host where it must. */
	expect(pread(fd, data, SOURCE_BYTES, 0) == (ssize_t)SOURCE_BYTES);
	command("file_to_gpu -c /mnt/src", "8388608 bytes from the page cache");
	command("PEERLANE_FLAGS=no-p2p file_to_gpu -d -c /mnt/src", "8388608 bytes staged: ");
	command("PEERLANE_FLAGS=no-p2p file_to_gpu -d /mnt/src", "not direct: switched off");
	command("file_to_gpu -c /mnt/src", "GPU memory holds the file\n");
	/* The test of the drive in the runs that read by the page cache. */
	say_direct(2 * TEST_BYTES);
	close(fd);
	free(data);
	return 0;
}

/* The tool: what it says, and what it does. */
int test_engine_tool(void)
{
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	command("peerlane check /mnt/src | sed -n '/^A read/,$p'", "read: p2p");
	command("peerlane cp --sync /mnt/src /mnt/copy && cmp /mnt/src /mnt/copy && echo same",
		"same");
	command("peerlane bench --direct --create --verify --bytes 8M --size 64K,1M --repeat 1 "
		"/mnt/bench && echo good",
		"good");
	command("peerlane bench --direct --op randwrite --verify --bytes 8M --size 4K,256K --batch "
		"8 "
		"--repeat 1 /mnt/bench && echo good",
		"good");
	unlink("/mnt/copy");
	unlink("/mnt/bench");
	return 0;
}
