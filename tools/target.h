/* SPDX-License-Identifier: MIT */
/* The file a bench works on: made, found, and never overwritten when it is somebody else's. */
#ifndef PL_TARGET_H
#define PL_TARGET_H

#include "pattern.h"

struct pl_target_want {
	const char *path;
	uint64_t bytes; /* 0: as large as it is, or the default */
	bool write, create, force, verify, direct, durable;
};

struct pl_target {
	const char *path;
	uint64_t bytes;
	int fd;	      /* buffered: to make, drop and compare it */
	int io_fd;    /* for the library */
	int plain_fd; /* for plain calls */
	bool made;    /* it was not there before */
};

/* Returns 0 or a negative errno; what is wrong was said on standard error. */
int pl_target_open(struct pl_target *t, const struct pl_target_want *want,
		   const struct pl_pattern *p);
void pl_target_close(struct pl_target *t);

/* Empties the file and gives it its size back, so that what is found later was written later. */
int pl_target_clear(const struct pl_target *t, const struct pl_pattern *p);
/* Writes out and drops what the page cache holds of it. */
void pl_target_drop(const struct pl_target *t);
/* Reads it once, so that the page cache holds it. Returns 0 or a negative errno. */
int pl_target_warm(const struct pl_target *t);

#endif
