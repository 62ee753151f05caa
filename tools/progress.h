/* SPDX-License-Identifier: MIT */
/* One line on a terminal that says how far long work has come. */
#ifndef PL_PROGRESS_H
#define PL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct pl_progress {
	const char *what;
	uint64_t total_bytes;
	uint64_t start_ns;
	uint64_t shown_ns;
};

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t pl_progress_now(void);

/* Whether progress is shown at all: standard error is a terminal. */
bool pl_progress_wanted(void);

void pl_progress_start(struct pl_progress *p, const char *what, uint64_t total_bytes);
/* Redraws a few times a second at most; cheap when nothing is to be shown. */
void pl_progress_show(struct pl_progress *p, uint64_t done_bytes);
/* The same of rounds. */
void pl_progress_count(const char *what, unsigned int done, unsigned int total);
/* Removes the line, if there is one. */
void pl_progress_clear(void);

#endif
