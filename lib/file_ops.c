// SPDX-License-Identifier: MIT
/* Files that functions of the program read and write: no descriptor, no page cache. */
#include "file.h"

#include "context.h"

#include <errno.h>
#include <stdlib.h>

int peerlane_file_from_ops(struct peerlane *ctx, const struct peerlane_file_ops *ops, void *arg,
			   struct peerlane_file **out)
{
	PL_KEEP_ERRNO;
	struct peerlane_file *f;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!ops || !out)
		return pl_fail(-EINVAL, "the %s is NULL", ops ? "result pointer" : "table");
	if (ops->size != sizeof(*ops))
		return pl_fail(-EINVAL, "the table's size is %zu; this library knows %zu",
			       ops->size, sizeof(*ops));
	if (!ops->read && !ops->write)
		return pl_fail(-EINVAL, "the table has neither read nor write");
	f = calloc(1, sizeof(*f));
	if (!f)
		return pl_fail(-ENOMEM, "no memory for a file");
	f->ctx = ctx;
	f->fd = f->fd_direct = -1;
	f->readable = ops->read;
	f->writable = ops->write;
	f->callbacks = true;
	f->ops = *ops;
	f->ops_arg = arg;
	f->align = 4096;
	pl_text(f->direct_why, sizeof(f->direct_why),
		"functions of the program read and write this file");
	pl_file_enter(f);
	*out = f;
	return 0;
}

size_t pl_file_ops_io(const struct peerlane_file *f, enum peerlane_op op, char *mem, size_t bytes,
		      off_t offset, size_t got, int *err)
{
	ssize_t n;

	*err = 0;
	while (got < bytes) {
		if (op == PEERLANE_READ)
			n = f->ops.read(f->ops_arg, mem + got, bytes - got, offset + (off_t)got);
		else
			n = f->ops.write(f->ops_arg, mem + got, bytes - got, offset + (off_t)got);
		if (n == -EINTR)
			continue;
		/* More than was asked for cannot be true, and nothing written makes no progress. */
		if (n > (ssize_t)(bytes - got) || (!n && op == PEERLANE_WRITE))
			n = -EIO;
		if (n < 0)
			*err = (int)n;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}
