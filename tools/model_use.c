/* SPDX-License-Identifier: MIT */
/* A model and a GPU, as chosen on the command line. */
#include "model_use.h"

#include "message.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pl_model_use_open(struct pl_model_use *u, const struct pl_model_gpu *gpu, const char *path)
{
	int err;

	memset(u, 0, sizeof(*u));
	err = pl_session_open(&u->session, gpu->backend, gpu->gpu, 0);
	if (err)
		return err;
	err = peerlane_model_open(u->session.ctx, path, &u->model);
	if (err) {
		u->model = NULL;
		/* Names the file by itself. */
		pl_message_error("%s", pl_session_reason(err).text);
		pl_model_use_close(u);
		return err;
	}
	u->info.size = sizeof(u->info);
	return peerlane_model_get_info(u->model, &u->info);
}

void pl_model_use_close(struct pl_model_use *u)
{
	pl_model_use_free(u);
	free(u->parts);
	peerlane_model_close(u->model);
	pl_session_close(&u->session);
	memset(u, 0, sizeof(*u));
}

int pl_model_use_want(struct pl_model_use *u, int file)
{
	free(u->parts);
	u->nr = 0;
	u->parts = calloc(u->info.nr_tensors + 1, sizeof(*u->parts));
	if (!u->parts) {
		pl_message_error("out of memory");
		return -ENOMEM;
	}
	for (size_t i = 0; i < u->info.nr_tensors; i++)
		if (file < 0 || pl_model_use_tensor(u, i).file == (unsigned int)file)
			u->parts[u->nr++].tensor = i;
	return 0;
}

int pl_model_use_alloc(struct pl_model_use *u, bool host, unsigned int flags)
{
	int err = peerlane_model_memory_alloc(u->model, u->parts, u->nr, host ? -1 : u->session.gpu,
					      flags, &u->memory);

	if (err) {
		u->memory = NULL;
		pl_message_error("memory for the tensors: %s", pl_session_reason(err).text);
	}
	return err;
}

void pl_model_use_free(struct pl_model_use *u)
{
	peerlane_model_memory_free(u->memory);
	u->memory = NULL;
}

int pl_model_use_progress(void *arg, uint64_t done, uint64_t total)
{
	struct pl_progress *p = arg;

	p->total_bytes = total;
	pl_progress_show(p, done);
	return pl_stop_requested();
}

int pl_model_use_load(struct pl_model_use *u, unsigned int flags,
		      struct peerlane_model_stats *stats)
{
	struct pl_progress progress;
	struct peerlane_model_load_options opt = { .size = sizeof(opt),
						   .flags = flags,
						   .progress = pl_model_use_progress,
						   .progress_arg = &progress };
	int err;

	pl_progress_start(&progress, "load", 0);
	stats->size = sizeof(*stats);
	err = peerlane_model_load(u->model, u->parts, u->nr, &opt, stats);
	pl_progress_clear();
	if (err && err != -ECANCELED)
		pl_message_error("%s", pl_session_reason(err).text);
	return err;
}

struct peerlane_tensor pl_model_use_tensor(const struct pl_model_use *u, size_t tensor)
{
	struct peerlane_tensor t = { .size = sizeof(t) };

	peerlane_model_get_tensor(u->model, tensor, &t);
	return t;
}

struct pl_model_shape pl_model_use_shape(const struct peerlane_tensor *t)
{
	struct pl_model_shape s = { "-" };
	size_t at = 0;

	for (unsigned int i = 0; i < t->nr_dims && at < sizeof(s.text) - 30; i++)
		at += (size_t)snprintf(s.text + at, sizeof(s.text) - at, "%s%llu", i ? " x " : "",
				       (unsigned long long)t->shape[i]);
	if (at >= sizeof(s.text) - 30)
		snprintf(s.text + at, sizeof(s.text) - at, " ...");
	return s;
}

char *pl_model_use_name(const char *name)
{
	char *copy = strdup(name);

	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return copy;
}
