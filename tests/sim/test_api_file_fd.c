// SPDX-License-Identifier: MIT
/* Descriptors of the caller stay as they are, and files live with few descriptors left. */
#include "sim/sim_fixture.h"

#include <sys/resource.h>
#include <sys/stat.h>

#define BYTES (2 * MIB + 77)

/* Offset and flags of the caller's descriptor are never moved or changed. */
static void fd_unchanged(void **state)
{
	static const int flags[] = { O_RDWR, O_RDWR | O_NONBLOCK, O_RDWR | O_APPEND,
				     O_RDWR | O_DSYNC, O_RDWR | O_DIRECT };
	struct peerlane *ctx = sim_open(0);
	char *gpu = sim_alloc(ctx, BYTES);
	struct peerlane_file *file;

	(void)state;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		const char *path = sim_make_file("fd", BYTES, 1);
		int fd = open(path, flags[i]), before, cloexec;

		if (fd < 0)
			continue;
		assert_int_equal(lseek(fd, 123, SEEK_SET), 123);
		before = fcntl(fd, F_GETFL);
		cloexec = fcntl(fd, F_GETFD);
		assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
		assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
		sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
		assert_int_equal(peerlane_write(file, gpu, BYTES, 0, 0), BYTES);
		sim_assert_file(path, 0, BYTES, 1);
		assert_int_equal(peerlane_file_sync(file), 0);
		if (!(flags[i] & O_APPEND))
			assert_int_equal(lseek(fd, 0, SEEK_CUR), 123);
		assert_int_equal(fcntl(fd, F_GETFL), before);
		assert_int_equal(fcntl(fd, F_GETFD), cloexec);
		assert_int_equal(peerlane_file_close(file), 0);
		assert_int_equal(fcntl(fd, F_GETFL), before);
		close(fd);
	}
	sim_close(ctx, NULL, gpu);
}

/* The caller may close his descriptor, or use its number for another file. */
static void fd_closed_by_caller(void **state)
{
	struct peerlane *ctx = sim_open(0);
	char *gpu = sim_alloc(ctx, BYTES);
	struct peerlane_file *file;
	int fd, other;

	(void)state;
	sim_make_file("mine", BYTES, 1);
	sim_make_file("other", BYTES, 2);
	fd = open(sim_path("mine"), O_RDWR);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	other = open(sim_path("other"), O_RDWR);
	assert_int_equal(dup2(other, fd), fd);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	close(fd);
	close(other);
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 3);
	assert_int_equal(peerlane_write(file, gpu, BYTES, 0, 0), BYTES);
	sim_assert_file(sim_path("mine"), 0, BYTES, 3);
	sim_assert_file(sim_path("other"), 0, BYTES, 2);
	sim_close(ctx, file, gpu);
}

/* Descriptors 0 to 2 are never taken: a program may have closed them. */
static void low_numbers_free(void **state)
{
	struct peerlane *ctx = sim_open(0);
	int in = fcntl(0, F_DUPFD_CLOEXEC, 3);
	int fd = open(sim_make_file("low", 10, 1), O_RDONLY | O_CLOEXEC), low;
	struct peerlane_file *file, *file2;
	struct stat sb;

	(void)state;
	close(0);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	file2 = sim_file(ctx, sim_path("low"), O_RDONLY);
	low = fstat(0, &sb);
	assert_int_equal(dup2(in, 0), 0);
	assert_int_equal(low, -1);
	close(in);
	close(fd);
	assert_int_equal(peerlane_file_close(file), 0);
	sim_close(ctx, file2, NULL);
}

/* All descriptors a file holds are closed on exec. */
static void not_inherited(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("exec", BYTES, 1), O_RDWR);
	char *gpu = sim_alloc(ctx, BYTES);

	(void)state;
	sim_chill(sim_path("exec"));
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	for (int fd = 3; fd < 1000; fd++) {
		char link[64], target[300];
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		if (strstr(target, "peerlane") || strstr(target, "io_uring"))
			assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	}
	sim_close(ctx, NULL, gpu);
}

static rlim_t leave_fds(unsigned int nr)
{
	struct rlimit lim;
	rlim_t before;
	int fd = open("/dev/null", O_RDONLY);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	before = lim.rlim_cur;
	lim.rlim_cur = (rlim_t)fd + nr;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	return before;
}

static void restore_fds(rlim_t before)
{
	struct rlimit lim;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	lim.rlim_cur = before;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
}

static void no_descriptor_left(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = NULL;
	int fd = open(sim_make_file("emfile", 10, 1), O_RDONLY);
	rlim_t before = leave_fds(0);
	int by_fd = peerlane_file_from_fd(ctx, fd, &file);
	int by_path = peerlane_file_open(ctx, sim_path("emfile"), O_RDONLY, 0, &file);

	(void)state;
	restore_fds(before);
	assert_int_equal(by_fd, -EMFILE);
	assert_int_equal(by_path, -EMFILE);
	assert_null(file);
	close(fd);
	peerlane_close(ctx);
}

/* Reads and writes of every alignment with a file that got only one of its two descriptors. */
static void one_descriptor(int flags, unsigned int context_flags)
{
	struct peerlane *ctx = sim_open(context_flags);
	char *gpu = sim_alloc(ctx, BYTES), *host = malloc(BYTES + 1);
	const char *path = sim_make_file("single", BYTES, 1);
	struct peerlane_file *file = NULL;
	rlim_t before = leave_fds(1);
	int err = peerlane_file_open(ctx, path, flags, 0, &file);
	ssize_t n;

	restore_fds(before);
	/* Refusing is fine; a file that reads as empty is not. */
	if (err) {
		assert_int_equal(err, -EMFILE);
		goto out;
	}
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	assert_int_equal(peerlane_read(file, gpu + 3, 1000, 5), 1000);
	sim_assert_gpu(ctx, gpu + 3, 1000, 5, 1);
	n = peerlane_read(file, host + 1, 1000, 5);
	assert_true(n == 1000 || n < 0);
	n = peerlane_read(file, host + 1, BYTES, 0);
	assert_true(n == BYTES || n < 0);
	assert_int_equal(n < 0 ? 0 : sim_differs(host + 1, BYTES, 0, 1), n < 0 ? 0 : BYTES);
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 2);
	n = peerlane_write(file, gpu, 999, 3, 0);
	assert_true(n == 999 || n < 0);
	assert_int_equal(peerlane_file_close(file), 0);
out:
	free(host);
	sim_close(ctx, NULL, gpu);
}

static void one_descriptor_plain(void **state)
{
	(void)state;
	one_descriptor(O_RDWR, 0);
}

static void one_descriptor_direct(void **state)
{
	(void)state;
	one_descriptor(O_RDWR | O_DIRECT, 0);
}

static void one_descriptor_direct_off(void **state)
{
	(void)state;
	one_descriptor(O_RDWR | O_DIRECT, PEERLANE_NO_DIRECT);
}

/* No descriptor is left for an io_uring when one is needed: the read is done all the same. */
static void no_descriptor_for_ring(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file = sim_file(ctx, sim_make_file("ring", BYTES, 1), O_RDONLY);
	char *gpu = sim_alloc(ctx, BYTES);
	rlim_t before;
	ssize_t n;

	(void)state;
	sim_chill(sim_path("ring"));
	before = leave_fds(0);
	n = peerlane_read(file, gpu, BYTES, 0);
	restore_fds(before);
	assert_int_equal(n, BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	sim_close(ctx, NULL, gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(fd_unchanged),
		sim_test(fd_closed_by_caller),
		sim_test(low_numbers_free),
		sim_test(not_inherited),
		sim_test(no_descriptor_left),
		sim_test(no_descriptor_for_ring),
		sim_test(one_descriptor_plain),
		sim_test(one_descriptor_direct),
		sim_test(one_descriptor_direct_off),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
