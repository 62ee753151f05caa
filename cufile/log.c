// SPDX-License-Identifier: MIT
/*
 * The log. It is written only where a path or a folder was configured: a library has no business
 * to leave files in the folder a program happens to run in.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static int fd = -1;
static uint64_t size, max_size;
static int level_now = PL_CF_NR_LEVELS; /* NR_LEVELS: nothing is logged; read without the lock */

bool pl_cf_log_wants(enum pl_cf_level level)
{
	return (int)level >= __atomic_load_n(&level_now, __ATOMIC_RELAXED);
}

static void name_log(const struct pl_cf_config *c, char *path, size_t bytes)
{
	time_t now = time(NULL);
	struct tm tm;

	path[0] = '\0';
	if (c->values[PL_CF_LOG_PATH].text[0]) {
		snprintf(path, bytes, "%s", c->values[PL_CF_LOG_PATH].text);
	} else if (c->values[PL_CF_LOG_DIR].text[0]) {
		localtime_r(&now, &tm);
		snprintf(path, bytes, "%s/cufile_%d_%04d-%02d-%02d.log",
			 c->values[PL_CF_LOG_DIR].text, (int)getpid(), tm.tm_year + 1900,
			 tm.tm_mon + 1, tm.tm_mday);
	}
}

void pl_cf_log_open(const struct pl_cf_config *c)
{
	uint64_t mb = c->values[PL_CF_LOG_MAX_MB].number;
	char path[400];
	struct stat st;

	name_log(c, path, sizeof(path));
	if (!path[0])
		return;
	pthread_mutex_lock(&lock);
	if (fd < 0)
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd < 0) {
		dprintf(STDERR_FILENO, "peerlane: no log at %s: %s\n", path,
			strerrordesc_np(errno));
	} else {
		size = fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
		max_size = mb > UINT64_MAX >> 20 ? UINT64_MAX : mb << 20;
		__atomic_store_n(&level_now, pl_cf_level_of(c->values[PL_CF_LOG_LEVEL].text),
				 __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void pl_cf_log_close(void)
{
	pthread_mutex_lock(&lock);
	__atomic_store_n(&level_now, PL_CF_NR_LEVELS, __ATOMIC_RELAXED);
	if (fd >= 0)
		close(fd);
	fd = -1;
	pthread_mutex_unlock(&lock);
}

void pl_cf_log_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pl_cf_log_close();
}

static size_t head(char *line, size_t bytes, enum pl_cf_level level)
{
	struct timespec now;
	struct tm tm;
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	n = snprintf(line, bytes, " %02d-%02d-%04d %02d:%02d:%02d:%03ld [pid=%d tid=%ld] %s  ",
		     tm.tm_mday, tm.tm_mon + 1, tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec,
		     now.tv_nsec / 1000000, (int)getpid(), syscall(SYS_gettid),
		     pl_cf_level_names[level]);
	return n > 0 && (size_t)n < bytes ? (size_t)n : 0;
}

void pl_cf_log(enum pl_cf_level level, const char *fmt, ...)
{
	int kept = errno;
	char line[1024];
	size_t len;
	va_list ap;
	int n;

	if (!pl_cf_log_wants(level))
		return;
	len = head(line, sizeof(line), level);
	va_start(ap, fmt);
	n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	va_end(ap);
	if (n > 0)
		len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n : sizeof(line) - len - 2;
	line[len++] = '\n';
	pthread_mutex_lock(&lock);
	if (fd >= 0) {
		if (size + len > max_size && !ftruncate(fd, 0))
			size = 0;
		if (write(fd, line, len) == (ssize_t)len)
			size += len;
	}
	pthread_mutex_unlock(&lock);
	errno = kept;
}

void pl_cf_log_engine(void *arg, int level, const char *text)
{
	static const enum pl_cf_level levels[] = { PL_CF_ERROR, PL_CF_WARN, PL_CF_INFO,
						   PL_CF_DEBUG };

	(void)arg;
	pl_cf_log(levels[level < 0 ? 0 : level > 3 ? 3 : level], "engine: %s", text);
}

void pl_cf_log_warnings(const struct pl_cf_config *c)
{
	static bool told;
	unsigned int n = c->nr_warnings;

	if (!n || __atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		return;
	if (n > PL_CF_MAX_WARNINGS)
		n = PL_CF_MAX_WARNINGS;
	for (unsigned int i = 0; i < n; i++) {
		if (pl_cf_log_wants(PL_CF_WARN))
			pl_cf_log(PL_CF_WARN, "configuration: %s", c->warnings[i]);
		else
			dprintf(STDERR_FILENO, "peerlane: libcufile: %s\n", c->warnings[i]);
	}
}
