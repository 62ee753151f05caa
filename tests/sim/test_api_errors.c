// SPDX-License-Identifier: MIT
/* Words for errors: peerlane_strerror() for every code, peerlane_error() after each failure. */
#include "sim/sim_fixture.h"

#include <limits.h>
#include <pthread.h>
#include <sys/socket.h>

static const int documented[] = {
	EINVAL, EBADF,	EFAULT,	   ERANGE, EOVERFLOW, EEXIST, ENOENT,	  EBUSY,
	EISDIR, ESPIPE, ENODEV,	   EIO,	   EREMOTEIO, ENOSPC, EDQUOT,	  EFBIG,
	EAGAIN, ENOMEM, ETIMEDOUT, EMFILE, ECANCELED, EACCES, EOWNERDEAD,
};

static void words(void **state)
{
	const size_t nr = sizeof(documented) / sizeof(documented[0]);

	(void)state;
	for (size_t i = 0; i < nr; i++) {
		const char *text = peerlane_strerror(-documented[i]);

		assert_non_null(text);
		assert_true(strlen(text) >= 5);
		/* Its own words, not the system's. */
		assert_string_not_equal(text, strerror(documented[i]));
		assert_string_equal(text, peerlane_strerror(documented[i]));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(text, peerlane_strerror(documented[k]));
	}
	assert_string_equal(peerlane_strerror(0), "success");
	assert_string_equal(peerlane_strerror(-ELOOP), strerror(ELOOP));
}

static void unknown_words(void **state)
{
	static const int codes[] = { 4095, -4095, 100000, -100000, INT_MAX, -INT_MAX, INT_MIN };

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		assert_string_equal(peerlane_strerror(codes[i]), "unknown error");
}

static void *fresh_thread(void *arg)
{
	struct peerlane_error_info info = { .size = sizeof(info), .err = 1, .cuda = 1 };
	struct peerlane_file *file = arg;
	uintptr_t bad = 0;

	memset(info.text, 'x', sizeof(info.text));
	bad |= peerlane_error(&info) != 0;
	bad |= info.err || info.cuda || info.text[0];
	bad |= peerlane_read(file, &info, 1, -5) != -EINVAL;
	bad |= peerlane_error(&info) != 0;
	bad |= info.err != -EINVAL || !strstr(info.text, "-5");
	return (void *)bad;
}

/* Each thread has its own; one that has not failed has none. */
static void per_thread(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file;
	pthread_t thread;
	void *bad;

	(void)state;
	sim_make_file("thread", 10, 1);
	file = sim_file(ctx, sim_path("thread"), O_RDONLY);
	assert_int_equal(peerlane_buffer_release(ctx, &file), -ENOENT);
	assert_int_equal(pthread_create(&thread, NULL, fresh_thread, file), 0);
	assert_int_equal(pthread_join(thread, &bad), 0);
	assert_null(bad);
	sim_assert_error(-ENOENT, "not registered");
	/* Success does not wipe it out. */
	assert_int_equal(peerlane_read(file, &bad, 1, 0), 1);
	sim_assert_error(-ENOENT, "not registered");
	peerlane_close(ctx);
}

static void bad_info(void **state)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	(void)state;
	assert_int_equal(peerlane_error(NULL), -EINVAL);
	info.size--;
	assert_int_equal(peerlane_error(&info), -EINVAL);
	info.size = 0;
	assert_int_equal(peerlane_error(&info), -EINVAL);
}

/* After each kind of failure the text says what it was. */
static void texts(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file, *other = NULL;
	char host[16], *gpu = sim_alloc(ctx, 4096);
	int fds[2];

	(void)state;
	sim_make_file("texts", 8192, 1);
	file = sim_file(ctx, sim_path("texts"), O_RDONLY);
	assert_int_equal(peerlane_file_open(ctx, sim_path("nowhere"), O_RDONLY, 0, &other),
			 -ENOENT);
	sim_assert_error(-ENOENT, "nowhere");
	assert_int_equal(peerlane_file_open(ctx, sim_path(""), O_RDONLY, 0, &other), -EISDIR);
	sim_assert_error(-EISDIR, "directory");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(peerlane_file_from_fd(ctx, fds[0], &other), -ESPIPE);
	sim_assert_error(-ESPIPE, "regular file");
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(peerlane_file_from_fd(ctx, 12345, &other), -EBADF);
	sim_assert_error(-EBADF, "12345");
	assert_int_equal(peerlane_write(file, host, 1, 0, 0), -EBADF);
	sim_assert_error(-EBADF, "writing");
	assert_int_equal(peerlane_read(file, NULL, 1, 0), -EINVAL);
	sim_assert_error(-EINVAL, "NULL");
	assert_int_equal(peerlane_read(NULL, host, 1, 0), -EINVAL);
	sim_assert_error(-EINVAL, "file is NULL");
	assert_int_equal(peerlane_read(file, host, SIZE_MAX, 0), -EOVERFLOW);
	sim_assert_error(-EOVERFLOW, "offset");
	assert_int_equal(peerlane_read(file, gpu, 4097, 0), -EFAULT);
	sim_assert_error(-EFAULT, "4097");
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 100, 0), 0);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 100, 0), -EEXIST);
	sim_assert_error(-EEXIST, "registered already");
	assert_int_equal(peerlane_read(file, gpu, 101, 0), -ERANGE);
	sim_assert_error(-ERANGE, "101");
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_read(file, gpu, 1, 0), -EBADF);
	sim_assert_error(-EBADF, "closed");
	peerlane_close(ctx);
}

/* A failure of the GPU gives the driver's code, of the file system none. */
static void gpu_codes(void **state)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *file;
	char *gpu = sim_alloc(ctx, MIB);

	(void)state;
	sim_make_file("codes", MIB, 1);
	file = sim_file(ctx, sim_path("codes"), O_RDONLY);
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 100), 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), -EREMOTEIO);
	assert_int_equal(peerlane_error(&info), 0);
	assert_int_equal(info.err, -EREMOTEIO);
	assert_int_equal(info.cuda, 719);
	assert_non_null(strstr(info.text, "launch failed"));
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 0), 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, -1), -EINVAL);
	assert_int_equal(peerlane_error(&info), 0);
	assert_int_equal(info.cuda, 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	sim_assert_gpu(ctx, gpu, MIB, 0, 1);
	/* A page that is not there: the kernel's word. */
	assert_int_equal(peerlane_read(file, (void *)4096, 100, 0), -EFAULT);
	assert_int_equal(peerlane_error(&info), 0);
	assert_int_equal(info.err, -EFAULT);
	assert_int_equal(info.cuda, 0);
	assert_true(info.text[0] != '\0');
	peerlane_close(ctx);
}

/* "nothing sets errno": the caller's is as it was, after success and after failure. */
static void errno_kept(void **state)
{
	struct peerlane *ctx = NULL;
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	struct peerlane_file *file = NULL;
	char host[4];

	(void)state;
	sim_make_file("errno", 3, 1);
	errno = 4321;
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_int_equal(errno, 4321);
	assert_int_equal(peerlane_file_open(ctx, "/nonexistent", O_RDONLY, 0, &file), -ENOENT);
	assert_int_equal(errno, 4321);
	assert_int_equal(peerlane_file_open(ctx, sim_path("errno"), O_RDONLY, 0, &file), 0);
	assert_int_equal(errno, 4321);
	assert_int_equal(peerlane_read(file, host, 4, 0), 3);
	assert_int_equal(errno, 4321);
	assert_int_equal(peerlane_read(file, (void *)4096, 3, 0), -EFAULT);
	assert_int_equal(errno, 4321);
	peerlane_close(ctx);
	assert_int_equal(errno, 4321);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(words),      cmocka_unit_test(unknown_words),
		sim_test(bad_info),   cmocka_unit_test(per_thread),
		sim_test(texts),      cmocka_unit_test(gpu_codes),
		sim_test(errno_kept),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
