/* SPDX-License-Identifier: MIT */
/* A measured pass over a namespace: threads with a queue pair each, that keep it full. */
#ifndef PL_NVME_LOAD_H
#define PL_NVME_LOAD_H

#include "latency.h"
#include "nvme_drive.h"
#include "session.h"

struct pl_drive_load {
	const struct pl_drive *drive;
	struct pl_session *session; /* whose GPU memory is used; NULL: host memory */
	uint8_t opcode;		    /* PL_NVME_READ or PL_NVME_WRITE */
	bool random;
	size_t io_bytes;	   /* a multiple of the block size */
	unsigned int depth;	   /* I/O that a thread keeps outstanding */
	unsigned int nr_queues;	   /* threads */
	uint64_t block, nr_blocks; /* where */
	uint64_t nr_ios;	   /* ends after so many; 0: no limit */
	double seconds;		   /* ends after this time; 0: no limit */
	const char *what;	   /* for the progress line */
};

struct pl_drive_result {
	uint64_t ios, bytes;
	double seconds;
	uint64_t least_ns, most_ns;
	struct pl_latency latency;
};

/*
 * Returns 0, also when a signal cut it short; a negative errno, and the reason was said on standard
 * error.
 */
int pl_drive_load_run(const struct pl_drive_load *load, struct pl_drive_result *result);

/* What the commands that measure are told alike. */
struct pl_drive_load_want {
	struct pl_drive_want drive;
	const char *op, *memory, *backend;
	unsigned int gpu;
	uint64_t block, nr_blocks;
	double seconds;
	bool json;
};

/* Options for them; @type has a member want, which has a member drive. */
#define PL_DRIVE_LOAD_OPTIONS(type)                                                                \
	{ "op",                                                                                    \
	  PL_OPTION_CHOICE,                                                                        \
	  offsetof(type, want.op),                                                                 \
	  "read|write|randread|randwrite",                                                         \
	  "What to measure (default randread).",                                                   \
	  0,                                                                                       \
	  0 },                                                                                     \
		{ "block",                                                                         \
		  PL_OPTION_SIZE,                                                                  \
		  offsetof(type, want.block),                                                      \
		  "N",                                                                             \
		  "First block of the range that is used (default 0).",                            \
		  0,                                                                               \
		  0 },                                                                             \
		{ "blocks",                                                                        \
		  PL_OPTION_SIZE,                                                                  \
		  offsetof(type, want.nr_blocks),                                                  \
		  "N",                                                                             \
		  "Blocks of the range (default: up to the end).",                                 \
		  1,                                                                               \
		  0 },                                                                             \
		{ "memory",                                                                        \
		  PL_OPTION_CHOICE,                                                                \
		  offsetof(type, want.memory),                                                     \
		  "host|gpu",                                                                      \
		  "Where the data are: host memory (default), or memory of a GPU.",                \
		  0,                                                                               \
		  0 },                                                                             \
		{ "gpu",                                                                           \
		  PL_OPTION_COUNT,                                                                 \
		  offsetof(type, want.gpu),                                                        \
		  "N",                                                                             \
		  "Use GPU number N (default 0).",                                                 \
		  0,                                                                               \
		  0 },                                                                             \
		{ "backend",                                                                       \
		  PL_OPTION_CHOICE,                                                                \
		  offsetof(type, want.backend),                                                    \
		  "auto|cuda|sim",                                                                 \
		  "GPU back end: CUDA, the simulator, or CUDA if it works (default).",             \
		  0,                                                                               \
		  0 },                                                                             \
		{ "json",                                                                          \
		  PL_OPTION_FLAG,                                                                  \
		  offsetof(type, want.json),                                                       \
		  NULL,                                                                            \
		  "Print the results as JSON.",                                                    \
		  0,                                                                               \
		  0 },                                                                             \
		{ "nsid", PL_OPTION_COUNT,	    offsetof(type, want.drive.nsid),               \
		  "N",	  "Namespace (default 1).", 1,                                             \
		  0 },                                                                             \
		{ "timeout",                                                                       \
		  PL_OPTION_DECIMAL,                                                               \
		  offsetof(type, want.drive.timeout),                                              \
		  "SECONDS",                                                                       \
		  "How long a command may take (default 30).",                                     \
		  0.001,                                                                           \
		  86400 },                                                                         \
	{                                                                                          \
		"yes-destroy-data", PL_OPTION_TEXT, offsetof(type, want.drive.serial), "SERIAL",   \
			"Needed to write: the serial number of the controller.", 0, 0              \
	}

/* A drive, and a GPU where one is wanted. */
struct pl_drive_bench {
	struct pl_drive drive;
	struct pl_session session;
	struct pl_drive_load load; /* all but size, depth, queues and ends */
};

/* What failed was said on standard error; returns 0 or a negative errno. */
int pl_drive_bench_open(struct pl_drive_bench *b, const char *address,
			const struct pl_drive_load_want *want);
void pl_drive_bench_close(struct pl_drive_bench *b);
/* Says what is wrong with a size for this drive; false then. */
bool pl_drive_bench_fits(const struct pl_drive_bench *b, uint64_t io_bytes);

#endif
