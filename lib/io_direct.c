// SPDX-License-Identifier: MIT
/*
 * Writes to files opened with O_DIRECT.
 *
 * Blocks go to the device directly, odd ends go through the page cache, and the two must never meet:
 * while a direct write is in flight, a dirty page in its range is either lost or overwrites the direct
 * data, and the kernel then fails every descriptor of the file with EIO. Three rules keep them apart:
 *
 *   1. A page of a request goes one way. If any piece of it is odd, all of it is buffered.
 *   2. Direct writes hold the file's lock shared. Buffered writes hold it alone.
 *   3. A buffered write is on the device, and its pages are clean, before the lock is released.
 *
 * The locks belong to the process, not to a context: two contexts may have the same file open.
 */
#include "context.h"
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define NR_LOCKS 32
/* In a vector, direct stretches shorter than this between odd ones are not worth a job each. */
#define MIN_STRETCH (64 * 1024ul)

static pthread_rwlock_t locks[NR_LOCKS];
static pthread_once_t locks_once = PTHREAD_ONCE_INIT;

/* A forked child has none of the threads that held them. */
static void init_locks(void)
{
	for (int i = 0; i < NR_LOCKS; i++)
		pthread_rwlock_init(&locks[i], NULL);
}

static void make_locks(void)
{
	init_locks();
	pthread_atfork(NULL, NULL, init_locks);
}

static unsigned int lock_index(const struct peerlane_file *file)
{
	pthread_once(&locks_once, make_locks);
	return (unsigned int)((file->ino ^ file->dev) % NR_LOCKS);
}

bool pl_io_writes_direct(const struct peerlane_file *file)
{
	return file->want_direct && file->fd_direct >= 0 &&
	       !((file->ctx->opt.flags & PEERLANE_NO_DIRECT) && file->fd >= 0);
}

bool pl_io_odd_write(const struct peerlane_file *file, size_t bytes, off_t offset)
{
	return bytes && pl_io_writes_direct(file) &&
	       (file->append || (((size_t)offset | bytes) & (file->align - 1)));
}

uint32_t pl_io_direct_lock_of(const struct peerlane_file *file)
{
	return pl_io_writes_direct(file) ? 1u << lock_index(file) : 0;
}

void pl_io_direct_lock(uint32_t mask)
{
	/* Who holds one alone never asks for a second: no order is needed. */
	for (unsigned int i = 0; i < NR_LOCKS; i++)
		if (mask & 1u << i)
			pthread_rwlock_rdlock(&locks[i]);
}

void pl_io_direct_unlock(uint32_t mask)
{
	for (unsigned int i = 0; i < NR_LOCKS; i++)
		if (mask & 1u << i)
			pthread_rwlock_unlock(&locks[i]);
}

/*
 * A holder may be waiting in the driver for the very stream that is served here, so a served request
 * waits with a limit.
 */
static int lock_file(struct peerlane *ctx, const struct pl_op *op, bool alone)
{
	pthread_rwlock_t *lock = &locks[lock_index(op->file)];
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

static void unlock_file(const struct pl_op *op)
{
	pthread_rwlock_unlock(&locks[lock_index(op->file)]);
}

/* --- which parts of a request are odd --- */

/* Positions in the file, or in the request. */
struct range {
	size_t from, to;
};

/* What O_DIRECT cannot write of @seg: nothing, its ends, or all. Returns how many are in @out. */
static unsigned int odd_parts(const struct peerlane_file *file, const struct pl_seg *seg,
			      struct range out[2])
{
	size_t mask = file->align - 1, start = (size_t)seg->offset, end = start + seg->bytes;
	size_t a = (start + mask) & ~mask, b = end & ~mask;
	unsigned int nr = 0;

	if (a >= b || (seg->host && (((uintptr_t)seg->host - start) & mask))) {
		out[0] = (struct range){ start, end };
		return 1;
	}
	if (start < a)
		out[nr++] = (struct range){ start, a };
	if (b < end)
		out[nr++] = (struct range){ b, end };
	return nr;
}

/* The odd stretches of a request, as whole pages of it, in order; room for two a segment. */
static unsigned int find_odd(const struct pl_op *op, const struct pl_seg *segs, unsigned int nr,
			     struct range *out)
{
	size_t page = op->file->align > PAGE ? op->file->align : PAGE;
	size_t start = (size_t)segs[0].offset, end = start + op->bytes;
	size_t gap = nr > 1 ? MIN_STRETCH : 0;
	unsigned int n = 0, nr_parts;
	struct range parts[2];

	for (unsigned int i = 0; i < nr; i++) {
		nr_parts = odd_parts(op->file, &segs[i], parts);
		for (unsigned int k = 0; k < nr_parts; k++) {
			size_t a = parts[k].from & ~(page - 1);
			size_t b = (parts[k].to + page - 1) & ~(page - 1);

			a = a < start + gap ? 0 : a - start;
			b = b + gap > end ? op->bytes : b - start;
			if (n && a <= out[n - 1].to + gap)
				out[n - 1].to = b;
			else
				out[n++] = (struct range){ a, b };
		}
	}
	return n;
}

size_t pl_io_odd_bytes(const struct peerlane_file *file, const struct pl_seg *seg)
{
	struct pl_op op = { .file = (struct peerlane_file *)(uintptr_t)file, .bytes = seg->bytes };
	struct range odd[2];
	size_t bytes = 0;

	for (unsigned int i = find_odd(&op, seg, 1, odd); i > 0; i--)
		bytes += odd[i - 1].to - odd[i - 1].from;
	return bytes;
}

/* --- the two ways --- */

/* How far a request has got, and why no further. */
struct progress {
	size_t stop;
	int err;
};

static void stop_at(struct progress *p, size_t at, int err)
{
	if (at >= p->stop)
		return;
	p->stop = at;
	p->err = err;
}

/* Writes [from, to); returns how far it came, and why no further in op->err. */
static size_t write_range(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			  unsigned int nr, size_t from, size_t to)
{
	ssize_t n = from < to ? pl_io_parts(ctx, PEERLANE_WRITE, op, segs, nr, from, to) : 0;

	if (n < 0)
		op->err = (int)n;
	return n < 0 ? from : from + (size_t)n;
}

/*
 * The stretches between the odd ones. If the kernel refuses O_DIRECT there, everything from that
 * place on becomes odd; there is room for one more.
 */
static int write_direct(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			unsigned int nr, struct range *odd, unsigned int *nr_odd,
			struct progress *p)
{
	int err = lock_file(ctx, op, false);
	size_t at = 0, to, end;

	if (err)
		return err;
	for (unsigned int i = 0; i <= *nr_odd && at < p->stop; i++) {
		to = i < *nr_odd ? odd[i].from : op->bytes;
		end = write_range(ctx, op, segs, nr, at, to);
		if (end < to && op->err == -EINVAL && op->file->fd >= 0) {
			odd[i] = (struct range){ end, op->bytes };
			*nr_odd = i + 1;
		} else if (end < to) {
			stop_at(p, end, op->err);
		}
		at = i < *nr_odd ? odd[i].to : op->bytes;
	}
	unlock_file(op);
	return 0;
}

/*
 * Brings [from, to) of the file from the page cache to the device, and out of the cache. This takes a
 * write-back error away from fdatasync(): it must be passed on.
 */
static int flush(const struct peerlane_file *file, off_t from, off_t to)
{
	const unsigned int all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				 SYNC_FILE_RANGE_WAIT_AFTER;
	int err = 0;

	from &= -(off_t)PAGE;
	to = (to + (off_t)PAGE - 1) & -(off_t)PAGE;
	if (sync_file_range(file->fd, from, to - from, all))
		err = -errno;
	/* Filtered, or a file system without: the whole file then. */
	if (err == -ENOSYS || err == -EPERM || err == -ESPIPE)
		err = fdatasync(file->fd) ? -errno : 0;
	/* An error found before the writing starts keeps it from starting. */
	else if (err)
		sync_file_range(file->fd, from, to - from, all);
	posix_fadvise(file->fd, from, to - from, POSIX_FADV_DONTNEED);
	return err;
}

/* The odd stretches, through the page cache. */
static int write_odd(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
		     unsigned int nr, const struct range *odd, unsigned int nr_odd,
		     struct progress *p)
{
	off_t start = segs[0].offset;
	size_t end = 0;
	int err;

	if (!nr_odd || odd[0].from >= p->stop)
		return 0;
	err = lock_file(ctx, op, true);
	if (err)
		return err;
	op->buffered = true;
	for (unsigned int i = 0; i < nr_odd && odd[i].from < p->stop; i++) {
		end = write_range(ctx, op, segs, nr, odd[i].from, odd[i].to);
		if (end < odd[i].to)
			stop_at(p, end, op->err);
	}
	op->buffered = false;
	if (op->file->fd >= 0)
		err = flush(op->file, start + (off_t)odd[0].from, start + (off_t)end);
	unlock_file(op);
	if (err)
		stop_at(p, odd[0].from, err);
	/* Its caller sees a short write; the error itself is for the next sync. */
	if (err && p->stop)
		pl_file_note_error(op->file, err);
	return 0;
}

/* Where it goes is known only when it is there, so never directly. */
static ssize_t append(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
		      unsigned int nr)
{
	int err = lock_file(ctx, op, true);
	off_t size;
	ssize_t n;

	if (err)
		return err;
	op->buffered = op->file->fd >= 0;
	size = pl_file_size(op->file);
	n = pl_io_parts(ctx, PEERLANE_WRITE, op, segs, nr, 0, op->bytes);
	if (op->buffered && n > 0 && size >= 0)
		err = flush(op->file, size, pl_file_size(op->file));
	op->buffered = false;
	unlock_file(op);
	/* What was appended stays there: the count is right, the sync is not. */
	if (err)
		pl_file_note_error(op->file, err);
	return n;
}

ssize_t pl_io_write_direct(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *segs,
			   unsigned int nr)
{
	struct progress p = { .stop = op->bytes };
	struct range few[3], *odd = few;
	unsigned int nr_odd;
	int err;

	if (op->file->append)
		return append(ctx, op, segs, nr);
	if (nr > 1)
		odd = malloc((2 * nr + 1) * sizeof(*odd));
	if (!odd)
		return pl_fail(-ENOMEM, "no memory for the request");
	nr_odd = find_odd(op, segs, nr, odd);
	err = write_direct(ctx, op, segs, nr, odd, &nr_odd, &p);
	if (err)
		stop_at(&p, 0, err);
	err = write_odd(ctx, op, segs, nr, odd, nr_odd, &p);
	if (err)
		stop_at(&p, odd[0].from, err);
	if (odd != few)
		free(odd);
	op->err = p.err;
	return p.stop || !p.err ? (ssize_t)p.stop : p.err;
}
