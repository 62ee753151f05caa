/* SPDX-License-Identifier: MIT */
/* Counters of live contexts, found in other processes. */
#ifndef PL_STATPAGE_H
#define PL_STATPAGE_H

#include "stats.h"

#include <sys/types.h>

struct pl_statpage {
	pid_t pid;
	ino_t inode; /* names the context as long as it lives */
	struct pl_stats_page page;
};

/*
 * All contexts of process pid, or of every process that may be looked at when pid is 0. The
 * caller frees *out. Returns how many; -ENOMEM; -ESRCH no such process; -EACCES it may not be
 * looked at.
 */
int pl_statpage_find(pid_t pid, struct pl_statpage **out);

#endif
