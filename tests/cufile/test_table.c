// SPDX-License-Identifier: MIT
/*
 * Runs every case in a child with a time limit and compares what it saw.
 *   test_table           against our expectations; exits 1 if one is not met
 *   test_table --print   one line a case: name, tab, what was seen; for any library
 *   test_table --known   one line a case: name, tab, ours, tab, NVIDIA's, tab, why they differ
 */
#include "case.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

#define LIMIT_MS 20000

static struct cf_case *first, **last = &first;
static char seen[512];

void cf_case_add(struct cf_case *c)
{
	*last = c;
	last = &c->next;
}

void say(const char *fmt, ...)
{
	size_t len = strlen(seen);
	va_list ap;

	if (len && len < sizeof(seen) - 1) {
		seen[len++] = ' ';
		seen[len] = '\0';
	}
	va_start(ap, fmt);
	vsnprintf(seen + len, sizeof(seen) - len, fmt, ap);
	va_end(ap);
}

void say_status(CUfileError_t status)
{
	if (status.err == CU_FILE_CUDA_DRIVER_ERROR)
		say("%d/%d", (int)status.err, (int)status.cu_err);
	else if (status.cu_err && cf_is_ours())
		say("%d with cu_err %d", (int)status.err, (int)status.cu_err);
	else
		say("%d", (int)status.err);
}

void say_count(ssize_t n)
{
	if (n < 0)
		say("%zd errno %d", n, errno);
	else
		say("%zd", n);
}

/* The stock configuration, so that all libraries begin with the same. */
static void write_config(void)
{
	static const char text[] =
		"// as shipped\n{ \"logging\": { \"level\": \"ERROR\" },\n"
		"\"profile\": { \"nvtx\": false, \"cufile_stats\": 0 },\n"
		"\"execution\": { \"max_io_queue_depth\": 128, \"max_io_threads\": 4,\n"
		"\"parallel_io\": true, \"min_io_threshold_size_kb\": 8192,\n"
		"\"max_request_parallelism\": 4 },\n"
		"\"properties\": { \"max_direct_io_size_kb\": 16384,\n"
		"\"max_device_cache_size_kb\": 131072, \"per_buffer_cache_size_kb\": 1024,\n"
		"\"max_device_pinned_mem_size_kb\": 33554432, \"use_poll_mode\": false,\n"
		"\"poll_mode_max_size_kb\": 4, \"allow_compat_mode\": true,\n"
		"\"posix_pool_slab_size_kb\": [4, 1024, 16384],\n"
		"\"posix_pool_slab_count\": [128, 64, 64], \"io_batchsize\": 128 } }\n";
	const char *path = cf_file("cufile.json");
	FILE *f = fopen(path, "we");

	if (!f || fputs(text, f) == EOF || fclose(f))
		exit(1);
	setenv("CUFILE_ENV_PATH_JSON", path, 1);
	unsetenv("CUFILE_LOGFILE_PATH");
	if (chdir(cf_file(".")))
		exit(1);
}

/* In the child. What it saw goes to the pipe, line by line of output to nowhere. */
static void run_child(const struct cf_case *c, int out)
{
	size_t len;

	cf_load();
	write_config();
	c->run();
	len = strlen(seen);
	if (write(out, seen, len) != (ssize_t)len)
		_exit(1);
	cf_remove_dir();
	/* Not by exit(): what other libraries do there is a case of its own. */
	_exit(0);
}

/* What the child said, or how it ended. */
static void watch(pid_t pid, int in, char *result, size_t bytes)
{
	struct pollfd p = { .fd = in, .events = POLLIN };
	size_t len = 0;
	ssize_t n = 1;
	int status;

	while (n > 0 && len < bytes - 1 && poll(&p, 1, LIMIT_MS) > 0) {
		n = read(in, result + len, bytes - 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	result[len] = '\0';
	if (n > 0) {
		kill(pid, SIGKILL);
		snprintf(result, bytes, "no end");
	}
	waitpid(pid, &status, 0);
	if (n > 0)
		return;
	if (WIFSIGNALED(status))
		snprintf(result, bytes, "signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		snprintf(result, bytes, "exit %d", WEXITSTATUS(status));
}

static void run_case(const struct cf_case *c, char *result, size_t bytes)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		exit(1);
	fflush(stdout);
	pid = fork();
	if (!pid)
		run_child(c, ends[1]);
	close(ends[1]);
	watch(pid, ends[0], result, bytes);
	close(ends[0]);
}

int main(int argc, char **argv)
{
	bool print = argc > 1 && !strcmp(argv[1], "--print");
	unsigned int nr = 0, failed = 0;
	char result[512];

	if (argc > 1 && !strcmp(argv[1], "--known")) {
		for (const struct cf_case *c = first; c; c = c->next)
			printf("%s\t%s\t%s\t%s\n", c->name, c->want, c->real ? c->real : c->want,
			       c->note ? c->note : "");
		return 0;
	}
	for (const struct cf_case *c = first; c; c = c->next) {
		if (argc > 1 && !print && strcmp(argv[1], c->name) != 0)
			continue;
		run_case(c, result, sizeof(result));
		nr++;
		if (print) {
			printf("%s\t%s\n", c->name, result);
		} else if (strcmp(result, c->want) != 0) {
			printf("%s: \"%s\" instead of \"%s\"\n", c->name, result, c->want);
			failed++;
		}
	}
	if (!print)
		printf("%u cases, %u failed\n", nr, failed);
	return failed || !nr ? 1 : 0;
}
