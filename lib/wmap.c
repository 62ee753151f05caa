// SPDX-License-Identifier: MIT
/* Writes by mapping: windows of the file, mapped when first needed and kept with its handle. */
#include "wmap.h"

#include "cache.h"
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PAGE 4096l
/* Where windows begin, and the most one covers. */
#define WINDOW (16l << 30)
#define MIN_WINDOW (2l << 20)
/* A window makes room for another part of the file only after this much was written, in it or
 * past it: mapping and unmapping must stay rare. */
#define WORTH_BYTES (64ul << 20)
/* The largest folio there is likely to be. */
#define FOLIO (2l << 20)
/* What pl_wmap_fits() makes ready at once. The rest is in the way of those who write it. */
#define READY (16l << 20)
/* Over pages that were written back, shorter ones are faster the plain way. */
#define MIN_CLEAN (64ul << 10)
/* Where the times cannot be set each write costs a plain one, so shorter ones are plain ones. */
#define MIN_WITHOUT_TIMES (64ul << 10)

/* A mapped window. */
struct pl_wmap {
	unsigned int users; /* one is the file; atomic */
	char *map;
	off_t start;
	size_t bytes;
	size_t passed; /* see WORTH_BYTES; under the lock of the file's mappings */
};

void pl_wmaps_init(struct pl_wmaps *maps)
{
	pthread_mutex_init(&maps->lock, NULL);
}

static void put(struct pl_wmap *w)
{
	if (!w || __atomic_sub_fetch(&w->users, 1, __ATOMIC_ACQ_REL))
		return;
	munmap(w->map, w->bytes);
	free(w);
}

void pl_wmaps_fini(struct pl_wmaps *maps, bool forked)
{
	for (int i = 0; i < PL_WMAPS; i++) {
		if (forked)
			free(maps->list[i]);
		else
			put(maps->list[i]);
		maps->list[i] = NULL;
	}
	pthread_mutex_destroy(&maps->lock);
}

bool pl_wmap_possible(int fd, unsigned long magic)
{
	int seals;

	/* File systems whose pages are ordinary page cache, shared with write(2). */
	if (magic != EXT4_SUPER_MAGIC && magic != PL_XFS_MAGIC && magic != BTRFS_SUPER_MAGIC &&
	    magic != TMPFS_MAGIC)
		return false;
	/* A memfd that may still be sealed could not be while it is mapped. */
	seals = fcntl(fd, F_GET_SEALS);
	return seals < 0 || (seals & F_SEAL_SEAL);
}

/* Whether write(2) would take privileges away from the file. */
static bool privileged(int fd, const struct stat *sb)
{
	if (sb->st_mode & (S_ISUID | S_ISGID))
		return true;
	return (sb->st_mode & 0111) && fgetxattr(fd, "security.capability", NULL, 0) >= 0;
}

/* Whether [offset, end) is in the file as it is now. Sets its size. */
static bool inside(struct peerlane_file *f, off_t end, off_t *size)
{
	struct stat sb;

	if (!f->mapped_write || __atomic_load_n(&f->wmaps.refused, __ATOMIC_RELAXED) ||
	    fstat(f->fd, &sb) || end > sb.st_size || privileged(f->fd, &sb))
		return false;
	*size = sb.st_size;
	return true;
}

/* Bytes of the pages of [offset, end) that are not in memory, and of those that are but are not
 * dirty. */
static void look(struct peerlane_file *f, off_t offset, off_t end, int64_t *absent, int64_t *clean)
{
	off_t a = offset & -PAGE, b = (end + PAGE - 1) & -PAGE;
	int64_t dirty, in = pl_cache_look(f->fd, a, (size_t)(b - a), &dirty);

	*absent = in < 0 ? b - a : b - a - in;
	/* Pages of tmpfs are never written back, and never said to be dirty. */
	*clean = f->magic == TMPFS_MAGIC ? 0 : b - a - *absent - (dirty < 0 ? 0 : dirty);
}

/* A limit that a mapping would use up for the program, or that it would get around. */
static bool limited(void)
{
	struct rlimit as, fsize;

	return getrlimit(RLIMIT_AS, &as) || as.rlim_cur != RLIM_INFINITY ||
	       getrlimit(RLIMIT_FSIZE, &fsize) || fsize.rlim_cur != RLIM_INFINITY;
}

static struct pl_wmap *map(int fd, off_t start, off_t size)
{
	struct pl_wmap *w = calloc(1, sizeof(*w));
	off_t bytes = MIN_WINDOW;
	void *p;

	if (!w)
		return NULL;
	/* Doubling: a file that grows is not mapped anew for every piece. */
	while (bytes < WINDOW && bytes < size - start)
		bytes *= 2;
	/* In a program that locks all its memory the mapping must not bring in the file: nothing
	 * is brought in for PROT_NONE. */
	p = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, start);
	if (p == MAP_FAILED)
		goto err_free;
	munlock(p, (size_t)bytes);
	madvise(p, (size_t)bytes, MADV_DONTDUMP);
	/* A child would keep the pages, and need not. */
	if (madvise(p, (size_t)bytes, MADV_DONTFORK) ||
	    mprotect(p, (size_t)bytes, PROT_READ | PROT_WRITE))
		goto err_unmap;
	w->users = 1;
	w->map = p;
	w->start = start;
	w->bytes = (size_t)bytes;
	return w;

err_unmap:
	munmap(p, (size_t)bytes);
err_free:
	free(w);
	return NULL;
}

/* Whether @w may make room for another window. */
static bool worn(const struct pl_wmap *w, off_t start)
{
	return !w || w->start == start || w->passed >= WORTH_BYTES;
}

/* The window with [offset, end), which lies in the file of @size; with @make it is mapped if it
 * is not. NULL: not to be had now. */
static struct pl_wmap *get(struct peerlane_file *f, off_t offset, off_t end, off_t size, bool make)
{
	off_t start = offset & -WINDOW;
	struct pl_wmap **at = &f->wmaps.list[offset / WINDOW % PL_WMAPS], *w, *old = NULL;

	pthread_mutex_lock(&f->wmaps.lock);
	w = *at;
	if (w)
		w->passed += (size_t)(end - offset);
	if (!w || w->start != start || end > start + (off_t)w->bytes) {
		old = w;
		w = make && worn(old, start) && !limited() ? map(f->fd, start, size) : NULL;
		if (w)
			*at = w;
		else
			old = NULL;
	}
	if (w)
		__atomic_fetch_add(&w->users, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&f->wmaps.lock);
	put(old);
	return w;
}

/*
 * Writing back protects pages where they are mapped. Each would then cost a fault of its own, and
 * ext4 looks at the whole folio in each: for 1 MiB seven times a plain write. Where a folio is not
 * mapped at all, one fault maps it whole. So what is not dirty is taken out of the mapping, before
 * whoever writes it makes it dirty and this can no longer be seen.
 */
static void unprotect(struct pl_wmap *w, off_t offset, off_t end)
{
	off_t a = (offset - w->start) & -FOLIO, b = (end - w->start + FOLIO - 1) & -FOLIO;

	if (b > (off_t)w->bytes)
		b = (off_t)w->bytes;
	madvise(w->map + a, (size_t)(b - a), MADV_DONTNEED);
}

bool pl_wmap_fits(struct peerlane_file *f, off_t offset, size_t bytes)
{
	off_t end = offset + (off_t)bytes, size;
	int64_t absent, clean;
	struct pl_wmap *w;

	if (!inside(f, end, &size))
		return false;
	look(f, offset, end, &absent, &clean);
	if (absent > (int64_t)bytes / 64)
		return false;
	if (end - (offset & -WINDOW) > WINDOW)
		end = (offset & -WINDOW) + WINDOW;
	if (end > offset + READY)
		end = offset + READY;
	w = clean ? get(f, offset, end, size, false) : NULL;
	if (w) {
		unprotect(w, offset, end);
		put(w);
	}
	return true;
}

void pl_wmap_prepare(struct peerlane_file *f, off_t offset, size_t bytes)
{
	off_t end = offset + (off_t)bytes, size, a = offset & -PAGE;
	int64_t absent, clean;
	struct pl_wmap *w;

	if (end - (offset & -WINDOW) > WINDOW || !inside(f, end, &size))
		return;
	look(f, offset, end, &absent, &clean);
	/* A page that is not in memory would be read. */
	w = absent ? NULL : get(f, offset, end, size, true);
	if (!w)
		return;
	madvise(w->map + (a - w->start), (size_t)(end - a), MADV_POPULATE_WRITE);
	put(w);
}

static size_t copy(struct peerlane_file *f, struct pl_wmap *w, const void *mem, off_t offset,
		   off_t end)
{
	struct iovec dst = { .iov_base = w->map + (offset - w->start),
			     .iov_len = (size_t)(end - offset) };
	struct iovec src = { .iov_base = (void *)(uintptr_t)mem,
			     .iov_len = (size_t)(end - offset) };
	ssize_t n = process_vm_readv(getpid(), &dst, 1, &src, 1, 0);

	if (n < 0 && (errno == EPERM || errno == ENOSYS))
		__atomic_store_n(&f->wmaps.refused, true, __ATOMIC_RELAXED);
	return n > 0 ? (size_t)n : 0;
}

size_t pl_wmap_write(struct peerlane_file *f, const void *mem, size_t bytes, off_t offset,
		     bool shared)
{
	off_t end = offset + (off_t)bytes, size;
	int64_t absent, clean;
	struct pl_wmap *w;
	size_t n = 0;
	bool take;

	if (!bytes || (bytes < MIN_WITHOUT_TIMES &&
		       __atomic_load_n(&f->wmaps.times_refused, __ATOMIC_RELAXED)))
		return 0;
	/* What lies past the end of a window is left to the caller: that is rare. */
	if (end - (offset & -WINDOW) > WINDOW)
		end = (offset & -WINDOW) + WINDOW;
	if (!inside(f, end, &size))
		return 0;
	look(f, offset, end, &absent, &clean);
	/* A page that is not in memory would be read only to be overwritten. */
	take = !absent && (!clean || bytes >= MIN_CLEAN);
	w = get(f, offset, end, size, take);
	if (!w)
		return 0;
	/* Of a shared write one piece does it for a whole folio: done by each, every one would undo
	 * what the others have mapped meanwhile. */
	if (clean && (!shared || !(offset & (FOLIO - 1))))
		unprotect(w, offset, end);
	if (take)
		n = copy(f, w, mem, offset, end);
	put(w);
	return n;
}

void pl_wmap_touch(const struct pl_touch *t)
{
	const struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	bool *refused = &t->file->wmaps.times_refused;
	char byte;
	ssize_t n;

	if (!__atomic_load_n(refused, __ATOMIC_RELAXED)) {
		if (!futimens(t->file->fd, now))
			return;
		/* Only the owner may. Who may write can still write a byte. */
		__atomic_store_n(refused, true, __ATOMIC_RELAXED);
	}
	/* From the file: the memory it came from is not ours to look at, and may be gone. */
	if (pread(t->file->fd, &byte, 1, t->at) != 1)
		return;
	do {
		n = pwrite(t->file->fd, &byte, 1, t->at);
	} while (n < 0 && errno == EINTR);
}
