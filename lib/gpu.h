/* SPDX-License-Identifier: MIT */
/*
 * The GPU seen by the engine: one operations table, three implementations (gpu_cuda.c,
 * gpu_sim.c, and gpu_simgpu.c for the VM lab).
 * The engine asks what an address is, gets pinned memory, and queues copies whose end it can
 * poll; the rest serves gpu.h of the public API. Nothing above this table knows CUDA.
 */
#ifndef PL_GPU_H
#define PL_GPU_H

#include "serve.h"

#include <peerlane/gpu.h>
#include <stdbool.h>

enum pl_mem_kind {
	PL_MEM_HOST,	/* plain memory of the process */
	PL_MEM_PINNED,	/* host memory the GPU driver knows */
	PL_MEM_DEVICE,	/* GPU memory */
	PL_MEM_MANAGED, /* moves between both; treated like GPU memory */
};

/* What an address is. */
struct pl_mem {
	enum pl_mem_kind kind;
	int gpu;	/* ordinal; -1 for host memory */
	void *owner;	/* the GPU context copies must run in; NULL for host memory */
	uintptr_t base; /* start of the allocation; 0 with unknown bounds */
	size_t bytes;	/* its length; 0: unknown (host memory) */
	bool joins;	/* one buffer may go on in the mapping behind it (VMM) */
	char *host;	/* where the CPU sees @base, NULL if it must not touch it */
	bool lags;	/* synchronous calls of the driver on it may return before they are done */
};

/* One copy of a list. */
struct pl_copy {
	void *dst;
	const void *src;
	size_t bytes;
};

enum pl_dir {
	PL_TO_GPU,
	PL_FROM_GPU,
};

struct pl_gpu;
struct pl_queue; /* copies in order, for one owner (a stream) */
struct pl_mark;	 /* a point in a queue (an event), reusable once it was passed */

/*
 * A stream of the caller that is served without driver calls: copies given to @queue are done by
 * a kernel on the stream itself. Head of the back end's own struct.
 */
struct pl_serve {
	void *owner; /* context of the stream, and of the memory it can copy */
	struct pl_queue *queue;
	struct pl_mark *marks[PL_SERVE_MARKS];
};

enum pl_serve_state {
	PL_SERVE_COMING, /* the kernel has not begun */
	PL_SERVE_HERE,
	PL_SERVE_GONE, /* it has ended: no copy is made any more */
};

typedef void (*pl_stream_fn)(void *arg);

/*
 * Every function returns 0 or a negative errno. When the driver refused, it is -EREMOTEIO (or
 * -EFAULT for an address the GPU does not have, -ENOMEM) and gpu->ops->result() of the calling
 * thread tells the driver's own code. The calling thread's current GPU context is left as it was.
 */
struct pl_gpu_ops {
	const char *name;
	/* Copies are done by a device that reads memory past the CPU's caches: lines still dirty
	 * in a core's cache slow it down. */
	bool dma;

	/* @why receives a sentence when it fails. */
	int (*open)(struct pl_gpu **out, char *why, size_t why_bytes);
	void (*close)(struct pl_gpu *gpu);
	/* In a forked child: free host memory only, call no driver. */
	void (*abandon)(struct pl_gpu *gpu);
	/* CUresult of the last refusal in this thread, 0 if none; its name in words. */
	int (*result)(void);
	const char *(*result_name)(struct pl_gpu *gpu, int result);

	/* What @addr is. Memory no driver knows is PL_MEM_HOST, not an error; -EFAULT only for GPU
	 * memory that was freed, where that can be told. Before GPU memory is used for the first time
	 * this makes the driver's synchronous calls on it wait for the GPU from now on, and waits for
	 * those made before; where the memory refuses, it lags. */
	int (*query)(struct pl_gpu *gpu, const void *addr, struct pl_mem *out);

	/* Pinned memory, page aligned, usable by all GPUs. -ENOMEM. */
	int (*pin_alloc)(struct pl_gpu *gpu, size_t bytes, void **out);
	void (*pin_free)(struct pl_gpu *gpu, void *addr, size_t bytes);
	/* Pin pages that are there already, for reading by GPU @ordinal in any of its contexts.
	 * The pages must be mapped and touched. Neither call waits for copies of other memory.
	 * -EOPNOTSUPP where the back end cannot. */
	int (*pin_register)(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes);
	void (*pin_unregister)(struct pl_gpu *gpu, int ordinal, void *addr);
	/* Where kernels of GPU @ordinal find memory of pin_alloc(). NULL: kernels are threads of the
	 * CPU. */
	int (*pin_address)(struct pl_gpu *gpu, int ordinal, void *addr, void **out);
	/* Let kernels of GPU @ordinal read and write the registers of a device, which are mapped at
	 * @addr, and say where. NULL where there is no pin_address(). */
	int (*io_register)(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes, void **out);
	void (*io_unregister)(struct pl_gpu *gpu, int ordinal, void *addr);

	/* A copy queue of @owner (from pl_mem). */
	int (*queue_create)(struct pl_gpu *gpu, void *owner, struct pl_queue **out);
	void (*queue_destroy)(struct pl_gpu *gpu, struct pl_queue *queue);
	int (*mark_create)(struct pl_gpu *gpu, struct pl_queue *queue, struct pl_mark **out);
	void (*mark_destroy)(struct pl_gpu *gpu, struct pl_mark *mark);
	/* Small copies may come: make ready what must not be made ready later, when work of the
	 * caller may be waiting for them. @owner NULL: the caller's current context, if any. May
	 * be NULL. */
	void (*prepare)(struct pl_gpu *gpu, void *owner);
	/* Waits for the work that the default streams of @owner have when it is called, that of the
	 * context and that of the calling thread. -ETIMEDOUT after @deadline. May be NULL. */
	int (*wait_default)(struct pl_gpu *gpu, void *owner, uint64_t deadline);
	/* Queue: @stream waits for the same. NULL where wait_default() is. */
	int (*stream_behind_default)(struct pl_gpu *gpu, void *stream, void *owner);
	/* Whether work that was queued before sees what other devices wrote, once the CPU knows
	 * that they have. NULL: it may not. */
	bool (*orders_devices)(struct pl_gpu *gpu, int ordinal);
	/* Queue @nr copies and then set @mark. After an error some of them may have been queued;
	 * @mark is set all the same where possible. */
	int (*copy)(struct pl_gpu *gpu, struct pl_queue *queue, enum pl_dir dir,
		    const struct pl_copy *list, unsigned int nr, struct pl_mark *mark);
	/* 1: passed, 0: not yet, negative: the copies before it failed. Never blocks. */
	int (*mark_done)(struct pl_gpu *gpu, struct pl_mark *mark);

	/* Streams of the caller (for stream-ordered I/O). @stream may be NULL: default stream of
	 * the calling thread's current context. */
	/* An id of the stream that holds while it lives (tells apart the NULL streams of two
	 * contexts), and the pinned flag word's requirements are those of pin_alloc(). */
	int (*stream_key)(struct pl_gpu *gpu, void *stream, uintptr_t key[2]);
	/* Queue: call @fn(@arg) when the work before is done. @fn calls no GPU function. */
	int (*stream_call)(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg);
	/* Queue: hold the stream until (int32_t)(*@flag - @value) >= 0. @flag is in memory of
	 * pin_alloc(). */
	int (*stream_hold)(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value);

	/* Serving a stream by a kernel; NULL where the back end has none. create() may wait for work
	 * of the stream's context; -EOPNOTSUPP where it cannot be done, then hold the stream. */
	int (*serve_create)(struct pl_gpu *gpu, void *stream, struct pl_serve **out);
	void (*serve_destroy)(struct pl_gpu *gpu, struct pl_serve *serve);
	/* Queue the kernel of request @number, whose copies are @bytes at most; 0: there are none.
	 * It holds the stream until serve_quit(). */
	int (*serve_launch)(struct pl_gpu *gpu, void *stream, struct pl_serve *serve,
			    uint32_t number, size_t bytes);
	/* These call no driver. begin(): after the work before, before the kernel of @number starts
	 * and before its first copy. quit(): copies that have not begun never will. */
	void (*serve_begin)(struct pl_serve *serve, uint32_t number);
	enum pl_serve_state (*serve_state)(const struct pl_serve *serve, uint32_t number);
	void (*serve_quit)(struct pl_serve *serve, uint32_t number);

	/* The public gpu.h. */
	int (*count)(struct pl_gpu *gpu);
	int (*info)(struct pl_gpu *gpu, int ordinal, struct peerlane_gpu_info *out);
	int (*alloc)(struct pl_gpu *gpu, int ordinal, size_t bytes, void **out);
	int (*free)(struct pl_gpu *gpu, void *addr);
	int (*copy_sync)(struct pl_gpu *gpu, void *dst, const void *src, size_t bytes);
	int (*stream_create)(struct pl_gpu *gpu, int ordinal, void **out);
	void (*stream_destroy)(struct pl_gpu *gpu, void *stream);
	int (*stream_sync)(struct pl_gpu *gpu, void *stream);
	int (*launch)(struct pl_gpu *gpu, void *stream, const struct peerlane_kernel *kernel,
		      unsigned int nr_blocks, unsigned int nr_threads, void **args,
		      const size_t *arg_bytes, unsigned int nr_args);
	/* Simulator only; NULL elsewhere. */
	int (*inject)(struct pl_gpu *gpu, const char *what, unsigned int after, unsigned int count);
};

/* Head of each back end's own struct. */
struct pl_gpu {
	const struct pl_gpu_ops *ops;
	bool no_kernels; /* launch nothing of our own; set after open() */
};

extern const struct pl_gpu_ops pl_gpu_cuda;
extern const struct pl_gpu_ops pl_gpu_sim;
extern const struct pl_gpu_ops pl_gpu_simgpu;

/* gpu_sim_share.c: opens the simulated GPU of the process, which another library may have. */
int pl_sim_share_open(struct pl_gpu **out, char *why, size_t why_bytes);

/* Opens the back end @name ("auto", "cuda", "sim", "simgpu"; NULL is "auto"). @why as in open(); with
 * "auto" it holds the reason CUDA was passed over. -EINVAL unknown name. */
int pl_gpu_open(struct pl_gpu **out, const char *name, char *why, size_t why_bytes);

#endif
