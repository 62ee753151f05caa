/* SPDX-License-Identifier: MIT */
/*
 * Counters of a context. They live in one shared page run (a sealed memfd named "peerlane-stats"),
 * so a reader outside the process finds them under /proc/PID/fd and they go with the process.
 */
#ifndef PL_STATS_H
#define PL_STATS_H

#include <peerlane/peerlane.h>

#include <fcntl.h>

#define PL_STATS_MAGIC "PLSTATS"
#define PL_STATS_VERSION 2u
#define PL_STATS_MEMFD "peerlane-stats"
/* The size is final. A reader accepts no page without these seals. */
#define PL_STATS_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What the memfd holds. Counters are updated with relaxed atomics; a reader sees each whole. */
struct pl_stats_page {
	char magic[8];
	uint32_t version;
	uint32_t bytes; /* sizeof(struct pl_stats_page) */
	int32_t pid;
	uint32_t pad;
	uint64_t start_ns; /* CLOCK_MONOTONIC when the context was opened */
	char backend[16];
	char program[64];
	struct peerlane_stats stats;
};

_Static_assert(sizeof(struct peerlane_op_stats) == 1096, "stats layout is read across processes");
_Static_assert(offsetof(struct pl_stats_page, stats) == 112, "stats layout");

struct pl_stats {
	struct pl_stats_page *page;
	int fd;
};

int pl_stats_init(struct pl_stats *st, const char *backend);
void pl_stats_fini(struct pl_stats *st);

static inline void pl_stat_add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static inline void pl_stat_sub(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_sub(counter, n, __ATOMIC_RELAXED);
}

/* One finished request: its result, size and duration. */
void pl_stats_request(struct pl_stats *st, enum peerlane_op op, size_t bytes, ssize_t result,
		      uint64_t ns);
/* Bytes that went by a path. */
void pl_stats_path(struct pl_stats *st, enum peerlane_op op, enum peerlane_path path,
		   uint64_t bytes);

#endif
