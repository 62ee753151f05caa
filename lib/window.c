// SPDX-License-Identifier: MIT
/* Windows of the page cache, pinned in place. */
#include "window.h"

#include "cache.h"
#include "context.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* Pinning much more at once was seen never to return; much less costs more per byte. */
#define WINDOW (32ul << 20)
#define MIN_BYTES (64ul << 20)
/* Windows mapped at a time: one being copied, one being pinned, one being released. */
#define IN_FLIGHT 3
/* What was measured grows old, and may have been a bad moment: after so much in place, the end of a read is copied. */
#define AGAIN_AFTER (4ul << 30)
#define AGAIN_BYTES (128ul << 20)
/* Copying faster than this (bytes per microsecond) leaves nothing to gain in place. */
#define FAST_COPY 25000u

_Static_assert(IN_FLIGHT <= PL_RUNS, "one mark for each window");

struct window {
	char *map; /* NULL: not in use */
	size_t map_bytes;
	size_t bytes; /* of the request */
	bool failed;  /* its copy was not even queued whole */
};

struct reader {
	struct peerlane *ctx;
	const struct pl_seg *seg;
	size_t bytes; /* of the segment, from its start */
	struct pl_lane_queue *queue;
	struct window windows[IN_FLIGHT];
	unsigned int oldest, nr;
	size_t placed; /* bytes known to be in GPU memory, from the start */
	bool broken;   /* a window failed: those after it no longer count */
};

bool pl_window_wanted(struct peerlane *ctx, const struct pl_seg *seg, char *why, size_t why_bytes)
{
	const struct peerlane_file *f = seg->op->file;
	uint32_t copy = __atomic_load_n(&ctx->rates.copy, __ATOMIC_RELAXED);
	uint32_t place = __atomic_load_n(&ctx->rates.in_place, __ATOMIC_RELAXED);
	int refused = __atomic_load_n(&ctx->rates.refused, __ATOMIC_RELAXED);

	if (seg->host)
		pl_text(why, why_bytes, "not needed: the CPU can address this memory");
	else if (ctx->opt.flags & PEERLANE_NO_IN_PLACE)
		pl_text(why, why_bytes, "switched off by the options");
	else if (refused)
		pl_text(why, why_bytes, "the driver or kernel refused to pin file pages: %s",
			strerrordesc_np(-refused));
	else if (f->want_direct || f->fd < 0 || f->block)
		pl_text(why, why_bytes, "the file is read with O_DIRECT, or is a device");
	else if (seg->bytes < MIN_BYTES)
		pl_text(why, why_bytes, "not used for requests under %lu MiB", MIN_BYTES >> 20);
	else if (ctx->opt.flags & PEERLANE_SAVE_CPU)
		return true;
	else if (!copy || copy >= FAST_COPY)
		pl_text(why, why_bytes, "copying is at least as fast here; it only saves CPU time");
	else if (place && place < copy)
		pl_text(why, why_bytes, "copying was measured faster here (%u against %u MB/s)",
			copy, place);
	else
		return true;
	return false;
}

void pl_window_note_copy(struct peerlane *ctx, size_t bytes, uint64_t ns)
{
	if (bytes < MIN_BYTES || !ns)
		return;
	__atomic_store_n(&ctx->rates.copy, (uint32_t)(bytes * 1000 / ns), __ATOMIC_RELAXED);
	__atomic_store_n(&ctx->rates.placed, 0, __ATOMIC_RELAXED);
}

/* How much of a read goes in place. */
static size_t share(const struct peerlane *ctx, size_t bytes)
{
	if ((ctx->opt.flags & PEERLANE_SAVE_CPU) ||
	    __atomic_load_n(&ctx->rates.placed, __ATOMIC_RELAXED) < AGAIN_AFTER)
		return bytes;
	return bytes > 2 * AGAIN_BYTES ? bytes - AGAIN_BYTES : 0;
}

/* Waits, within the time-out, until the oldest window was copied, and lets it go. */
static int retire(struct reader *r)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	struct peerlane *ctx = r->ctx;
	struct window *w = &r->windows[r->oldest];
	uint64_t deadline = pl_deadline_ns(ctx);
	int done;

	while (!(done = ctx->gpu->ops->mark_done(ctx->gpu, r->queue->marks[r->oldest]))) {
		if (pl_now_ns() > deadline)
			return -ETIMEDOUT; /* still mapped and pinned: the GPU may be reading it */
		nanosleep(&nap, NULL);
	}
	ctx->gpu->ops->pin_unregister(ctx->gpu, r->seg->gpu, w->map);
	munmap(w->map, w->map_bytes);
	w->map = NULL;
	r->broken |= w->failed || done < 0;
	if (!r->broken)
		r->placed += w->bytes;
	r->oldest = (r->oldest + 1) % IN_FLIGHT;
	r->nr--;
	return done < 0 ? done : 0;
}

/* Maps, pins and starts copying the window that begins at @at in the segment. */
static int start(struct reader *r, size_t at, size_t *next)
{
	struct peerlane *ctx = r->ctx;
	unsigned int i = (r->oldest + r->nr) % IN_FLIGHT;
	struct window *w = &r->windows[i];
	size_t offset = (size_t)r->seg->offset + at, base = offset & ~4095ul;
	size_t end = (offset + WINDOW) & ~(WINDOW - 1);
	struct pl_copy copy;
	int err;

	if (end > (size_t)r->seg->offset + r->bytes)
		end = (size_t)r->seg->offset + r->bytes;
	w->bytes = end - offset;
	w->map_bytes = (end - base + 4095) & ~4095ul;
	if (pl_cache_resident(r->seg->op->file->fd, (off_t)base, w->map_bytes) <
	    (int64_t)w->map_bytes)
		return -EAGAIN;
	w->map = mmap(NULL, w->map_bytes, PROT_READ, MAP_SHARED, r->seg->op->file->fd, (off_t)base);
	if (w->map == MAP_FAILED)
		goto err_none;
	/* Touched before they are pinned: pinning pages that are not there can take for ever. A
	 * file cut short meanwhile is an error here, and no signal, since no CPU code reads. */
	if (madvise(w->map, w->map_bytes, MADV_POPULATE_READ))
		goto err_unmap;
	err = ctx->gpu->ops->pin_register(ctx->gpu, r->seg->gpu, w->map, w->map_bytes);
	if (err) {
		pl_stat_add(&pl_ctx_stats(ctx)->in_place_failures, 1);
		__atomic_store_n(&ctx->rates.refused, err, __ATOMIC_RELAXED);
		pl_log(ctx, 2, "the page cache cannot be pinned in place here (%d): copying", err);
		munmap(w->map, w->map_bytes);
		w->map = NULL;
		return err;
	}
	copy.dst = r->seg->addr + at;
	copy.src = w->map + (offset - base);
	copy.bytes = w->bytes;
	r->nr++;
	*next = at + w->bytes;
	err = ctx->gpu->ops->copy(ctx->gpu, r->queue->queue, PL_TO_GPU, &copy, 1,
				  r->queue->marks[i]);
	w->failed = err != 0;
	return err;

err_unmap:
	munmap(w->map, w->map_bytes);
err_none:
	w->map = NULL;
	return -EAGAIN;
}

/* The windows one after the other; stops at the first that does not go. */
static int read_windows(struct reader *r)
{
	size_t at = 0;
	int err = 0, err2;

	while (at < r->bytes && !err) {
		if (r->nr == IN_FLIGHT)
			err = retire(r);
		if (!err)
			err = start(r, at, &at);
	}
	while (r->nr) {
		err2 = retire(r);
		if (err2 == -ETIMEDOUT)
			return err2;
		err = err ? err : err2;
	}
	return err;
}

/* Bytes that were before the end of the file all the time: a file cut short while it was read
 * gives zeros where nothing was. */
static size_t still_there(const struct pl_seg *seg, size_t placed)
{
	int64_t size = pl_file_size(seg->op->file);

	if (size < seg->offset)
		return 0;
	return placed < (size_t)(size - seg->offset) ? placed : (size_t)(size - seg->offset);
}

size_t pl_window_read(struct peerlane *ctx, const struct pl_seg *seg, int *failed)
{
	struct reader r = { .ctx = ctx, .seg = seg };
	uint64_t began = pl_now_ns();
	struct pl_lane *lane;
	size_t placed;
	int err;

	*failed = 0;
	if (!pl_window_wanted(ctx, seg, NULL, 0))
		return 0;
	r.bytes = share(ctx, seg->bytes);
	if (!r.bytes)
		return 0;
	if (pl_lane_acquire(ctx, 1, 1, &lane))
		return 0;
	err = pl_lane_queue(ctx, lane, seg->owner, &r.queue);
	if (!err)
		err = read_windows(&r);
	*failed = err == -ETIMEDOUT ? err : 0;
	if (err == -ETIMEDOUT)
		lane->lost = true;
	else if (err && err != -EAGAIN)
		pl_lane_queue_drop(ctx, lane, seg->owner);
	pl_lane_release(ctx, lane);
	placed = still_there(seg, r.placed);
	if (placed >= MIN_BYTES)
		__atomic_store_n(&ctx->rates.in_place,
				 (uint32_t)(placed * 1000 / (pl_now_ns() - began + 1)),
				 __ATOMIC_RELAXED);
	__atomic_fetch_add(&ctx->rates.placed, placed, __ATOMIC_RELAXED);
	pl_stats_path(&ctx->stats, PEERLANE_READ, PEERLANE_PATH_IN_PLACE, placed);
	return placed;
}
