/* SPDX-License-Identifier: MIT */
/* What a transfer is compared with: the rate of copies between pinned host memory and the GPU. */
#include "limit.h"

#include "jsonout.h"

#include <stdio.h>
#include <string.h>

void pl_limit_none(struct pl_limit *l, const char *why)
{
	l->rate = 0;
	snprintf(l->source, sizeof(l->source), "none: %s", why);
}

void pl_limit_given(struct pl_limit *l, double gb_per_s)
{
	l->rate = gb_per_s * 1e9;
	snprintf(l->source, sizeof(l->source), "as given");
}

void pl_limit_measure(struct pl_limit *l, const struct pl_session *s, enum peerlane_op dir)
{
	int err;

	if (!strcmp(peerlane_backend(s->ctx), "sim")) {
		pl_limit_none(l, "a simulated GPU has no bus to measure");
		return;
	}
	err = peerlane_gpu_copy_limit(s->ctx, s->gpu, dir, &l->rate);
	if (err)
		pl_limit_none(l, pl_session_reason(err).text);
	else
		snprintf(l->source, sizeof(l->source), "pinned copy %s, measured now",
			 dir == PEERLANE_READ ? "host to GPU" : "GPU to host");
}

void pl_limit_add_json(const struct pl_limit *l, struct json_object *o)
{
	struct json_object *limit = json_object_new_object();

	if (l->rate > 0)
		pl_jsonout_add_number(limit, "gb_per_s", l->rate / 1e9);
	pl_jsonout_add_text(limit, "source", l->source);
	json_object_object_add(o, "limit", limit);
}
