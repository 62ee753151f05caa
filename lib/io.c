// SPDX-License-Identifier: MIT
/* Reads and writes of the caller's thread: validation, segments, jobs, results. */
#include "io.h"

#include "context.h"
#include "nvme_file.h"
#include "p2p.h"
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One job's worth: larger requests are done as several jobs, one after the other. */
#define ROUND_BYTES (16ul << 30)
/* Unaligned ends of O_DIRECT writes go through the page cache; never in a page with the rest. */
#define EDGE 4096

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
	fill_segment(ctx, seg, op, &mem, (void *)(uintptr_t)addr, bytes, offset);
	seg->buf = *buf;
	pl_p2p_attach(ctx, seg, dir, &mem, buf);
	return 0;
}

size_t pl_io_until_end(const struct peerlane_file *file, size_t bytes, off_t offset)
{
	int64_t size = pl_file_size(file);

	/* Files of the kernel's own file systems say 0 and have content. */
	if (size <= 0)
		return bytes;
	if (offset >= size)
		return 0;
	return bytes < (size_t)(size - offset) ? bytes : (size_t)(size - offset);
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
	return result;
}

/* Parts in order until one comes short. */
static ssize_t rounds(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op,
		      const struct pl_seg *segs, unsigned int nr, size_t from, size_t to)
{
	size_t at = from, copied;
	uint64_t began;
	ssize_t n;
	int err = 0;

	/* All call the driver. */
	if (nr == 1 && !from && !op->queue) {
		if (op->file->nvme)
			at += pl_nvme_file_direct(ctx, dir, segs, &err);
		else if (dir == PEERLANE_READ && !segs->p2p)
			at += pl_ahead_read(ctx, segs, &err);
		if (dir == PEERLANE_READ && at == from && !err)
			at += pl_window_read(ctx, segs, &err);
		if (err) {
			op->err = err;
			return at > from ? (ssize_t)(at - from) : err;
		}
	}
	copied = at;
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
	if (dir == PEERLANE_READ && !op->queue)
		pl_window_note_copy(ctx, at - copied, pl_now_ns() - began);
	return (ssize_t)(at - from);
}

/* The end of an O_DIRECT write, through the page cache and out of it again. */
static ssize_t write_end(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			 unsigned int nr, size_t from, size_t to)
{
	off_t start = segs[0].offset + (off_t)from, bytes = (off_t)(to - from);
	ssize_t n;

	if (from == to)
		return 0;
	n = rounds(ctx, PEERLANE_WRITE, op, segs, nr, from, to);
	if (n > 0 && op->file->fd >= 0) {
		sync_file_range(op->file->fd, start, bytes,
				SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					SYNC_FILE_RANGE_WAIT_AFTER);
		posix_fadvise(op->file->fd, start, bytes, POSIX_FADV_DONTNEED);
	}
	return n;
}

static size_t edge_of(const struct peerlane_file *file)
{
	return file->align > EDGE ? file->align : EDGE;
}

static unsigned int lock_of(const struct peerlane_file *file)
{
	return (unsigned int)((file->ino ^ file->dev) % PL_DIRECT_LOCKS);
}

/* Whether writes to @file go by pl_io_write_direct(). */
static bool writes_direct(const struct peerlane_file *file)
{
	return file->want_direct && !file->append;
}

bool pl_io_odd_write(const struct peerlane_file *file, size_t bytes, off_t offset)
{
	return bytes && writes_direct(file) && (((size_t)offset | bytes) & (edge_of(file) - 1));
}

unsigned int pl_io_direct_lock_of(const struct peerlane_file *file)
{
	return writes_direct(file) ? 1u << lock_of(file) : 0;
}

void pl_io_direct_lock(struct peerlane *ctx, unsigned int locks)
{
	/* Who holds one alone never asks for a second: no order is needed. */
	for (unsigned int i = 0; i < PL_DIRECT_LOCKS; i++)
		if (locks & 1u << i)
			pthread_rwlock_rdlock(&ctx->direct_locks[i]);
}

void pl_io_direct_unlock(struct peerlane *ctx, unsigned int locks)
{
	for (unsigned int i = 0; i < PL_DIRECT_LOCKS; i++)
		if (locks & 1u << i)
			pthread_rwlock_unlock(&ctx->direct_locks[i]);
}

/*
 * Those who hold the lock may be waiting in the driver, and that for the very stream that is
 * served: there the wait has an end.
 */
static int lock_direct(struct peerlane *ctx, const struct pl_op *op, pthread_rwlock_t *lock,
		       bool alone)
{
	struct timespec until;
	int err;

	if (!op->queue)
		return -(alone ? pthread_rwlock_wrlock(lock) : pthread_rwlock_rdlock(lock));
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ctx->opt.timeout_ms / 1000 + 1;
	err = alone ? pthread_rwlock_timedwrlock(lock, &until)
		    : pthread_rwlock_timedrdlock(lock, &until);
	return err ? pl_fail(-err, "another write to the file did not end in time") : 0;
}

/*
 * A write with O_DIRECT: the aligned middle first, then the ends. In this order, and with the
 * ends of other writes kept out, no page is dirty in the cache while the device writes its
 * neighbours.
 */
ssize_t pl_io_write_direct(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			   unsigned int nr)
{
	size_t edge = edge_of(op->file);
	size_t start = (size_t)segs[0].offset, end = start + op->bytes;
	size_t a = ((start + edge - 1) & ~(edge - 1)) - start, b = (end & ~(edge - 1)) - start;
	pthread_rwlock_t *lock = &ctx->direct_locks[lock_of(op->file)];
	ssize_t middle = 0, head, tail;
	int err;

	if (a >= op->bytes || (end & ~(edge - 1)) <= start + a)
		a = b = op->bytes; /* all of it is an end */
	if (a < b) {
		err = lock_direct(ctx, op, lock, false);
		if (err)
			return err;
		middle = rounds(ctx, PEERLANE_WRITE, op, segs, nr, a, b);
		pthread_rwlock_unlock(lock);
	}
	if (!a && b == op->bytes)
		return middle;
	err = lock_direct(ctx, op, lock, true);
	if (err)
		return !a && middle ? middle : err;
	head = write_end(ctx, op, segs, nr, 0, a);
	tail = head == (ssize_t)a && middle == (ssize_t)(b - a)
		       ? write_end(ctx, op, segs, nr, b, op->bytes)
		       : 0;
	pthread_rwlock_unlock(lock);
	if (head < (ssize_t)a)
		return head;
	if (middle < (ssize_t)(b - a))
		return middle < 0 ? (head ? head : middle) : head + middle;
	return tail < 0 && !(head + middle) ? tail : head + middle + (tail > 0 ? tail : 0);
}

static ssize_t transfer(struct peerlane *ctx, enum peerlane_op dir, struct pl_op *op,
			const struct pl_seg *segs, unsigned int nr)
{
	ssize_t n;

	if (dir == PEERLANE_WRITE && writes_direct(op->file))
		n = pl_io_write_direct(ctx, op, segs, nr);
	else
		n = rounds(ctx, dir, op, segs, nr, 0, op->bytes);
	if (n < 0)
		pl_io_explain(ctx, op, (int)n);
	return n;
}

void pl_io_explain(struct peerlane *ctx, const struct pl_op *op, int err)
{
	if (op->cuda)
		pl_fail_gpu(err, op->cuda, "the GPU copy failed: %s",
			    ctx->gpu->ops->result_name(ctx->gpu, op->cuda));
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
			int nr_iov, size_t bytes, off_t offset, unsigned int flags,
			struct pl_seg *segs, struct pl_buffer **bufs)
{
	struct pl_op op = { .file = file,
			    .asked = bytes,
			    .bytes = bytes,
			    .plain_write = flags & PEERLANE_DURABLE };
	unsigned int nr;
	ssize_t n;
	int err;

	err = resolve(file->ctx, dir, &op, iov, nr_iov, offset, segs, bufs, &nr);
	if (err)
		return err;
	n = resolved(&op, dir, segs, nr, offset, flags);
	put_buffers(bufs, nr_iov);
	return n;
}

/* The request itself, with memory for its segments. */
static ssize_t with_segments(struct peerlane_file *file, enum peerlane_op dir,
			     const struct iovec *iov, int nr_iov, size_t bytes, off_t offset,
			     unsigned int flags)
{
	struct pl_seg one_seg, *segs = &one_seg;
	struct pl_buffer *one_buf, **bufs = &one_buf;
	ssize_t n;

	if (nr_iov == 1)
		return vectored(file, dir, iov, nr_iov, bytes, offset, flags, segs, bufs);
	segs = calloc((size_t)nr_iov, sizeof(*segs));
	bufs = calloc((size_t)nr_iov, sizeof(*bufs));
	n = segs && bufs ? vectored(file, dir, iov, nr_iov, bytes, offset, flags, segs, bufs)
			 : pl_fail(-ENOMEM, "no memory for the request");
	free(segs);
	free(bufs);
	return n;
}

ssize_t pl_io_vectored(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		       int nr_iov, off_t offset, unsigned int flags)
{
	struct peerlane_stats *st = pl_ctx_stats(file->ctx);
	uint64_t start = pl_now_ns();
	size_t bytes = 0;
	ssize_t n = 0;

	for (int i = 0; i < nr_iov && !n; i++)
		if (__builtin_add_overflow(bytes, iov[i].iov_len, &bytes))
			n = pl_fail(-EOVERFLOW, "the lengths of the memory pieces overflow");
	if (!n)
		n = pl_io_range(bytes, offset);
	pl_stat_add(&st->in_flight, 1);
	if (!n)
		n = with_segments(file, dir, iov, nr_iov, bytes, offset, flags);
	pl_stat_sub(&st->in_flight, 1);
	pl_stats_request(&file->ctx->stats, dir, bytes, n, pl_now_ns() - start);
	return n;
}

static ssize_t served(struct peerlane_file *file, enum peerlane_op dir, const struct pl_span *span,
		      size_t bytes, off_t offset, unsigned int flags, struct pl_lane_queue *queue)
{
	struct pl_op op = { .file = file,
			    .asked = bytes,
			    .bytes = bytes,
			    .plain_write = flags & PEERLANE_DURABLE,
			    .queue = queue };
	struct pl_seg seg;
	int err = pl_io_range(bytes, offset);

	if (err || !bytes)
		return err;
	err = pl_span_check(span, bytes);
	if (err)
		return err;
	fill_segment(file->ctx, &seg, &op, &span->mem, span->addr, bytes, offset);
	return resolved(&op, dir, &seg, 1, offset, flags);
}

ssize_t pl_io_served(struct peerlane_file *file, enum peerlane_op dir, const struct pl_span *span,
		     size_t bytes, off_t offset, unsigned int flags, struct pl_lane_queue *queue)
{
	struct peerlane_stats *st = pl_ctx_stats(file->ctx);
	uint64_t start = pl_now_ns();
	ssize_t n;

	pl_stat_add(&st->in_flight, 1);
	n = served(file, dir, span, bytes, offset, flags, queue);
	pl_stat_sub(&st->in_flight, 1);
	pl_stats_request(&file->ctx->stats, dir, bytes, n, pl_now_ns() - start);
	return n;
}

/* What the four calls have in common. */
static ssize_t request(struct peerlane_file *file, enum peerlane_op dir, const struct iovec *iov,
		       int nr_iov, off_t offset, unsigned int flags)
{
	ssize_t n;
	int err;

	if (!iov || nr_iov < 1 || nr_iov > IOV_MAX)
		return pl_fail(-EINVAL, "the number of memory pieces is %d; it must be 1 to %d",
			       iov ? nr_iov : 0, IOV_MAX);
	if (flags & ~PEERLANE_DURABLE)
		return pl_fail(-EINVAL, "unknown flags %#x", flags & ~PEERLANE_DURABLE);
	err = pl_file_get(file, dir);
	if (err)
		return err;
	n = pl_io_vectored(file, dir, iov, nr_iov, offset, flags);
	pl_file_put(file);
	return n;
}

ssize_t peerlane_read(struct peerlane_file *file, void *addr, size_t bytes, off_t offset)
{
	struct iovec iov = { .iov_base = addr, .iov_len = bytes };
	PL_KEEP_ERRNO;

	if (!addr)
		return pl_fail(-EINVAL, "the memory address is NULL");
	return request(file, PEERLANE_READ, &iov, 1, offset, 0);
}

ssize_t peerlane_write(struct peerlane_file *file, const void *addr, size_t bytes, off_t offset,
		       unsigned int flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)addr, .iov_len = bytes };
	PL_KEEP_ERRNO;

	if (!addr)
		return pl_fail(-EINVAL, "the memory address is NULL");
	return request(file, PEERLANE_WRITE, &iov, 1, offset, flags);
}

ssize_t peerlane_readv(struct peerlane_file *file, const struct iovec *iov, int nr_iov,
		       off_t offset)
{
	PL_KEEP_ERRNO;

	return request(file, PEERLANE_READ, iov, nr_iov, offset, 0);
}

ssize_t peerlane_writev(struct peerlane_file *file, const struct iovec *iov, int nr_iov,
			off_t offset, unsigned int flags)
{
	PL_KEEP_ERRNO;

	return request(file, PEERLANE_WRITE, iov, nr_iov, offset, flags);
}
