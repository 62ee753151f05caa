/* SPDX-License-Identifier: MIT */
/* Blocks of a drive from first to last, several commands at a time, seen in order. */
#ifndef PL_NVME_SWEEP_H
#define PL_NVME_SWEEP_H

#include "nvme_drive.h"

/*
 * Sees a piece: the data that were read, or where those to be written go. @at is its first byte,
 * counted from the start of the sweep. Returns 0 or a negative errno, which ends the sweep.
 */
typedef int (*pl_sweep_fn)(void *arg, char *data, uint64_t at, size_t bytes);

struct pl_sweep {
	const struct pl_drive *drive;
	uint8_t opcode;	  /* PL_NVME_READ or PL_NVME_WRITE */
	const char *what; /* a word for it */
	uint64_t block, nr_blocks;
	pl_sweep_fn see;
	void *arg;
	uint64_t done_bytes; /* out: from the start, without a gap */
};

/*
 * Returns 0; -ECANCELED after a signal; what see() returned, which is expected to have said why; any
 * other negative errno was said on standard error.
 */
int pl_sweep_run(struct pl_sweep *s);

#endif
