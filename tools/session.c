/* SPDX-License-Identifier: MIT */
/* A context and one of its GPUs, as chosen on the command line. */
#include "session.h"

#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct pl_session_text pl_session_reason(int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct pl_session_text t;

	if (!peerlane_error(&info) && info.err == err && info.text[0] && info.cuda)
		snprintf(t.text, sizeof(t.text), "%s (CUDA error %d)", info.text, info.cuda);
	else if (info.err == err && info.text[0])
		snprintf(t.text, sizeof(t.text), "%s", info.text);
	else
		snprintf(t.text, sizeof(t.text), "%s", peerlane_strerror(err));
	return t;
}

static int find_gpu(struct pl_session *s, unsigned int gpu)
{
	int nr = peerlane_gpu_count(s->ctx);
	int err;

	if (nr < 0) {
		pl_message_error("cannot count GPUs: %s", pl_session_reason(nr).text);
		return nr;
	}
	if (gpu >= (unsigned int)nr) {
		pl_message_error("--gpu %u: the %s back end has %d GPU%s, numbered from 0", gpu,
				 peerlane_backend(s->ctx), nr, nr == 1 ? "" : "s");
		return -ENODEV;
	}
	s->gpu = (int)gpu;
	s->info.size = sizeof(s->info);
	err = peerlane_gpu_get_info(s->ctx, s->gpu, &s->info);
	if (err)
		pl_message_error("GPU %u: %s", gpu, pl_session_reason(err).text);
	return err;
}

int pl_session_open(struct pl_session *s, const char *backend, unsigned int gpu,
		    uint64_t pool_bytes)
{
	struct peerlane_options opt = {
		.size = sizeof(opt),
		.backend = backend,
		.pool_bytes = pool_bytes,
	};
	int err;

	memset(s, 0, sizeof(*s));
	err = peerlane_open(&s->ctx, &opt);
	if (err) {
		s->ctx = NULL;
		pl_message_error("cannot open the %s back end: %s", backend ? backend : "default",
				 pl_session_reason(err).text);
		return err;
	}
	err = find_gpu(s, gpu);
	if (err)
		pl_session_close(s);
	return err;
}

void pl_session_close(struct pl_session *s)
{
	peerlane_close(s->ctx);
	s->ctx = NULL;
}

struct pl_session_text pl_session_name(const struct pl_session *s)
{
	struct pl_session_text t;

	snprintf(t.text, sizeof(t.text), "%s (%s, GPU %d)", s->info.name, peerlane_backend(s->ctx),
		 s->gpu);
	return t;
}
