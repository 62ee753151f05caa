/* SPDX-License-Identifier: MIT */
/* What the tests of reading ahead share: a file that was last changed a while ago, read call by call from its start,
 * and ways to change it. One program includes it once. */
#ifndef TESTS_SIM_AHEAD_RIG_H
#define TESTS_SIM_AHEAD_RIG_H

#include "sim/sim_fixture.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CALL MIB
#define BYTES (24 * MIB + 777)

struct rig {
	struct peerlane *ctx;
	struct peerlane_file *file;
	const char *path;
	char *gpu;
};

/* Written back, and in the page cache as a whole. */
static inline void warm(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *mem = malloc(BYTES);

	assert_true(fd >= 0 && mem);
	assert_int_equal(fdatasync(fd), 0);
	assert_int_equal(pread(fd, mem, BYTES, 0), sim_file_size(path));
	free(mem);
	close(fd);
}

/* A file that nobody has changed for a while. */
static inline void rig_make(struct rig *r, bool cached, const char *env)
{
	sim_env(env);
	r->path = sim_make_file("ahead", BYTES, 1);
	if (cached)
		warm(r->path);
	else
		sim_chill(r->path);
	sim_nap_ms(120);
}

static inline void rig_engine_with(struct rig *r, struct peerlane_options *opt)
{
	r->ctx = sim_open_with(opt);
	r->file = sim_file(r->ctx, r->path, O_RDONLY);
	r->gpu = sim_alloc(r->ctx, 4 * CALL);
}

static inline void rig_engine(struct rig *r, unsigned int flags)
{
	struct peerlane_options opt = { .flags = flags, .timeout_ms = 20000 };

	rig_engine_with(r, &opt);
}

static inline void rig_open_with(struct rig *r, bool cached, const char *env,
				 struct peerlane_options *opt)
{
	rig_make(r, cached, env);
	rig_engine_with(r, opt);
}

static inline void rig_open(struct rig *r, bool cached, const char *env, unsigned int flags)
{
	rig_make(r, cached, env);
	rig_engine(r, flags);
}

static inline void rig_close(struct rig *r)
{
	assert_int_equal(peerlane_gpu_free(r->ctx, r->gpu), 0);
	assert_int_equal(peerlane_file_close(r->file), 0);
	assert_int_equal(sim_stats(r->ctx).in_flight, 0);
	peerlane_close(r->ctx);
}

static inline uint64_t ahead(struct rig *r)
{
	return sim_stats(r->ctx).ahead_bytes;
}

/* Reads calls [from, to) and checks each. */
static inline void read_calls(struct rig *r, unsigned int from, unsigned int to)
{
	for (unsigned int i = from; i < to; i++) {
		off_t at = (off_t)(i * CALL);

		sim_gpu_set(r->ctx, r->gpu, 0xee, CALL);
		assert_int_equal(peerlane_read(r->file, r->gpu, CALL, at), CALL);
		sim_assert_gpu(r->ctx, r->gpu, CALL, at, 1);
	}
}

/* Reads a few calls; skips the test where nothing is read ahead. */
static inline void start(struct rig *r, bool cached, const char *env)
{
	rig_open(r, cached, env, 0);
	read_calls(r, 0, 8);
	if (!ahead(r)) {
		print_message("nothing is read ahead on this file system\n");
		rig_close(r);
		skip();
	}
}

enum change { BY_WRITE, BY_DIRECT, BY_MAPPING, BY_US };

static inline void change(struct rig *r, enum change how, off_t at, size_t bytes)
{
	int fd = open(r->path, O_RDWR | O_CLOEXEC | (how == BY_DIRECT ? O_DIRECT : 0));
	char *mem = aligned_alloc(4096, bytes);

	assert_true(fd >= 0 && mem);
	sim_pattern(mem, bytes, at, 2);
	if (how == BY_MAPPING) {
		char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);

		assert_true(map != MAP_FAILED);
		memcpy(map, mem, bytes);
		munmap(map, bytes);
	} else if (how == BY_US) {
		struct peerlane_file *file = sim_file(r->ctx, r->path, O_RDWR);

		assert_int_equal(peerlane_write(file, mem, bytes, at, 0), bytes);
		assert_int_equal(peerlane_file_close(file), 0);
	} else {
		assert_int_equal(pwrite(fd, mem, bytes, at), bytes);
	}
	free(mem);
	close(fd);
}

/* The change was made in call 8, and is seen; all beside it is as it was. */
static inline void assert_changed(struct rig *r)
{
	assert_int_equal(peerlane_read(r->file, r->gpu, CALL, 8 * CALL), CALL);
	sim_assert_gpu(r->ctx, r->gpu, 4096, 8 * CALL, 1);
	sim_assert_gpu(r->ctx, r->gpu + 4096, 64 * KIB, 8 * CALL + 4096, 2);
	sim_assert_gpu(r->ctx, r->gpu + 4096 + 64 * KIB, CALL - 4096 - 64 * KIB,
		       8 * CALL + 4096 + (off_t)(64 * KIB), 1);
}

/* The last call, which is short, after all the others. */
static inline void read_last(struct rig *r)
{
	off_t at = (off_t)(BYTES / CALL * CALL);

	assert_int_equal(peerlane_read(r->file, r->gpu, CALL, at), BYTES % CALL);
	sim_assert_gpu(r->ctx, r->gpu, BYTES % CALL, at, 1);
	assert_int_equal(sim_stats(r->ctx).read.bytes, BYTES);
}

/* Elsewhere, shorter, unaligned, backwards: always right. */
static inline void check_out_of_step(bool cached, const char *env)
{
	static const struct {
		size_t bytes;
		off_t offset;
	} odd[] = { { CALL / 2, 8 * CALL },	    { CALL, 8 * CALL + CALL / 2 },
		    { 300 * KIB, 20 * CALL },	    { CALL, 7 * CALL },
		    { CALL, 8 * CALL + 1 },	    { CALL, 9 * CALL + 1 },
		    { CALL, 10 * CALL + 1 },	    { CALL + 4096, 11 * CALL },
		    { CALL, 12 * CALL + 4096 },	    { CALL, 13 * CALL + 4096 },
		    { 2 * CALL, 14 * CALL + 4096 }, { 2 * CALL, 3 * CALL + 5 },
		    { CALL, 5 * CALL + 5 } };
	struct rig r;

	start(&r, cached, env);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_int_equal(peerlane_read(r.file, r.gpu, odd[i].bytes, odd[i].offset),
				 odd[i].bytes);
		sim_assert_gpu(r.ctx, r.gpu, odd[i].bytes, odd[i].offset, 1);
	}
	rig_close(&r);
}

static inline void check_truncated(bool cached, const char *env)
{
	struct rig r;

	start(&r, cached, env);
	assert_int_equal(truncate(r.path, 8 * CALL + 1000), 0);
	assert_int_equal(peerlane_read(r.file, r.gpu, CALL, 8 * CALL), 1000);
	assert_int_equal(peerlane_read(r.file, r.gpu, CALL, 9 * CALL), 0);
	rig_close(&r);
}

/* A file that changes all the time is not read ahead: its times could not tell. */
static inline void check_restless(bool cached, const char *env)
{
	struct rig r;
	uint64_t before;

	start(&r, cached, env);
	before = ahead(&r);
	for (unsigned int i = 8; i < 20; i++) {
		change(&r, BY_WRITE, 22 * CALL, 4096);
		if (cached)
			warm(r.path);
		else
			sim_chill(r.path);
		read_calls(&r, i, i + 1);
	}
	assert_int_equal(ahead(&r), before);
	rig_close(&r);
}

static inline void fork_and_close(struct rig *r)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		peerlane_close(r->ctx);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#endif
