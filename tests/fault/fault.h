/* SPDX-License-Identifier: MIT */
/*
 * What the fault tests share: a context on the simulator, files and memory with a known pattern,
 * one way to start a request in each of the three manners, and checks that end the program.
 */
#ifndef PL_TEST_FAULT_H
#define PL_TEST_FAULT_H

#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB 1024ul
#define MIB (1024 * KIB)

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fault_fail(__FILE__, __LINE__, #cond);                                     \
	} while (0)

/* Two integers that must be the same; both are shown when they are not. */
#define CHECK_EQ(a, b) fault_check_eq(__FILE__, __LINE__, #a, (long long)(a), #b, (long long)(b))

/* What is being tried, for the message of a failed check. */
extern char fault_case[256];
#define CASE(...) snprintf(fault_case, sizeof(fault_case), __VA_ARGS__)

__attribute__((noreturn)) void fault_fail(const char *file, int line, const char *what);
void fault_check_eq(const char *file, int line, const char *at, long long a, const char *bt,
		    long long b);
__attribute__((noreturn, format(printf, 1, 2))) void fault_skip(const char *fmt, ...);

/* First call of every test: bounds its time, takes settings of ours out of the environment, and
 * makes a directory that is removed at exit. */
void fault_begin(unsigned int seconds);
/* A path in the directory; valid until the fourth call after. */
const char *fault_path(const char *name);
const char *fault_dir(void);

double fault_now(void);
uint32_t fault_random(void);

/* The pattern: byte @at of the data called @seed. */
void fault_pattern(void *mem, size_t bytes, uint64_t at, uint64_t seed);
/* First byte that is not the pattern's; @bytes if all are. */
size_t fault_differs(const void *mem, size_t bytes, uint64_t at, uint64_t seed);

/* A file of @bytes of pattern, in the page cache and on the device. */
void fault_make_file(const char *path, size_t bytes, uint64_t seed);
/* Drops the page cache of a file. */
void fault_make_cold(const char *path);
void fault_make_cached(const char *path);

/* A context on the simulator. */
struct peerlane *fault_open(unsigned int flags, unsigned int timeout_ms);
struct peerlane_file *fault_file(struct peerlane *ctx, const char *path, int flags);
char *fault_gpu(struct peerlane *ctx, size_t bytes);
/* Simulated GPU memory, seen by the CPU past every injected failure. */
char *fault_see(void *gpu);

/* The three manners of one request. */
enum fault_how { FAULT_SYNC, FAULT_BATCH, FAULT_STREAM, FAULT_NR_HOW };
extern const char *const fault_how_name[FAULT_NR_HOW];
ssize_t fault_io(enum fault_how how, struct peerlane *ctx, struct peerlane_file *file,
		 enum peerlane_op op, void *addr, size_t bytes, off_t offset);

/* Nothing is in flight and no lane is lost: the whole pool can be taken again. */
void fault_check_idle(struct peerlane *ctx);

/* Runs @fn in a child; its exit status, or 128 + signal. */
int fault_child(void (*fn)(void *), void *arg);

/* A file system of @mib MiB on a loop device (or tmpfs) at a new directory, seen by this process
 * only; skips the test where that cannot be done. Returns the directory. */
const char *fault_mount(const char *type, unsigned int mib, const char *mkfs_options,
			const char *mount_options);
/* Where the images of loop devices are made; NULL: in the directory of the test. */
extern const char *fault_images;
/* The same on a device with blocks of @sector bytes. */
const char *fault_mount_sector(const char *type, unsigned int mib, const char *mkfs_options,
			       const char *mount_options, unsigned int sector);

#endif
