/* SPDX-License-Identifier: MIT */
/*
 * What the measuring programs share: the shape of a measurement as the options give it, the
 * threads that make its calls, and the figures that come of them.
 */
#ifndef PL_SHAPE_H
#define PL_SHAPE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PL_SHAPE_EXIT_USAGE 2
#define PL_SHAPE_EXIT_SKIP 77
#define PL_SHAPE_THREADS_MAX 256u
#define PL_SHAPE_REPEAT_MAX 100u
/* What is read or written at a time outside the clock. */
#define PL_SHAPE_CHUNK_BYTES ((size_t)8 << 20)

struct pl_shape {
	const char *file;
	size_t total_bytes; /* of one repeat; 0: the file's size */
	unsigned int nr_threads, batch, repeat;
	double seconds;
	bool write, op_given, random, cold, cached;
};

/* One repeat, and what all of them come to: medians, and the best rate. */
struct pl_shape_repeat {
	double gbps, ops_per_s, cpu_s_per_gb;
	uint64_t bytes;
};

struct pl_shape_figures {
	double gbps, gbps_best, ops_per_s, cpu_s_per_gb, lat_us_p50, lat_us_p99;
	uint64_t bytes;
};

struct pl_shape_run;

struct pl_shape_worker {
	pthread_t thread;
	struct pl_shape_run *run;
	unsigned int id;
	uint64_t rng, end_ns, nr_groups;
	void *own; /* for the callbacks */
};

/* What the threads share. A slot is one call's place in the file, a group the calls that one
 * thread makes as one unit of latency. */
struct pl_shape_run {
	const struct pl_shape *shape;
	unsigned int nr_threads;
	size_t size_bytes, nr_slots, nr_groups;
	int (*setup)(struct pl_shape_worker *w); /* in the thread, outside the clock; may be NULL */
	int (*group)(struct pl_shape_worker *w, size_t first_op);
	void (*teardown)(struct pl_shape_worker *w); /* may be NULL */

	/* --- the rest is shape.c's --- */
	uint64_t *lat_ns; /* room for all groups of all repeats */
	atomic_size_t nr_lat;
	unsigned int repeat_no;
	uint64_t start_ns;
	pthread_barrier_t ready, go;
	atomic_size_t next;
	atomic_int err; /* a failure, a negative errno */
	struct pl_shape_repeat repeats[PL_SHAPE_REPEAT_MAX];
};

/* A line on stderr after the program's name; the second says errno too and returns it negated. */
void pl_shape_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int pl_shape_complain_errno(const char *what);

uint64_t pl_shape_now_ns(void);
double pl_shape_cpu_seconds(void);
/* A number that looks random and is always the same for @i. */
uint64_t pl_shape_mix(uint64_t i);

/* All of @bytes at @at; -ENODATA at the end of the file. */
int pl_shape_move(bool write, int fd, void *buffer, size_t bytes, off_t at);
/* Cold: written back and out of the page cache. Else the first @bytes are read into it. */
int pl_shape_prepare_cache(const struct pl_shape *s, size_t bytes);

/* Slots and groups of calls of @size_bytes in a file of @file_bytes. */
int pl_shape_plan(struct pl_shape_run *run, off_t file_bytes, size_t size_bytes);
/* Room for the latencies of all repeats. */
int pl_shape_run_init(struct pl_shape_run *run);
void pl_shape_run_fini(struct pl_shape_run *run);
/* The next repeat. */
int pl_shape_run_repeat(struct pl_shape_run *run);
/* The same, but it does not count. */
int pl_shape_run_warm(struct pl_shape_run *run);
/* The slot of call number @op. */
size_t pl_shape_pick(struct pl_shape_worker *w, size_t op);

void pl_shape_repeat_finish(struct pl_shape_repeat *rep, uint64_t nr_ops, size_t size_bytes,
			    double seconds, double cpu);
void pl_shape_summarise(const struct pl_shape *s, struct pl_shape_figures *f,
			const struct pl_shape_repeat *rep, uint64_t *lat_ns, size_t nr_lat);
/* The members from "gbps" to "repeat" of the JSON object. */
void pl_shape_print(const struct pl_shape *s, const struct pl_shape_figures *f);

/* The options both programs have; their own begin at PL_SHAPE_OWN. */
enum {
	PL_SHAPE_FILE = 256,
	PL_SHAPE_OP,
	PL_SHAPE_THREADS,
	PL_SHAPE_BATCH,
	PL_SHAPE_RANDOM,
	PL_SHAPE_COLD,
	PL_SHAPE_CACHED,
	PL_SHAPE_BYTES,
	PL_SHAPE_SECONDS,
	PL_SHAPE_REPEAT,
	PL_SHAPE_HELP,
	PL_SHAPE_OWN,
};

/* clang-format off */
#define PL_SHAPE_OPTIONS                                                                           \
	{ "file", 1, NULL, PL_SHAPE_FILE },                                                        \
	{ "op", 1, NULL, PL_SHAPE_OP },                                                            \
	{ "threads", 1, NULL, PL_SHAPE_THREADS },                                                  \
	{ "batch", 1, NULL, PL_SHAPE_BATCH },                                                      \
	{ "random", 0, NULL, PL_SHAPE_RANDOM },                                                    \
	{ "cold", 0, NULL, PL_SHAPE_COLD },                                                        \
	{ "cached", 0, NULL, PL_SHAPE_CACHED },                                                    \
	{ "bytes", 1, NULL, PL_SHAPE_BYTES },                                                      \
	{ "seconds", 1, NULL, PL_SHAPE_SECONDS },                                                  \
	{ "repeat", 1, NULL, PL_SHAPE_REPEAT },                                                    \
	{ "help", 0, NULL, PL_SHAPE_HELP }
/* clang-format on */

struct option;

int pl_shape_parse_size(const char *text, size_t *out);
/*
 * Takes all options in; those with a value that are the program's own go to @own_value, those
 * without to @own_flag. Return: 0, 1 when only help was asked for, -EINVAL after saying why.
 */
int pl_shape_parse(struct pl_shape *s, int argc, char **argv, const struct option *options,
		   int (*own_value)(int option, const char *text), void (*own_flag)(int option));

#endif
