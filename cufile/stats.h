/* SPDX-License-Identifier: MIT */
/* Statistics of the drop-in, kept while a program or the configuration asks for them. */
#ifndef PL_CF_STATS_H
#define PL_CF_STATS_H

#include "cufile.h"

#include <peerlane/peerlane.h>

/* The driver opens with this level configured; it closes; it writes them to the log. */
void pl_cf_stats_open(int level);
void pl_cf_stats_close(void);
void pl_cf_stats_log(void);
/* In a forked child. */
void pl_cf_stats_forget(void);

/* The time, or 0 when nothing is collected. */
uint64_t pl_cf_stats_begin(void);
/* The GPU of memory at @addr, if that is collected; else -1. May ask the driver. */
int pl_cf_stats_gpu(struct peerlane *ctx, const void *addr);
/* A transfer that began at @start; @addr is its memory, of @gpu; @p2p of its bytes went between
 * drive and GPU memory. */
void pl_cf_stats_io(int gpu, enum peerlane_op op, const void *addr, size_t asked, off_t offset,
		    ssize_t result, size_t p2p, uint64_t start);
/* The same for an entry of a batch. */
void pl_cf_stats_batch_io(int gpu, enum peerlane_op op, const void *addr, size_t asked,
			  off_t offset, ssize_t result, size_t p2p, uint64_t start);
/* A submission of @nr entries, with reads and writes or only one of them. */
void pl_cf_stats_batch_submit(unsigned int nr, bool ok, bool mixed, uint64_t start);

/* Counts one call in a member of CUfileStatsLevel1_t. */
#define PL_CF_COUNT(member, ok) pl_cf_stats_count(offsetof(CUfileStatsLevel1_t, member), ok, 1)
#define PL_CF_COUNT_N(member, ok, n) pl_cf_stats_count(offsetof(CUfileStatsLevel1_t, member), ok, n)
void pl_cf_stats_count(size_t member, bool ok, uint64_t n);

#endif
