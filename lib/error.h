/* SPDX-License-Identifier: MIT */
/* The last failure of each thread, in words; see peerlane_error(). */
#ifndef PL_ERROR_H
#define PL_ERROR_H

#include <errno.h>
#include <stddef.h>

/* Records a failure of this thread and returns @err (a negative errno). */
int pl_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a GPU failure: @cuda is the driver's own code. */
int pl_fail_gpu(int err, int cuda, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Why the file @path could not be opened or made: errno @err in words, and more for a URL. */
const char *pl_error_open(const char *path, int err);

/* Put first in every public function: the caller's errno is left as it was. */
#define PL_KEEP_ERRNO int pl_kept_errno __attribute__((cleanup(pl_errno_restore), unused)) = errno
void pl_errno_restore(const int *kept);

/* Bounded copy that always terminates. */
void pl_text(char *dst, size_t dst_bytes, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
