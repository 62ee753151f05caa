/* SPDX-License-Identifier: MIT */
/*
 * What the files of the fake libcuda share. One lock guards everything; the worker of a stream
 * gives it up while it copies, computes, waits or runs a host function.
 */
#ifndef TESTS_FAKE_FAKE_H
#define TESTS_FAKE_FAKE_H

#include "cuda_abi.h"

#include <pthread.h>
#include <stdbool.h>

#define FAKE_MAX_GPUS 8
#define FAKE_GPU_BYTES ((size_t)8 << 30)

/* Contexts are never freed, so that a stale handle is noticed, but used again. */
struct fake_context {
	struct fake_context *next;
	int dev;
	bool primary;
	unsigned int refs;     /* 0: destroyed, or a primary context nobody retains */
	unsigned long long id; /* never used twice */
	int error;	       /* once the work of a stream failed, every call fails with this */
};

enum fake_kind {
	FAKE_DEVICE,
	FAKE_POOL,
	FAKE_MANAGED,
	FAKE_PINNED,
	FAKE_REGISTERED,
	FAKE_MAPPED, /* by cuMemMap() */
};

/* Live memory the driver knows. */
struct fake_range {
	struct fake_range *next;
	enum fake_kind kind;
	uintptr_t addr; /* what the program sees; the CPU must not touch device memory there */
	size_t bytes;
	char *host;		  /* where the content is */
	struct fake_context *ctx; /* NULL for memory of a device, not of a context */
	int dev;
	unsigned int flags;
	bool usable;	/* false until cuMemSetAccess() */
	bool sync;	/* set by cuPointerSetAttribute() */
	void *physical; /* of FAKE_MAPPED */
};

struct fake_op;
/* Runs with the lock held, which it may give up; @live is false when the context has failed. */
typedef int (*fake_run)(struct fake_op *op, bool live);

/* Takes the arguments of a launch of @nr_blocks. */
typedef int (*fake_take)(struct fake_op *op, unsigned int nr_blocks, void **args);

/* One piece of work of a stream. */
struct fake_op {
	struct fake_op *next;
	uint64_t ticket; /* rises over all streams */
	fake_run run;
	uint64_t dst, src, bytes;
	bool dst_known, src_known; /* the driver knew this memory when the work was queued */
	uint32_t value;
	void *owned; /* freed with the work */
	bool lazy;   /* of a call that did not wait for it: done late, unless somebody waits */
	uint64_t due_ns;
	void (*fn)(void *);
	void *arg;
};

enum fake_capture {
	FAKE_CAPTURE_NONE,
	FAKE_CAPTURE_ACTIVE,
	FAKE_CAPTURE_INVALID, /* by a call that is not allowed meanwhile */
};

struct fake_stream {
	struct fake_stream *next;
	struct fake_context *ctx;
	void *implicit;	  /* CU_STREAM_LEGACY or CU_STREAM_PER_THREAD; NULL for a created one */
	pthread_t thread; /* whose CU_STREAM_PER_THREAD it is */
	struct fake_op *head, **tail;
	pthread_cond_t wake;
	bool closing;
	bool blocking;	/* keeps order with the default stream */
	uint64_t hurry; /* lazy work up to this ticket is waited for */
	enum fake_capture capture;
};

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_progress; /* some work was done */
extern __thread bool fake_in_host_fn;

/* libcuda.c: every entry point begins with fake_begin(), which takes the lock on success, and ends
 * with fake_end(). @ctx receives the current context, which must be there; NULL asks for none. */
int fake_begin(const char *symbol, struct fake_context **ctx);
/* The same for calls that undo something, which also work in a context that has failed. */
int fake_begin_undo(const char *symbol, struct fake_context **ctx);
int fake_end(int result);
int fake_injected(const char *symbol);
/* In FAKE_STRICT_LOCK mode, between these two no other call begins; lock held. */
bool fake_alone_begin(void);
void fake_alone_end(void);
/* Whether kernels that serve a stream copy nothing, and whether they do when they are told to end. */
bool fake_stalled(void);
bool fake_late(void);
void fake_violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int fake_nr_gpus(void);

/* A count and, if there is any, a line of text. */
struct fake_report {
	char *text;
	size_t bytes;
	int nr;
};
void fake_report_add(struct fake_report *report, int nr, const char *what);

/* context.c */
struct fake_context *fake_current(void);
void fake_contexts_report(struct fake_report *report);

/* memory.c */
struct fake_range *fake_range_find(uint64_t addr);
struct fake_range *fake_range_add(enum fake_kind kind, uintptr_t addr, size_t bytes, char *host,
				  struct fake_context *ctx);
/* Forgets a range; the address of memory the CPU cannot touch stays known as freed. */
void fake_range_remove(struct fake_range *range);
/* Whether the driver knows all of a piece of memory and the GPU may use it. */
bool fake_range_covers(uint64_t addr, size_t bytes);
/* Whether an address that is in no range is in device memory that was freed. */
bool fake_range_dead(uint64_t addr);
/* Where the content of @addr is, and how much of it is in one piece; NULL if it is gone. */
char *fake_range_host(uint64_t addr, bool known, size_t *bytes);
unsigned int fake_ranges_drop(struct fake_context *ctx);
void fake_ranges_report(struct fake_report *report);
/* Address space that the CPU cannot touch, never given out twice. */
uintptr_t fake_reserve(size_t bytes);
char *fake_back(size_t bytes);

/* vmm.c */
void fake_physical_report(struct fake_report *report);

/* stream.c */
/* The stream of a handle in the current context, or NULL; default streams are made when needed. */
struct fake_stream *fake_stream_find(void *handle, struct fake_context *ctx);
int fake_queue(struct fake_stream *stream, const struct fake_op *work, uint64_t *ticket);
/* Waits until all work up to @ticket of the streams of a context, or of one stream, is done. */
void fake_wait(const struct fake_context *ctx, const struct fake_stream *stream, uint64_t ticket);
/* Waits until the work queued so far that uses a piece of memory is done; with @lazy only work that
 * its own call did not wait for. */
void fake_wait_memory(uint64_t addr, size_t bytes, bool lazy);
/* 0, or the error of using @stream: the default stream while a blocking one is being captured, which
 * also ends that capture. */
int fake_stream_usable(const struct fake_stream *stream);
/* A blocking stream of the context that is being captured, or NULL. */
struct fake_stream *fake_stream_captured(const struct fake_context *ctx);
/* Somebody waits for the work with this ticket. */
void fake_hurry(uint64_t ticket);
uint64_t fake_last_ticket(void);
unsigned int fake_streams_drop(struct fake_context *ctx);
void fake_streams_report(struct fake_report *report);

/* Waits until all work of a context is done; in FAKE_STRICT_LOCK mode every other call waits as
 * well. */
void fake_wait_alone(const struct fake_context *ctx);
/* Before a call that needs a new channel: in FAKE_STRICT_LOCK mode the same. */
void fake_wait_channel(const struct fake_context *ctx);

/* serve.c */
int fake_take_serve(struct fake_op *op, unsigned int nr_blocks, void **args);
/* Kernels that serve a stream and run now. */
unsigned int fake_serving(void);

/* event.c */
unsigned int fake_events_drop(struct fake_context *ctx);
void fake_events_report(struct fake_report *report);

/* module.c */
unsigned int fake_modules_drop(struct fake_context *ctx);
void fake_modules_report(struct fake_report *report);

#endif
