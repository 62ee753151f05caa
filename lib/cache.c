// SPDX-License-Identifier: MIT
/* Page cache residency: cachestat, else mincore, else a read that must not wait. */
#include "cache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define PAGE 4096

struct range {
	uint64_t off, len;
};

struct counts {
	uint64_t cache, dirty, writeback, evicted, recently_evicted;
};

/* Linux 6.5. Newer ones answer only to owners and writers of the file. */
static int64_t by_cachestat(int fd, off_t offset, size_t bytes, int64_t *dirty)
{
	struct range r = { .off = (uint64_t)offset, .len = bytes };
	struct counts c;

	if (syscall(SYS_cachestat, fd, &r, &c, 0))
		return -1;
	*dirty = (int64_t)(c.dirty * PAGE);
	return (int64_t)(c.cache * PAGE);
}

/* mincore() answers "all" to those who neither own the file nor may write it. */
static bool mincore_tells(int fd)
{
	struct stat sb;

	return !fstat(fd, &sb) && (sb.st_uid == geteuid() || geteuid() == 0);
}

static int64_t by_mincore(int fd, off_t offset, size_t bytes)
{
	off_t start = offset & ~(off_t)(PAGE - 1);
	size_t len = (size_t)(offset - start) + bytes, pages = (len + PAGE - 1) / PAGE, in = 0;
	unsigned char vec[512];
	char *map;

	if (!mincore_tells(fd))
		return -1;
	map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, start);
	if (map == MAP_FAILED)
		return -1;
	for (size_t i = 0; i < pages; i += sizeof(vec)) {
		size_t n = pages - i < sizeof(vec) ? pages - i : sizeof(vec);

		if (mincore(map + i * PAGE, n * PAGE, vec)) {
			munmap(map, len);
			return -1;
		}
		for (size_t k = 0; k < n; k++)
			in += vec[k] & 1;
	}
	munmap(map, len);
	return (int64_t)(in * PAGE);
}

/* Whether the byte at @offset comes at once: 1, 0, or -1 if the kernel does not tell. */
static int comes_at_once(int fd, off_t offset)
{
	char c;
	struct iovec iov = { .iov_base = &c, .iov_len = 1 };
	ssize_t got = preadv2(fd, &iov, 1, offset, RWF_NOWAIT);

	return got == 1 ? 1 : got < 0 && errno == EAGAIN ? 0 : -1;
}

/* One byte speaks for the range. */
static int64_t by_nowait(int fd, off_t offset, size_t bytes)
{
	int at_once = comes_at_once(fd, offset);

	return at_once > 0 ? (int64_t)bytes : at_once;
}

bool pl_cache_ready(int fd, off_t offset)
{
	return comes_at_once(fd, offset) != 0;
}

int64_t pl_cache_look(int fd, off_t offset, size_t bytes, int64_t *dirty)
{
	int64_t in;

	*dirty = -1;
	in = by_cachestat(fd, offset, bytes, dirty);
	if (in < 0)
		in = by_mincore(fd, offset, bytes);
	if (in < 0)
		in = by_nowait(fd, offset, bytes);
	return in > (int64_t)bytes ? (int64_t)bytes : in;
}

int64_t pl_cache_resident(int fd, off_t offset, size_t bytes)
{
	int64_t dirty;

	return pl_cache_look(fd, offset, bytes, &dirty);
}
