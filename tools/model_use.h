/* SPDX-License-Identifier: MIT */
/* A model and a GPU, as chosen on the command line, for the commands of "peerlane model". */
#ifndef PL_MODEL_USE_H
#define PL_MODEL_USE_H

#include "session.h"

#include <stdbool.h>

#include <peerlane/model.h>

struct pl_model_use {
	struct pl_session session;
	struct peerlane_model *model;
	struct peerlane_model_info info;
	struct peerlane_model_part *parts; /* one for each tensor that is wanted */
	size_t nr;
	struct peerlane_model_memory *memory;
};

/* What the options of these commands say of a GPU. */
struct pl_model_gpu {
	const char *backend;
	unsigned int gpu;
};

/* Opens a context and the model. A failure is said on standard error. */
int pl_model_use_open(struct pl_model_use *u, const struct pl_model_gpu *gpu, const char *path);
void pl_model_use_close(struct pl_model_use *u);

/* All tensors become parts; or those of the file @file, if that is not negative. */
int pl_model_use_want(struct pl_model_use *u, int file);
/* Allocates memory for the parts: on the GPU, or on the host. */
int pl_model_use_alloc(struct pl_model_use *u, bool host, unsigned int flags);
void pl_model_use_free(struct pl_model_use *u);
/* Loads them, with progress; a signal ends it. */
int pl_model_use_load(struct pl_model_use *u, unsigned int flags,
		      struct peerlane_model_stats *stats);

/* A progress function for struct pl_progress as its argument, which signals end. */
int pl_model_use_progress(void *arg, uint64_t done, uint64_t total);

struct peerlane_tensor pl_model_use_tensor(const struct pl_model_use *u, size_t tensor);
/* "4096 x 128", or "-" for a single value. */
struct pl_model_shape {
	char text[160];
};
struct pl_model_shape pl_model_use_shape(const struct peerlane_tensor *t);
/* A name fit for a terminal: control characters are question marks; for free(). */
char *pl_model_use_name(const char *name);

#endif
