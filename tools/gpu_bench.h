/* SPDX-License-Identifier: MIT */
/* What the commands of peerlane bench gpu share: options, the shape of a row, passes and the report. */
#ifndef PL_GPU_BENCH_H
#define PL_GPU_BENCH_H

#include "gpu_result.h"
#include "gpu_run.h"
#include "option.h"

#include <peerlane/device.h>

/* Reads and waits end after this in any case. */
#define PL_GPU_TIMEOUT_NS 30000000000u

struct pl_gpu_args {
	struct pl_option_list threads;
	unsigned int queues, depth, proxies, repeat, gpu;
	uint64_t count; /* of the row that was begun last, if it was not given */
	double seconds; /* 0: no limit */
	const char *backend;
	bool json, progress;
};

#define PL_GPU_OPTIONS(type)                                                                       \
	{ "threads",                                                                               \
	  PL_OPTION_COUNTS,                                                                        \
	  offsetof(type, common.threads),                                                          \
	  "N,...",                                                                                 \
	  "Threads of the kernel; several numbers are measured in turn (default: from 512 to "     \
	  "32768 on a GPU, 4 and 8 on the CPU).",                                                  \
	  1,                                                                                       \
	  1 << 20 },                                                                               \
		{ "queues",                                                                        \
		  PL_OPTION_COUNT,                                                                 \
		  offsetof(type, common.queues),                                                   \
		  "N",                                                                             \
		  "Most queue pairs; warps share them evenly (default 128).",                      \
		  1,                                                                               \
		  1024 },                                                                          \
		{ "depth",                                                                         \
		  PL_OPTION_COUNT,                                                                 \
		  offsetof(type, common.depth),                                                    \
		  "N",                                                                             \
		  "Entries of each ring, a power of two (default 1024).",                          \
		  2,                                                                               \
		  32768 },                                                                         \
		{ "proxies",                                                                       \
		  PL_OPTION_COUNT,                                                                 \
		  offsetof(type, common.proxies),                                                  \
		  "N",                                                                             \
		  "Threads of the CPU that serve the queues (default 4 for a GPU, else 1).",       \
		  1,                                                                               \
		  1024 },                                                                          \
		{ "repeat",                                                                        \
		  PL_OPTION_COUNT,                                                                 \
		  offsetof(type, common.repeat),                                                   \
		  "N",                                                                             \
		  "Passes for each row, of which the middle one is shown (default 3).",            \
		  1,                                                                               \
		  100 },                                                                           \
		{ "gpu",                                                                           \
		  PL_OPTION_COUNT,                                                                 \
		  offsetof(type, common.gpu),                                                      \
		  "N",                                                                             \
		  "Use GPU number N (default 0).",                                                 \
		  0,                                                                               \
		  0 },                                                                             \
		{ "backend",                                                                       \
		  PL_OPTION_CHOICE,                                                                \
		  offsetof(type, common.backend),                                                  \
		  "auto|cuda|sim",                                                                 \
		  "CUDA; sim: kernels run on the CPU; or CUDA if it works (default).",             \
		  0,                                                                               \
		  0 },                                                                             \
		{ "progress",                                                                      \
		  PL_OPTION_FLAG,                                                                  \
		  offsetof(type, common.progress),                                                 \
		  NULL,                                                                            \
		  "Say on standard error which row begins, and when.",                             \
		  0,                                                                               \
		  0 },                                                                             \
	{                                                                                          \
		"json", PL_OPTION_FLAG, offsetof(type, common.json), NULL,                         \
			"Print the results as JSON.", 0, 0                                         \
	}

/* More in a pass of a few threads would only take longer. */
#define PL_GPU_COUNT_A_THREAD 1024u

#define PL_GPU_COUNT_OPTION(type)                                                                  \
	{                                                                                          \
		"count", PL_OPTION_SIZE, offsetof(type, common.count), "N",                        \
			"I/O of a pass, shared evenly by the threads (default: 1024 a thread, up " \
			"to millions on a GPU, thousands on the CPU).",                            \
			1, 1e12                                                                    \
	}

#define PL_GPU_SECONDS_OPTION(type)                                                                \
	{                                                                                          \
		"seconds", PL_OPTION_DECIMAL, offsetof(type, common.seconds), "SECONDS",           \
			"Do fewer I/O in a pass than --count says, where they would take longer.", \
			0.001, 1e6                                                                 \
	}

#define PL_GPU_EXITS                                                                               \
	"0  measured, and the data were right\n"                                                   \
	"1  an error, or wrong data\n"                                                             \
	"2  the options are wrong\n"                                                               \
	"130  interrupted by SIGINT (143 by SIGTERM), between two passes"

struct pl_gpu_bench {
	struct pl_gpu_args args; /* with their defaults */
	struct pl_gpu_run run;
	struct pl_report report;
	struct pl_gpu_result result;
	uint64_t most_count; /* I/O of a pass without --count; 0: that says how many */
	uint64_t start_ns;
};

/* gpu_count, cpu_count: most I/O of a pass if the options say nothing. A failure is said. */
int pl_gpu_bench_open(struct pl_gpu_bench *b, const struct pl_gpu_args *args, const char *what,
		      uint64_t gpu_count, uint64_t cpu_count);
/* Prints the report if there was no error. Returns the exit status. */
int pl_gpu_bench_close(struct pl_gpu_bench *b, int err);

/*
 * A row for so many threads: warps are spread over queues. Returns NULL, with words, if they do not fit.
 * Without --count this also says how many I/O a pass of the row has.
 */
struct pl_gpu_row *pl_gpu_bench_row(struct pl_gpu_bench *b, unsigned int threads);
unsigned int pl_gpu_bench_warps(const struct pl_gpu_bench *b, const struct pl_gpu_row *row);
/* I/O of each lane in a pass of the row. */
uint64_t pl_gpu_bench_per_lane(const struct pl_gpu_bench *b, const struct pl_gpu_row *row);
/* Options of a device for a row. */
struct peerlane_device_options pl_gpu_bench_options(const struct pl_gpu_bench *b,
						    const struct pl_gpu_row *row, size_t io_bytes);
/* Tells once, in the report, who serves the queues. */
void pl_gpu_bench_describe(struct pl_gpu_bench *b, const struct peerlane_device *dev);
int pl_gpu_bench_complain(const char *what, int err);

/*
 * Close a device. Returns @err, or -EPROTO if that is 0 and kernels found completions that make no sense, or its
 * server doorbells: then no figure can be trusted.
 */
int pl_gpu_bench_shut(struct peerlane_device *dev, int err);

/* One run of a kernel in which so many I/O must succeed, and nothing may be wrong. */
int pl_gpu_bench_pass(struct pl_gpu_bench *b, const struct pl_gpu_kernel *kernel,
		      unsigned int nr_warps, void *args, uint64_t expected, double *seconds);
/*
 * With --seconds, makes passes of the kernel short enough: *@each, a member of @args, is the I/O of each of @nr lanes
 * or warps in a pass, and is lowered if need be.
 */
int pl_gpu_bench_fit(struct pl_gpu_bench *b, const struct pl_gpu_kernel *kernel,
		     unsigned int nr_warps, void *args, uint64_t *each, uint64_t nr);
/* Several, after one that is not counted; the middle time. Also ended by a signal: -ECANCELED. */
int pl_gpu_bench_passes(struct pl_gpu_bench *b, const struct pl_gpu_kernel *kernel,
			unsigned int nr_warps, void *args, uint64_t expected, double *seconds);
/* The middle one of some times. */
double pl_gpu_bench_middle(double *seconds, unsigned int nr);

#endif
