// SPDX-License-Identifier: MIT
/* Writes to files opened with O_DIRECT: whole pages by the device, unaligned ends by the cache. */
#include "context.h"
#include "io.h"

#include <fcntl.h>
#include <time.h>

/* Unaligned ends go through the page cache; never in a page with the rest. */
#define EDGE 4096

/* The end of an O_DIRECT write, through the page cache and out of it again. */
static ssize_t write_end(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			 unsigned int nr, size_t from, size_t to)
{
	off_t start = segs[0].offset + (off_t)from, bytes = (off_t)(to - from);
	ssize_t n;

	if (from == to)
		return 0;
	n = pl_io_parts(ctx, PEERLANE_WRITE, op, segs, nr, from, to);
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

bool pl_io_writes_direct(const struct peerlane_file *file)
{
	return file->want_direct && !file->append;
}

bool pl_io_odd_write(const struct peerlane_file *file, size_t bytes, off_t offset)
{
	return bytes && pl_io_writes_direct(file) &&
	       (((size_t)offset | bytes) & (edge_of(file) - 1));
}

unsigned int pl_io_direct_lock_of(const struct peerlane_file *file)
{
	return pl_io_writes_direct(file) ? 1u << lock_of(file) : 0;
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
		middle = pl_io_parts(ctx, PEERLANE_WRITE, op, segs, nr, a, b);
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
