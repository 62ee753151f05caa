/* SPDX-License-Identifier: MIT */
/* The scratch file of prove: words that depend on their place. */
#include "prove.h"

#include "error.h"
#include "human.h"
#include "message.h"
#include "pattern.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define DEFAULT_BYTES (1024 * MIB)
/* Quarters of it are used for different things, in whole MiB. */
#define UNIT (16 * MIB)
#define MARK_BYTES 4096
#define PIECE (4 * MIB)

void pl_prove_file_pattern(void *to, size_t bytes, uint64_t offset, uint64_t seed)
{
	unsigned char *out = to;

	while (bytes) {
		uint64_t word = pl_pattern_hash(offset / 8 + (seed << 48));
		size_t skip = offset % 8, n = 8 - skip < bytes ? 8 - skip : bytes;

		memcpy(out, (unsigned char *)&word + skip, n);
		out += n;
		offset += n;
		bytes -= n;
	}
}

/* Half of what the file system has room for, at most. */
static int choose_size(struct pl_prove_file *f, const struct pl_prove_args *args)
{
	struct statvfs fs;
	uint64_t room;

	if (fstatvfs(f->fd, &fs))
		return -errno;
	room = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
	f->bytes = args->size ? args->size : args->quick ? 4 * UNIT : DEFAULT_BYTES;
	if (!args->size && f->bytes > room)
		f->bytes = room;
	f->bytes -= f->bytes % UNIT;
	if (f->bytes >= UNIT)
		return 0;
	pl_message_error("%s: half of the room left on the file system is less than %s", f->path,
			 pl_human_size(UNIT).text);
	return -ENOSPC;
}

/* Whether an earlier run made it: a regular file with one name that begins with the pattern. */
static bool ours(int fd)
{
	unsigned char want[MARK_BYTES], seen[MARK_BYTES];
	struct stat st;

	pl_prove_file_pattern(want, sizeof(want), 0, PL_PROVE_SEED);
	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	       pread(fd, seen, sizeof(seen), 0) == MARK_BYTES && !memcmp(seen, want, MARK_BYTES);
}

static int open_file(struct pl_prove_file *f, const struct pl_prove_args *args)
{
	f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	if (errno != EEXIST) {
		int err = -errno;

		pl_message_error("%s: %s", f->path, pl_error_open(f->path, -err));
		return err;
	}
	if (!args->reuse) {
		pl_message_error(
			"%s exists already, and is left as it is; name a new file, or take "
			"one that an earlier run left with --reuse",
			f->path);
		return -EEXIST;
	}
	f->fd = open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (f->fd >= 0 && ours(f->fd))
		return 0;
	pl_message_error("%s was not made by prove, and is left as it is; name a new file",
			 f->path);
	return -EEXIST;
}

int pl_prove_file_create(struct pl_prove_file *f, const struct pl_prove_args *args)
{
	int err = open_file(f, args);

	if (err)
		return err;
	f->made = true;
	err = choose_size(f, args);
	if (err)
		pl_prove_file_remove(f);
	return err;
}

void pl_prove_file_remove(struct pl_prove_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	if (f->made && unlink(f->path))
		pl_message_error("%s: not removed: %s", f->path, strerror(errno));
	f->made = false;
}

int pl_prove_file_read(const struct pl_prove_file *f, void *to, size_t bytes, uint64_t offset)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pread(f->fd, (char *)to + done, bytes - done, (off_t)(offset + done));

		if (n <= 0)
			return n ? -errno : -ENODATA;
		done += (size_t)n;
	}
	return 0;
}

int pl_prove_file_write(const struct pl_prove_file *f, const void *from, size_t bytes,
			uint64_t offset)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pwrite(f->fd, (const char *)from + done, bytes - done,
				   (off_t)(offset + done));

		if (n <= 0)
			return n ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

void pl_prove_file_drop(const struct pl_prove_file *f, uint64_t offset, uint64_t bytes)
{
	fdatasync(f->fd);
	posix_fadvise(f->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

int pl_prove_file_fill(struct pl_prove_file *f)
{
	char *piece = malloc(PIECE);
	struct pl_progress progress;
	int err = piece ? 0 : -ENOMEM;

	if (!err && ftruncate(f->fd, 0))
		err = -errno;
	pl_progress_start(&progress, "writing the scratch file", f->bytes);
	for (uint64_t at = 0; at < f->bytes && !err && !pl_stop_requested(); at += PIECE) {
		pl_prove_file_pattern(piece, PIECE, at, PL_PROVE_SEED);
		err = pl_prove_file_write(f, piece, PIECE, at);
		pl_progress_show(&progress, at);
	}
	if (!err && fsync(f->fd))
		err = -errno;
	pl_progress_clear();
	pl_prove_file_drop(f, 0, 0);
	free(piece);
	return err;
}

int pl_prove_file_restore(const struct pl_prove_file *f, uint64_t offset, size_t bytes)
{
	char *content = malloc(bytes);
	int err;

	if (!content)
		return -ENOMEM;
	pl_prove_file_pattern(content, bytes, offset, PL_PROVE_SEED);
	err = pl_prove_file_write(f, content, bytes, offset);
	pl_prove_file_drop(f, offset, bytes);
	free(content);
	return err;
}

/* One piece of pl_prove_file_holds(). */
static bool holds(const struct pl_prove_file *f, uint64_t offset, size_t bytes, unsigned char *seen,
		  unsigned char *want, int64_t *where)
{
	if (pl_prove_file_read(f, seen, bytes, offset))
		return false;
	pl_prove_file_pattern(want, bytes, offset, PL_PROVE_SEED);
	if (!memcmp(seen, want, bytes))
		return true;
	for (size_t i = 0; i < bytes && *where < 0; i++)
		if (seen[i] != want[i])
			*where = (int64_t)(offset + i);
	return false;
}

bool pl_prove_file_holds(const struct pl_prove_file *f, uint64_t offset, uint64_t bytes,
			 int64_t *where)
{
	unsigned char *room = malloc(2 * PIECE);
	bool good = room;

	*where = -1;
	for (uint64_t end = offset + bytes; offset < end && good; offset += PIECE)
		good = holds(f, offset, end - offset < PIECE ? (size_t)(end - offset) : PIECE, room,
			     room + PIECE, where);
	free(room);
	return good;
}
