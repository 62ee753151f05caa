/* SPDX-License-Identifier: MIT */
/* What the tests of the library on the test GPU share. */
#ifndef ENGINE_H
#define ENGINE_H

#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include "guest.h"

/* What the library's test of a drive and a GPU reads, once in each context. */
#define TEST_BYTES 16384u
#define FILE_BYTES (4 * MIB + 1000)
#define ROOM (5 * MIB)

struct engine {
	struct peerlane *ctx;
	char *gpu;
	unsigned char *model; /* what GPU memory must hold */
	unsigned char *seen;
};

/* A context, and ROOM bytes of GPU memory. 0: what the library takes by itself. */
void engine_open_depth(struct engine *e, size_t slot_bytes, unsigned int depth);
void engine_open(struct engine *e);
void engine_close(struct engine *e);
struct peerlane_stats stats_of(struct engine *e);
/* Bytes that went by p2p so far. */
size_t p2p_bytes(struct engine *e);
/* A file of noise, on the drive and not in the page cache. Returns its content. */
unsigned char *make_file(const char *path, size_t bytes, uint64_t seed);
struct peerlane_file *open_file(struct engine *e, const char *path, int flags);
/* All of GPU memory is as it must be, also beside what was read. */
void check_gpu(struct engine *e, const char *what, size_t n);
/* Makes the library's mappings of GPU memory useless, so that transfers fail with EFAULT. Returns
 * how many there were. */
int spoil_mappings(void);
/* Runs a command, which must succeed; its output is printed, and must hold @want. */
void command(const char *line, const char *want);

#endif
