// SPDX-License-Identifier: MIT
/* What the fault tests share. */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char fault_case[256];
const char *const fault_how_name[FAULT_NR_HOW] = { "sync", "batch", "stream" };

static char dir[128];
static pid_t owner;
static char mounts[8][256];
static unsigned int nr_mounts;
const char *fault_images;

void fault_fail(const char *file, int line, const char *what)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	printf("FAIL %s:%d: %s\n  case: %s\n  last error of this thread: %d %s\n", file, line, what,
	       fault_case, info.err, info.text);
	fflush(stdout);
	exit(1);
}

void fault_check_eq(const char *file, int line, const char *at, long long a, const char *bt,
		    long long b)
{
	char text[256];

	if (a == b)
		return;
	snprintf(text, sizeof(text), "%s is %lld, not %s (%lld)", at, a, bt, b);
	fault_fail(file, line, text);
}

void fault_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	exit(77);
}

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
	(void)sb;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void clean_up(void)
{
	if (getpid() != owner)
		return;
	while (nr_mounts)
		umount2(mounts[--nr_mounts], MNT_DETACH);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void too_long(int sig)
{
	static const char text[] = "FAIL: the test did not end in time; case: ";

	(void)sig;
	(void)!write(1, text, sizeof(text) - 1);
	(void)!write(1, fault_case, strlen(fault_case));
	(void)!write(1, "\n", 1);
	clean_up();
	_exit(1);
}

/* Sanitizers and valgrind make everything slower. */
static unsigned int slowness(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return 5;
#else
	return getenv("PEERLANE_UNDER_VALGRIND") ? 20 : 1;
#endif
}

void fault_begin(unsigned int seconds)
{
	static const char *const ours[] = {
		"PEERLANE_BACKEND",   "PEERLANE_POOL_BYTES", "PEERLANE_SLOT_BYTES",
		"PEERLANE_THREADS",   "PEERLANE_FLAGS",	     "PEERLANE_QUEUE_DEPTH",
		"PEERLANE_SIM_ASYNC", "PEERLANE_SIM_BAR",    "PEERLANE_SIM_IN_PLACE",
		"PEERLANE_SIM_FAIL",
	};
	const char *base = getenv("TMPDIR");

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		unsetenv(ours[i]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, too_long);
	signal(SIGTERM, too_long);
	signal(SIGINT, too_long);
	alarm(seconds * slowness());
	snprintf(dir, sizeof(dir), "%s/peerlane-fault.XXXXXX", base ? base : "/tmp");
	CHECK(mkdtemp(dir));
	owner = getpid();
	atexit(clean_up);
}

const char *fault_dir(void)
{
	return dir;
}

const char *fault_path(const char *name)
{
	static char paths[4][256];
	static unsigned int next;
	char *path = paths[next++ % 4];

	snprintf(path, 256, "%s/%s", dir, name);
	return path;
}

double fault_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

uint32_t fault_random(void)
{
	static __thread uint64_t state = 0x9e3779b97f4a7c15;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

/* --- the pattern --- */

static uint64_t word(uint64_t index, uint64_t seed)
{
	uint64_t x = (index + 1) * 0x9e3779b97f4a7c15 + seed * 0xd1b54a32d192ed03;

	return x ^ x >> 29;
}

static uint8_t byte(uint64_t at, uint64_t seed)
{
	return (uint8_t)(word(at / 8, seed) >> at % 8 * 8);
}

/* Millions of small steps, with nothing in them for a sanitizer to find. */
#define PLAIN                                                                                      \
	__attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

PLAIN void fault_pattern(void *mem, size_t bytes, uint64_t at, uint64_t seed)
{
	uint8_t *p = mem;

	for (; bytes && at % 8; bytes--)
		*p++ = byte(at++, seed);
	for (; bytes >= 8; bytes -= 8, p += 8, at += 8) {
		uint64_t w = word(at / 8, seed);

		memcpy(p, &w, 8);
	}
	for (; bytes; bytes--)
		*p++ = byte(at++, seed);
}

PLAIN size_t fault_differs(const void *mem, size_t bytes, uint64_t at, uint64_t seed)
{
	const uint8_t *p = mem;
	size_t i = 0;

	while (i < bytes) {
		uint64_t w = word((at + i) / 8, seed);

		if (bytes - i >= 8 && (at + i) % 8 == 0 && !memcmp(p + i, &w, 8)) {
			i += 8;
			continue;
		}
		if (p[i] != byte(at + i, seed))
			return i;
		i++;
	}
	return bytes;
}

/* --- files --- */

void fault_make_file(const char *path, size_t bytes, uint64_t seed)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	char *mem = malloc(MIB);

	CHECK(fd >= 0 && mem);
	for (size_t at = 0; at < bytes; at += MIB) {
		size_t n = bytes - at < MIB ? bytes - at : MIB;

		fault_pattern(mem, n, at, seed);
		CHECK_EQ(pwrite(fd, mem, n, (off_t)at), n);
	}
	free(mem);
	CHECK(!close(fd));
}

void fault_make_cold(const char *path)
{
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0);
	fdatasync(fd);
	CHECK(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
}

void fault_make_cached(const char *path)
{
	int fd = open(path, O_RDONLY);
	char *mem = malloc(MIB);

	CHECK(fd >= 0 && mem);
	while (read(fd, mem, MIB) > 0)
		;
	free(mem);
	close(fd);
}

/* --- the library --- */

static void log_line(void *arg, int level, const char *text)
{
	(void)arg;
	if (getenv("PEERLANE_TEST_LOG"))
		fprintf(stderr, "log %d: %s\n", level, text);
}

struct peerlane *fault_open(unsigned int flags, unsigned int timeout_ms)
{
	struct peerlane_options opt = { .size = sizeof(opt),
					.flags = flags,
					.backend = "sim",
					.nr_threads = 3,
					.timeout_ms = timeout_ms,
					.log_level = 3,
					.log = log_line };
	struct peerlane *ctx = NULL;

	CHECK_EQ(peerlane_open(&ctx, &opt), 0);
	return ctx;
}

struct peerlane_file *fault_file(struct peerlane *ctx, const char *path, int flags)
{
	struct peerlane_file *f = NULL;

	CHECK_EQ(peerlane_file_open(ctx, path, flags, 0600, &f), 0);
	return f;
}

char *fault_gpu(struct peerlane *ctx, size_t bytes)
{
	void *p = NULL;

	CHECK_EQ(peerlane_gpu_alloc(ctx, 0, bytes, &p), 0);
	return p;
}

char *fault_see(void *gpu)
{
	char *p = peerlane_sim_host(gpu);

	CHECK(p);
	return p;
}

static ssize_t io_batch(struct peerlane *ctx, const struct peerlane_io *io)
{
	struct peerlane_event e = { .result = -1 };
	struct peerlane_batch *b;
	int err;

	CHECK_EQ(peerlane_batch_create(ctx, 1, &b), 0);
	err = peerlane_batch_submit(b, io, 1);
	if (err) {
		peerlane_batch_destroy(b);
		return err;
	}
	CHECK_EQ(peerlane_batch_wait(b, 1, &e, 1, NULL), 1);
	peerlane_batch_destroy(b);
	return e.result;
}

static ssize_t io_stream(struct peerlane *ctx, const struct peerlane_io *io)
{
	ssize_t result = -12345;
	void *stream;

	CHECK_EQ(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	if (io->op == PEERLANE_READ)
		CHECK_EQ(peerlane_read_async(io->file, io->addr, &io->bytes, &io->offset, &result,
					     stream, 0),
			 0);
	else
		CHECK_EQ(peerlane_write_async(io->file, io->addr, &io->bytes, &io->offset, &result,
					      stream, 0),
			 0);
	CHECK_EQ(peerlane_gpu_stream_sync(ctx, stream), 0);
	peerlane_gpu_stream_destroy(ctx, stream);
	return result;
}

ssize_t fault_io(enum fault_how how, struct peerlane *ctx, struct peerlane_file *file,
		 enum peerlane_op op, void *addr, size_t bytes, off_t offset)
{
	struct peerlane_io io = {
		.file = file, .addr = addr, .bytes = bytes, .offset = offset, .op = op
	};

	if (how == FAULT_BATCH)
		return io_batch(ctx, &io);
	if (how == FAULT_STREAM)
		return io_stream(ctx, &io);
	return op == PEERLANE_READ ? peerlane_read(file, addr, bytes, offset)
				   : peerlane_write(file, addr, bytes, offset, 0);
}

void fault_check_idle(struct peerlane *ctx)
{
	struct peerlane_stats st = { .size = sizeof(st) };
	double until = fault_now() + 5;

	/* A batch gives its event a moment before it lets go of the file and the lane. */
	do
		CHECK_EQ(peerlane_stats_get(ctx, &st), 0);
	while (st.in_flight && fault_now() < until);
	CHECK_EQ(st.in_flight, 0);
	CHECK_EQ(st.batches, 0);
	CHECK(st.pool_bytes <= st.pool_limit);
	CHECK(st.pool_peak <= st.pool_limit);
}

int fault_child(void (*fn)(void *), void *arg)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(30 * slowness());
		fn(arg);
		fflush(stdout);
		/* Without the leak check of the sanitizers: it needs what the child gave up. */
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- mounts --- */

static void own_mounts(void)
{
	static bool done;

	if (done)
		return;
	if (geteuid() != 0)
		fault_skip("mounting needs root");
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fault_skip("no mount namespace: %s", strerror(errno));
	done = true;
}

/* The loop device goes away with the mount: it is detached while still in use. */
static const char make_image[] =
	"exec >/dev/null 2>%s/why; cd %s && truncate -s %uM mount%u.img && "
	"loop=$(losetup -f --show --sector-size %u mount%u.img) || exit 1; "
	"mkfs.%s %s $loop && mount -t %s -o %s $loop %s; rc=$?; losetup -d $loop; exit $rc";

const char *fault_mount_sector(const char *type, unsigned int mib, const char *mkfs_options,
			       const char *mount_options, unsigned int sector)
{
	char command[1024], *at;

	own_mounts();
	CHECK(nr_mounts < 8);
	at = mounts[nr_mounts];
	snprintf(at, sizeof(mounts[0]), "%s/mount%u", dir, nr_mounts);
	CHECK(!mkdir(at, 0700));
	if (!strcmp(type, "tmpfs"))
		snprintf(command, sizeof(command), "mount -t tmpfs -o size=%uM none %s", mib, at);
	else
		snprintf(command, sizeof(command), make_image, dir,
			 fault_images ? fault_images : dir, mib, nr_mounts, sector, nr_mounts, type,
			 mkfs_options, type, *mount_options ? mount_options : "rw", at);
	/* Outside the command line of a shell nothing here is the user's. */
	if (system(command)) /* NOLINT(cert-env33-c) */
		fault_skip("no %s on a loop device here", type);
	nr_mounts++;
	return at;
}

const char *fault_mount(const char *type, unsigned int mib, const char *mkfs_options,
			const char *mount_options)
{
	return fault_mount_sector(type, mib, mkfs_options, mount_options, 512);
}
