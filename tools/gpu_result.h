/* SPDX-License-Identifier: MIT */
/* What peerlane bench gpu measured: facts, then a row for each number of threads, told once. */
#ifndef PL_GPU_RESULT_H
#define PL_GPU_RESULT_H

#include "report.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_GPU_ROWS 32

struct pl_gpu_row {
	unsigned int threads, queues, ports, slots;
	uint64_t ios;
	double seconds;
	double limit;  /* I/O a second of what it is compared with; 0: not measured */
	double copied; /* and of the same after all data were copied to the GPU, copy included */
	double spread; /* and of what it is compared with, into as many buffers as there are slots */
};

struct pl_gpu_result {
	const char *what;
	const char *unit;	/* what is counted; NULL: IOPS */
	const char *limit_name; /* of the column */
	const char *limit;	/* what it is, in words */
	uint64_t io_bytes;	/* 0: no data */
	bool emulated;
	bool on_gpu; /* else a share of the limit would compare threads of the CPU with its memory */
	struct pl_gpu_row rows[PL_GPU_ROWS];
	unsigned int nr_rows;
};

double pl_gpu_row_iops(const struct pl_gpu_row *row);
/* The row with the most I/O a second, and the best of the limits; NULL, 0 without rows. */
const struct pl_gpu_row *pl_gpu_result_peak(const struct pl_gpu_result *r);
double pl_gpu_result_limit(const struct pl_gpu_result *r);
/* Fewest threads of a row that has this share of the peak; 0 without rows. */
unsigned int pl_gpu_result_threads(const struct pl_gpu_result *r, double share);

/* Adds the table, what it says, and a picture of I/O a second by threads. */
void pl_gpu_result_report(const struct pl_gpu_result *r, struct pl_report *report);

#endif
