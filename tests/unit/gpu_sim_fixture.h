/* SPDX-License-Identifier: MIT */
/* What the tests of the simulated GPU share: opening it with an environment, and a rig to copy on. */
#ifndef TESTS_UNIT_GPU_SIM_FIXTURE_H
#define TESTS_UNIT_GPU_SIM_FIXTURE_H

#include "gpu.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB 1024u
static const struct pl_gpu_ops *const ops = &pl_gpu_sim;

static const char *const variables[] = {
	"PEERLANE_SIM_GPUS", "PEERLANE_SIM_MEMORY",   "PEERLANE_SIM_PINNED", "PEERLANE_SIM_ASYNC",
	"PEERLANE_SIM_BAR",  "PEERLANE_SIM_IN_PLACE", "PEERLANE_SIM_CHECK",  "PEERLANE_SIM_FAIL",
};

/* Opens with an environment of "NAME=value,..."; '+' stands for ',' in a value. */
static int try_open(struct pl_gpu **gpu, const char *env, char *why, size_t why_bytes)
{
	char copy[256], name[64], *save, *word;

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	snprintf(copy, sizeof(copy), "%s", env);
	for (word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		char *value = strchr(word, '=');

		*value++ = '\0';
		for (char *c = value; *c; c++)
			*c = *c == '+' ? ',' : *c;
		snprintf(name, sizeof(name), "PEERLANE_SIM_%s", word);
		setenv(name, value, 1);
	}
	return ops->open(gpu, why, why_bytes);
}

static inline struct pl_gpu *open_sim(const char *env)
{
	struct pl_gpu *gpu = NULL;
	char why[200] = "";

	assert_int_equal(try_open(&gpu, env, why, sizeof(why)), 0);
	assert_ptr_equal(gpu->ops, ops);
	return gpu;
}

static inline char *alloc(struct pl_gpu *gpu, size_t bytes)
{
	void *p = NULL;

	assert_int_equal(ops->alloc(gpu, 0, bytes, &p), 0);
	return p;
}

static inline char *pin(struct pl_gpu *gpu, size_t bytes)
{
	void *p = NULL;

	assert_int_equal(ops->pin_alloc(gpu, bytes, &p), 0);
	return p;
}

static inline void *owner_of(struct pl_gpu *gpu, const void *addr)
{
	struct pl_mem mem;

	assert_int_equal(ops->query(gpu, addr, &mem), 0);
	return mem.owner;
}

/* A GPU with a buffer, pinned memory, a queue and a mark. */
struct rig {
	struct pl_gpu *gpu;
	char *dev;
	char *pinned;
	size_t bytes;
	struct pl_queue *queue;
	struct pl_mark *mark;
};

static inline struct rig rig_up(const char *env, size_t bytes)
{
	struct rig r = { .gpu = open_sim(env), .bytes = bytes };

	r.dev = alloc(r.gpu, bytes);
	r.pinned = pin(r.gpu, bytes);
	assert_int_equal(ops->queue_create(r.gpu, owner_of(r.gpu, r.dev), &r.queue), 0);
	assert_int_equal(ops->mark_create(r.gpu, r.queue, &r.mark), 0);
	return r;
}

static inline void rig_down(struct rig *r)
{
	ops->queue_destroy(r->gpu, r->queue);
	ops->mark_destroy(r->gpu, r->mark);
	ops->pin_free(r->gpu, r->pinned, r->bytes);
	assert_int_equal(ops->free(r->gpu, r->dev), 0);
	ops->close(r->gpu);
}

static int to_gpu(struct rig *r, void *dst, const void *src, size_t bytes)
{
	struct pl_copy c = { dst, src, bytes };

	return ops->copy(r->gpu, r->queue, PL_TO_GPU, &c, 1, r->mark);
}

/* Polls a mark for at most five seconds. */
static int wait_mark(struct rig *r)
{
	int done = 0;

	for (int i = 0; i < 50000 && !done; i++) {
		done = ops->mark_done(r->gpu, r->mark);
		if (!done)
			usleep(100);
	}
	return done;
}

#endif
