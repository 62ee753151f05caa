// SPDX-License-Identifier: MIT
/* What else write(2) does to a file, after writes through its mapping: the times move with every
 * request, privileges go, a seal can still be set, limits hold. */
#include "sim/sim_fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "cache.h"

#define BYTES (2 * MIB)
#define NOBODY 65534
/* Longer than a tick of the clock that file times come from. */
#define TICK_MS 15

static struct peerlane *ctx;
static struct peerlane_file *file;
static char path_of_file[320];
static const char *path;
static char *gpu;

static void begin(void)
{
	ctx = sim_open(0);
	snprintf(path_of_file, sizeof(path_of_file), "%s", sim_make_file("times", BYTES, 1));
	path = path_of_file;
	file = sim_file(ctx, path, O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
}

static void end(void)
{
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* Whether time @a is before @b. */
static bool before(struct timespec a, struct timespec b)
{
	return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static struct stat look(void)
{
	struct stat sb;

	assert_int_equal(stat(path, &sb), 0);
	return sb;
}

/* @fn makes one request that must move the times, whatever was written there before. On a file
 * system that is not written by mapping this is a test of the plain way. */
static void moves(void (*fn)(size_t bytes))
{
	static const size_t sizes[] = { 1, 4096, 4096, 100000, MIB, BYTES, 1 };

	begin();
	/* This maps the file, which counts as an access; and all its pages are dirty then. */
	fn(BYTES);
	fn(BYTES);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct stat a = look(), b;

		sim_nap_ms(TICK_MS);
		fn(sizes[i]);
		b = look();
		assert_true(before(a.st_mtim, b.st_mtim));
		assert_true(before(a.st_ctim, b.st_ctim));
		assert_false(before(a.st_atim, b.st_atim));
	}
	end();
}

static void one_write(size_t bytes)
{
	assert_int_equal(peerlane_write(file, gpu, bytes, 0, 0), bytes);
}

static void one_vector(size_t bytes)
{
	struct iovec iov[2] = { { gpu, bytes / 2 }, { gpu + bytes / 2, bytes - bytes / 2 } };

	assert_int_equal(peerlane_writev(file, iov, 2, 0, 0), bytes);
}

static void one_stream(size_t bytes)
{
	off_t offset = 0;
	ssize_t result = -1;
	void *stream;

	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	assert_int_equal(
		peerlane_write_async(file, gpu, &bytes, &offset, &result, stream, PEERLANE_FIXED),
		0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	peerlane_gpu_stream_destroy(ctx, stream);
	assert_int_equal(result, bytes);
}

/* A batch with another file between: both have moved when the events are there. */
static void one_batch(size_t bytes)
{
	static const char *other_path;
	struct peerlane_event events[3];
	struct peerlane_file *other;
	struct peerlane_batch *b;
	struct peerlane_io io[3];
	struct stat was, is;

	other_path = sim_make_file("other", BYTES, 1);
	other = sim_file(ctx, other_path, O_RDWR);
	/* Its page is dirty and mapped: the kernel would not move its times any more. */
	assert_int_equal(peerlane_write(other, gpu, BYTES, 0, 0), BYTES);
	assert_int_equal(peerlane_write(other, gpu, bytes, 0, 0), bytes);
	assert_int_equal(stat(other_path, &was), 0);
	sim_nap_ms(TICK_MS);
	/* The last byte is that of the third alone. */
	for (int i = 0; i < 3; i++)
		io[i] = (struct peerlane_io){ .file = i == 1 ? other : file,
					      .addr = gpu,
					      .bytes = i == 2 ? 1 : bytes - (bytes == BYTES),
					      .offset = i == 2 ? (off_t)(BYTES - 1) : 0,
					      .op = PEERLANE_WRITE };
	assert_int_equal(peerlane_batch_create(ctx, 3, &b), 0);
	assert_int_equal(peerlane_batch_submit(b, io, 3), 0);
	assert_int_equal(peerlane_batch_wait(b, 3, events, 3, NULL), 3);
	for (int i = 0; i < 3; i++)
		assert_true(events[i].result > 0);
	assert_int_equal(stat(other_path, &is), 0);
	assert_true(before(was.st_mtim, is.st_mtim));
	peerlane_batch_destroy(b);
	assert_int_equal(peerlane_file_close(other), 0);
}

static void times_of_writes(void **state)
{
	(void)state;
	moves(one_write);
}

static void times_of_vectors(void **state)
{
	(void)state;
	moves(one_vector);
}

static void times_of_streams(void **state)
{
	(void)state;
	moves(one_stream);
}

static void times_of_batches(void **state)
{
	(void)state;
	moves(one_batch);
}

/* --- as another user --- */

/* Runs @fn as nobody, in a child, on descriptor @fd; it gives back 0 or the line that failed. */
static void as_nobody(int (*fn)(int fd), int fd)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		sim_alarm(20);
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(99);
		_exit(fn(fd) & 0xff);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("the child: signal %d, line %d modulo 256", WTERMSIG(status),
			 WEXITSTATUS(status));
}

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			return __LINE__ % 256 ? __LINE__ : 1;                                      \
		}                                                                                  \
	} while (0)

static int write_as_stranger(int fd)
{
	static const size_t sizes[] = { 100, 100, MIB, MIB, 100, 300000 };
	struct peerlane_stats st = { .size = sizeof(st) };
	struct stat a, b;
	char *mem = malloc(MIB), *back = malloc(MIB);

	CHECK(mem && back);
	ctx = sim_open(0);
	CHECK(!peerlane_file_from_fd(ctx, fd, &file));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		sim_pattern(mem, sizes[i], 0, (unsigned int)i);
		CHECK(!fstat(fd, &a));
		sim_nap_ms(TICK_MS);
		CHECK(peerlane_write(file, mem, sizes[i], 0, 0) == (ssize_t)sizes[i]);
		CHECK(!fstat(fd, &b));
		CHECK(before(a.st_mtim, b.st_mtim));
		CHECK(b.st_size == (off_t)BYTES);
		CHECK(pread(fd, back, sizes[i], 0) == (ssize_t)sizes[i]);
		CHECK(!memcmp(mem, back, sizes[i]));
	}
	CHECK(!peerlane_stats_get(ctx, &st));
	/* Short ones are plain from the second on, as each would need a plain one besides. */
	CHECK(st.mapped_write_bytes == 0 || st.mapped_write_bytes == 100 + 2 * MIB + 256 * KIB);
	peerlane_close(ctx);
	free(mem);
	free(back);
	return 0;
}

static void stranger(void **state)
{
	int fd;

	(void)state;
	if (geteuid())
		skip();
	path = sim_make_file("stranger", BYTES, 1);
	assert_int_equal(chmod(path, 0666), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	as_nobody(write_as_stranger, fd);
	close(fd);
}

static int write_privileged(int fd)
{
	struct stat sb;
	char mem[4096];

	memset(mem, 1, sizeof(mem));
	ctx = sim_open(0);
	CHECK(!peerlane_file_from_fd(ctx, fd, &file));
	/* The mapping is there before the bits are. */
	CHECK(peerlane_write(file, mem, sizeof(mem), 0, 0) == sizeof(mem));
	CHECK(!fchmod(fd, 06755));
	CHECK(!fstat(fd, &sb) && (sb.st_mode & 07777) == 06755);
	CHECK(peerlane_write(file, mem, sizeof(mem), 0, 0) == sizeof(mem));
	CHECK(!fstat(fd, &sb) && (sb.st_mode & 07777) == 0755);
	peerlane_close(ctx);
	return 0;
}

static void set_id_bits_go(void **state)
{
	int fd;

	(void)state;
	if (geteuid())
		skip();
	path = sim_make_file("suid", BYTES, 1);
	assert_int_equal(chown(path, NOBODY, NOBODY), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	as_nobody(write_privileged, fd);
	close(fd);
}

static void capabilities_go(void **state)
{
	/* struct vfs_cap_data of revision 2: cap_net_raw, effective. */
	static const unsigned char caps[20] = { 1, 0, 0, 2, 0, 0x20 };

	(void)state;
	begin();
	assert_int_equal(peerlane_write(file, gpu, 4096, 0, 0), 4096);
	assert_int_equal(chmod(path, 0755), 0);
	if (setxattr(path, "security.capability", caps, sizeof(caps), 0)) {
		end();
		skip();
	}
	assert_int_equal(peerlane_write(file, gpu, 4096, 0, 0), 4096);
	assert_int_equal(getxattr(path, "security.capability", NULL, 0), -1);
	assert_int_equal(errno, ENODATA);
	end();
}

/* --- what a mapping must not stand in the way of --- */

static void sealing(void **state)
{
	int fd = memfd_create("sealing", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	(void)state;
	assert_true(fd >= 0);
	ctx = sim_open(0);
	gpu = sim_alloc(ctx, BYTES);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(peerlane_write(file, gpu, BYTES, 0, 0), BYTES);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(peerlane_write(file, gpu, 4096, 0, 0), -EPERM);
	close(fd);
	end();
}

static int write_limited(int fd)
{
	struct rlimit lim = { .rlim_cur = MIB, .rlim_max = MIB };
	char mem[4096] = { 0 };

	(void)fd;
	signal(SIGXFSZ, SIG_IGN);
	CHECK(!setrlimit(RLIMIT_FSIZE, &lim));
	ctx = sim_open(0);
	file = sim_file(ctx, path, O_RDWR);
	CHECK(peerlane_write(file, mem, 4096, 0, 0) == 4096);
	CHECK(peerlane_write(file, mem, 4096, MIB, 0) == -EFBIG);
	peerlane_close(ctx);
	return 0;
}

/* write(2) refuses to go past it even inside a file that is longer. */
static void size_limit(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	path = sim_make_file("limit", BYTES, 1);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		sim_alarm(20);
		_exit(write_limited(-1) & 0xff);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A program that locks all it maps does not get the file locked, or read at all. */
static void locked_memory(void **state)
{
	int64_t in;
	int fd;

	(void)state;
	begin();
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	sim_chill(path);
	if (pl_cache_resident(fd, 0, BYTES) > 0 || mlockall(MCL_FUTURE)) {
		close(fd);
		end();
		skip();
	}
	assert_int_equal(peerlane_write(file, gpu, 4096, 0, 0), 4096);
	assert_int_equal(peerlane_write(file, gpu, 4096, 0, 0), 4096);
	munlockall();
	in = pl_cache_resident(fd, 0, BYTES);
	close(fd);
	assert_in_range(in, 4096, BYTES / 4);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(times_of_writes),  sim_test(times_of_vectors), sim_test(times_of_streams),
		sim_test(times_of_batches), sim_test(stranger),		sim_test(set_id_bits_go),
		sim_test(capabilities_go),  sim_test(sealing),		sim_test(size_limit),
		sim_test(locked_memory),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
