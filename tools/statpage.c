/* SPDX-License-Identifier: MIT */
/* Counters of live contexts, found in other processes. */
#include "statpage.h"

#include "cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const char target[] = "/memfd:" PL_STATS_MEMFD " (deleted)";

/* More contexts than this in one process are not looked at. */
#define PROCESS_MAX 256

struct found {
	struct pl_statpage *pages;
	int nr;
	struct statx memory; /* of a memory file: they all lie on one device of the kernel's */
};

/* Another process wrote this: nothing in it is taken on trust. */
static bool valid(struct pl_stats_page *page)
{
	if (memcmp(page->magic, PL_STATS_MAGIC, sizeof(page->magic)) != 0 ||
	    page->version != PL_STATS_VERSION || page->bytes != sizeof(*page))
		return false;
	page->backend[sizeof(page->backend) - 1] = 0;
	page->program[sizeof(page->program) - 1] = 0;
	for (char *c = page->backend; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	for (char *c = page->program; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return true;
}

/* A forked child still holds its parent's page: count it once, for the process that made it. */
static bool seen(struct found *f, const struct pl_statpage *p)
{
	for (int i = 0; i < f->nr; i++) {
		if (f->pages[i].inode != p->inode)
			continue;
		if (p->page.pid == p->pid)
			f->pages[i] = *p;
		return true;
	}
	return false;
}

/*
 * Attributes as the kernel has them: a file system that answers late, or never, is not asked.
 */
static int attributes(int fd, struct statx *st)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		     STATX_TYPE | STATX_INO | STATX_SIZE, st);
}

static bool is_page(const struct found *f, const struct statx *st)
{
	return S_ISREG(st->stx_mode) && st->stx_size == sizeof(struct pl_stats_page) &&
	       st->stx_dev_major == f->memory.stx_dev_major &&
	       st->stx_dev_minor == f->memory.stx_dev_minor;
}

/*
 * Opens a page, and nothing else: anybody can hold a descriptor whose link reads like that of one,
 * and to open what is behind it (a FIFO, a file of a FUSE server) can block for ever or have side
 * effects. O_PATH opens nothing. O_NONBLOCK is for leases. Returns -1 if it is no page.
 */
static int open_page(const struct found *f, int dirfd, const char *name, struct statx *st)
{
	PL_AUTO_FD int link = openat(dirfd, name, O_PATH | O_CLOEXEC);
	char path[64];
	int fd, seals;

	if (link < 0 || attributes(link, st) || !is_page(f, st))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", link);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -1;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0 && (seals & PL_STATS_SEALS) == PL_STATS_SEALS)
		return fd;
	close(fd);
	return -1;
}

/* Returns 1 if it is a page, 0 if not. */
static int add(struct found *f, pid_t pid, int dirfd, const char *name)
{
	struct statx st;
	PL_AUTO_FD int fd = open_page(f, dirfd, name, &st);
	struct pl_statpage p = { .pid = pid };
	struct pl_statpage *more;

	if (fd < 0 || pread(fd, &p.page, sizeof(p.page), 0) != sizeof(p.page) || !valid(&p.page))
		return 0;
	p.inode = st.stx_ino;
	if (seen(f, &p))
		return 1;
	more = realloc(f->pages, (size_t)(f->nr + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	f->pages = more;
	f->pages[f->nr++] = p;
	return 1;
}

static int scan_process(struct found *f, pid_t pid)
{
	char path[64], link[64];
	struct dirent *e;
	int nr = 0, got = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while (got >= 0 && nr < PROCESS_MAX && (e = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), e->d_name, link, sizeof(link));

		if (len != sizeof(target) - 1 || memcmp(link, target, (size_t)len) != 0)
			continue;
		got = add(f, pid, dirfd(dir), e->d_name);
		nr += got;
	}
	closedir(dir);
	return got < 0 ? got : 0;
}

static int scan_all(struct found *f)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int err = 0;

	if (!dir)
		return -errno;
	while (err != -ENOMEM && (e = readdir(dir))) {
		char *end;
		long pid = strtol(e->d_name, &end, 10);

		if (!*end && pid > 0)
			err = scan_process(f, (pid_t)pid);
	}
	closedir(dir);
	return err == -ENOMEM ? err : 0;
}

int pl_statpage_find(pid_t pid, struct pl_statpage **out)
{
	PL_AUTO_FD int memory = memfd_create("peerlane-stat", MFD_CLOEXEC);
	struct found f = { 0 };
	int err;

	if (memory < 0 || attributes(memory, &f.memory))
		return -errno;
	err = pid ? scan_process(&f, pid) : scan_all(&f);
	if (err) {
		free(f.pages);
		return err;
	}
	*out = f.pages;
	return f.nr;
}
