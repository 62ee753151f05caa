/* SPDX-License-Identifier: MIT */
/* Counters of live contexts, found in other processes. */
#include "statpage.h"

#include "cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

static const char target[] = "/memfd:" PL_STATS_MEMFD " (deleted)";

struct found {
	struct pl_statpage *pages;
	int nr;
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

static int add(struct found *f, pid_t pid, int dirfd, const char *name)
{
	/* Read, not mapped: a page that is cut short then cannot end this process. */
	PL_AUTO_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	struct pl_statpage p = { .pid = pid };
	struct pl_statpage *more;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || pread(fd, &p.page, sizeof(p.page), 0) != sizeof(p.page) ||
	    !valid(&p.page))
		return 0;
	p.inode = st.st_ino;
	if (seen(f, &p))
		return 0;
	more = realloc(f->pages, (size_t)(f->nr + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	f->pages = more;
	f->pages[f->nr++] = p;
	return 0;
}

static int scan_process(struct found *f, pid_t pid)
{
	char path[64], link[64];
	struct dirent *e;
	int err = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while (!err && (e = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), e->d_name, link, sizeof(link));

		if (len == sizeof(target) - 1 && !memcmp(link, target, (size_t)len))
			err = add(f, pid, dirfd(dir), e->d_name);
	}
	closedir(dir);
	return err;
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
	struct found f = { 0 };
	int err = pid ? scan_process(&f, pid) : scan_all(&f);

	if (err) {
		free(f.pages);
		return err;
	}
	*out = f.pages;
	return f.nr;
}
