/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the library share: a context on the test GPU, files, and what GPU memory must
 * hold.
 */
#ifndef ENGINE_H
#define ENGINE_H

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
 */
struct engine {
	struct peerlane *ctx;
	char *gpu;
	unsigned char *model;
	unsigned char *seen;
};

void engine_open(struct engine *e);
void engine_open_depth(struct engine *e, size_t slot_bytes, unsigned int depth);
void engine_close(struct engine *e);
/* New memory instead of the old, which was freed. */
void engine_renew(struct engine *e);

/* Bytes moved by p2p so far. */
size_t p2p_bytes(struct engine *e);
/* A file of noise, on the drive and not in the page cache. Returns its content. */
unsigned char *make_file(const char *path, size_t bytes, uint64_t seed);
struct peerlane_file *open_file(struct engine *e, const char *path, int flags);
struct peerlane_verdict verdict(struct engine *e, struct peerlane_file *file, enum peerlane_op op,
				size_t bytes);
/* All of GPU memory is as it must be, also beside what was read. */
void check_gpu(struct engine *e, const char *what, size_t n);

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
