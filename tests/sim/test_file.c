// SPDX-License-Identifier: MIT
/* What can be a file and what cannot, by path and by descriptor. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct peerlane *ctx;
static struct peerlane_file *const untouched = (struct peerlane_file *)-1;

static int setup(void **state)
{
	sim_test_setup(state);
	ctx = sim_open(0);
	return 0;
}

/* Nothing of a refused file stays: no descriptor, no entry in the count. */
static int teardown(void **state)
{
	(void)state;
	assert_int_equal(sim_stats(ctx).files, 0);
	peerlane_close(ctx);
	return 0;
}

static void refuse_fd(int fd, int err)
{
	struct peerlane_file *file = untouched;
	unsigned int fds = sim_count_fds();

	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), err);
	assert_ptr_equal(file, untouched);
	assert_int_equal(sim_count_fds(), fds);
}

static void refuse_path(const char *path, int flags, int err)
{
	struct peerlane_file *file = untouched;
	unsigned int fds = sim_count_fds();

	assert_int_equal(peerlane_file_open(ctx, path, flags, 0600, &file), err);
	assert_ptr_equal(file, untouched);
	assert_int_equal(sim_count_fds(), fds);
}

static void bad_descriptors(void **state)
{
	int fd = open("/dev/null", O_RDONLY);

	(void)state;
	close(fd);
	refuse_fd(fd, -EBADF);
	refuse_fd(-1, -EBADF);
	refuse_fd(AT_FDCWD, -EBADF);
	refuse_fd(1 << 30, -EBADF);
	assert_int_equal(peerlane_file_from_fd(ctx, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_file_from_fd(NULL, 0, NULL), -EINVAL);
}

static void no_files(void **state)
{
	int fds[2], fd;

	(void)state;
	fd = open(sim_path(""), O_RDONLY | O_DIRECTORY);
	refuse_fd(fd, -EISDIR);
	close(fd);
	assert_int_equal(pipe(fds), 0);
	refuse_fd(fds[0], -ESPIPE);
	refuse_fd(fds[1], -ESPIPE);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), 0);
	refuse_fd(fds[0], -ESPIPE);
	close(fds[0]);
	close(fds[1]);
	fd = open("/dev/null", O_RDWR);
	refuse_fd(fd, -ESPIPE);
	close(fd);
	fd = open("/dev/zero", O_RDONLY);
	refuse_fd(fd, -ESPIPE);
	close(fd);
	sim_make_file("path", 10, 1);
	fd = open(sim_path("path"), O_PATH);
	refuse_fd(fd, -EBADF);
	close(fd);
}

static void no_paths(void **state)
{
	(void)state;
	refuse_path(NULL, O_RDONLY, -EINVAL);
	assert_int_equal(peerlane_file_open(ctx, "x", O_RDONLY, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_file_open(NULL, "x", O_RDONLY, 0, NULL), -EINVAL);
	refuse_path("", O_RDONLY, -ENOENT);
	refuse_path(sim_path("missing"), O_RDWR, -ENOENT);
	refuse_path(sim_path("missing/deeper"), O_RDWR | O_CREAT, -ENOENT);
	refuse_path(sim_path(""), O_RDONLY, -EISDIR);
	refuse_path(sim_path(""), O_RDWR, -EISDIR);
	refuse_path("/dev/null", O_RDWR, -ESPIPE);
	refuse_path("/dev/zero", O_RDONLY, -ESPIPE);
	sim_make_file("plain", 10, 1);
	refuse_path(sim_path("plain/below"), O_RDONLY, -ENOTDIR);
	refuse_path(sim_path("plain"), O_RDWR | O_CREAT | O_EXCL, -EEXIST);
	refuse_path(sim_path("plain"), O_RDONLY | O_PATH, -EBADF);
	assert_int_equal(symlink("self", sim_path("self")), 0);
	refuse_path(sim_path("self"), O_RDONLY, -ELOOP);
}

/* Pipes and sockets by path, for either direction; nothing blocks. */
static void no_pipes_by_path(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	sim_alarm(20);
	assert_int_equal(mkfifo(sim_path("fifo"), 0600), 0);
	refuse_path(sim_path("fifo"), O_RDONLY, -ESPIPE);
	refuse_path(sim_path("fifo"), O_RDWR, -ESPIPE);
	refuse_path(sim_path("fifo"), O_WRONLY, -ESPIPE);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", sim_path("socket"));
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	refuse_path(sim_path("socket"), O_RDWR, -ESPIPE);
	close(fd);
}

static void directions(void **state)
{
	struct peerlane_file *file;
	char *gpu = sim_alloc(ctx, MIB), host[64];

	(void)state;
	sim_make_file("ways", MIB, 2);
	file = sim_file(ctx, sim_path("ways"), O_WRONLY);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), -EBADF);
	sim_assert_error(-EBADF, "reading");
	assert_int_equal(peerlane_read(file, host, 0, 0), -EBADF);
	sim_gpu_pattern(ctx, gpu, MIB, 0, 3);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), MIB);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, PEERLANE_DURABLE), MIB);
	assert_int_equal(peerlane_file_sync(file), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	sim_assert_file(sim_path("ways"), 0, MIB, 3);
	file = sim_file(ctx, sim_path("ways"), O_RDONLY);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), -EBADF);
	sim_assert_error(-EBADF, "writing");
	assert_int_equal(peerlane_write(file, host, 0, 0, 0), -EBADF);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	assert_int_equal(peerlane_file_sync(file), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
}

/* Files as open(2) makes them: with the mode asked for, cut, not inherited over exec. */
static void created(void **state)
{
	struct peerlane_file *file = NULL;
	struct stat sb;

	(void)state;
	umask(022);
	assert_int_equal(
		peerlane_file_open(ctx, sim_path("new"), O_RDWR | O_CREAT | O_EXCL, 0640, &file),
		0);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(stat(sim_path("new"), &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0640);
	sim_make_file("cut", 100, 1);
	file = sim_file(ctx, sim_path("cut"), O_RDWR | O_TRUNC);
	assert_int_equal(sim_file_size(sim_path("cut")), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	/* With O_DIRECT too, also where the file system has none. */
	file = sim_file(ctx, sim_path("direct-new"), O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
	assert_int_equal(peerlane_write(file, "abc", 3, 0, 0), 3);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(sim_file_size(sim_path("direct-new")), 3);
}

static void anonymous(void **state)
{
	struct peerlane_file *file = NULL;
	char *gpu = sim_alloc(ctx, 100000);
	int fd;

	(void)state;
	sim_gpu_pattern(ctx, gpu, 100000, 0, 4);
	if (!peerlane_file_open(ctx, sim_path(""), O_TMPFILE | O_RDWR, 0600, &file)) {
		assert_int_equal(peerlane_write(file, gpu, 100000, 0, 0), 100000);
		assert_int_equal(peerlane_read(file, gpu, 100000, 0), 100000);
		assert_int_equal(peerlane_file_close(file), 0);
	}
	fd = memfd_create("x", MFD_CLOEXEC);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	assert_int_equal(peerlane_write(file, gpu, 100000, 7, 0), 100000);
	sim_gpu_set(ctx, gpu, 0, 100000);
	assert_int_equal(peerlane_read(file, gpu, 100000, 7), 100000);
	sim_assert_gpu(ctx, gpu, 100000, 0, 4);
	assert_int_equal(peerlane_file_close(file), 0);
	close(fd);
	/* A file without a name. */
	sim_make_file("gone", 100000, 5);
	fd = open(sim_path("gone"), O_RDONLY);
	assert_int_equal(unlink(sim_path("gone")), 0);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	close(fd);
	assert_int_equal(peerlane_read(file, gpu, 100000, 0), 100000);
	sim_assert_gpu(ctx, gpu, 100000, 0, 5);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
}

/* What a plain read gives, in the same number of bytes at once. */
static void same_as_plain(const char *path, size_t room)
{
	char *want = malloc(room), *have = malloc(room), *gpu = sim_alloc(ctx, room);
	struct peerlane_file *file = sim_file(ctx, path, O_RDONLY);
	int fd = open(path, O_RDONLY);
	ssize_t bytes = 0, n;

	while ((n = pread(fd, want + bytes, room - (size_t)bytes, bytes)) > 0)
		bytes += n;
	close(fd);
	if (peerlane_read(file, gpu, room, 0) != bytes)
		fail_msg("%s: not the %zd bytes of read(2), in one call for %zu", path, bytes,
			 room);
	assert_int_equal(peerlane_gpu_copy(ctx, have, gpu, (size_t)bytes), 0);
	assert_memory_equal(have, want, (size_t)bytes);
	assert_int_equal(peerlane_read(file, have, room, 0), bytes);
	assert_memory_equal(have, want, (size_t)bytes);
	assert_int_equal(peerlane_read(file, have, room, bytes), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	free(have);
	free(want);
}

/* The size of files under /proc, /sys and in control groups says nothing. */
static void kernel_files(void **state)
{
	static const char *const paths[] = {
		"/proc/version",
		"/proc/cpuinfo",
		"/proc/self/auxv",
		"/sys/kernel/mm/transparent_hugepage/enabled",
		"/sys/fs/cgroup/cgroup.controllers",
		"/proc/filesystems",
		"/proc/devices",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (access(paths[i], R_OK))
			continue;
		same_as_plain(paths[i], 32 * KIB);
		same_as_plain(paths[i], MIB);
	}
}

static void closed_handles(void **state)
{
	struct peerlane_file *file;
	struct peerlane_batch *batch;
	struct peerlane_explanation why = { .size = sizeof(why) };
	char host[16];
	size_t bytes = 1;
	off_t offset = 0;
	ssize_t result = 77;
	struct peerlane_io io = { .addr = host, .bytes = 1 };

	(void)state;
	sim_make_file("closed", 10, 1);
	io.file = file = sim_file(ctx, sim_path("closed"), O_RDWR);
	assert_int_equal(peerlane_batch_create(ctx, 1, &batch), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_file_close(file), -EBADF);
	assert_int_equal(peerlane_file_close(file), -EBADF);
	assert_int_equal(peerlane_read(file, host, 1, 0), -EBADF);
	assert_int_equal(peerlane_write(file, host, 1, 0, 0), -EBADF);
	assert_int_equal(peerlane_file_sync(file), -EBADF);
	assert_int_equal(peerlane_batch_submit(batch, &io, 1), -EBADF);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, host, 1, 0, &why), -EBADF);
	assert_int_equal(peerlane_read_async(file, host, &bytes, &offset, &result, NULL, 0),
			 -EBADF);
	assert_int_equal(result, 77);
	assert_int_equal(peerlane_file_close(NULL), 0);
	assert_int_equal(peerlane_file_sync(NULL), -EINVAL);
	peerlane_batch_destroy(batch);
	/* Also when many were closed since. */
	for (int i = 0; i < 500; i++)
		assert_int_equal(peerlane_file_close(sim_file(ctx, sim_path("closed"), O_RDONLY)),
				 0);
	assert_int_equal(peerlane_read(file, host, 1, 0), -EBADF);
}

struct opener {
	const char *path;
	struct peerlane_file *file;
	int err; /* atomic; 1: not opened yet */
};

static void *open_leased(void *arg)
{
	struct opener *o = arg;
	int err = peerlane_file_open(ctx, o->path, O_RDWR, 0, &o->file);

	__atomic_store_n(&o->err, err, __ATOMIC_RELEASE);
	return NULL;
}

/* Somebody has a lease on the file: peerlane_file_open() waits for it to be given back, as open(2) does. */
static void leased(void **state)
{
	struct opener o = { .path = sim_make_file("leased", 4096, 1), .err = 1 };
	int fd = open(o.path, O_RDONLY | O_CLOEXEC);
	pthread_t thread;

	(void)state;
	assert_true(fd >= 0);
	if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETLEASE, F_RDLCK)) {
		print_message("no leases on this file system\n");
		close(fd);
		skip();
	}
	assert_int_equal(pthread_create(&thread, NULL, open_leased, &o), 0);
	/* Until it is wanted back. */
	while (fcntl(fd, F_GETLEASE) == F_RDLCK && __atomic_load_n(&o.err, __ATOMIC_ACQUIRE) == 1)
		sim_nap_ms(1);
	fcntl(fd, F_SETLEASE, F_UNLCK);
	pthread_join(thread, NULL);
	assert_int_equal(o.err, 0);
	close(fd);
	assert_int_equal(peerlane_file_close(o.file), 0);
}

#define file_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		file_test(bad_descriptors),  file_test(no_files),     file_test(no_paths),
		file_test(no_pipes_by_path), file_test(directions),   file_test(created),
		file_test(anonymous),	     file_test(kernel_files), file_test(closed_handles),
		file_test(leased),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
