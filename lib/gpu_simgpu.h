/* SPDX-License-Identifier: MIT */
/* Parts of the back end of the VM lab's test GPU, shared by gpu_simgpu*.c. */
#ifndef PL_GPU_SIMGPU_H
#define PL_GPU_SIMGPU_H

#include "gpu.h"

struct pl_queue {
	void *owner;
};

struct pl_mark {
	int unused;
};

/* What all its memory belongs to. */
extern void *const pl_simgpu_owner;
/* Remembers @err for result() and gives back what the table's functions return for it. */
int pl_simgpu_refuse(int err);

/* --- gpu_simgpu_stream.c: as in struct pl_gpu_ops --- */
int pl_simgpu_stream_key(struct pl_gpu *gpu, void *stream, uintptr_t key[2]);
int pl_simgpu_stream_call(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg);
int pl_simgpu_stream_hold(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value);
int pl_simgpu_stream_create(struct pl_gpu *gpu, int ordinal, void **out);
void pl_simgpu_stream_destroy(struct pl_gpu *gpu, void *stream);
int pl_simgpu_stream_sync(struct pl_gpu *gpu, void *stream);
int pl_simgpu_serve_create(struct pl_gpu *gpu, void *stream, struct pl_serve **out);
void pl_simgpu_serve_destroy(struct pl_gpu *gpu, struct pl_serve *serve);
int pl_simgpu_serve_launch(struct pl_gpu *gpu, void *stream, struct pl_serve *serve,
			   uint32_t number, size_t bytes);
void pl_simgpu_serve_begin(struct pl_serve *serve, uint32_t number);
enum pl_serve_state pl_simgpu_serve_state(const struct pl_serve *serve, uint32_t number);
void pl_simgpu_serve_quit(struct pl_serve *serve, uint32_t number);
/* The last context is gone: the default stream goes, too. */
void pl_simgpu_streams_fini(void);

#endif
