// SPDX-License-Identifier: MIT
/*
 * Reading ahead.
 *
 * Data read ahead of time must be what a read at the time of the call would give. Before the first piece is asked for,
 * the state of the file is noted, which takes that nobody has it open for writing (steady.h). When a piece is used, the
 * file must be in that state still. Otherwise all pieces are thrown away and read again.
 */
#include "ahead.h"

#include "cache.h"
#include "context.h"
#include "place.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <unistd.h>

/* Shorter calls are bound by other things; longer ones keep all busy by themselves. */
#define MIN_BYTES (256ul << 10)
#define MAX_BYTES (64ul << 20)
/* Reads in a row that make a sequence; twice as many each time that nobody wanted what was read ahead. */
#define MIN_RUN 2u
#define MAX_RUN 1024u
/* Calls of several threads may be so many out of turn. */
#define OUT_OF_TURN 16
/* Hints that found no room, one after the other, until what was asked for is given up. */
#define MAX_CROWDED 64u
/* Fewer workers than this fill no faster than the caller does by itself. */
#define MIN_WORKERS 4u

void pl_ahead_init(struct pl_ahead *a)
{
	memset(a, 0, sizeof(*a));
	pl_lock_init(&a->lock);
	a->next = -1;
	a->need = MIN_RUN;
}

/* File systems of this machine alone, with fine times that every write moves. */
static bool fs_fits(const struct peerlane_file *f)
{
	return f->magic == EXT4_SUPER_MAGIC || f->magic == PL_XFS_MAGIC ||
	       f->magic == BTRFS_SUPER_MAGIC;
}

static bool fits(const struct peerlane_file *f, size_t bytes)
{
	return !f->block && f->fd >= 0 && !f->writable && fs_fits(f) &&
	       !(f->ctx->opt.flags & PEERLANE_NO_AHEAD) && bytes >= MIN_BYTES && bytes <= MAX_BYTES;
}

static bool device_fits(const struct peerlane_file *f, off_t offset)
{
	return f->fd_direct >= 0 && !f->ahead.refused && !f->ctx->ring_why &&
	       !(f->ctx->opt.flags & PEERLANE_NO_DIRECT) && !(offset & (f->align - 1));
}

static bool cache_fits(struct peerlane_file *f)
{
	return !f->want_direct && f->ctx->opt.nr_threads >= MIN_WORKERS &&
	       !(f->ctx->opt.flags & PEERLANE_SAVE_CPU);
}

/* Drops the pieces that end before @offset and nobody has claimed, and that were guessed unless @told; lock held. */
static void drop(struct peerlane_file *f, off_t offset, bool told)
{
	struct pl_ahead *a = &f->ahead;
	bool any = false;

	for (unsigned int i = 0; i < PL_AHEAD_PIECES; i++) {
		struct pl_piece *p = &a->pieces[i];
		enum pl_piece_state state = pl_piece_state(p);

		if (state == PL_PIECE_NONE || state == PL_PIECE_LEFT || p->claimed ||
		    (p->told && !told) || p->offset + (off_t)p->bytes > offset)
			continue;
		any |= !p->told;
		pl_piece_drop(p, f->ctx);
	}
	if (any && a->need < MAX_RUN)
		a->need *= 2;
}

static void drop_all(struct peerlane_file *f)
{
	drop(f, INT64_MAX, true);
	f->ahead.run = 0;
}

void pl_ahead_fini(struct peerlane_file *f)
{
	struct pl_ahead *a = &f->ahead;

	if (!*f->ctx->alive) {
		/* In a forked child: the lanes are the parent's, and so is the watch. */
		for (unsigned int i = 0; i < PL_AHEAD_PIECES; i++)
			if (a->pieces[i].lane)
				pl_lane_abandon(a->pieces[i].lane);
		return;
	}
	pl_crew_dismiss(f->ctx, &a->crew);
	for (unsigned int i = 0; i < PL_AHEAD_PIECES; i++)
		if (pl_piece_state(&a->pieces[i]) == PL_PIECE_ASKED)
			pl_piece_arrived(&a->pieces[i], f);
	drop_all(f);
	pl_steady_fini(f);
	pthread_mutex_destroy(&a->lock);
}

/* Whether it can be read ahead at all, and how. */
static bool how(struct peerlane_file *f, const struct pl_piece *p, bool *by_device)
{
	int64_t dirty, in = pl_cache_look(f->fd, p->offset, p->bytes, &dirty);

	/* All of it or nothing: what is cached in part is faster the ordinary way. Where the kernel does not count dirty
	 * pages, what it says of the others is slow or a guess. */
	*by_device = !in && device_fits(f, p->offset);
	return *by_device || (in >= (int64_t)p->bytes && dirty >= 0 && cache_fits(f));
}

static struct pl_piece *unused(struct pl_ahead *a)
{
	for (unsigned int i = 0; i < PL_AHEAD_PIECES; i++)
		if (pl_piece_state(&a->pieces[i]) == PL_PIECE_NONE)
			return &a->pieces[i];
	return NULL;
}

static bool all_unused(struct pl_ahead *a)
{
	for (unsigned int i = 0; i < PL_AHEAD_PIECES; i++)
		if (pl_piece_state(&a->pieces[i]) != PL_PIECE_NONE)
			return false;
	return true;
}

/* Calls are cut into equal pieces. */
static size_t piece_bytes(const struct peerlane_file *f, size_t call)
{
	size_t most = f->ctx->pool.lane_bytes[0], nr = (call + most - 1) / most;
	size_t part = (call / nr + f->align - 1) & ~((size_t)f->align - 1);

	return part < most ? part : most;
}

/* Those of the next piece, if calls go on as they are: none passes the end of its call. */
static size_t next_bytes(const struct peerlane_file *f, size_t call)
{
	size_t part = piece_bytes(f, call);
	size_t left = call - (size_t)(f->ahead.tail - f->ahead.next) % call;

	return part < left ? part : left;
}

/* Whether the file's state is known, so that pieces can be asked for; lock held. */
static bool ready(struct peerlane_file *f)
{
	struct pl_ahead *a = &f->ahead;
	int err;

	if (!all_unused(a))
		return !a->stale;
	a->stale = false;
	err = pl_steady_begin(f);
	/* Asked again after twice as many reads. */
	if (err == -EBUSY) {
		a->run = 0;
		if (a->need < MAX_RUN)
			a->need *= 2;
	}
	return !err;
}

/* The piece that begins at @offset; lock held. */
static struct pl_piece *find(struct pl_ahead *a, off_t offset)
{
	for (unsigned int i = 0; i < PL_AHEAD_PIECES; i++) {
		struct pl_piece *p = &a->pieces[i];
		enum pl_piece_state state = pl_piece_state(p);

		if (state != PL_PIECE_NONE && state != PL_PIECE_LEFT && p->offset == offset)
			return p;
	}
	return NULL;
}

/* A piece for up to @bytes at @offset, which is the caller's until ask(); lock held. */
static struct pl_piece *reserve(struct peerlane_file *f, off_t offset, size_t bytes, bool told)
{
	struct pl_ahead *a = &f->ahead;
	size_t room = offset < a->steady.seen.st_size ? (size_t)(a->steady.seen.st_size - offset)
						      : 0;
	struct pl_piece *p = room ? unused(a) : NULL;

	if (!p)
		return NULL;
	p->offset = offset;
	p->bytes = bytes < room ? bytes : room;
	p->claimed = true;
	p->told = told;
	p->turns = a->turns;
	pl_piece_reserve(p);
	return p;
}

/* What takes time, without the lock. */
static int ask_unlocked(struct peerlane_file *f, struct pl_piece *p, bool made)
{
	bool by_device;

	p->lane = pl_lane_spare(f->ctx, made);
	if (!p->lane)
		return -EAGAIN;
	if (!how(f, p, &by_device))
		return -ENODATA;
	if (!by_device)
		return 1;
	return pl_piece_ask(p, f) ? 0 : -ENOSYS;
}

/*
 * Asks for a piece that was reserved, by a lane that is there already if @made. Returns 1 if it is for those who
 * fill, 0 if the device has it, or a negative errno, and the piece is gone: -EAGAIN there are no more lanes now.
 */
static int ask(struct peerlane_file *f, struct pl_piece *p, bool made)
{
	struct pl_ahead *a = &f->ahead;
	int err = ask_unlocked(f, p, made);

	pthread_mutex_lock(&a->lock);
	a->refused |= err == -ENOSYS;
	/* The file has changed, or it was a guess about a run that has ended meanwhile. */
	if (err >= 0 && (a->stale || (!p->told && p->turns != a->turns)))
		err = -ECANCELED;
	if (err == 1)
		pl_ahead_queue(a, p);
	/* It is asked for by another one, or never. */
	if (err < 0 && !p->told && a->tail > p->offset)
		a->tail = p->offset;
	p->claimed = false;
	if (err < 0)
		pl_piece_drop(p, f->ctx);
	pthread_mutex_unlock(&a->lock);
	return err;
}

/* The next piece of the run, if there is to be one; lock held. */
static struct pl_piece *reserve_next(struct peerlane_file *f, size_t call_bytes)
{
	struct pl_ahead *a = &f->ahead;
	struct pl_piece *p;

	if (a->run < a->need || !ready(f))
		return NULL;
	if (a->tail < a->next || all_unused(a))
		a->tail = a->next;
	while ((p = find(a, a->tail)))
		a->tail += (off_t)p->bytes;
	p = reserve(f, a->tail, next_bytes(f, call_bytes), false);
	if (p)
		a->tail += (off_t)p->bytes;
	return p;
}

/* Keeps as many pieces on their way as there may be. */
static void ask_more(struct peerlane_file *f, size_t call_bytes, bool made)
{
	struct pl_ahead *a = &f->ahead;
	unsigned int queued = 0;
	struct pl_piece *p;
	int err = 0;

	while (err >= 0) {
		pthread_mutex_lock(&a->lock);
		p = reserve_next(f, call_bytes);
		pthread_mutex_unlock(&a->lock);
		err = p ? ask(f, p, made) : -ENODATA;
		queued += err == 1;
	}
	if (queued)
		pl_ahead_call(f, queued);
}

/* There was no room for a hint: what nobody came for in a long time goes. */
static void crowded(struct peerlane_file *f)
{
	struct pl_ahead *a = &f->ahead;

	pthread_mutex_lock(&a->lock);
	if (++a->crowded >= MAX_CROWDED) {
		a->crowded = 0;
		drop(f, INT64_MAX, true);
	}
	pthread_mutex_unlock(&a->lock);
}

/* As ask(), for what a stream will read; also 0 if it was asked for before. */
static int ask_told(struct peerlane_file *f, off_t offset, size_t bytes)
{
	struct pl_ahead *a = &f->ahead;
	struct pl_piece *p = NULL;
	int err = -ENODATA;

	pthread_mutex_lock(&a->lock);
	if (find(a, offset)) {
		err = 0;
	} else if (ready(f) && offset < a->steady.seen.st_size) {
		p = reserve(f, offset, bytes, true);
		err = -EAGAIN;
	}
	pthread_mutex_unlock(&a->lock);
	return p ? ask(f, p, true) : err;
}

int pl_ahead_hint(struct peerlane_file *f, off_t offset, size_t bytes)
{
	size_t part, left = bytes;
	unsigned int queued = 0;
	int err = 0;

	if (offset < 0 || !fits(f, bytes))
		return 0;
	for (; left && err >= 0; offset += (off_t)part, left -= part) {
		part = piece_bytes(f, bytes) < left ? piece_bytes(f, bytes) : left;
		err = ask_told(f, offset, part);
		queued += err == 1;
	}
	if (err == -EAGAIN)
		crowded(f);
	if (queued)
		pl_ahead_call(f, queued);
	return err == -EAGAIN ? err : 0;
}

/* Claims the piece that begins at @offset and is no shorter than @least and no longer than @most; from the page cache if
 * @cached, in pinned memory if @pinned. */
static struct pl_piece *claim(struct pl_ahead *a, off_t offset, size_t least, size_t most,
			      bool cached, bool pinned)
{
	struct pl_piece *p;

	pthread_mutex_lock(&a->lock);
	p = find(a, offset);
	if (p && (p->claimed || p->bytes < least || p->bytes > most || (cached && !p->cached) ||
		  (pinned && !p->lane->pinned)))
		p = NULL;
	if (p) {
		p->claimed = true;
		a->need = MIN_RUN;
		a->crowded = 0;
	}
	pthread_mutex_unlock(&a->lock);
	return p;
}

struct pl_piece *pl_ahead_claim(struct peerlane_file *f, off_t offset, size_t bytes)
{
	return claim(&f->ahead, offset, bytes, bytes, true, true);
}

void pl_ahead_stale(struct peerlane_file *f, struct pl_piece *p)
{
	pl_piece_drop(p, f->ctx);
	pthread_mutex_lock(&f->ahead.lock);
	f->ahead.stale = true;
	drop_all(f);
	pthread_mutex_unlock(&f->ahead.lock);
}

struct pl_piece *pl_ahead_take(struct peerlane_file *f, off_t offset, size_t most, bool pinned,
			       bool *stale)
{
	struct pl_piece *p = claim(&f->ahead, offset, 1, most, false, pinned);

	if (!p || (pl_piece_arrived(p, f) && pl_steady_still(f)))
		return p;
	pl_ahead_stale(f, p);
	*stale = true;
	return NULL;
}

/* Notes the read; false if it does not belong to a run. */
static bool in_turn(struct peerlane_file *f, const struct pl_seg *seg)
{
	struct pl_ahead *a = &f->ahead;
	off_t end = seg->offset + (off_t)seg->bytes;
	off_t far = OUT_OF_TURN * (off_t)seg->bytes;
	bool turn;

	pthread_mutex_lock(&a->lock);
	turn = a->next >= 0 && seg->offset - a->next <= far && a->next - seg->offset <= far;
	if (!turn) {
		drop(f, INT64_MAX, false);
		a->run = 0;
		a->turns++;
		a->next = end;
	} else {
		a->run += seg->offset == a->next;
		if (a->next < end)
			a->next = end;
		drop(f, a->next - far, false);
	}
	pthread_mutex_unlock(&a->lock);
	return turn;
}

/* Puts in place what there is of it, and asks for what comes after it. */
static void place_all(struct pl_place *w, struct pl_lane_queue *stream)
{
	struct peerlane_file *f = w->seg->op->file;

	do {
		while (pl_place_begin(w))
			;
		if (stream && stream->hint)
			stream->hint(stream);
		else
			ask_more(f, w->seg->bytes, stream != NULL);
		if (w->nr) {
			pl_ahead_help(f);
			pl_place_end(w);
		}
	} while (w->nr || (w->placed && pl_place_begin(w)));
}

size_t pl_ahead_read(struct peerlane *ctx, const struct pl_seg *seg, int *err)
{
	struct pl_place w = { .ctx = ctx, .seg = seg };
	struct pl_lane_queue *stream = seg->op->queue;
	struct peerlane_file *f = seg->op->file;

	*err = 0;
	if (seg->host || !fits(f, seg->bytes) || (!(stream && stream->hint) && !in_turn(f, seg)))
		return 0;
	if (!stream)
		__atomic_fetch_add(&f->ahead.readers, 1, __ATOMIC_RELAXED);
	place_all(&w, stream);
	if (!stream)
		__atomic_fetch_sub(&f->ahead.readers, 1, __ATOMIC_RELAXED);
	*err = w.err;
	pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_DIRECT, w.by_device);
	pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_COPY, w.placed - w.by_device);
	pl_stat_add(&pl_ctx_stats(ctx)->ahead_bytes, w.placed);
	return w.placed;
}

/* Whether anybody writes to the file, if nothing is known of that yet. */
static int ask_steady(struct peerlane_file *f)
{
	struct pl_ahead *a = &f->ahead;
	int err;

	pthread_mutex_lock(&a->lock);
	err = all_unused(a) ? pl_steady_begin(f) : 0;
	pthread_mutex_unlock(&a->lock);
	return err;
}

const char *pl_ahead_why(const struct pl_seg *seg)
{
	struct peerlane_file *f = seg->op->file;
	int err;

	if (f->ctx->opt.flags & PEERLANE_NO_AHEAD)
		return "switched off by the options";
	if (f->block || f->fd < 0 || !fs_fits(f))
		return "only files on ext4, xfs and btrfs are read ahead";
	if (seg->host)
		return "the file is read straight into memory the CPU can address";
	if (f->writable)
		return "the handle is open for writing: open the file read-only";
	if (!fits(f, seg->bytes))
		return "only requests of 256 KiB to 64 MiB are read ahead";
	if (!device_fits(f, 0) && !cache_fits(f))
		return "it takes O_DIRECT and io_uring, or four worker threads and no O_DIRECT";
	err = ask_steady(f);
	return err ? pl_steady_why(err) : NULL;
}
