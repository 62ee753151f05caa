/* SPDX-License-Identifier: MIT */
/*
 * What the files of the CUDA back end share: gpu_cuda.c (devices, memory, copies),
 * gpu_cuda_pin.c (pinned host memory), gpu_cuda_sync.c (calls of the program that lag),
 * gpu_cuda_stream.c (the caller's streams, kernels) and
 * gpu_cuda_serve.c (streams served by a kernel).
 */
#ifndef PL_GPU_CUDA_H
#define PL_GPU_CUDA_H

#include "cuda_api.h"
#include "gpu.h"

#include <pthread.h>

#define PL_CUDA_MAX_GPUS 32

struct pl_cuda_module; /* a loaded kernel image */
struct pl_cuda_owner;  /* a context, see gpu_cuda_context.c */
struct pl_cuda_box;    /* a mailbox, see gpu_cuda_serve.c */
struct pl_cuda_boxes;
struct pl_cuda_words;
struct pl_cuda_chunk; /* see gpu_cuda_pin.c */

/* Copies by the copy engine, in a stream of our own; or, with a box, by a kernel. */
struct pl_queue {
	void *owner;
	void *stream;
	struct pl_cuda_box *box;
};

/* The end of some copies: a word in pinned memory that the stream writes behind them, so that
 * looking costs no driver call; else an event. */
struct pl_mark {
	void *owner;
	void *stream;
	uint32_t *word;	   /* NULL: an event */
	uint32_t number;   /* what the word will be */
	uint64_t asked_ns; /* when the driver was last asked for an error */
	void *event;
	struct pl_cuda_box *box;
	unsigned int index; /* in the box */
};

struct pl_cuda_device {
	void *primary; /* retained context; NULL until first used */
	void *stream;  /* for synchronous copies; NULL until first used */
	void *pins;    /* context in which file pages are pinned; NULL until first used */
};

struct pl_cuda {
	struct pl_gpu gpu;
	struct pl_cuda_api api;
	int nr_gpus;
	pthread_mutex_t lock; /* guards devices[], owners, modules, boxes and chunks */
	struct pl_cuda_device devices[PL_CUDA_MAX_GPUS];
	struct pl_cuda_owner *owners;
	struct pl_cuda_module *modules;
	struct pl_cuda_boxes *boxes;
	struct pl_cuda_words *words;
	struct pl_cuda_chunk *chunks;
	bool no_write; /* streams cannot write words; atomic */
	bool held;     /* a stream of the caller was made to wait at least once; atomic */
	bool served;   /* or served by a kernel; atomic */
	/* SYNC_MEMOPS is not for memory of this kind; atomic: */
	bool vmm_lags, pool_lags;
};

static inline struct pl_cuda *pl_cuda_of(struct pl_gpu *gpu)
{
	return (struct pl_cuda *)gpu;
}

/* Translates a CUresult and remembers it for result(). */
int pl_cuda_check(int result);
/* The same for a call that was given addresses: a bad value is a bad address. */
int pl_cuda_check_address(int result);

/* gpu_cuda_context.c. The owner that stands for a context, and for a GPU's primary context, which
 * is retained. -ENODEV no such ordinal. */
int pl_cuda_owner_of(struct pl_cuda *c, void *ctx, void **out);
int pl_cuda_primary(struct pl_cuda *c, int ordinal, void **out);
int pl_cuda_primary_raw(struct pl_cuda *c, int ordinal, void **ctx);
/* The caller's current context; -ENODEV if there is none. */
int pl_cuda_current(struct pl_cuda *c, void **out);
/* The context in which file pages are pinned. Unpinning waits for everything that runs in its
 * context, so it is one where nothing runs: not the caller's. */
int pl_cuda_pin_context(struct pl_cuda *c, int ordinal, void **ctx);
/* Makes @owner's context current, or fails if it is gone; undone by pl_cuda_leave(). */
int pl_cuda_enter(struct pl_cuda *c, void *owner);
int pl_cuda_enter_raw(struct pl_cuda *c, void *ctx);
void pl_cuda_leave(struct pl_cuda *c);
/* Forgets all; without @release no driver call is made. */
void pl_cuda_contexts_free(struct pl_cuda *c, bool release);

/* gpu_cuda_scatter.c: many small copies as one kernel. The context is current. */
bool pl_cuda_scatter_fits(struct pl_cuda *c, enum pl_dir dir, const struct pl_copy *list,
			  unsigned int nr);
void pl_cuda_prepare(struct pl_gpu *gpu, void *owner);
int pl_cuda_scatter(struct pl_cuda *c, void *owner, void *stream, const struct pl_copy *list,
		    unsigned int nr);

/* Memory the driver knows. */
struct pl_cuda_range {
	pl_cu_ptr start;
	size_t bytes;
};

/*
 * Whether memory of the GPU is still there. A single copy of freed memory is refused and no harm is done; a kernel that
 * touches it ends the context, and in a list of copies the driver takes it for the program's own. @seen is the range
 * that was found last.
 */
bool pl_cuda_alive(struct pl_cuda *c, const void *addr, size_t bytes, struct pl_cuda_range *seen);

/* gpu_cuda_pin.c: pinned host memory */
int pl_cuda_pin_alloc(struct pl_gpu *gpu, size_t bytes, void **out);
void pl_cuda_pin_free(struct pl_gpu *gpu, void *addr, size_t bytes);
int pl_cuda_pin_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes);
void pl_cuda_pin_unregister(struct pl_gpu *gpu, int ordinal, void *addr);
int pl_cuda_pin_address(struct pl_gpu *gpu, int ordinal, void *addr, void **out);
int pl_cuda_io_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes, void **out);
void pl_cuda_io_unregister(struct pl_gpu *gpu, int ordinal, void *addr);
/* Frees the records of memory nobody gave back; no driver call is made. */
void pl_cuda_chunks_forget(struct pl_cuda *c);

/* gpu_cuda_sync.c */
/*
 * Sets SYNC_MEMOPS on the allocation at @addr: synchronous calls on it return when they are done.
 * Waits for those made before. False where that cannot be; *@refused remembers it for all memory of
 * the kind.
 */
bool pl_cuda_sync_calls(struct pl_cuda *c, void *owner, const void *addr, bool *refused);
int pl_cuda_wait_default(struct pl_gpu *gpu, void *owner, uint64_t deadline);
int pl_cuda_stream_behind_default(struct pl_gpu *gpu, void *stream, void *owner);

/* gpu_cuda_mark.c: when copies have ended */
int pl_cuda_mark_create(struct pl_gpu *gpu, struct pl_queue *q, struct pl_mark **out);
void pl_cuda_mark_destroy(struct pl_gpu *gpu, struct pl_mark *m);
int pl_cuda_mark_done(struct pl_gpu *gpu, struct pl_mark *m);
/* Behind the copies queued so far; the context is current. A CUresult. */
int pl_cuda_mark_set(struct pl_cuda *c, struct pl_mark *m);
/* Forgets the words; without @release no driver call is made. */
void pl_cuda_words_free(struct pl_cuda *c, bool release);

/* gpu_cuda_serve.c: streams served by a kernel */
int pl_cuda_serve_load(struct pl_cuda *c, void *owner, bool may_load, void **function);
int pl_cuda_serve_create(struct pl_gpu *gpu, void *stream, struct pl_serve **out);
void pl_cuda_serve_destroy(struct pl_gpu *gpu, struct pl_serve *serve);
int pl_cuda_serve_launch(struct pl_gpu *gpu, void *stream, struct pl_serve *serve, uint32_t number,
			 size_t bytes);
void pl_cuda_serve_begin(struct pl_serve *serve, uint32_t number);
enum pl_serve_state pl_cuda_serve_state(const struct pl_serve *serve, uint32_t number);
void pl_cuda_serve_quit(struct pl_serve *serve, uint32_t number);
int pl_cuda_box_copy(struct pl_cuda_box *box, enum pl_dir dir, const struct pl_copy *list,
		     unsigned int nr, unsigned int mark);
int pl_cuda_box_mark_done(struct pl_cuda_box *box, unsigned int mark);

/* gpu_cuda_stream.c */
/* Enters the context of @stream; the current one for the default streams. @owner may be NULL. */
int pl_cuda_enter_stream(struct pl_cuda *c, void *stream, void **owner);
int pl_cuda_stream_key(struct pl_gpu *gpu, void *stream, uintptr_t key[2]);
int pl_cuda_stream_call(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg);
int pl_cuda_stream_hold(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value);
int pl_cuda_stream_create(struct pl_gpu *gpu, int ordinal, void **out);
void pl_cuda_stream_destroy(struct pl_gpu *gpu, void *stream);
int pl_cuda_stream_sync(struct pl_gpu *gpu, void *stream);
int pl_cuda_launch(struct pl_gpu *gpu, void *stream, const struct peerlane_kernel *kernel,
		   unsigned int nr_blocks, unsigned int nr_threads, void **args,
		   const size_t *arg_bytes, unsigned int nr_args);
/* The function of @kernel in context @owner, loaded once. */
int pl_cuda_function(struct pl_cuda *c, void *owner, const struct peerlane_kernel *kernel,
		     bool may_load, void **out);
void pl_cuda_modules_free(struct pl_cuda *c, bool unload);

#endif
