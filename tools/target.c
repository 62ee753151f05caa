/* SPDX-License-Identifier: MIT */
/* The file a bench works on: made, found, and never overwritten when it is somebody else's. */
#include "target.h"

#include "cleanup.h"
#include "error.h"
#include "message.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_BYTES (1ull << 30)
#define MARK_BYTES 4096u
#define PIECE_BYTES (1u << 20)

static int say(const char *path, int err)
{
	pl_message_error("%s: %s", path, pl_error_open(path, -err));
	return err;
}

/* Opens or makes the file; t->bytes is what it holds now. */
static int open_file(struct pl_target *t, const struct pl_target_want *want)
{
	bool write = want->write || want->create;
	struct stat st;
	off_t end;

	t->fd = open(t->path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
	if (t->fd < 0 && errno == ENOENT && write) {
		t->fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		t->made = t->fd >= 0;
	} else if (t->fd < 0 && errno == ENOENT && !strstr(t->path, "://")) {
		pl_message_error("%s: does not exist; --create makes it", t->path);
		return -ENOENT;
	}
	if (t->fd < 0 || fstat(t->fd, &st))
		return say(t->path, -errno);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		pl_message_error("%s: is %s", t->path,
				 S_ISDIR(st.st_mode) ? "a directory; name a file in it"
						     : "neither a file nor a block device");
		return -EINVAL;
	}
	end = lseek(t->fd, 0, SEEK_END);
	if (end < 0)
		return say(t->path, -errno);
	t->bytes = (uint64_t)end;
	return 0;
}

static int check_owner(struct pl_target *t, const struct pl_target_want *want,
		       const struct pl_pattern *p)
{
	if (!t->bytes || pl_pattern_owns(p, t->fd, t->bytes))
		return 0;
	if ((want->write || want->create) && !want->force) {
		pl_message_error("%s: was not made by bench; --force overwrites it", t->path);
		return -EEXIST;
	}
	if (want->verify && !want->write && !want->create) {
		pl_message_error("%s: was not made by bench, so it cannot be verified; "
				 "--create makes one that can",
				 t->path);
		return -EINVAL;
	}
	return 0;
}

static int resize(const struct pl_target *t, uint64_t bytes)
{
	struct stat st;

	if (fstat(t->fd, &st))
		return -errno;
	if (S_ISBLK(st.st_mode))
		return bytes <= t->bytes ? 0 : -ENOSPC;
	return ftruncate(t->fd, (off_t)bytes) ? -errno : 0;
}

/* The first block tells that the file is ours, whatever happens to a pass. */
static int mark(const struct pl_target *t, const struct pl_pattern *p)
{
	size_t bytes = t->bytes < MARK_BYTES ? (size_t)t->bytes : MARK_BYTES;
	ssize_t n = pwrite(t->fd, p->host, bytes, 0);

	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -ENOSPC;
}

static int make_content(struct pl_target *t, const struct pl_target_want *want,
			const struct pl_pattern *p)
{
	uint64_t bytes = want->bytes ? want->bytes : t->bytes ? t->bytes : DEFAULT_BYTES;
	int err;

	if (!want->write && !want->create)
		return 0;
	/* A file that has content keeps its size, unless it is made anew. */
	if (!want->create && t->bytes)
		bytes = t->bytes;
	err = resize(t, bytes);
	t->bytes = bytes;
	if (!err && want->create)
		err = pl_pattern_fill(p, t->fd, bytes);
	else if (!err)
		err = mark(t, p);
	if (err && err != -ECANCELED)
		say(t->path, err);
	return err;
}

static int reopen(const struct pl_target *t, const struct pl_target_want *want, int extra)
{
	int flags = (want->write ? O_RDWR : O_RDONLY) | O_CLOEXEC | extra;
	int fd = open(t->path, flags | (want->direct ? O_DIRECT : 0));

	if (fd < 0 && errno == EINVAL && want->direct) {
		pl_message_error("%s: its file system has no O_DIRECT", t->path);
		return -EINVAL;
	}
	return fd < 0 ? say(t->path, -errno) : fd;
}

static int open_all(struct pl_target *t, const struct pl_target_want *want,
		    const struct pl_pattern *p)
{
	int err = open_file(t, want);

	if (!err)
		err = check_owner(t, want, p);
	if (!err)
		err = make_content(t, want, p);
	if (err)
		return err;
	if (!t->bytes) {
		pl_message_error("%s: is empty; --create fills it", t->path);
		return -ENODATA;
	}
	/* The library does not read a file ahead while anybody has it open for writing, us included. */
	if (!want->write) {
		pl_cleanup_fd(&t->fd);
		t->fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (t->fd < 0)
			return say(t->path, -errno);
	}
	t->io_fd = reopen(t, want, 0);
	t->plain_fd = t->io_fd < 0 ? -1 : reopen(t, want, want->durable ? O_DSYNC : 0);
	return t->plain_fd < 0 ? -EINVAL : 0;
}

int pl_target_open(struct pl_target *t, const struct pl_target_want *want,
		   const struct pl_pattern *p)
{
	int err;

	*t = (struct pl_target){ .path = want->path, .fd = -1, .io_fd = -1, .plain_fd = -1 };
	err = open_all(t, want, p);
	if (err) {
		if (t->made)
			unlink(t->path);
		pl_target_close(t);
	}
	return err;
}

void pl_target_close(struct pl_target *t)
{
	pl_cleanup_fd(&t->fd);
	pl_cleanup_fd(&t->io_fd);
	pl_cleanup_fd(&t->plain_fd);
	t->fd = t->io_fd = t->plain_fd = -1;
}

int pl_target_clear(const struct pl_target *t, const struct pl_pattern *p)
{
	int err;

	if (ftruncate(t->fd, 0) && errno != EINVAL)
		return -errno;
	err = resize(t, t->bytes);
	return err ? err : mark(t, p);
}

void pl_target_drop(const struct pl_target *t)
{
	fsync(t->fd);
	posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED);
}

int pl_target_warm(const struct pl_target *t)
{
	char *buf = malloc(PIECE_BYTES);
	struct pl_progress progress;
	off_t at = 0;
	ssize_t n = 1;
	int err = 0;

	if (!buf)
		return -ENOMEM;
	pl_progress_start(&progress, "read into the page cache", t->bytes);
	while (n > 0 && !pl_stop_requested()) {
		n = pread(t->fd, buf, PIECE_BYTES, at);
		err = n < 0 ? -errno : 0;
		at += n > 0 ? n : 0;
		pl_progress_show(&progress, (uint64_t)at);
	}
	pl_progress_clear();
	free(buf);
	return err;
}
