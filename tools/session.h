/* SPDX-License-Identifier: MIT */
/* A context and one of its GPUs, as chosen on the command line. */
#ifndef PL_SESSION_H
#define PL_SESSION_H

#include <peerlane/gpu.h>

struct pl_session {
	struct peerlane *ctx;
	int gpu;
	struct peerlane_gpu_info info;
};

/* What went wrong in the call of this thread that returned err, in one sentence. */
struct pl_session_text {
	char text[320];
};
struct pl_session_text pl_session_reason(int err);

/*
 * Opens a context and finds the GPU. A failure is said on standard error; returns 0 or a
 * negative errno.
 */
int pl_session_open(struct pl_session *s, const char *backend, unsigned int gpu,
		    uint64_t pool_bytes);
void pl_session_close(struct pl_session *s);

/* "H200 (cuda, GPU 0)" */
struct pl_session_text pl_session_name(const struct pl_session *s);

#endif
