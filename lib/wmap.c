// SPDX-License-Identifier: MIT
/* Writes by mapping: windows of the file, mapped by the first that needs one, unmapped by the last. */
#include "wmap.h"

#include "cache.h"

#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define WINDOW (64ul << 20)
/* Below this a plain write is over before a mapping is made. */
#define MIN_BYTES (8ul << 20)

struct window {
	char *map;
	size_t left; /* bytes still to pass; unmapped at 0 */
	bool failed;
};

struct pl_wmap {
	int fd;
	off_t start;	      /* of the first window: aligned to WINDOW */
	off_t from, to;	      /* the range that is mapped, inside the file and page aligned */
	pthread_mutex_t lock; /* guards the windows */
	unsigned int nr;
	struct window windows[];
};

/* File systems whose pages are ordinary page cache, shared with write(2). */
static bool fs_fits(unsigned long magic)
{
	return magic == EXT4_SUPER_MAGIC || magic == 0x58465342 || magic == BTRFS_SUPER_MAGIC ||
	       magic == TMPFS_MAGIC;
}

struct pl_wmap *pl_wmap_create(const struct peerlane_file *file, off_t offset, size_t bytes)
{
	int64_t size;
	off_t from = (offset + 4095) & ~4095l, to = offset + (off_t)bytes;
	struct pl_wmap *w;
	unsigned int nr;

	if (bytes < MIN_BYTES || !file->mapped_write || file->want_direct || file->fd < 0 ||
	    !fs_fits(file->magic))
		return NULL;
	size = pl_file_size(file);
	if (to > size)
		to = size;
	to &= ~4095l;
	if (to - from < (off_t)MIN_BYTES)
		return NULL;
	/* A page that is not in memory would be read from the disk first only to be overwritten. */
	if (pl_cache_resident(file->fd, from, (size_t)(to - from)) < (to - from) / 64 * 63)
		return NULL;
	nr = (unsigned int)((to - (from & ~(off_t)(WINDOW - 1)) + (off_t)WINDOW - 1) /
			    (off_t)WINDOW);
	w = calloc(1, sizeof(*w) + nr * sizeof(w->windows[0]));
	if (!w)
		return NULL;
	w->fd = file->fd;
	w->start = from & ~(off_t)(WINDOW - 1);
	w->from = from;
	w->to = to;
	w->nr = nr;
	for (unsigned int i = 0; i < nr; i++) {
		off_t a = w->start + (off_t)(i * WINDOW), b = a + (off_t)WINDOW;

		w->windows[i].left = (size_t)((b < to ? b : to) - (a > from ? a : from));
	}
	pthread_mutex_init(&w->lock, NULL);
	return w;
}

static size_t window_bytes(const struct pl_wmap *w, unsigned int i)
{
	off_t a = w->start + (off_t)(i * WINDOW);

	return (size_t)(w->to - a) < WINDOW ? (size_t)(w->to - a) : WINDOW;
}

void pl_wmap_destroy(struct pl_wmap *w)
{
	if (!w)
		return;
	for (unsigned int i = 0; i < w->nr; i++)
		if (w->windows[i].map)
			munmap(w->windows[i].map, window_bytes(w, i));
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static char *window_get(struct pl_wmap *w, unsigned int i)
{
	struct window *win = &w->windows[i];
	void *map;

	pthread_mutex_lock(&w->lock);
	if (!win->map && !win->failed) {
		map = mmap(NULL, window_bytes(w, i), PROT_READ | PROT_WRITE, MAP_SHARED, w->fd,
			   w->start + (off_t)(i * WINDOW));
		win->failed = map == MAP_FAILED;
		win->map = win->failed ? NULL : map;
	}
	map = win->map;
	pthread_mutex_unlock(&w->lock);
	return map;
}

/* @bytes of the window have passed, written or not. */
static void window_pass(struct pl_wmap *w, unsigned int i, size_t bytes)
{
	struct window *win = &w->windows[i];
	char *map = NULL;

	pthread_mutex_lock(&w->lock);
	win->left -= bytes;
	if (!win->left) {
		map = win->map;
		win->map = NULL;
		win->failed = true;
	}
	pthread_mutex_unlock(&w->lock);
	if (map)
		munmap(map, window_bytes(w, i));
}

/* The part of a write that lies in window @i. Returns the bytes written. */
static size_t write_window(struct pl_wmap *w, unsigned int i, const void *mem, off_t from, off_t to)
{
	char *map = window_get(w, i);
	struct iovec dst, src;
	ssize_t n = 0;

	if (map) {
		dst.iov_base = map + (from - w->start - (off_t)(i * WINDOW));
		src.iov_base = (void *)(uintptr_t)mem;
		dst.iov_len = src.iov_len = (size_t)(to - from);
		n = process_vm_readv(getpid(), &dst, 1, &src, 1, 0);
	}
	window_pass(w, i, (size_t)(to - from));
	return n > 0 ? (size_t)n : 0;
}

size_t pl_wmap_write(struct pl_wmap *w, const void *mem, size_t bytes, off_t offset)
{
	off_t at = offset, to = offset + (off_t)bytes < w->to ? offset + (off_t)bytes : w->to;
	size_t done;

	/* What lies before the mapped range is for the caller, and so all after it. */
	if (offset < w->from)
		return 0;
	while (at < to) {
		unsigned int i = (unsigned int)((at - w->start) / (off_t)WINDOW);
		off_t end = w->start + (off_t)((i + 1) * WINDOW);

		if (end > to)
			end = to;
		done = write_window(w, i, (const char *)mem + (at - offset), at, end);
		at += (off_t)done;
		if (at < end)
			break;
	}
	return (size_t)(at - offset);
}
