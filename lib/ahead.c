// SPDX-License-Identifier: MIT
/*
 * Reading ahead by O_DIRECT.
 *
 * Data read ahead of time must be what a read at the time of the call would give. So before the
 * first piece is asked for, the file's times are noted, and only if the last change is old enough
 * for any later one to show in them, however coarse the clock of the file system. When a piece is
 * used, the times must be the same still, which excludes every write and truncation since, and no
 * page of it may be in the page cache, which excludes stores into a mapping, whose time is only
 * noted when a page is first touched. Otherwise it is thrown away and read again.
 */
#include "ahead.h"

#include "cache.h"
#include "context.h"
#include "job.h"
#include "ring.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <time.h>

/* Shorter calls are bound by other things; longer ones keep the device busy by themselves. */
#define MIN_BYTES (256ul << 10)
#define MAX_BYTES (64ul << 20)
/* Reads in a row that make a sequence. */
#define MIN_RUN 2
/* Clocks of file systems tick every 1 to 10 ms; some keep whole seconds only, and are left out. */
#define QUIET_NS 50000000ll

void pl_ahead_init(struct pl_ahead *a)
{
	memset(a, 0, sizeof(*a));
	pthread_mutex_init(&a->lock, NULL);
	a->next = -1;
}

/* File systems of this machine alone, with fine times that every write moves. */
static bool fs_fits(const struct peerlane_file *f)
{
	return f->magic == EXT4_SUPER_MAGIC || f->magic == PL_XFS_MAGIC ||
	       f->magic == BTRFS_SUPER_MAGIC;
}

static bool wanted(const struct peerlane *ctx, const struct pl_seg *seg)
{
	const struct peerlane_file *f = seg->op->file;

	return !seg->host && !f->block && f->fd >= 0 && f->fd_direct >= 0 && fs_fits(f) &&
	       !ctx->ring_why && !(ctx->opt.flags & (PEERLANE_NO_DIRECT | PEERLANE_NO_AHEAD)) &&
	       !(seg->offset & (f->align - 1)) && seg->bytes >= MIN_BYTES &&
	       seg->bytes <= MAX_BYTES;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool unchanged(const struct peerlane_file *f, const struct stat *seen)
{
	struct stat now;

	return !fstat(f->fd, &now) && now.st_size == seen->st_size &&
	       same_time(now.st_mtim, seen->st_mtim) && same_time(now.st_ctim, seen->st_ctim);
}

/* Notes the file's times; false when it was changed too recently for them to tell anything. */
static bool look(const struct peerlane_file *f, struct stat *seen)
{
	struct timespec now;

	if (fstat(f->fd, seen) || clock_gettime(CLOCK_REALTIME, &now))
		return false;
	return (now.tv_sec - seen->st_ctim.tv_sec) * 1000000000ll + now.tv_nsec -
		       seen->st_ctim.tv_nsec >
	       QUIET_NS;
}

/* Lets a piece go whose data is not wanted; what is on its way into the lane is left to end. */
static void drop(struct peerlane *ctx, struct pl_lane *lane)
{
	if (lane->ring && pl_ring_in_flight(lane->ring))
		lane->lost = true;
	pl_lane_give_back(ctx, lane);
}

static void drop_all(struct peerlane *ctx, struct pl_ahead *a)
{
	while (a->nr)
		drop(ctx, a->pieces[--a->nr].lane);
}

/* Waits, within the time-out, for the piece's data. */
static bool arrived(struct peerlane *ctx, const struct pl_ahead_piece *p)
{
	uint64_t deadline = pl_deadline_ns(ctx);
	struct pl_ring_done done;
	int n;

	do {
		n = pl_ring_collect(p->lane->ring, &done, 1, 10000);
	} while (!n && pl_now_ns() < deadline);
	return n == 1 && done.result >= 0 && (size_t)done.result >= p->bytes;
}

void pl_ahead_fini(struct peerlane_file *f)
{
	struct pl_ahead *a = &f->ahead;

	if (!*f->ctx->alive) {
		/* In a forked child: the lanes are the parent's. */
		while (a->nr)
			pl_lane_abandon(a->pieces[--a->nr].lane);
		return;
	}
	for (unsigned int i = 0; i < a->nr; i++)
		arrived(f->ctx, &a->pieces[i]);
	drop_all(f->ctx, a);
	pthread_mutex_destroy(&a->lock);
}

/* Asks for the piece at @offset. Returns false when there is none to ask for. */
static bool ask(struct peerlane *ctx, struct pl_ahead *a, const struct peerlane_file *f,
		off_t offset, size_t bytes)
{
	struct pl_ahead_piece *p = &a->pieces[a->nr];
	struct pl_ring_done done;

	if (offset >= a->seen.st_size)
		return false;
	p->offset = offset;
	p->bytes = (size_t)(a->seen.st_size - offset) < bytes ? (size_t)(a->seen.st_size - offset)
							      : bytes;
	/* Also when only a part is cached: that part is faster from there. */
	if (pl_cache_resident(f->fd, offset, p->bytes))
		return false;
	p->lane = pl_lane_spare(ctx);
	if (!p->lane)
		return false;
	if (!pl_lane_ring(ctx, p->lane) ||
	    pl_ring_push(p->lane->ring, 0, f->fd_direct, p->lane->mem,
			 (p->bytes + f->align - 1) & ~(size_t)(f->align - 1), offset, 0) ||
	    pl_ring_collect(p->lane->ring, &done, 0, 0) < 0) {
		a->refused = true;
		drop(ctx, p->lane);
		return false;
	}
	a->nr++;
	return true;
}

/* Keeps as many pieces on their way as there may be. */
static void ask_more(struct peerlane *ctx, struct pl_ahead *a, const struct pl_seg *seg)
{
	const struct peerlane_file *f = seg->op->file;
	size_t most = ctx->pool.lane_bytes[0];
	size_t bytes = (seg->bytes < most ? seg->bytes : most) & ~((size_t)f->align - 1);

	if (!a->nr && !look(f, &a->seen))
		return;
	while (a->nr < PL_AHEAD_PIECES && !a->refused) {
		struct pl_ahead_piece *last = a->nr ? &a->pieces[a->nr - 1] : NULL;

		if (!ask(ctx, a, f, last ? last->offset + (off_t)last->bytes : a->next, bytes))
			break;
	}
}

/* Moves the pieces with which @seg begins to @out; those after a bad one are dropped. */
static unsigned int claim(struct peerlane *ctx, struct pl_ahead *a, const struct pl_seg *seg,
			  struct pl_ahead_piece *out)
{
	size_t at = 0;
	unsigned int n = 0;

	while (n < a->nr) {
		struct pl_ahead_piece *p = &a->pieces[n];

		if (at == seg->bytes)
			break;
		if (p->offset != seg->offset + (off_t)at || p->bytes > seg->bytes - at ||
		    !arrived(ctx, p) || pl_cache_resident(seg->op->file->fd, p->offset, p->bytes)) {
			while (a->nr > n)
				drop(ctx, a->pieces[--a->nr].lane);
			break;
		}
		at += p->bytes;
		out[n++] = *p;
	}
	/* After the waiting: whatever was changed before is seen now. */
	if (n && !unchanged(seg->op->file, &a->seen)) {
		drop_all(ctx, a);
		return 0;
	}
	memmove(a->pieces, a->pieces + n, (a->nr - n) * sizeof(a->pieces[0]));
	a->nr -= n;
	return n;
}

/* Waits until the copy out of @lane has ended. */
static int copied(struct peerlane *ctx, struct pl_lane *lane, struct pl_mark *mark)
{
	uint64_t deadline = pl_deadline_ns(ctx);
	int done;

	while (!(done = ctx->gpu->ops->mark_done(ctx->gpu, mark))) {
		if (pl_now_ns() > deadline) {
			lane->lost = true;
			return -ETIMEDOUT;
		}
		pl_cpu_relax();
	}
	return done < 0 ? done : 0;
}

/* Copies the pieces to the GPU, all at once, and lets their lanes go. */
static size_t place(struct peerlane *ctx, const struct pl_seg *seg,
		    const struct pl_ahead_piece *pieces, unsigned int nr, int *failed)
{
	struct pl_lane_queue *queues[PL_AHEAD_PIECES] = { NULL };
	int errs[PL_AHEAD_PIECES] = { 0 };
	size_t at = 0, placed = 0;
	bool whole = true;

	for (unsigned int i = 0; i < nr; i++) {
		struct pl_copy copy = { .dst = seg->addr + at,
					.src = pieces[i].lane->mem,
					.bytes = pieces[i].bytes };

		at += copy.bytes;
		errs[i] = pl_lane_queue(ctx, pieces[i].lane, seg->owner, &queues[i]);
		if (!errs[i])
			errs[i] = ctx->gpu->ops->copy(ctx->gpu, queues[i]->queue, PL_TO_GPU, &copy,
						      1, queues[i]->marks[0]);
	}
	for (unsigned int i = 0; i < nr; i++) {
		int err = queues[i] ? copied(ctx, pieces[i].lane, queues[i]->marks[0]) : 0;

		if (err == -ETIMEDOUT)
			*failed = err;
		err = errs[i] ? errs[i] : err;
		if (err && err != -ETIMEDOUT && queues[i])
			pl_lane_queue_drop(ctx, pieces[i].lane, seg->owner);
		whole &= !err;
		if (whole)
			placed += pieces[i].bytes;
		pl_lane_give_back(ctx, pieces[i].lane);
	}
	return placed;
}

size_t pl_ahead_read(struct peerlane *ctx, const struct pl_seg *seg, int *failed)
{
	struct pl_ahead *a = &seg->op->file->ahead;
	struct pl_ahead_piece mine[PL_AHEAD_PIECES];
	unsigned int nr = 0;
	size_t placed;

	*failed = 0;
	/* Several threads on one file do not read it from front to back. */
	if (!wanted(ctx, seg) || pthread_mutex_trylock(&a->lock))
		return 0;
	a->run = seg->offset == a->next ? a->run + 1 : 0;
	a->next = seg->offset + (off_t)seg->bytes;
	if (!a->run)
		drop_all(ctx, a);
	else
		nr = claim(ctx, a, seg, mine);
	if (a->run >= MIN_RUN)
		ask_more(ctx, a, seg);
	pthread_mutex_unlock(&a->lock);
	if (!nr)
		return 0;
	placed = place(ctx, seg, mine, nr, failed);
	pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_DIRECT, placed);
	pl_stat_add(&pl_ctx_stats(ctx)->ahead_bytes, placed);
	return placed;
}
