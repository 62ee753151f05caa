// SPDX-License-Identifier: MIT
/* Replacing files as a whole: a temporary name, then rename(2). */
#include "replace.h"

#include "error.h"
#include "words.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* So that names of any legal length can have a temporary one. */
#define NAME_BYTES 200
#define TRIES 100

/* What @path leads to, if there is anything; it must be a file that can be replaced. */
static int resolve(struct pl_replace *r, const char *path, struct stat *st, bool *exists)
{
	*exists = !stat(path, st);
	if (!*exists && errno != ENOENT)
		return pl_fail(-errno, "%.150s: %s", path, strerror(errno));
	if (*exists && S_ISDIR(st->st_mode))
		return pl_fail(-EISDIR, "%.150s is a folder", path);
	if (*exists && !S_ISREG(st->st_mode))
		return pl_fail(-EINVAL, "%.150s is not a regular file", path);
	r->path = *exists ? realpath(path, NULL) : strdup(path);
	if (!r->path)
		return pl_fail(-errno, "%.150s: %s", path, strerror(errno));
	r->name = strrchr(r->path, '/') ? strrchr(r->path, '/') + 1 : r->path;
	if (!*r->name)
		return pl_fail(-EISDIR, "%.150s is not the name of a file", path);
	return 0;
}

static int open_folder(struct pl_replace *r)
{
	char *dir = r->name == r->path ? strdup(".")
				       : strndup(r->path, (size_t)(r->name - r->path));
	int err = 0;

	if (!dir)
		return pl_fail(-ENOMEM, "no memory for a path");
	r->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dir_fd < 0)
		err = pl_fail(-errno, "%.150s: %s", dir, pl_error_open(r->path, errno));
	free(dir);
	return err;
}

/* A file of a name that nobody has. */
static int make_temp(struct pl_replace *r)
{
	unsigned int number;

	for (int i = 0; i < TRIES; i++) {
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return pl_fail(-errno, "no random number for a temporary name");
		free(r->temp);
		if (asprintf(&r->temp, ".%.*s.tmp-%u", NAME_BYTES, r->name, number) < 0) {
			r->temp = NULL;
			return pl_fail(-ENOMEM, "no memory for a name");
		}
		r->fd = openat(r->dir_fd, r->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (r->fd >= 0 || errno != EEXIST)
			break;
	}
	if (r->fd < 0)
		return pl_fail(-errno, "making a temporary file beside %s: %s",
			       pl_words_name(r->name).text, strerror(errno));
	return 0;
}

int pl_replace_begin(struct pl_replace *r, const char *path)
{
	struct stat st;
	bool exists;
	int err;

	*r = (struct pl_replace){ .dir_fd = -1, .fd = -1 };
	err = resolve(r, path, &st, &exists);
	if (!err)
		err = open_folder(r);
	if (!err)
		err = make_temp(r);
	/* Who may use the old one may use the new one. */
	if (!err && exists && fchmod(r->fd, st.st_mode & 07777))
		err = pl_fail(-errno, "the mode of %s: %s", pl_words_name(r->name).text,
			      strerror(errno));
	if (err)
		pl_replace_end(r);
	return err;
}

int pl_replace_commit(struct pl_replace *r, bool sync)
{
	if (sync && fsync(r->fd))
		return pl_fail(-errno, "writing %s to stable storage: %s",
			       pl_words_name(r->name).text, strerror(errno));
	if (renameat(r->dir_fd, r->temp, r->dir_fd, r->name))
		return pl_fail(-errno, "renaming the temporary file to %s: %s",
			       pl_words_name(r->name).text, strerror(errno));
	free(r->temp);
	r->temp = NULL;
	/* The name is the new file's already; file systems that cannot do this have nothing to do. */
	if (sync && fsync(r->dir_fd) && errno != EINVAL)
		return pl_fail(-errno, "the folder of %s: %s", pl_words_name(r->name).text,
			       strerror(errno));
	return 0;
}

void pl_replace_end(struct pl_replace *r)
{
	if (r->temp && r->fd >= 0)
		unlinkat(r->dir_fd, r->temp, 0);
	if (r->fd >= 0)
		close(r->fd);
	if (r->dir_fd >= 0)
		close(r->dir_fd);
	free(r->temp);
	free(r->path);
	*r = (struct pl_replace){ .dir_fd = -1, .fd = -1 };
}
