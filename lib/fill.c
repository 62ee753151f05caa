// SPDX-License-Identifier: MIT
/* The file side of one unit: which way it goes, and the read or write itself. */
#include "cache.h"
#include "context.h"
#include "io.h"
#include "job.h"
#include "nt_copy.h"
#include "p2p.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

/* A single request up to this size is read the plain way: asking the page cache first would cost
 * as much as it could save. */
#define PLAIN_BYTES (64 * 1024)
#define BOUNCE_BYTES (64 * 1024)
/* In a request of more units every one of so many is worth a closer look at what the page cache has of it. */
#define FEW_UNITS 8u
/* More than devices are read ahead by. */
#define FAR_BYTES (64 << 20)
/* Up to this size a read by p2p is a single one; larger ones are pieces that go at the same time. */
#define P2P_BYTES (256 * 1024)

/* Such that neighbouring units of a segment touch, and that a read widened for O_DIRECT starts
 * aligned. */
char *pl_fill_slot(const struct pl_job *job, unsigned int u)
{
	const struct pl_unit *unit = &job->units[u];
	off_t offset = job->segs[unit->seg].offset + (off_t)unit->at;
	size_t in_slot = (size_t)offset & ((job->small ? job->grain : job->unit_bytes) - 1);

	return job->lane->mem + (u % job->nr_slots) * job->stride + in_slot;
}

/* Whether the transfer as it stands may go with O_DIRECT. */
static bool aligned(const struct pl_fill *f)
{
	uintptr_t all = (uintptr_t)f->mem | (uintptr_t)f->offset | f->bytes;

	return !(all & (f->file->align - 1));
}

/*
 * Whether pages that count as cached are only what the kernel is reading ahead. Reading those makes it go on: it would
 * read all the rest of a cold file, slower than we do. So what is farther on than it reads ahead must be there,
 * too; or, near the end, no piece before was missing, and the last byte comes at once.
 */
static bool only_ahead(const struct pl_job *job, const struct pl_fill *f, bool met_cold)
{
	const struct pl_seg *seg = &job->segs[job->units[f->unit].seg];
	off_t end = seg->offset + (off_t)seg->bytes;

	if (end - f->offset > FAR_BYTES)
		return !pl_cache_resident(f->file->fd, f->offset + FAR_BYTES, 1);
	return met_cold || !pl_cache_ready(f->file->fd, f->offset + (off_t)f->bytes - 1);
}

/*
 * Reads a short unit that is in the page cache as a whole, which takes no longer than to ask whether it is. 1: it is, 0:
 * it is not, -1: the file system does not tell.
 */
static int read_at_once(struct pl_fill *f)
{
	struct iovec iov = { .iov_base = f->mem, .iov_len = f->bytes };
	ssize_t n = preadv2(f->file->fd, &iov, 1, f->offset, RWF_NOWAIT);

	/* Also all there is up to the end of the file. */
	if (n == (ssize_t)f->bytes || (n > 0 && f->offset + n == pl_file_size(f->file)))
		f->got = (size_t)n;
	return f->got ? 1 : n > 0 || (n < 0 && errno == EAGAIN) ? 0 : -1;
}

static void meet_cold(struct pl_job *job)
{
	__atomic_store_n(&job->met_cold, true, __ATOMIC_RELAXED);
}

static bool cold(struct pl_job *job, struct pl_fill *f)
{
	bool met_cold = __atomic_load_n(&job->met_cold, __ATOMIC_RELAXED), is_cold;
	int at_once = -1;
	int64_t in;

	if (job->nr_units == 1 && f->bytes <= PLAIN_BYTES)
		return false;
	/* What is not there the kernel begins to read, and from then on says that it is: so only where all was there so
	 * far, and the first is asked about. */
	if (job->small && !met_cold && f->unit)
		at_once = read_at_once(f);
	if (!at_once)
		meet_cold(job);
	if (at_once >= 0)
		return !at_once;
	in = pl_cache_resident(f->file->fd, f->offset, f->bytes);
	if (in < 0)
		return false;
	is_cold = in < (int64_t)f->bytes / 2;
	if (!is_cold && !job->small && job->nr_units > FEW_UNITS &&
	    (met_cold || !(f->unit % FEW_UNITS)))
		is_cold = only_ahead(job, f, met_cold);
	if (is_cold && !met_cold)
		meet_cold(job);
	return is_cold;
}

static bool want_direct(struct pl_job *job, const struct pl_seg *seg, struct pl_fill *f)
{
	if (f->file->fd_direct < 0 ||
	    ((job->ctx->opt.flags & PEERLANE_NO_DIRECT) && f->file->fd >= 0))
		return false;
	if (seg->op->buffered || ((job->op == PEERLANE_WRITE || seg->host) && !aligned(f)))
		return false;
	if (f->file->want_direct || f->file->fd < 0)
		return true;
	return job->op == PEERLANE_READ && cold(job, f);
}

static void plan_common(struct pl_job *job, unsigned int u, struct pl_fill *f)
{
	const struct pl_unit *unit = &job->units[u];
	const struct pl_seg *seg = &job->segs[unit->seg];

	f->file = seg->op->file;
	f->unit = u;
	f->p2p_err = 0;
	f->offset = seg->offset + (off_t)unit->at;
	f->bytes = unit->bytes;
	f->mem = seg->host ? seg->host + unit->at : pl_fill_slot(job, u);
	f->direct = false;
	f->before = 0;
	f->span = f->bytes;
	f->path = seg->host ? PEERLANE_PATH_MAPPED : PEERLANE_PATH_COPY;
	f->durable = seg->op->flags & PEERLANE_DURABLE;
	f->may_map = !f->durable && !seg->op->plain_write;
	f->mapped = 0;
	f->got = 0;
}

static void make_direct(struct pl_fill *f)
{
	unsigned int mask = f->file->align - 1;

	f->direct = true;
	f->before = (unsigned int)f->offset & mask;
	f->span = (f->before + f->bytes + mask) & ~(size_t)mask;
	if (f->path == PEERLANE_PATH_COPY)
		f->path = PEERLANE_PATH_DIRECT;
}

static struct pl_slot *slot_of(const struct pl_job *job, unsigned int u)
{
	return &job->slots[u % job->nr_slots];
}

bool pl_fill_may_p2p(const struct pl_job *job, unsigned int u)
{
	const struct pl_unit *unit = &job->units[u];
	const struct pl_seg *seg = &job->segs[unit->seg];
	size_t start = (size_t)seg->offset + unit->at;

	return seg->p2p && pl_p2p_alive(seg) &&
	       !((start | unit->bytes) & (pl_p2p_block(seg->op->file, job->op) - 1));
}

static void make_p2p(const struct pl_job *job, struct pl_fill *f)
{
	const struct pl_unit *unit = &job->units[f->unit];

	f->mem = job->segs[unit->seg].p2p + unit->at;
	f->path = PEERLANE_PATH_P2P;
	make_direct(f);
}

void pl_fill_leave_p2p(struct pl_job *job, struct pl_fill *f, int err)
{
	const struct pl_unit *unit = &job->units[f->unit];
	struct pl_seg *seg = &job->segs[unit->seg];

	err = pl_p2p_failed(job->ctx, seg, err);
	slot_of(job, f->unit)->p2p = false;
	plan_common(job, f->unit, f);
	f->p2p_err = err;
	if (want_direct(job, seg, f))
		make_direct(f);
}

void pl_fill_plan(struct pl_job *job, unsigned int u, struct pl_fill *f)
{
	struct pl_slot *slot = slot_of(job, u);
	bool direct;

	plan_common(job, u, f);
	direct = want_direct(job, &job->segs[job->units[u].seg], f);
	/* Of a write it was settled before its copy, see pipe.c. */
	if (job->op == PEERLANE_READ)
		slot->p2p = direct && pl_fill_may_p2p(job, u);
	if (slot->p2p)
		make_p2p(job, f);
	else if (direct)
		make_direct(f);
}

void pl_fill_plan_direct(struct pl_job *job, unsigned int u, struct pl_fill *f)
{
	plan_common(job, u, f);
	if (slot_of(job, u)->p2p)
		make_p2p(job, f);
	else
		make_direct(f);
}

bool pl_fill_join(struct pl_fill *f, const struct pl_fill *next)
{
	if (f->direct || next->direct || f->file != next->file || f->durable != next->durable ||
	    f->may_map != next->may_map || f->mem + f->bytes != next->mem ||
	    f->offset + (off_t)f->bytes != next->offset)
		return false;
	f->bytes += next->bytes;
	f->span += next->bytes;
	return true;
}

size_t pl_fill_got(const struct pl_fill *f, size_t result)
{
	if (result <= f->before)
		return 0;
	result -= f->before;
	return result < f->bytes ? result : f->bytes;
}

static size_t read_direct(const struct pl_fill *f, int *err)
{
	ssize_t n;

	do {
		n = pread(f->file->fd_direct, f->mem - f->before, f->span,
			  f->offset - (off_t)f->before);
	} while (n < 0 && errno == EINTR);
	*err = n < 0 ? -errno : 0;
	return n < 0 ? 0 : pl_fill_got(f, (size_t)n);
}

static size_t read_plain(int fd, const struct pl_fill *f, size_t got, int *err)
{
	ssize_t n;

	*err = 0;
	while (got < f->bytes) {
		n = pread(fd, f->mem + got, f->bytes - got, f->offset + (off_t)got);
		if (n > 0) {
			got += (size_t)n;
		} else if (n == 0) {
			break;
		} else if (errno != EINTR) {
			*err = -errno;
			break;
		}
	}
	return got;
}

/* The same by way of a small buffer that stays in this core's cache, see nt_copy.h. */
static size_t read_past_cache(int fd, const struct pl_fill *f, size_t got, int *err)
{
	static __thread char bounce[BOUNCE_BYTES] __attribute__((aligned(4096)));
	ssize_t n;

	*err = 0;
	while (got < f->bytes) {
		size_t want = f->bytes - got < BOUNCE_BYTES ? f->bytes - got : BOUNCE_BYTES;

		n = pread(fd, bounce, want, f->offset + (off_t)got);
		if (n > 0) {
			pl_nt_copy(f->mem + got, bounce, (size_t)n);
			got += (size_t)n;
		} else if (n == 0) {
			break;
		} else if (errno != EINTR) {
			*err = -errno;
			break;
		}
	}
	pl_nt_fence();
	return got;
}

bool pl_fill_ahead(const struct peerlane_file *file, char *mem, size_t bytes, off_t offset)
{
	struct pl_fill f = { .mem = mem, .bytes = bytes, .offset = offset };
	int err;

	/* Not past the caches: there are so many pieces that one has left them when it is copied. */
	return read_plain(file->fd, &f, 0, &err) == bytes;
}

static size_t write_plain(int fd, const struct pl_fill *f, size_t got, int *err)
{
	struct iovec iov;
	ssize_t n;

	*err = 0;
	while (got < f->bytes) {
		iov.iov_base = f->mem + got;
		iov.iov_len = f->bytes - got;
		n = pwritev2(fd, &iov, 1, f->offset + (off_t)got, f->durable ? RWF_DSYNC : 0);
		if (n > 0) {
			got += (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			*err = n == 0 ? -EIO : -errno;
			break;
		}
	}
	return got;
}

static size_t write_unit(struct pl_job *job, struct pl_fill *f, size_t got, int *err)
{
	if (f->direct)
		return write_plain(f->file->fd_direct, f, got, err);
	/* Direct writes of this file are in flight: see io_direct.c, which does it later. */
	if (pl_io_writes_direct(f->file) && !job->segs[job->units[f->unit].seg].op->buffered) {
		*err = -EINVAL;
		return got;
	}
	if (!got && f->may_map && f->file->mapped_write) {
		got = f->mapped = pl_wmap_write(f->file, f->mem, f->bytes, f->offset,
						job->mapped && job->nr_ops == 1);
		pl_stat_add(&pl_ctx_stats(job->ctx)->mapped_write_bytes, got);
	}
	if (f->file->fd < 0) {
		*err = -EINVAL;
		return got;
	}
	return write_plain(f->file->fd, f, got, err);
}

static size_t sync_staged(struct pl_job *job, struct pl_fill *f, size_t got, int *err)
{
	if (f->file->callbacks) {
		got = pl_file_ops_io(f->file, job->op, f->mem, f->bytes, f->offset, got, err);
		if (!*err && f->durable)
			*err = pl_file_datasync(f->file);
		return got;
	}
	if (job->op == PEERLANE_WRITE)
		return write_unit(job, f, got, err);
	*err = 0;
	if (f->direct && !got)
		got = read_direct(f, err);
	/* A short direct read is the end of the file or a device error in the middle: the page
	 * cache tells which, and how far the good bytes reach. */
	if (got == f->bytes)
		return got;
	if (f->file->fd < 0) {
		/* Only O_DIRECT could be had, and this memory is not aligned for it. */
		if (!f->direct)
			*err = -EINVAL;
		return got;
	}
	if (job->past_cache && f->bytes >= BOUNCE_BYTES && f->path == PEERLANE_PATH_COPY)
		return read_past_cache(f->file->fd, f, got, err);
	return read_plain(f->file->fd, f, got, err);
}

/* The whole unit between the file and GPU memory; a short read is left to the other ways too. */
static int sync_p2p(struct pl_job *job, const struct pl_fill *f)
{
	size_t got;
	int err;

	got = job->op == PEERLANE_WRITE ? write_plain(f->file->fd_direct, f, 0, &err)
					: read_direct(f, &err);
	return got == f->bytes ? 0 : err ? err : -EIO;
}

/* The kernel that serves the stream copies to the slot. Its queue is for one thread at a time, and
 * the last of its marks is never a run's. */
static int fetch_served(struct pl_job *job, const struct pl_copy *copy)
{
	struct pl_mark *mark = job->queue->marks[PL_RUNS - 1];
	uint64_t deadline = pl_deadline_ns(job->ctx);
	struct pl_gpu *gpu = job->ctx->gpu;
	int err, done = 0;

	pthread_mutex_lock(&job->lock);
	while (job->issuing) {
		pthread_mutex_unlock(&job->lock);
		pl_cpu_relax();
		pthread_mutex_lock(&job->lock);
	}
	job->issuing = true;
	pthread_mutex_unlock(&job->lock);
	err = gpu->ops->copy(gpu, job->queue->queue, PL_FROM_GPU, copy, 1, mark);
	while (!err && !(done = gpu->ops->mark_done(gpu, mark)) && pl_now_ns() < deadline)
		pl_cpu_relax();
	pthread_mutex_lock(&job->lock);
	job->issuing = false;
	/* The kernel may still write the slot. */
	if (!err && !done)
		job->lane->lost = true;
	pthread_mutex_unlock(&job->lock);
	return err ? err : done < 0 ? done : done ? 0 : -ETIMEDOUT;
}

/* A write that could not go by p2p has not been copied to its slot. */
static int fetch(struct pl_job *job, const struct pl_fill *f)
{
	const struct pl_unit *unit = &job->units[f->unit];
	struct pl_copy copy = { .dst = f->mem,
				.src = job->segs[unit->seg].addr + unit->at,
				.bytes = f->bytes };
	struct pl_gpu *gpu = job->ctx->gpu;

	if (job->queue)
		return fetch_served(job, &copy);
	return gpu->ops->copy_sync(gpu, copy.dst, copy.src, copy.bytes);
}

size_t pl_fill_sync(struct pl_job *job, struct pl_fill *f, size_t got, int *err)
{
	if (f->path == PEERLANE_PATH_P2P) {
		*err = sync_p2p(job, f);
		if (!*err)
			return f->bytes;
		pl_fill_leave_p2p(job, f, *err);
	}
	if (f->p2p_err && job->op == PEERLANE_WRITE) {
		*err = fetch(job, f);
		if (*err)
			return 0;
	}
	got = sync_staged(job, f, got, err);
	if (f->p2p_err && f->p2p_err != -EFAULT && got == f->bytes)
		pl_p2p_misled(job->ctx, &job->segs[job->units[f->unit].seg], f->p2p_err);
	/* Not the end of the file, and not a full one. */
	if (got < f->bytes && (!*err || *err == -ENOSPC) && pl_file_gone(f->file))
		*err = -ENXIO;
	return got;
}

bool pl_fill_is_plain(const struct pl_seg *seg)
{
	const struct peerlane_file *file = seg->op->file;

	return seg->host && !seg->p2p && seg->bytes <= PLAIN_BYTES && file->fd >= 0 &&
	       !file->want_direct && !file->callbacks;
}

ssize_t pl_fill_plain(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *seg)
{
	struct pl_fill f = { .mem = seg->host, .bytes = seg->bytes, .offset = seg->offset };
	size_t got = read_plain(op->file->fd, &f, 0, &op->err);

	if (!got)
		return op->err;
	pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_MAPPED, got);
	return (ssize_t)got;
}

bool pl_fill_is_p2p(const struct peerlane *ctx, const struct pl_seg *seg)
{
	const struct peerlane_file *file = seg->op->file;

	return seg->p2p && seg->bytes <= P2P_BYTES && file->want_direct && file->fd_direct >= 0 &&
	       !((ctx->opt.flags & PEERLANE_NO_DIRECT) && file->fd >= 0) && pl_p2p_alive(seg) &&
	       !(((size_t)seg->offset | seg->bytes) & (pl_p2p_block(file, PEERLANE_READ) - 1));
}

size_t pl_fill_p2p(struct peerlane *ctx, struct pl_op *op, const struct pl_seg *seg)
{
	ssize_t n = pread(op->file->fd_direct, seg->p2p, seg->bytes, seg->offset);

	if (n != (ssize_t)seg->bytes)
		return 0;
	op->p2p += seg->bytes;
	pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_P2P, seg->bytes);
	return seg->bytes;
}
