// SPDX-License-Identifier: MIT
/* Error words: the last failure of each thread, and what each errno means in this library. */
#include "error.h"

#include <peerlane/peerlane.h>

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static __thread struct peerlane_error_info last;

__attribute__((format(printf, 3, 0))) static void record(int err, int cuda, const char *fmt,
							 va_list ap)
{
	last.err = err;
	last.cuda = cuda;
	vsnprintf(last.text, sizeof(last.text), fmt, ap);
}

int pl_fail(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record(err, 0, fmt, ap);
	va_end(ap);
	return err;
}

int pl_fail_gpu(int err, int cuda, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record(err, cuda, fmt, ap);
	va_end(ap);
	return err;
}

/* "s3://bucket/name": a word, then "://". */
static bool is_url(const char *path)
{
	size_t scheme = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789+-.");

	return scheme && !strncmp(path + scheme, "://", 3);
}

const char *pl_error_open(const char *path, int err)
{
	const char *words = strerrordesc_np(err);

	if ((err == ENOENT || err == ENOTDIR) && is_url(path))
		return "URLs are not files here; download it or mount it, then give its path";
	return words ? words : "unknown error";
}

void pl_errno_restore(const int *kept)
{
	errno = *kept;
}

void pl_text(char *dst, size_t dst_bytes, const char *fmt, ...)
{
	va_list ap;

	if (!dst_bytes)
		return;
	va_start(ap, fmt);
	vsnprintf(dst, dst_bytes, fmt, ap);
	va_end(ap);
}

int peerlane_error(struct peerlane_error_info *info)
{
	if (!info || info->size != sizeof(*info))
		return -EINVAL;
	*info = last;
	info->size = sizeof(*info);
	return 0;
}

static const struct {
	int err;
	const char *text;
} words[] = {
	{ 0, "success" },
	{ EINVAL, "an argument is wrong; peerlane_error() names it" },
	{ EBADF, "the file is closed, or not open for this direction" },
	{ EFAULT, "the address is not memory of this process, was freed, or the range passes the "
		  "end of its allocation" },
	{ ERANGE, "the range passes the end of the registered buffer it starts in" },
	{ EOVERFLOW, "offset and length together pass what the type can hold" },
	{ EEXIST, "this address is registered already" },
	{ ENOENT, "no such file, or this address is not registered" },
	{ EBUSY, "I/O on it was still in flight when the time was up" },
	{ EISDIR, "it is a directory, not a file" },
	{ ESPIPE, "it is a pipe, socket or terminal: only files and block devices have positions" },
	{ ENODEV, "no such GPU or back end on this machine" },
	{ EREMOTEIO, "the GPU or its driver failed; peerlane_error() has its code" },
	{ ENXIO, "the storage device is gone" },
	{ EIO, "the storage device or file system failed" },
	{ ENOSPC, "the file system is full" },
	{ EDQUOT, "the disk quota is used up" },
	{ EFBIG, "the file would become larger than the file system or limit allows" },
	{ ETIMEDOUT, "a device or copy did not finish within the context's time-out" },
	{ ECANCELED, "the request was cancelled before it started" },
	{ EAGAIN, "no room left in the batch: collect events first" },
	{ ENOMEM, "out of memory (host, pinned or GPU)" },
	{ EMFILE, "this process has too many open files" },
	{ EACCES, "permission denied by the file system" },
	{ EPERM, "not permitted" },
	{ EROFS, "the file system is read-only" },
	{ EUCLEAN, "the file is malformed or truncated; peerlane_error() names the place" },
	{ ESTALE, "the file changed while it was in use" },
	{ EBADMSG, "a checksum differs: the data is not what was saved" },
	{ EOWNERDEAD, "this context belongs to the parent process: open a new one after fork" },
	{ EOPNOTSUPP, "not supported by this back end or file system" },
};

const char *peerlane_strerror(int err)
{
	const char *text;

	if (err < 0)
		err = err == INT_MIN ? INT_MAX : -err;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].err == err)
			return words[i].text;
	text = strerrordesc_np(err);
	return text ? text : "unknown error";
}
