/* SPDX-License-Identifier: MIT */
/* One measured pass over a file: threads that read or write calls of one size. */
#ifndef PL_LOAD_H
#define PL_LOAD_H

#include "latency.h"
#include "pattern.h"
#include "route.h"

struct pl_load {
	struct pl_session *session;
	struct peerlane_file *file;
	int fd; /* the same file, for plain calls */
	const struct pl_pattern *pattern;
	enum peerlane_op op;
	bool random;
	bool plain;  /* pread and pwrite with host memory, instead of the library */
	bool direct; /* fd has O_DIRECT: plain calls are kept aligned */
	bool verify; /* compare what arrived; the times mean nothing then */
	bool durable;
	uint64_t call_bytes;
	uint64_t file_bytes;
	uint64_t pass_bytes;
	unsigned int nr_threads;
	unsigned int batch; /* requests a thread submits at once; 0: one call after the other */
	double seconds;	    /* end the pass after this; 0: never */
	uint64_t seed;	    /* of random offsets */
	const char *what;   /* for the progress line */
};

struct pl_load_result {
	uint64_t bytes, calls;
	double seconds, cpu_seconds;
	struct pl_latency latency;
	struct pl_route route;
	char error[400];
};

/*
 * Returns 0, also when a signal cut the pass short; a negative errno, with the reason in
 * result->error, when it failed.
 */
int pl_load_run(const struct pl_load *load, struct pl_load_result *result);

#endif
