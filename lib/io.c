// SPDX-License-Identifier: MIT
/* Reads and writes of the caller's thread: validation, segments, jobs, results. */
#include "io.h"

#include "context.h"
#include "nvme_file.h"
#include "p2p.h"
#include "window.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One job's worth: larger requests are done as several jobs, one after the other. */
#define ROUND_BYTES (16ul << 30)

int pl_io_range(size_t bytes, off_t offset)
{
	if (offset < 0)
		return pl_fail(-EINVAL, "the file offset %lld is negative", (long long)offset);
	if (bytes > SSIZE_MAX || offset > INT64_MAX - (off_t)bytes)
		return pl_fail(-EOVERFLOW, "%zu bytes at offset %lld pass the largest file offset",
			       bytes, (long long)offset);
	return 0;
}

int pl_io_check(struct peerlane_file *file, enum peerlane_op op, size_t bytes, off_t offset)
{
	int err = pl_file_get(file, op);

	if (err)
		return err;
	err = pl_io_range(bytes, offset);
	if (err)
		pl_file_put(file);
	return err;
}

char *pl_io_host(const struct peerlane *ctx, const struct pl_mem *mem, void *addr)
{
	if (mem->kind == PL_MEM_HOST || mem->kind == PL_MEM_PINNED)
		return addr;
	if (mem->host && !(ctx->opt.flags & PEERLANE_NO_MAPPED))
		return mem->host + ((uintptr_t)addr - mem->base);
	return NULL;
}

static void fill_segment(struct peerlane *ctx, struct pl_seg *seg, struct pl_op *op,
			 const struct pl_mem *mem, void *addr, size_t bytes, off_t offset)
{
	memset(seg, 0, sizeof(*seg));
	seg->op = op;
	seg->addr = addr;
	seg->bytes = bytes;
	seg->offset = offset;
	seg->owner = mem->owner;
	seg->gpu = mem->gpu;
	seg->host = pl_io_host(ctx, mem, addr);
}

int pl_io_segment(struct peerlane *ctx, struct pl_seg *seg, enum peerlane_op dir, struct pl_op *op,
		  const void *addr, size_t bytes, off_t offset, struct pl_buffer **buf)
{
	struct pl_mem mem;
	int err = pl_buffer_resolve(ctx, addr, bytes, &mem, buf);

	if (err)
		return err;
	err = op->in_stream ? 0 : pl_buffer_wait(ctx, &mem);
	if (err) {
		pl_buffer_put(*buf);
		*buf = NULL;
		return err;
	}
	fill_segment(ctx, seg, op, &mem, (void *)(uintptr_t)addr, bytes, offset);
	seg->buf = *buf;
	if (!op->no_p2p)
		pl_p2p_attach(ctx, seg, dir, &mem, buf);
	return 0;
}

size_t pl_io_cut(int64_t size, size_t bytes, off_t offset)
{
	/* Files of the kernel's own file systems say 0 and have content. */
	if (size <= 0)
		return bytes;
	if (offset >= size)
		return 0;
	return bytes < (size_t)(size - offset) ? bytes : (size_t)(size - offset);
}

size_t pl_io_until_end(const struct peerlane_file *file, size_t bytes, off_t offset)
{
	/* A drive writes nothing past its own end, so an old size does no harm. */
	if (file->block && offset + (off_t)bytes <= file->block_bytes)
		return bytes;
	return pl_io_cut(pl_file_size(file), bytes, offset);
}

/* Runs one job over @segs; the request's outcome is in @op. */
static int run(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op, struct pl_seg *segs,
	       unsigned int nr)
{
	struct pl_job job;
	int err = pl_job_init(&job, ctx, dir, op, 1, segs, nr);

	if (err)
		return err;
	pl_job_run(&job);
	pl_job_fini(&job);
	return 0;
}

/* The part [from, to) of the request, as segments in @out. Returns how many. */
static unsigned int slice(const struct pl_seg *segs, unsigned int nr, size_t from, size_t to,
			  struct pl_op *op, struct pl_seg *out)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < nr; i++) {
		size_t a = segs[i].at > from ? segs[i].at : from;
		size_t end = segs[i].at + segs[i].bytes, b = end < to ? end : to;

		if (a >= b)
			continue;
		out[n] = segs[i];
		out[n].op = op;
		out[n].addr += a - segs[i].at;
		if (out[n].host)
			out[n].host += a - segs[i].at;
		if (out[n].p2p)
			out[n].p2p += a - segs[i].at;
		out[n].offset += (off_t)(a - segs[i].at);
		out[n].bytes = b - a;
		out[n++].at = a - from;
	}
	return n;
}

/* One part of a request as a job of its own. Returns what pl_op_result() says of it. */
static ssize_t part(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *whole,
		    const struct pl_seg *segs, unsigned int nr, size_t from, size_t to)
{
	struct pl_seg one, *list = &one;
	struct pl_op op = *whole;
	ssize_t result;
	int err;

	if (nr > 1)
		list = malloc(nr * sizeof(*list));
	if (!list)
		return pl_fail(-ENOMEM, "no memory for the request");
	op.bytes = to - from;
	err = run(ctx, dir, &op, list, slice(segs, nr, from, to, &op, list));
	if (list != &one)
		free(list);
	result = err ? err : pl_op_result(&op);
	whole->cuda = op.cuda;
	whole->err = err ? err : op.err;
	whole->p2p += op.p2p;
	whole->copied += op.copied;
	return result;
}

ssize_t pl_io_parts(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op,
		    const struct pl_seg *segs, unsigned int nr, size_t from, size_t to)
{
	size_t at = from, copied;
	uint64_t began;
	ssize_t n;
	int err = 0;

	if (dir == PEERLANE_READ && nr == 1 && pl_fill_is_plain(segs))
		return pl_fill_plain(ctx, op, segs);
	if (dir == PEERLANE_READ && nr == 1 && pl_fill_is_p2p(ctx, segs))
		at += pl_fill_p2p(ctx, op, segs);
	if (at == to)
		return (ssize_t)(at - from);
	if (nr == 1 && !from) {
		/* Not for a stream that is served where it would call the driver. */
		if (op->file->nvme && !op->queue)
			at += pl_nvme_file_direct(ctx, dir, segs, &err);
		else if (dir == PEERLANE_READ && !op->file->nvme && !segs->p2p)
			at += pl_ahead_read(ctx, segs, &err);
		if (dir == PEERLANE_READ && at == from && !err && !op->queue)
			at += pl_window_read(ctx, segs, &err);
		if (err) {
			op->err = err;
			return at > from ? (ssize_t)(at - from) : err;
		}
	}
	copied = at;
	op->copied = 0;
	began = pl_now_ns();
	while (at < to) {
		size_t end = to - at > ROUND_BYTES ? at + ROUND_BYTES : to;

		n = part(ctx, dir, op, segs, nr, at, end);
		if (n < 0)
			return at > from ? (ssize_t)(at - from) : n;
		at += (size_t)n;
		if (at < end)
			break;
	}
	if (dir == PEERLANE_READ && !op->queue && op->copied == at - copied)
		pl_window_note_copy(ctx, at - copied, pl_now_ns() - began);
	return (ssize_t)(at - from);
}

static ssize_t transfer(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op,
			const struct pl_seg *segs, unsigned int nr)
{
	ssize_t n;

	if (dir == PEERLANE_WRITE && pl_io_writes_direct(op->file))
		n = pl_io_write_direct(ctx, op, segs, nr);
	else
		n = pl_io_parts(ctx, dir, op, segs, nr, 0, op->bytes);
	if (n < 0)
		pl_io_explain(ctx, op, (int)n);
	return n;
}

void pl_io_explain(struct peerlane *ctx, const struct pl_op *op, int err)
{
	if (op->cuda)
		pl_fail_gpu(err, op->cuda, "the GPU copy failed: %s",
			    ctx->gpu->ops->result_name(ctx->gpu, op->cuda));
	else if (op->err == err && op->file->nvme)
		pl_nvme_file_explain(op->file->nvme, err);
	else if (op->err == err)
		pl_fail(err, "%s", peerlane_strerror(err));
}

/* Drops the references of the first @nr segments. */
static void put_buffers(struct pl_buffer **bufs, int nr)
{
	for (int i = 0; i < nr; i++)
		pl_buffer_put(bufs[i]);
}

/* Every memory piece becomes a segment; zero-length ones are left out. */
static int resolve(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op,
		   const struct iovec *iov, int nr_iov, off_t offset, struct pl_seg *segs,
		   struct pl_buffer **bufs, unsigned int *nr)
{
	size_t at = 0;
	int err;

	*nr = 0;
	for (int i = 0; i < nr_iov; i++) {
		bufs[i] = NULL;
		if (!iov[i].iov_len)
			continue;
		err = pl_io_segment(ctx, &segs[*nr], dir, op, iov[i].iov_base, iov[i].iov_len,
				    offset + (off_t)at, &bufs[i]);
		if (err) {
			put_buffers(bufs, i);
			return err;
		}
		segs[(*nr)++].at = at;
		at += iov[i].iov_len;
	}
	return 0;
}

/* Cuts the segments at the end of the file. */
static unsigned int cut_at_end(struct pl_seg *segs, unsigned int nr, size_t bytes)
{
	while (nr && segs[nr - 1].at >= bytes)
		nr--;
	if (nr && segs[nr - 1].at + segs[nr - 1].bytes > bytes)
		segs[nr - 1].bytes = bytes - segs[nr - 1].at;
	return nr;
}

/* The request over segments that are known. */
static ssize_t resolved(struct pl_op *op, enum peerlane_op dir, struct pl_seg *segs,
			unsigned int nr, off_t offset, unsigned int flags)
{
	struct peerlane_file *file = op->file;
	int err;
	ssize_t n;

	/* A request of one unit meets the end by itself; but O_DIRECT into the caller's own memory
	 * would write a whole block there. */
	if (dir == PEERLANE_READ &&
	    (nr > 1 || op->bytes > 64 * 1024 || file->want_direct || (nr && segs->p2p))) {
		op->bytes = pl_io_until_end(file, op->bytes, offset);
		nr = cut_at_end(segs, nr, op->bytes);
	}
	n = op->bytes ? transfer(file->ctx, dir, op, segs, nr) : 0;
	/* Once for the whole request: cheaper than making each of its writes durable. */
	if (n > 0 && (flags & PEERLANE_DURABLE)) {
		err = pl_file_datasync(file);
		if (err)
			n = pl_fail(err, "the data could not be made durable: %s",
				    strerrordesc_np(-err));
	}
	return n;
}

static ssize_t vectored(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
			int nr_iov, size_t bytes, off_t offset, unsigned int flags, size_t *p2p,
			struct pl_seg *segs, struct pl_buffer **bufs)
{
	struct pl_op op = { .file = file,
			    .asked = bytes,
			    .bytes = bytes,
			    .plain_write = flags & PEERLANE_DURABLE,
			    .no_p2p = flags & PL_IO_NO_P2P,
			    .in_stream = flags & PL_IO_IN_STREAM };
	unsigned int nr;
	ssize_t n;
	int err;

	err = resolve(file->ctx, dir, &op, iov, nr_iov, offset, segs, bufs, &nr);
	if (err)
		return err;
	n = resolved(&op, dir, segs, nr, offset, flags);
	*p2p = op.p2p;
	put_buffers(bufs, nr_iov);
	return n;
}

/* The request itself, with memory for its segments. */
static ssize_t with_segments(struct peerlane_file *file, enum peerlane_op dir,
			     const struct iovec *iov, int nr_iov, size_t bytes, off_t offset,
			     unsigned int flags, size_t *p2p)
{
	struct pl_seg one_seg, *segs = &one_seg;
	struct pl_buffer *one_buf, **bufs = &one_buf;
	ssize_t n;

	if (nr_iov == 1)
		return vectored(file, dir, iov, nr_iov, bytes, offset, flags, p2p, segs, bufs);
	segs = calloc((size_t)nr_iov, sizeof(*segs));
	bufs = calloc((size_t)nr_iov, sizeof(*bufs));
	n = segs && bufs ? vectored(file, dir, iov, nr_iov, bytes, offset, flags, p2p, segs, bufs)
			 : pl_fail(-ENOMEM, "no memory for the request");
	free(segs);
	free(bufs);
	return n;
}

ssize_t pl_io_vectored(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		       int nr_iov, off_t offset, unsigned int flags, size_t *p2p)
{
	struct peerlane_stats *st = pl_ctx_stats(file->ctx);
	uint64_t start = pl_now_ns();
	size_t bytes = 0;
	ssize_t n = 0;

	*p2p = 0;
	for (int i = 0; i < nr_iov && !n; i++)
		if (__builtin_add_overflow(bytes, iov[i].iov_len, &bytes))
			n = pl_fail(-EOVERFLOW, "the lengths of the memory pieces overflow");
	if (!n)
		n = pl_io_range(bytes, offset);
	pl_stat_add(&st->in_flight, 1);
	if (!n)
		n = with_segments(file, dir, iov, nr_iov, bytes, offset, flags, p2p);
	pl_stat_sub(&st->in_flight, 1);
	pl_stats_request(&file->ctx->stats, dir, bytes, n, pl_now_ns() - start);
	return n;
}

static ssize_t served(struct peerlane_file *file, enum peerlane_op dir, const struct pl_span *span,
		      size_t bytes, off_t offset, unsigned int flags, struct pl_lane_queue *queue,
		      size_t *p2p)
{
	struct pl_op op = { .file = file,
			    .asked = bytes,
			    .bytes = bytes,
			    .plain_write = flags & PEERLANE_DURABLE,
			    .queue = queue };
	struct pl_seg seg;
	ssize_t n;
	int err = pl_io_range(bytes, offset);

	if (err || !bytes)
		return err;
	err = pl_span_check(span, bytes);
	if (err)
		return err;
	fill_segment(file->ctx, &seg, &op, &span->mem, span->addr, bytes, offset);
	pl_p2p_take(&seg, dir, &span->way);
	n = resolved(&op, dir, &seg, 1, offset, flags);
	*p2p = op.p2p;
	return n;
}

ssize_t pl_io_served(struct peerlane_file *file, enum peerlane_op dir, const struct pl_span *span,
		     size_t bytes, off_t offset, unsigned int flags, struct pl_lane_queue *queue,
		     size_t *p2p)
{
	struct peerlane_stats *st = pl_ctx_stats(file->ctx);
	uint64_t start = pl_now_ns();
	ssize_t n;

	*p2p = 0;
	pl_stat_add(&st->in_flight, 1);
	n = served(file, dir, span, bytes, offset, flags, queue, p2p);
	pl_stat_sub(&st->in_flight, 1);
	pl_stats_request(&file->ctx->stats, dir, bytes, n, pl_now_ns() - start);
	return n;
}

ssize_t pl_io_request(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		      int nr_iov, off_t offset, unsigned int flags, size_t *p2p)
{
	PL_KEEP_ERRNO;
	ssize_t n;
	int err;

	*p2p = 0;
	if (!iov || nr_iov < 1 || nr_iov > IOV_MAX)
		return pl_fail(-EINVAL, "the number of memory pieces is %d; it must be 1 to %d",
			       iov ? nr_iov : 0, IOV_MAX);
	if (flags & ~PEERLANE_DURABLE)
		return pl_fail(-EINVAL, "unknown flags %#x", flags & ~PEERLANE_DURABLE);
	err = pl_file_get(file, dir);
	if (err)
		return err;
	n = pl_io_vectored(file, dir, iov, nr_iov, offset, flags, p2p);
	pl_file_put(file);
	return n;
}

/* What the two calls for one piece of memory have in common. */
static ssize_t single(struct peerlane_file *file, enum peerlane_op dir, void *addr, size_t bytes,
		      off_t offset, unsigned int flags)
{
	struct iovec iov = { .iov_base = addr, .iov_len = bytes };
	size_t p2p;

	if (!addr)
		return pl_fail(-EINVAL, "the memory address is NULL");
	return pl_io_request(file, dir, &iov, 1, offset, flags, &p2p);
}

ssize_t peerlane_read(struct peerlane_file *file, void *addr, size_t bytes, off_t offset)
{
	return single(file, PEERLANE_READ, addr, bytes, offset, 0);
}

ssize_t peerlane_write(struct peerlane_file *file, const void *addr, size_t bytes, off_t offset,
		       unsigned int flags)
{
	return single(file, PEERLANE_WRITE, (void *)(uintptr_t)addr, bytes, offset, flags);
}

ssize_t peerlane_readv(struct peerlane_file *file, const struct iovec *iov, int nr_iov,
		       off_t offset)
{
	size_t p2p;

	return pl_io_request(file, PEERLANE_READ, iov, nr_iov, offset, 0, &p2p);
}

ssize_t peerlane_writev(struct peerlane_file *file, const struct iovec *iov, int nr_iov,
			off_t offset, unsigned int flags)
{
	size_t p2p;

	return pl_io_request(file, PEERLANE_WRITE, iov, nr_iov, offset, flags, &p2p);
}
