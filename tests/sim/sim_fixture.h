/* SPDX-License-Identifier: MIT */
/* What tests on the simulated GPU share: a directory of their own, files and memory with a known
 * pattern, contexts, and the words of the last error. */
#ifndef TESTS_SIM_FIXTURE_H
#define TESTS_SIM_FIXTURE_H

#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB 1024ul
#define MIB (1024ul * 1024)

/* Makes and removes the directory of the program; for cmocka_run_group_tests(). */
int sim_group_setup(void **state);
int sim_group_teardown(void **state);
/* A test that begins with a clean environment, whatever the one before left. */
#define sim_test(name) cmocka_unit_test_setup(name, sim_test_setup)
int sim_test_setup(void **state);

/* Forgets every PEERLANE_ variable but those of the test runner, then sets the words of @env:
 * "SIM_BAR=1 SIM_ASYNC=200" sets PEERLANE_SIM_BAR and PEERLANE_SIM_ASYNC. */
void sim_env(const char *env);
/* A context on the simulator; the test fails if there is none. */
struct peerlane *sim_open(unsigned int flags);
struct peerlane *sim_open_with(struct peerlane_options *opt);

/* Closes the context and, where they are not NULL, the file and the GPU memory; nothing may be in
 * flight any more. */
void sim_close(struct peerlane *ctx, struct peerlane_file *file, void *gpu);

/* Path of @name in the directory; good until eight more were asked for. */
const char *sim_path(const char *name);
/* Byte at file offset @offset + i of pattern @seed, for each i. */
void sim_pattern(void *mem, size_t bytes, off_t offset, unsigned int seed);
/* First byte in @mem that differs from the pattern, or @bytes. */
size_t sim_differs(const void *mem, size_t bytes, off_t offset, unsigned int seed);
/* A file with the pattern; gives back its path. */
const char *sim_make_file(const char *name, size_t bytes, unsigned int seed);
/* Writes the file back and drops it from the page cache, as far as the file system does. */
void sim_chill(const char *path);
/* The file holds @bytes of the pattern at @offset; read the plain way. */
void sim_assert_file(const char *path, off_t offset, size_t bytes, unsigned int seed);
int64_t sim_file_size(const char *path);

/* A file of the context; the test fails if it cannot be opened. */
struct peerlane_file *sim_file(struct peerlane *ctx, const char *path, int flags);

/* GPU memory. */
char *sim_alloc(struct peerlane *ctx, size_t bytes);
void sim_gpu_set(struct peerlane *ctx, void *addr, int byte, size_t bytes);
void sim_gpu_pattern(struct peerlane *ctx, void *addr, size_t bytes, off_t offset,
		     unsigned int seed);
/* The first byte that differs, or @bytes; no assertion, so any thread may ask. */
size_t sim_gpu_differs(struct peerlane *ctx, const void *addr, size_t bytes, off_t offset,
		       unsigned int seed);
void sim_assert_gpu(struct peerlane *ctx, const void *addr, size_t bytes, off_t offset,
		    unsigned int seed);
/* Every byte of GPU memory is @byte. */
void sim_assert_gpu_is(struct peerlane *ctx, const void *addr, int byte, size_t bytes);

/* The last error of this thread: its code is @err and its text has @word in it. */
#define sim_assert_error(err, word) sim_check_error(err, word, __FILE__, __LINE__)
void sim_check_error(int err, const char *word, const char *file, int line);

/* Entries of /proc/self/fd, /proc/self/task and lines of /proc/self/maps. */
unsigned int sim_count_fds(void);
unsigned int sim_count_threads(void);
unsigned int sim_count_maps(void);

struct peerlane_stats sim_stats(struct peerlane *ctx);
uint64_t sim_now_ms(void);
void sim_nap_ms(unsigned int ms);
/* True under the sanitizers and valgrind: everything takes its time. */
bool sim_slow(void);
/* True under the sanitizers only: their malloc is not made for threads and fork together. */
bool sim_sanitized(void);
/* Ends the program with a message if it still runs after @seconds. */
void sim_alarm(unsigned int seconds);

#endif
