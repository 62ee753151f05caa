/* SPDX-License-Identifier: MIT */
/*
 * The storm (storm.c) and those who are in it (storm_users.c).
 */
#ifndef STORM_H
#define STORM_H

#include "kept.h"

/* What happened, so that the storm is known to be one. */
enum storm_what {
	STORM_UNPIN,
	STORM_IN_PROGRESS,
	STORM_FREE,
	STORM_CLOSE,
	STORM_UNMAP,
	STORM_FORK,
	STORM_PASS,
	STORM_AGAIN,
	STORM_EXEC,
	STORM_KILL,
	STORM_UNBIND,
	STORM_STAMPED,
	STORM_READ,
	STORM_RECEIVED,
	NR_STORM_COUNTS,
};

struct storm_counts {
	unsigned long nr[NR_STORM_COUNTS];
};

/* All processes have it in common. */
extern struct storm_counts *storm_counts;
void storm_count(unsigned long *what);

struct storm_rng {
	uint64_t state;
};
/* A number below another. */
uint32_t storm_rnd(struct storm_rng *rng, uint32_t below);

/**
 * struct storm_task - what a process of a round needs
 * @rng: its random numbers
 * @fd: socket for descriptors
 * @close_fd: of the others, not to be kept open
 * @ready: where a user tells that a transfer is under way
 * @stop: closed from the other side when the round ends
 */
struct storm_task {
	struct storm_rng rng;
	int fd, close_fd, ready, stop;
};

/* Has memory and a transfer under way, and ends somehow, or waits to be killed. */
void storm_use(const struct storm_task *task);
/* Gets descriptors of users and does something with them. */
void storm_receive(const struct storm_task *task);
/* Takes memory that is free and looks after it, until the round ends. */
void storm_watch(const struct storm_task *task);

#endif
