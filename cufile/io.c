// SPDX-License-Identifier: MIT
/* Reads and writes of the calling thread. */
#include "io.h"

#include "buffer.h"
#include "driver.h"
#include "error.h"
#include "log.h"
#include "stats.h"

#include "../lib/io.h"

#include <errno.h>
#include <limits.h>

/* The codes are those of the other library, which for a stream gives others. */
static int check(const struct pl_cf_file *f, enum peerlane_op op, off_t file_offset,
		 off_t buf_offset, bool on_stream)
{
	if (file_offset < 0)
		return on_stream ? -EPERM : -CU_FILE_INVALID_VALUE;
	if (buf_offset < 0)
		return on_stream ? -CU_FILE_INTERNAL_ERROR : -EIO;
	if (op == PEERLANE_READ && !f->readable)
		return -CU_FILE_INVALID_FILE_OPEN_FLAG;
	if (op == PEERLANE_WRITE && !f->writable)
		return -EIO;
	return 0;
}

static char *address(const struct pl_cf_io *io)
{
	return (char *)((uintptr_t)io->base + (uintptr_t)io->buf_offset);
}

int pl_cf_io_begin(struct pl_cf_io *io, bool on_stream)
{
	struct pl_cf_range range = { .base = NULL };
	int err;

	io->start = pl_cf_stats_begin();
	err = check(io->file, io->op, io->file_offset, io->buf_offset, on_stream);
	if (err || !io->size || !io->buf_offset)
		return err;
	if ((uintptr_t)address(io) < (uintptr_t)io->base)
		return -EFAULT;
	return pl_cf_buffer_check(&range, io->base, io->size, io->buf_offset);
}

void pl_cf_io_end(const struct pl_cf_io *io, int gpu, ssize_t n, size_t p2p)
{
	if (!n && !io->size)
		return;
	pl_cf_file_count(io->file, io->op, n);
	if (io->start)
		pl_cf_stats_io(gpu, io->op, address(io), io->size, io->file_offset, n, p2p,
			       io->start);
}

/* A count, a negative errno of the engine, or a negative CUfileOpError. */
static ssize_t io_now(struct peerlane *ctx, struct pl_cf_io *io)
{
	ssize_t n = pl_cf_io_begin(io, false);
	struct iovec iov = { .iov_base = address(io), .iov_len = io->size };
	size_t p2p = 0;

	if (!n && io->size) {
		pl_cf_file_explain(io->file, io->op, iov.iov_base, io->size, io->file_offset);
		n = pl_io_request(io->file->file, io->op, &iov, 1, io->file_offset, 0, &p2p);
	}
	pl_cf_io_end(io, io->start ? pl_cf_stats_gpu(ctx, iov.iov_base) : -1, n, p2p);
	return n;
}

/* What a handle that is none gives. */
static ssize_t no_handle(enum pl_cf_found found)
{
	errno = found == PL_CF_STALE ? (int)CU_FILE_HANDLE_NOT_REGISTERED : EINVAL;
	return -1;
}

static ssize_t request(CUfileHandle_t fh, enum peerlane_op op, void *base, size_t size,
		       off_t file_offset, off_t buf_offset)
{
	struct peerlane *ctx = pl_cf_enter();
	enum pl_cf_found found;
	struct pl_cf_file *f;
	ssize_t n;

	if (!base || !ctx) {
		if (ctx)
			pl_cf_leave();
		return no_handle(base ? pl_cf_file_known(fh) : PL_CF_NEVER);
	}
	f = pl_cf_file_get(fh, &found);
	if (!f) {
		pl_cf_leave();
		return no_handle(found);
	}
	n = io_now(ctx, &(struct pl_cf_io){ .file = f,
					    .op = op,
					    .base = base,
					    .size = size,
					    .file_offset = file_offset,
					    .buf_offset = buf_offset });
	pl_cf_file_put(fh);
	pl_cf_leave();
	if (n < 0 && pl_cf_log_wants(PL_CF_ERROR))
		pl_cf_log(PL_CF_ERROR, "%s of %zu bytes at %lld failed: %zd",
			  op == PEERLANE_READ ? "read" : "write", size, (long long)file_offset, n);
	return pl_cf_count(n);
}

ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return request(fh, PEERLANE_READ, base, size, file_offset, buf_offset);
}

ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset,
		    off_t buf_offset)
{
	return request(fh, PEERLANE_WRITE, (void *)(uintptr_t)base, size, file_offset, buf_offset);
}

/* ------------------------------------------------------------------ vectors */

_Static_assert(sizeof(CUfileIOVec_t) == sizeof(struct iovec) &&
		       offsetof(CUfileIOVec_t, len) == offsetof(struct iovec, iov_len),
	       "the two vectors are the same");

static ssize_t vector(struct peerlane *ctx, struct pl_cf_file *f, enum peerlane_op op,
		      const CUfileIOVec_t *iov, size_t nr, off_t offset)
{
	const struct iovec *v = (const struct iovec *)(const void *)iov;
	uint64_t start = pl_cf_stats_begin();
	ssize_t n = check(f, op, offset, 0, false);
	size_t asked = 0, p2p = 0;

	for (size_t i = 0; i < nr; i++)
		asked += iov[i].len;
	if (!n)
		n = pl_io_request(f->file, op, v, (int)nr, offset, 0, &p2p);
	pl_cf_file_count(f, op, n);
	if (start)
		pl_cf_stats_io(pl_cf_stats_gpu(ctx, iov[0].base), op, iov[0].base, asked, offset, n,
			       p2p, start);
	return n;
}

static ssize_t vector_request(CUfileHandle_t fh, enum peerlane_op op, const CUfileIOVec_t *iov,
			      size_t nr, off_t offset, unsigned int flags)
{
	struct peerlane *ctx;
	enum pl_cf_found found;
	struct pl_cf_file *f;
	ssize_t n;

	if (!iov || !nr || nr > IOV_MAX || flags) {
		errno = EINVAL;
		return -1;
	}
	ctx = pl_cf_enter();
	if (!ctx)
		return no_handle(pl_cf_file_known(fh));
	f = pl_cf_file_get(fh, &found);
	if (!f) {
		pl_cf_leave();
		return no_handle(found);
	}
	n = vector(ctx, f, op, iov, nr, offset);
	pl_cf_file_put(fh);
	pl_cf_leave();
	return pl_cf_count(n);
}

ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset,
		    unsigned int flags)
{
	return vector_request(fh, PEERLANE_READ, iov, iovcnt, file_offset, flags);
}

ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset,
		     unsigned int flags)
{
	return vector_request(fh, PEERLANE_WRITE, iov, iovcnt, file_offset, flags);
}
