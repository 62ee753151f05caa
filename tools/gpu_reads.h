/* SPDX-License-Identifier: MIT */
/* Reads by kernels from a device whose blocks hold a known pattern: checked, timed, and one alone. */
#ifndef PL_GPU_READS_H
#define PL_GPU_READS_H

#include "gpu_bench.h"

struct pl_gpu_reads {
	struct pl_gpu_bench *bench;
	struct pl_gpu_row *row;
	struct peerlane_device *dev;
	struct plk_read k;
};

/* What blocks hold, from byte @at on; both are multiples of 8. Much is written by several threads. */
void pl_gpu_pattern(char *to, uint64_t at, size_t bytes);

/* Options of the commands: *bytes gets its default, and what does not fit is said. */
int pl_gpu_reads_check(const struct pl_gpu_bench *b, uint64_t *bytes, uint64_t size,
		       uint64_t spoil);

/* A failure of these is said. The device stays the caller's. */
int pl_gpu_reads_init(struct pl_gpu_reads *r, struct pl_gpu_bench *b, struct pl_gpu_row *row,
		      struct peerlane_device *dev, uint32_t io_bytes);
void pl_gpu_reads_fini(struct pl_gpu_reads *r);

/* Read every block once and compare every byte. */
int pl_gpu_reads_verify(struct pl_gpu_reads *r);
/* Random reads, for the row. */
int pl_gpu_reads_measure(struct pl_gpu_reads *r);
/* The same by warps that read @memory themselves, for the limit of the row. */
int pl_gpu_reads_direct(struct pl_gpu_reads *r, const char *memory);
/* One read after the other, each of a block that the last one named; for the report. */
int pl_gpu_reads_latency(struct pl_gpu_reads *r);
/*
 * For a file that holds something else: some random reads, compared with what pread gives. With @spoil below their
 * number, that one is taken to be wrong.
 */
int pl_gpu_reads_sample(struct pl_gpu_reads *r, int fd, uint64_t spoil);
/* Facts about the data, for the report; @sampled: pl_gpu_reads_sample() is what verifies. */
void pl_gpu_reads_tell(struct pl_gpu_bench *b, uint32_t io_bytes, uint64_t bytes, bool sampled);

#endif
