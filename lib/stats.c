// SPDX-License-Identifier: MIT
/* Counters of a context, kept in a memfd so that "peerlane stat" can read them from outside. */
#include "stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct pl_stats_page *map_memfd(int *fd)
{
	struct pl_stats_page *page;

	*fd = memfd_create(PL_STATS_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	if (ftruncate(*fd, sizeof(*page)) || fcntl(*fd, F_ADD_SEALS, PL_STATS_SEALS))
		goto err_close;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (page == MAP_FAILED)
		goto err_close;
	return page;

err_close:
	close(*fd);
	*fd = -1;
	return NULL;
}

int pl_stats_init(struct pl_stats *st, const char *backend)
{
	struct timespec ts;
	size_t len;

	st->page = map_memfd(&st->fd);
	if (!st->page) {
		/* Without memfd the counters work, only nobody outside sees them. */
		st->page = mmap(NULL, sizeof(*st->page), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (st->page == MAP_FAILED) {
			st->page = NULL;
			return -ENOMEM;
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &ts);
	st->page->version = PL_STATS_VERSION;
	st->page->bytes = sizeof(*st->page);
	st->page->pid = getpid();
	st->page->start_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	len = strnlen(backend, sizeof(st->page->backend) - 1);
	memcpy(st->page->backend, backend, len);
	len = strnlen(program_invocation_short_name, sizeof(st->page->program) - 1);
	memcpy(st->page->program, program_invocation_short_name, len);
	st->page->stats.size = sizeof(st->page->stats);
	memcpy(st->page->magic, PL_STATS_MAGIC, sizeof(PL_STATS_MAGIC));
	return 0;
}

void pl_stats_fini(struct pl_stats *st)
{
	if (st->page)
		munmap(st->page, sizeof(*st->page));
	if (st->fd >= 0)
		close(st->fd);
	st->page = NULL;
	st->fd = -1;
}

static unsigned int log2_of(uint64_t v)
{
	return v < 2 ? 0 : 63u - (unsigned int)__builtin_clzll(v);
}

static struct peerlane_op_stats *direction(struct pl_stats *st, enum peerlane_op op)
{
	return op == PEERLANE_READ ? &st->page->stats.read : &st->page->stats.write;
}

void pl_stats_request(struct pl_stats *st, enum peerlane_op op, size_t bytes, ssize_t result,
		      uint64_t ns)
{
	struct peerlane_op_stats *d = direction(st, op);

	if (result < 0) {
		pl_stat_add(&d->failed, 1);
	} else {
		pl_stat_add(&d->ok, 1);
		pl_stat_add(&d->bytes, (uint64_t)result);
	}
	pl_stat_add(&d->ns_sum, ns);
	pl_stat_add(&d->size_hist[log2_of(bytes)], 1);
	pl_stat_add(&d->lat_hist[log2_of(ns)], 1);
}

void pl_stats_path(struct pl_stats *st, enum peerlane_op op, enum peerlane_path path,
		   uint64_t bytes)
{
	pl_stat_add(&direction(st, op)->path_bytes[path], bytes);
}
