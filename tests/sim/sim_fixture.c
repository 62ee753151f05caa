// SPDX-License-Identifier: MIT
/* What tests on the simulated GPU share. */
#include "sim/sim_fixture.h"

#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

extern char **environ;

static char dir[256];

int sim_group_setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof(dir), "%s/peerlane-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	sim_env("");
	return mkdtemp(dir) ? 0 : -1;
}

int sim_test_setup(void **state)
{
	(void)state;
	sim_env("");
	return 0;
}

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
	(void)sb;
	(void)type;
	(void)ftw;
	return remove(path);
}

int sim_group_teardown(void **state)
{
	(void)state;
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool of_runner(const char *name)
{
	return !strncmp(name, "PEERLANE_BUILD=", 15) || !strncmp(name, "PEERLANE_SOURCE=", 16) ||
	       !strncmp(name, "PEERLANE_UNDER_VALGRIND=", 24);
}

/* Removes one variable that is none of the runner's; false when there is none left. */
static bool forget_one(void)
{
	for (char **e = environ; *e; e++) {
		char name[128];

		if (strncmp(*e, "PEERLANE_", 9) != 0 || of_runner(*e))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		unsetenv(name);
		return true;
	}
	return false;
}

void sim_env(const char *env)
{
	char copy[512], name[128], *save = NULL, *word;

	while (forget_one())
		;
	/* Valgrind does not see what an io_uring writes. */
	if (getenv("PEERLANE_UNDER_VALGRIND"))
		setenv("PEERLANE_FLAGS", "no-io-uring", 1);
	snprintf(copy, sizeof(copy), "%s", env);
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		assert_non_null(value);
		*value++ = '\0';
		snprintf(name, sizeof(name), "PEERLANE_%s", word);
		setenv(name, value, 1);
	}
}

struct peerlane *sim_open_with(struct peerlane_options *opt)
{
	struct peerlane *ctx = NULL;
	int err;

	opt->size = sizeof(*opt);
	opt->backend = "sim";
	err = peerlane_open(&ctx, opt);
	if (err) {
		struct peerlane_error_info info = { .size = sizeof(info) };

		peerlane_error(&info);
		fail_msg("peerlane_open: %d: %s", err, info.text);
	}
	assert_string_equal(peerlane_backend(ctx), "sim");
	return ctx;
}

struct peerlane *sim_open(unsigned int flags)
{
	struct peerlane_options opt = { .flags = flags };

	return sim_open_with(&opt);
}

void sim_close(struct peerlane *ctx, struct peerlane_file *file, void *gpu)
{
	assert_int_equal(sim_stats(ctx).in_flight, 0);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* --- files --- */

const char *sim_path(const char *name)
{
	static char paths[8][320];
	static unsigned int next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static uint64_t word_at(uint64_t index, unsigned int seed)
{
	uint64_t v = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xc2b2ae3d27d4eb4fu;

	v = (v ^ (v >> 29)) * 0xbf58476d1ce4e5b9u;
	return v ^ (v >> 32);
}

void sim_pattern(void *mem, size_t bytes, off_t offset, unsigned int seed)
{
	unsigned char *p = mem;
	uint64_t at = (uint64_t)offset, word;
	size_t i = 0;

	while (i < bytes) {
		size_t skip = at & 7, n = 8 - skip;

		for (; !skip && bytes - i >= 8; i += 8, at += 8) {
			word = word_at(at / 8, seed);
			memcpy(p + i, &word, 8);
		}
		if (i == bytes)
			break;
		if (n > bytes - i)
			n = bytes - i;
		word = word_at(at / 8, seed) >> (8 * skip);
		memcpy(p + i, &word, n);
		i += n;
		at += n;
	}
}

size_t sim_differs(const void *mem, size_t bytes, off_t offset, unsigned int seed)
{
	unsigned char want[4096];
	const unsigned char *p = mem;

	for (size_t i = 0; i < bytes;) {
		size_t n = bytes - i < sizeof(want) ? bytes - i : sizeof(want);

		sim_pattern(want, n, offset + (off_t)i, seed);
		for (size_t k = 0; memcmp(want, p + i, n) && k < n; k++)
			if (want[k] != p[i + k])
				return i + k;
		i += n;
	}
	return bytes;
}

const char *sim_make_file(const char *name, size_t bytes, unsigned int seed)
{
	const char *path = sim_path(name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char *mem = malloc(MIB);

	assert_true(fd >= 0);
	assert_non_null(mem);
	for (size_t at = 0; at < bytes;) {
		size_t n = bytes - at < MIB ? bytes - at : MIB;

		sim_pattern(mem, n, (off_t)at, seed);
		assert_int_equal(pwrite(fd, mem, n, (off_t)at), n);
		at += n;
	}
	free(mem);
	close(fd);
	return path;
}

void sim_chill(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fdatasync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

void sim_assert_file(const char *path, off_t offset, size_t bytes, unsigned int seed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *mem = malloc(bytes ? bytes : 1);
	size_t got = 0, bad;
	ssize_t n;

	assert_true(fd >= 0);
	assert_non_null(mem);
	while (got < bytes && (n = pread(fd, mem + got, bytes - got, offset + (off_t)got)) > 0)
		got += (size_t)n;
	close(fd);
	bad = sim_differs(mem, got, offset, seed);
	free(mem);
	if (got != bytes || bad != got)
		fail_msg("%s: %zu of %zu bytes at %lld, wrong from byte %zu", path, got, bytes,
			 (long long)offset, bad);
}

int64_t sim_file_size(const char *path)
{
	struct stat sb;

	assert_int_equal(stat(path, &sb), 0);
	return sb.st_size;
}

struct peerlane_file *sim_file(struct peerlane *ctx, const char *path, int flags)
{
	struct peerlane_file *file = NULL;
	int err = peerlane_file_open(ctx, path, flags, 0600, &file);

	if (err)
		fail_msg("peerlane_file_open %s: %d", path, err);
	return file;
}

/* --- GPU memory --- */

char *sim_alloc(struct peerlane *ctx, size_t bytes)
{
	void *addr = NULL;

	assert_int_equal(peerlane_gpu_alloc(ctx, 0, bytes, &addr), 0);
	assert_non_null(addr);
	return addr;
}

static void put(struct peerlane *ctx, void *addr, const void *mem, size_t bytes)
{
	if (bytes)
		assert_int_equal(peerlane_gpu_copy(ctx, addr, mem, bytes), 0);
}

void sim_gpu_set(struct peerlane *ctx, void *addr, int byte, size_t bytes)
{
	char *mem = malloc(bytes ? bytes : 1);

	assert_non_null(mem);
	memset(mem, byte, bytes);
	put(ctx, addr, mem, bytes);
	free(mem);
}

void sim_gpu_pattern(struct peerlane *ctx, void *addr, size_t bytes, off_t offset,
		     unsigned int seed)
{
	char *mem = malloc(bytes ? bytes : 1);

	assert_non_null(mem);
	sim_pattern(mem, bytes, offset, seed);
	put(ctx, addr, mem, bytes);
	free(mem);
}

size_t sim_gpu_differs(struct peerlane *ctx, const void *addr, size_t bytes, off_t offset,
		       unsigned int seed)
{
	char *mem = malloc(bytes ? bytes : 1);
	size_t bad;

	if (!mem || (bytes && peerlane_gpu_copy(ctx, mem, addr, bytes)))
		bad = SIZE_MAX;
	else
		bad = sim_differs(mem, bytes, offset, seed);
	free(mem);
	return bad;
}

void sim_assert_gpu(struct peerlane *ctx, const void *addr, size_t bytes, off_t offset,
		    unsigned int seed)
{
	size_t bad = sim_gpu_differs(ctx, addr, bytes, offset, seed);

	if (bad != bytes)
		fail_msg("GPU memory is wrong from byte %zu of %zu", bad, bytes);
}

void sim_assert_gpu_is(struct peerlane *ctx, const void *addr, int byte, size_t bytes)
{
	unsigned char *mem = malloc(bytes ? bytes : 1);

	assert_non_null(mem);
	put(ctx, mem, addr, bytes);
	if (bytes && mem[0] == (unsigned char)byte && !memcmp(mem, mem + 1, bytes - 1))
		bytes = 0;
	for (size_t i = 0; i < bytes; i++)
		if (mem[i] != (unsigned char)byte)
			fail_msg("byte %zu of %zu is %#x, not %#x", i, bytes, mem[i], byte);
	free(mem);
}

/* --- the rest --- */

void sim_check_error(int err, const char *word, const char *file, int line)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	assert_int_equal(peerlane_error(&info), 0);
	if (info.err != err || !strstr(info.text, word)) {
		print_error("the last error is %d \"%s\", not %d with \"%s\"\n", info.err,
			    info.text, err, word);
		_fail(file, line);
	}
}

static unsigned int count_entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned int nr = 0;

	assert_non_null(d);
	while (readdir(d))
		nr++;
	closedir(d);
	return nr - 2;
}

unsigned int sim_count_fds(void)
{
	return count_entries("/proc/self/fd") - 1;
}

unsigned int sim_count_threads(void)
{
	return count_entries("/proc/self/task");
}

unsigned int sim_count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned int nr = 0;
	int c;

	assert_non_null(f);
	while ((c = getc(f)) != EOF)
		nr += c == '\n';
	fclose(f);
	return nr;
}

struct peerlane_stats sim_stats(struct peerlane *ctx)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	assert_int_equal(peerlane_stats_get(ctx, &st), 0);
	return st;
}

uint64_t sim_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void sim_nap_ms(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

bool sim_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}

bool sim_slow(void)
{
	return sim_sanitized() || getenv("PEERLANE_UNDER_VALGRIND");
}

static void on_alarm(int sig)
{
	static const char text[] = "the test hangs\n";

	(void)sig;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(1);
}

void sim_alarm(unsigned int seconds)
{
	signal(SIGALRM, on_alarm);
	alarm(sim_slow() ? seconds * 10 : seconds);
}
