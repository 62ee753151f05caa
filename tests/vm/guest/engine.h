/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the library share: a context on the test GPU, files, and what GPU memory must
 * hold.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <pthread.h>

#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include "guest.h"

/* What the library's test of a drive and a GPU reads, once in each context. */
#define TEST_BYTES 16384u
#define FILE_BYTES (4 * MIB + 1000)
#define ROOM (5 * MIB)

/**
 * struct engine - a context with some GPU memory
 * @ctx: context
 * @gpu: memory of ROOM bytes
 * @model: what it must hold
 * @seen: room to look at it
 * @no_p2p: nothing may go by the path p2p; otherwise all must that can
 */
struct engine {
	struct peerlane *ctx;
	char *gpu;
	unsigned char *model;
	unsigned char *seen;
	bool no_p2p;
};

void engine_open(struct engine *e);
void engine_open_depth(struct engine *e, size_t slot_bytes, unsigned int depth);
void engine_close(struct engine *e);
/* New memory instead of the old, which was freed. */
void engine_renew(struct engine *e);

struct peerlane_stats stats_of(struct engine *e);
/* Bytes moved by p2p so far, both ways. */
size_t p2p_bytes(struct engine *e);
/* ...and of these, those written. */
size_t p2p_written(struct engine *e);
/* A file of noise, on the drive and not in the page cache. Returns its content. */
unsigned char *make_file(const char *path, size_t bytes, uint64_t seed);
struct peerlane_file *open_file(struct engine *e, const char *path, int flags);
/* What the library says of p2p for the first @bytes of a file. */
struct peerlane_verdict verdict(struct engine *e, struct peerlane_file *file, enum peerlane_op op,
				size_t bytes);
/* All of GPU memory is as it must be, also beside what was read. */
void check_gpu(struct engine *e, const char *what, size_t n);
/* Transfers of all alignments, and many at once, to and from a file that is made. */
void read_cases(struct engine *e, const char *path);
void write_cases(struct engine *e, const char *path);
void batch_cases(struct engine *e, const char *path);
/* Makes the library's mappings of GPU memory useless, so that transfers fail with EFAULT. Returns
 * how many there were. */
int spoil_mappings(void);
/* Runs a command, which must succeed; its output is printed, and must hold @want. */
void command(const char *line, const char *want);

/* --- engine_freed.c --- */

/**
 * struct later - a thread that frees the memory of a context
 * @e: context
 * @us: after so long
 * @thread: it
 */
struct later {
	struct engine *e;
	unsigned int us;
	pthread_t thread;
};

/* After a random time below @most_us. */
void later_start(struct later *later, struct engine *e, unsigned int most_us);
void later_wait(struct later *later);

/* --- below.c --- */

/**
 * struct below - a file or block device with something below it
 * @path: what to open; it holds data
 * @bytes: its size
 * @grows: a file, which may become longer
 * @reason: in the words of why p2p is refused; NULL: it is not
 * @fix: likewise in what could be done
 * @members: drives that the library tests besides the file
 * @mirrored: written to two drives
 * @drive: serial of the drive that holds it as it is, for a look from outside; or NULL
 * @start: where on that drive
 */
struct below {
	const char *path;
	size_t bytes;
	bool grows;
	const char *reason, *fix;
	unsigned int members;
	bool mirrored;
	const char *drive;
	size_t start;
};

/* Reads and writes by the library, of all alignments and past the end, beside buffered readers
 * and writers: data and path are as they must be. Leaves other content. */
void below_check(const struct below *b);
/* The flags of a file's extents (FIEMAP_EXTENT_*), all together. */
unsigned int extent_flags(const char *path);

/* --- bystander.c --- */

/**
 * struct bystander - a process that uses another drive meanwhile
 * @pid: of it
 * @stop: closed to end it
 *
 * To be started before this process has a context.
 */
struct bystander {
	pid_t pid;
	int stop;
};

void bystander_start(struct bystander *b);
/* It must have noticed nothing. */
void bystander_end(struct bystander *b);

#endif
