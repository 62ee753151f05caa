// SPDX-License-Identifier: MIT
/*
 * Faults below the page cache and io_uring, from a file system in user space (faultfs.c): an error
 * in the middle of 64 MiB, short direct reads, a full disk, slow answers, and a device that does
 * not answer at all. Needs root and /dev/fuse.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (64 * MIB)

static char below[200], above[200], path[256], real[256];
static pid_t daemon_pid;

static void faults(const char *text)
{
	char name[256], new[264];
	FILE *f;

	snprintf(name, sizeof(name), "%s/.faults", below);
	snprintf(new, sizeof(new), "%s.new", name);
	f = fopen(new, "w");
	CHECK(f);
	fputs(text, f);
	fclose(f);
	CHECK(!rename(new, name));
}

static void stop_daemon(void)
{
	if (!daemon_pid)
		return;
	faults("");
	umount2(above, MNT_DETACH);
	kill(daemon_pid, SIGKILL);
	waitpid(daemon_pid, NULL, 0);
}

static void start_daemon(const char *program)
{
	struct stat sb, parent;

	if (geteuid() != 0)
		fault_skip("mounting needs root");
	if (access("/dev/fuse", R_OK | W_OK))
		fault_skip("no /dev/fuse here");
	if (access(program, X_OK))
		fault_skip("no %s", program);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fault_skip("no mount namespace: %s", strerror(errno));
	snprintf(below, sizeof(below), "%s/below", fault_dir());
	snprintf(above, sizeof(above), "%s/above", fault_dir());
	CHECK(!mkdir(below, 0700) && !mkdir(above, 0700));
	CHECK(!stat(above, &parent));
	daemon_pid = fork();
	CHECK(daemon_pid >= 0);
	if (!daemon_pid) {
		alarm(0);
		execl(program, program, below, above, NULL);
		_exit(127);
	}
	atexit(stop_daemon);
	for (int i = 0; i < 500; i++) {
		if (!stat(above, &sb) && sb.st_dev != parent.st_dev)
			return;
		if (waitpid(daemon_pid, NULL, WNOHANG) == daemon_pid) {
			daemon_pid = 0;
			break;
		}
		usleep(10000);
	}
	fault_skip("the FUSE mount did not come up");
}

static void error_middle(unsigned int flags, int open_flags, enum fault_how how)
{
	struct peerlane *ctx = fault_open(flags, 0);
	struct peerlane_file *f = fault_file(ctx, path, O_RDWR | open_flags);
	char *gpu = fault_gpu(ctx, BYTES), *mem = malloc(BYTES);
	const int64_t bad = 37 * MIB + 4096;
	ssize_t n;
	int fd;

	CASE("error in the middle, %s, flags %#x, open %#o", fault_how_name[how], flags,
	     (unsigned int)open_flags);
	CHECK(mem);
	fault_make_file(real, BYTES, 1);
	fault_make_cold(path);
	faults("read_error=38801408");
	memset(fault_see(gpu), 0x5a, BYTES);
	n = fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0);
	/* The kernel reads ahead in larger pieces: the whole piece with the bad byte may fail. */
	CHECK(n <= bad && n > bad - (ssize_t)MIB);
	CHECK_EQ(fault_differs(fault_see(gpu), (size_t)n, 0, 1), n);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, MIB, bad), -EIO);
	faults("");
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0), BYTES);
	CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
	if (open_flags & O_DIRECT) {
		fault_pattern(fault_see(gpu), BYTES, 0, 2);
		faults("write_error=38801408 errno=28");
		n = fault_io(how, ctx, f, PEERLANE_WRITE, gpu, BYTES, 0);
		/* Of a unit that met the error the kernel may only tell the error. */
		CHECK(n <= bad && n > bad - (ssize_t)MIB);
		fd = open(real, O_RDONLY);
		CHECK(fd >= 0);
		CHECK_EQ(pread(fd, mem, BYTES, 0), BYTES);
		CHECK_EQ(fault_differs(mem, (size_t)n, 0, 2), n);
		close(fd);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_WRITE, gpu, MIB, bad), -ENOSPC);
		faults("");
	}
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
	free(mem);
}

static void short_and_slow(const char *text, int open_flags, enum fault_how how)
{
	const size_t bytes = 8 * MIB + 777;
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_file *f;
	char *gpu = fault_gpu(ctx, BYTES);

	CASE("%s, %s, open %#o", text, fault_how_name[how], (unsigned int)open_flags);
	fault_make_file(real, bytes, 3);
	f = fault_file(ctx, path, O_RDWR | open_flags);
	faults(text);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0), bytes);
	CHECK_EQ(fault_differs(fault_see(gpu), bytes, 0, 3), bytes);
	CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, 3000, 1000), 3000);
	CHECK_EQ(fault_differs(fault_see(gpu), 3000, 1000, 3), 3000);
	faults("");
	CHECK_EQ(peerlane_file_close(f), 0);
	peerlane_close(ctx);
}

/* Nothing waits for ever in a test: the hang ends by itself after a while. */
static void end_hang(int sig)
{
	(void)sig;
	faults("");
}

int main(int argc, char **argv)
{
	char program[PATH_MAX], *slash;

	(void)argc;
	fault_begin(50);
	snprintf(program, sizeof(program), "%s", argv[0]);
	slash = strrchr(program, '/');
	snprintf(slash ? slash + 1 : program, 16, "faultfs");
	start_daemon(program);
	snprintf(path, sizeof(path), "%s/file", above);
	snprintf(real, sizeof(real), "%s/file", below);
	fault_make_file(real, BYTES, 1);
	for (int how = 0; how < FAULT_NR_HOW; how++) {
		error_middle(0, O_DIRECT, (enum fault_how)how);
		error_middle(how ? 0 : PEERLANE_NO_IO_URING, how == 2 ? O_DIRECT : 0,
			     (enum fault_how)how);
		short_and_slow("short=1", O_DIRECT, (enum fault_how)how);
		short_and_slow("delay_ms=5", how == 1 ? O_DIRECT : 0, (enum fault_how)how);
	}
	if (!fork()) {
		sleep(6);
		end_hang(0);
		_exit(0);
	}
	return 0;
}
