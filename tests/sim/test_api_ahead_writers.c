// SPDX-License-Identifier: MIT
/*
 * Files that others have open for writing. A write moves the file's times when it begins; one that began long before and
 * ends when pieces were read ahead shows nowhere, by AIO not even to watchers. The bytes it wrote are read all the same.
 */
#include "sim/ahead_rig.h"
#include "sim/slow_writer.h"

#include <linux/magic.h>
#include <sys/statfs.h>

/* Enough for the engine to read ahead from the page cache. */
#define ENV "THREADS=6"

static const char *const names[SLOW_NR] = { "pwrite",	"pwrite, direct",   "AIO",    "AIO, direct",
					    "io_uring", "io_uring, direct", "mapping" };

/* Nothing but the engine's own copy could be stale. */
static void settle(const struct rig *r, bool cached)
{
	sim_chill(r->path);
	if (cached)
		warm(r->path);
}

/* Whether anything is read ahead of calls [from, to). */
static bool reads_ahead(struct rig *r, unsigned int from, unsigned int to)
{
	uint64_t before = ahead(r);

	read_calls(r, from, to);
	return ahead(r) > before;
}

/* A write through the page cache holds the inode's lock, which reads with O_DIRECT wait for, and on xfs all reads. */
static bool reads_wait(const char *path, enum slow_how how, bool cached)
{
	struct statfs fs;

	assert_int_equal(statfs(path, &fs), 0);
	return (how == SLOW_PWRITE || how == SLOW_AIO || how == SLOW_RING) &&
	       (!cached || fs.f_type != EXT4_SUPER_MAGIC);
}

/* The write is under way before the engine opens the file, and ends when call 8 would have been read ahead. */
static bool check_slow(enum slow_how how, bool process, bool cached)
{
	struct slow s = { .how = how, .at = 8 * CALL + 16384 };
	bool can, guessed;
	struct rig r;

	rig_make(&r, cached, ENV);
	if (reads_wait(r.path, how, cached))
		return true;
	s.path = r.path;
	can = slow_begin(&s, process);
	if (can) {
		settle(&r, cached);
		sim_nap_ms(120);
		rig_engine(&r, 0);
		guessed = reads_ahead(&r, 0, 8);
		assert_true(slow_end(&s));
		settle(&r, cached);
		assert_int_equal(peerlane_read(r.file, r.gpu, CALL, 8 * CALL), CALL);
		sim_assert_gpu(r.ctx, r.gpu, 16384, 8 * CALL, 1);
		sim_assert_gpu(r.ctx, r.gpu + 16384, SLOW_BYTES, s.at, 2);
		sim_assert_gpu(r.ctx, r.gpu + 16384 + SLOW_BYTES, CALL - 16384 - SLOW_BYTES,
			       s.at + (off_t)SLOW_BYTES, 1);
		assert_false(guessed);
		rig_close(&r);
	}
	slow_close(&s);
	return can;
}

static void check_all(bool process, bool cached)
{
	unsigned int nr = 0;

	if (process && sim_sanitized())
		skip();
	for (int how = 0; how < SLOW_NR; how++) {
		bool can = check_slow((enum slow_how)how, process, cached);

		if (!can)
			print_message("no slow write by %s to be had\n", names[how]);
		nr += can;
	}
	if (!nr)
		skip();
}

static void by_process_cold(void **state)
{
	(void)state;
	check_all(true, false);
}

static void by_process_cached(void **state)
{
	(void)state;
	check_all(true, true);
}

static void by_thread_cold(void **state)
{
	(void)state;
	check_all(false, false);
}

static void by_thread_cached(void **state)
{
	(void)state;
	check_all(false, true);
}

/* Reads the file once more from its start; tells whether it was read ahead. */
static bool once_more(struct rig *r)
{
	assert_int_equal(peerlane_file_close(r->file), 0);
	r->file = sim_file(r->ctx, r->path, O_RDONLY);
	return reads_ahead(r, 0, 8);
}

/* Not read ahead for as long as somebody could write to it, and no longer; nobody has to write for that. */
static void open_for_writing(void **state)
{
	static const int flags[] = { O_RDWR, O_WRONLY, O_RDWR | O_DIRECT };
	struct peerlane_file *file;
	struct rig r;

	(void)state;
	for (int cached = 0; cached < 2; cached++) {
		start(&r, cached, ENV);
		for (unsigned int i = 0; i < 3; i++) {
			int fd = open(r.path, flags[i] | O_CLOEXEC);

			assert_true(fd >= 0);
			settle(&r, cached);
			assert_false(once_more(&r));
			close(fd);
			settle(&r, cached);
			assert_true(once_more(&r));
		}
		file = sim_file(r.ctx, r.path, O_RDWR);
		settle(&r, cached);
		assert_false(once_more(&r));
		assert_int_equal(peerlane_file_close(file), 0);
		rig_close(&r);
	}
}

/* A handle that is open for writing itself, too. */
static void own_handle(void **state)
{
	struct rig r;

	(void)state;
	start(&r, true, ENV);
	assert_int_equal(peerlane_file_close(r.file), 0);
	r.file = sim_file(r.ctx, r.path, O_RDWR);
	assert_false(reads_ahead(&r, 0, 8));
	rig_close(&r);
}

/* In the middle of a run somebody opens the file, writes and closes it: seen, and then it goes on as before. */
static void written_in_between(void **state)
{
	struct rig r;

	(void)state;
	for (int cached = 0; cached < 2; cached++) {
		start(&r, cached, ENV);
		change(&r, BY_DIRECT, 8 * CALL + 4096, 64 * KIB);
		settle(&r, cached);
		assert_changed(&r);
		sim_nap_ms(120);
		assert_true(reads_ahead(&r, 9, 20));
		rig_close(&r);
	}
}

/* The file grows at its end, which was read ahead as it was. */
static void extended(void **state)
{
	off_t at = (off_t)(BYTES / CALL * CALL);
	struct rig r;
	char *mem;
	int fd;

	(void)state;
	for (int cached = 0; cached < 2; cached++) {
		start(&r, cached, ENV);
		read_calls(&r, 8, BYTES / CALL);
		mem = malloc(CALL);
		fd = open(r.path, O_WRONLY | O_APPEND | O_CLOEXEC);
		assert_true(mem && fd >= 0);
		sim_pattern(mem, CALL, BYTES, 1);
		assert_int_equal(write(fd, mem, CALL), CALL);
		close(fd);
		free(mem);
		settle(&r, false);
		assert_int_equal(peerlane_read(r.file, r.gpu, CALL, at), CALL);
		sim_assert_gpu(r.ctx, r.gpu, CALL, at, 1);
		rig_close(&r);
	}
}

/* ------------------------------------------------------------------ reasons */

/* What peerlane_explain() says of reads of @bytes; static. */
static const char *why(struct rig *r, size_t bytes)
{
	static struct peerlane_explanation e;

	e.size = sizeof(e);
	assert_int_equal(peerlane_explain(r->file, PEERLANE_READ, r->gpu, bytes, 0, &e), 0);
	return e.ahead_reason;
}

static void reasons(void **state)
{
	struct rig r;
	int fd;

	(void)state;
	start(&r, true, ENV);
	assert_string_equal(why(&r, CALL), "");
	assert_int_equal(peerlane_file_close(r.file), 0);
	r.file = sim_file(r.ctx, r.path, O_RDONLY);
	assert_string_equal(why(&r, CALL), "");
	assert_non_null(strstr(why(&r, 4096), "256 KiB"));
	fd = open(r.path, O_RDWR | O_CLOEXEC);
	assert_non_null(strstr(why(&r, CALL), "somebody"));
	close(fd);
	change(&r, BY_WRITE, 8 * CALL, 4096);
	assert_non_null(strstr(why(&r, CALL), "a moment ago"));
	assert_int_equal(peerlane_file_close(r.file), 0);
	r.file = sim_file(r.ctx, r.path, O_RDWR);
	assert_non_null(strstr(why(&r, CALL), "read-only"));
	rig_close(&r);
	rig_open(&r, true, ENV, PEERLANE_NO_AHEAD);
	assert_non_null(strstr(why(&r, CALL), "options"));
	rig_close(&r);
}

/* Who neither owns the file nor has CAP_LEASE is not told who else has it open. For a process of its own. */
static int read_as_other(const char *path)
{
	struct peerlane_options opt = { .timeout_ms = 20000 };
	struct rig r = { .path = path };
	const char *said;

	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) || access(path, R_OK))
		return 77;
	rig_engine_with(&r, &opt);
	read_calls(&r, 0, 12);
	said = why(&r, CALL);
	return ahead(&r) || !strstr(said, "CAP_LEASE");
}

static void others_file(void **state)
{
	int status, dir;
	struct rig r;
	pid_t pid;

	(void)state;
	if (geteuid() || sim_sanitized()) {
		print_message("only root can become somebody else\n");
		skip();
	}
	start(&r, true, ENV);
	rig_close(&r);
	dir = open(sim_path("."), O_RDONLY | O_CLOEXEC);
	assert_int_equal(fchmod(dir, 0755), 0);
	close(dir);
	assert_int_equal(chmod(r.path, 0644), 0);
	sim_nap_ms(120);
	pid = fork();
	if (!pid)
		_exit(read_as_other(r.path));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

/* ------------------------------------------------------------------ the question itself */

struct opener {
	const char *path;
	int stop; /* atomic */
	unsigned int failed;
};

static void *open_and_close(void *arg)
{
	struct opener *o = arg;

	while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE)) {
		int fd = open(o->path, O_RDWR | O_CLOEXEC);

		o->failed += fd < 0;
		close(fd);
	}
	return NULL;
}

/* Somebody opens the file in the very moment when the engine asks: he waits a moment, and no signal ends us. */
static void asked_while_opened(void **state)
{
	struct opener o = { 0 };
	pthread_t thread;
	struct rig r;

	(void)state;
	start(&r, true, ENV);
	o.path = r.path;
	assert_int_equal(pthread_create(&thread, NULL, open_and_close, &o), 0);
	for (int i = 0; i < (sim_slow() ? 30 : 120); i++) {
		assert_int_equal(peerlane_file_close(r.file), 0);
		r.file = sim_file(r.ctx, r.path, O_RDONLY);
		read_calls(&r, 0, 4);
	}
	__atomic_store_n(&o.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_int_equal(o.failed, 0);
	rig_close(&r);
}

/* What the engine has read ahead keeps nobody from the file. */
static void nothing_held(void **state)
{
	struct rig r;
	int fd;

	(void)state;
	start(&r, true, ENV);
	fd = open(r.path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	assert_true(fd >= 0);
	close(fd);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(nothing_held),
		sim_test(asked_while_opened),
		sim_test(by_process_cold),
		sim_test(by_process_cached),
		sim_test(by_thread_cold),
		sim_test(by_thread_cached),
		sim_test(open_for_writing),
		sim_test(own_handle),
		sim_test(written_in_between),
		sim_test(extended),
		sim_test(reasons),
		sim_test(others_file),
	};

	sim_alarm(300);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
