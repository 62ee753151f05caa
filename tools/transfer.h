/* SPDX-License-Identifier: MIT */
/* One file to another through GPU memory, reading ahead of the writing. */
#ifndef PL_TRANSFER_H
#define PL_TRANSFER_H

#include "session.h"

struct pl_transfer {
	struct pl_session *session;
	struct peerlane_file *src, *dst;
	int src_fd; /* the same file as src, to find its holes */
	uint64_t bytes;
	size_t chunk_bytes;
	uint64_t copied_bytes; /* out: without holes */
	char error[400];       /* out: what went wrong */
};

/* Returns 0; -ECANCELED after a signal; another negative errno, with the reason in error. */
int pl_transfer_run(struct pl_transfer *t);

#endif
