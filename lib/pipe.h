/* SPDX-License-Identifier: MIT */
/* The passage of units through slots, for those who move them (party.c). Lock held throughout. */
#ifndef PL_PIPE_H
#define PL_PIPE_H

#include "job.h"

/* Small units a participant takes at once. */
#define PL_TAKE 16

struct pl_slot *pl_pipe_slot(struct pl_job *job, unsigned int u);
struct pl_seg *pl_pipe_seg(struct pl_job *job, unsigned int u);

/* Takes up to PL_TAKE units for the file side. Returns how many are in @list. */
unsigned int pl_pipe_take(struct pl_job *job, unsigned int *list);
/* The file side is done with unit @u: @got bytes of it are good. */
void pl_pipe_filled(struct pl_job *job, unsigned int u, enum peerlane_path path, size_t got,
		    int err);
/* Gives copies to the driver, if there are any; the lock is dropped meanwhile. */
bool pl_pipe_issue(struct pl_job *job);
/* Looks which copies have ended; the lock is dropped meanwhile. */
bool pl_pipe_poll(struct pl_job *job);
/* The copies of run @i have ended; its units go on. */
void pl_pipe_run_ended(struct pl_job *job, uint8_t i, int err, int cuda);
/* Wakes those who wait for something to have moved. */
void pl_pipe_moved(struct pl_job *job);
/* Tells of the requests that have ended; the lock is dropped meanwhile. Their owner must not hear of
 * them late: whoever ended units calls it before waiting or leaving. */
void pl_pipe_report(struct pl_job *job);
/* Ends unit @u: @got bytes of it are good. */
void pl_pipe_finish(struct pl_job *job, unsigned int u, size_t got, int err, int cuda);

#endif
