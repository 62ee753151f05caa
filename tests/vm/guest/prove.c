// SPDX-License-Identifier: MIT
/*
 * peerlane prove on the test GPU: it passes where all is well, and fails with the right line where
 * transfers are bounced, data is wrong, or the kernel's log has a warning.
 */
#include <sys/mount.h>
#include <sys/stat.h>

#include "engine.h"

#define SCRATCH "/mnt/scratch"
#define REPORT "/tmp/report"
#define HOST "verysecrethost"
/* The serial number of the drive with the file system. */
#define SERIAL "fs0"
#define SHORT "--rounds 2 --seconds 0.1"

static char text[65536];

/* Starts prove with small sizes; its report is in the file REPORT. */
static pid_t start(const char *options)
{
	char line[256];
	pid_t pid;

	expect(sethostname(HOST, strlen(HOST)) == 0);
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	unlink(REPORT);
	snprintf(line, sizeof(line),
		 "exec peerlane prove --backend simgpu --size 16M --report " REPORT " %s " SCRATCH,
		 options);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		execl("/bin/sh", "sh", "-c", line, NULL);
		_exit(127);
	}
	return pid;
}

/* The exit status and the report; the scratch file is gone, and nothing is told that must not be. */
static int end(pid_t pid)
{
	int status, fd;
	ssize_t n;

	expect(waitpid(pid, &status, 0) == pid);
	fd = open(REPORT, O_RDONLY);
	expect(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	expect(n > 0 && n < (ssize_t)sizeof(text) - 1);
	text[n] = '\0';
	close(fd);
	expect(access(SCRATCH, F_OK) != 0);
	expect(!strstr(text, HOST) && !strstr(text, SERIAL) && !strstr(text, SCRATCH));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A line of the report that starts like this, and has that in it. */
static bool says(const char *begin, const char *more)
{
	const char *at = text, *found, *line_end;

	for (; (at = strstr(at, begin)); at++) {
		line_end = strchrnul(at, '\n');
		found = strstr(at, more);
		if ((at == text || at[-1] == '\n') && found && found < line_end)
			return true;
	}
	printf("no line '%s...%s'\n", begin, more);
	return false;
}

static bool transfers_begun(void)
{
	int fd = open(REPORT, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "\nReads\n");
}

/* The scratch file is complete, and the transfers have begun. */
static void wait_for_transfers(void)
{
	for (int i = 0; !transfers_begun(); i++) {
		if (i == 20000)
			fail("prove does not begin");
		sleep_ms(5);
	}
}

/* All of it. */
int test_prove(void)
{
	static const char *const passed[] = { "root",
					      "module",
					      "uapi",
					      "provider",
					      "persistent_pins",
					      "gpu",
					      "pin",
					      "route_read",
					      "route_write",
					      "reads",
					      "read_all",
					      "writes",
					      "vectors",
					      "batches",
					      "threads",
					      "transfers_settled",
					      "revocations",
					      "revocations_settled",
					      "kills",
					      "kills_settled",
					      "handles",
					      "handles_settled",
					      "file_unharmed",
					      "bounced",
					      "kernel_log" };
	char begin[64];
	int status = end(start("--rounds 6 --seconds 0.2"));

	printf("%s", text);
	expect(status == 0);
	expect(strstr(text, "SIMULATED GPU: THIS REPORT SAYS NOTHING ABOUT HARDWARE\n"));
	for (size_t i = 0; i < sizeof(passed) / sizeof(*passed); i++) {
		snprintf(begin, sizeof(begin), "PASS %s: ", passed[i]);
		expect(says(begin, ""));
	}
	expect(says("PASS reads: ", "by p2p") && says("NOTE speed_read_4x1M: ", "p2p/staged"));
	expect(!strstr(text, "\nFAIL ") && strstr(text, " passed, 0 failed, "));
	return 0;
}

/* The kernel bounces every transfer: all data is right, and it must not be taken for direct. */
int test_prove_bounced(void)
{
	int status = end(start(SHORT));

	printf("%s", text);
	expect(status == 1);
	expect(says("FAIL swiotlb: ", "bounces every transfer"));
	expect(says("FAIL route_read: ", "p2p is not taken"));
	expect(says("FAIL reads: ", "they did not go by p2p"));
	expect(says("FAIL writes: ", "they did not go by p2p"));
	expect(says("FAIL bounced: ", "through host memory"));
	expect(says("PASS kernel_log: ", ""));
	say_direct(0);
	return 0;
}

/* Somebody changes a block of the file again and again. */
int test_prove_wrong_data(void)
{
	unsigned char *block = host_alloc(4096);
	pid_t pid = start(SHORT), other;
	int status;

	fill(block, 4096, 77);
	other = fork();
	expect(other >= 0);
	if (!other) {
		int fd;

		wait_for_transfers();
		fd = open(SCRATCH, O_WRONLY | O_DIRECT);
		while (pwrite(fd, block, 4096, 5 * MIB + 4096) == 4096)
			sleep_ms(1);
		_exit(0);
	}
	status = end(pid);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	printf("%s", text);
	expect(status == 1);
	expect(says("FAIL read_all: WRONG DATA", "the file is not as written"));
	expect(says("FAIL file_unharmed: WRONG DATA", "at byte 5246976"));
	free(block);
	return 0;
}

/*
 * The memory device's own view of GPU memory: what a transfer that goes wrong leaves there. Memory of
 * programs is in the lower half of the BAR; the other has parts of several memory types.
 */
static void scribble(const char *resource)
{
	int fd = open(resource, O_RDWR | O_SYNC);
	volatile unsigned char *bar;
	struct stat st;
	size_t bytes;

	expect(fd >= 0 && fstat(fd, &st) == 0);
	bytes = (size_t)st.st_size / 2;
	bar = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	expect(bar != MAP_FAILED);
	wait_for_transfers();
	for (unsigned char n = 0;; n++) {
		for (size_t at = 100; at < bytes; at += GPU_PAGE)
			bar[at] = n;
		sleep_ms(1);
	}
}

/* The file is right, and GPU memory is not. */
int test_prove_wrong_memory(void)
{
	struct simgpu_state gpu = gpu_state(gpu_open());
	char resource[96];
	pid_t pid, other;
	int status;

	snprintf(resource, sizeof(resource), "/sys/bus/pci/devices/%04x:%02x:%02x.%x/resource2",
		 (unsigned int)(gpu.pci >> 16), (unsigned int)(gpu.pci >> 8 & 0xff),
		 (unsigned int)(gpu.pci >> 3 & 0x1f), (unsigned int)(gpu.pci & 7));
	pid = start(SHORT);
	other = fork();
	expect(other >= 0);
	if (!other)
		scribble(resource);
	status = end(pid);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	printf("%s", text);
	expect(status == 1);
	expect(says("FAIL read_all: WRONG DATA", "the transfer went wrong"));
	expect(says("FAIL threads: WRONG DATA", ""));
	expect(says("FAIL kills: ", "WRONG DATA"));
	return 0;
}

/* The kernel complains of something: the report has the line, without names and addresses. */
int test_prove_log(void)
{
	static const char line[] = "<4>nvme nvme1: I/O 12 QID 2 timeout, aborting " HOST
				   " 192.0.2.7 52:54:00:12:34:56 ffff888012345678\n";
	int fd = open("/dev/kmsg", O_WRONLY);
	pid_t pid = start(SHORT);

	wait_for_transfers();
	expect(write(fd, line, strlen(line)) == (ssize_t)strlen(line));
	close(fd);
	expect(end(pid) == 1);
	printf("%s", text);
	expect(says("FAIL kernel_log: ", "1 line of trouble"));
	expect(strstr(text, "     | nvme nvme1: I/O 12 QID 2 timeout, aborting <name> <ip> <mac> "
			    "<address>\n"));
	expect(strstr(text, " passed, 1 failed, "));
	return 0;
}

/* Ctrl-C: what was found out is told, and nothing is left behind. */
int test_prove_stopped(void)
{
	pid_t pid = start("--rounds 1000000");
	int status;

	wait_for_transfers();
	kill(pid, SIGINT);
	status = end(pid);
	printf("%s", text);
	expect(status == 130);
	expect(says("FAIL interrupted: ", "not complete"));
	return 0;
}
