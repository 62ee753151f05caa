/* SPDX-License-Identifier: MIT */
/* How much of a file the page cache holds. */
#include "resident.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

#define WINDOW_BYTES (1u << 30)

/* Pages of a stretch of the file that are in memory. */
static uint64_t count_pages(int fd, off_t at, size_t bytes, size_t page, unsigned char *pages)
{
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, at);
	uint64_t nr = 0;

	if (map == MAP_FAILED)
		return 0;
	if (!mincore(map, bytes, pages))
		for (size_t i = 0; i < (bytes + page - 1) / page; i++)
			nr += pages[i] & 1;
	munmap(map, bytes);
	return nr;
}

/* For kernels before 6.5: stretch by stretch with mincore. */
static int64_t count_mapped(int fd, uint64_t file_bytes, size_t page)
{
	unsigned char *pages = malloc(WINDOW_BYTES / page);
	uint64_t nr = 0;

	if (!pages)
		return -1;
	for (uint64_t at = 0; at < file_bytes; at += WINDOW_BYTES) {
		uint64_t left = file_bytes - at;

		nr += count_pages(fd, (off_t)at, left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES,
				  page, pages);
	}
	free(pages);
	return (int64_t)(nr * page);
}

int64_t pl_resident_bytes(int fd, uint64_t file_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct {
		uint64_t offset, bytes;
	} range = { 0, 0 }; /* all of it */
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} counts = { 0 };
	int64_t bytes;

	if (!syscall(__NR_cachestat, fd, &range, &counts, 0))
		bytes = (int64_t)(counts.cached * page);
	else if (errno == ENOSYS)
		bytes = count_mapped(fd, file_bytes, page);
	else
		return -1;
	/* The last page is whole in memory and part of the file. */
	return bytes > (int64_t)file_bytes ? (int64_t)file_bytes : bytes;
}
