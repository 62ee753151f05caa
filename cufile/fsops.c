// SPDX-License-Identifier: MIT
/* File systems that live in the process: the engine calls their functions. */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>

/* They may return -1 with errno set, or a negative errno. */
static ssize_t outcome(ssize_t n)
{
	if (n == -1)
		return errno > 0 && errno < 4096 ? -errno : -EIO;
	return n < -4095 ? -EIO : n;
}

static ssize_t fs_read(void *arg, void *mem, size_t bytes, off_t offset)
{
	const struct pl_cf_file *f = arg;

	errno = 0;
	return outcome(f->fs_ops.read(f->fs_handle, mem, bytes, offset, NULL));
}

static ssize_t fs_write(void *arg, const void *mem, size_t bytes, off_t offset)
{
	const struct pl_cf_file *f = arg;

	errno = 0;
	return outcome(f->fs_ops.write(f->fs_handle, mem, bytes, offset, NULL));
}

/* The last use of the functions is over. */
static void fs_release(void *arg)
{
	free(arg);
}

int pl_cf_fsops_open(struct peerlane *ctx, struct pl_cf_file *f)
{
	struct peerlane_file_ops ops = {
		.size = sizeof(ops),
		.read = f->fs_ops.read ? fs_read : NULL,
		.write = f->fs_ops.write ? fs_write : NULL,
		.release = fs_release,
	};

	f->readable = f->fs_ops.read;
	f->writable = f->fs_ops.write;
	return peerlane_file_from_ops(ctx, &ops, f, &f->file);
}
