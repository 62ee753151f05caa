/* SPDX-License-Identifier: MIT */
/*
 * The library on the test GPU, for all tests that use it. See engine.c.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include "guest.h"

/* What the library's test of a drive and a GPU reads, once in each context. */
#define TEST_BYTES 16384u
/* Of the files that are read and written, and of GPU memory for it. */
#define FILE_BYTES (4 * MIB + 1000)
#define ROOM (5 * MIB)

/**
 * struct engine - a context with some GPU memory
 * @ctx: the context
 * @gpu: GPU memory of %ROOM bytes
 * @model: what it must hold
 * @seen: room for what it holds
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
void engine_close(struct engine *e);
/* What went by p2p in both directions. */
size_t p2p_bytes(struct engine *e);
/* All of GPU memory is as it must be, also beside what was read. */
void check_gpu(struct engine *e, const char *what, size_t n);
/* A file of noise, on the drive and not in the page cache. Returns its content. */
unsigned char *make_file(const char *path, size_t bytes, uint64_t seed);
struct peerlane_file *open_file(struct engine *e, const char *path, int flags);
/* What is said of p2p, which is printed as well. */
struct peerlane_verdict verdict(struct engine *e, struct peerlane_file *file, enum peerlane_op op,
				size_t bytes);
/* Transfers of all alignments, and many at once, to and from a file that is made. */
void read_cases(struct engine *e, const char *path);
void write_cases(struct engine *e, const char *path);
void batch_cases(struct engine *e, const char *path);
/* Runs a command; its output is printed, and must hold @want. */
void command(const char *line, const char *want);

#endif
