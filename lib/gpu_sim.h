/* SPDX-License-Identifier: MIT */
/*
 * Parts of the simulated GPU, shared by gpu_sim*.c.
 *
 * Memory and streams are process-wide, as with a real driver: what one struct pl_gpu allocates,
 * another can use. Queues and marks belong to the struct pl_gpu that made them.
 *
 * Order of locks: gpu->lock, fifo->lock, the object list (gpu_sim_object.c), the memory table
 * (gpu_sim_table.c). fork() takes the last two, so a child finds both whole.
 */
#ifndef PL_GPU_SIM_H
#define PL_GPU_SIM_H

#include "gpu.h"
#include <pthread.h>
#include <stdatomic.h>

#define PL_SIM_MAX_GPUS 8
#define PL_SIM_MAX_BYTES ((size_t)1 << 46) /* of one piece of memory; keeps sums from wrapping */

/* What result() gives: the CUresult a real driver would have returned. */
enum pl_sim_result {
	PL_SIM_OK = 0,
	PL_SIM_INVALID_VALUE = 1,
	PL_SIM_OUT_OF_MEMORY = 2,
	PL_SIM_INVALID_DEVICE = 101,
	PL_SIM_OPERATING_SYSTEM = 304,
	PL_SIM_INVALID_HANDLE = 400,
	PL_SIM_ALREADY_REGISTERED = 712,
	PL_SIM_LAUNCH_FAILED = 719,
	PL_SIM_NOT_SUPPORTED = 801,
};

/* What inject() can make fail. */
enum pl_sim_fault {
	PL_SIM_FAULT_COPY,
	PL_SIM_FAULT_ALLOC,
	PL_SIM_FAULT_PIN,
	PL_SIM_FAULT_REGISTER,
	PL_SIM_FAULT_LAUNCH,
	PL_SIM_FAULT_EVENT,
	PL_SIM_FAULT_HANG,
	PL_SIM_NR_FAULTS,
};

struct pl_sim_stream;

struct pl_sim_gpu {
	struct pl_gpu gpu;
	int nr_gpus;
	bool async;	       /* a thread per queue; else copy() copies */
	unsigned int delay_us; /* async: before each list */
	bool bar;	       /* show GPU memory as mapped for the CPU */
	bool in_place;	       /* pin_register() works */
	uint64_t memory_bytes; /* of each GPU */
	uint64_t pinned_limit;
	_Atomic uint64_t faults[PL_SIM_NR_FAULTS]; /* operations to pass << 32 | to fail */
	atomic_uint hang;			   /* generation: changes when hangs are cleared */
	pthread_mutex_t lock;			   /* guards making @stream */
	struct pl_sim_stream *stream;		   /* NULL stream of this GPU */
};

static inline struct pl_sim_gpu *pl_sim_of(struct pl_gpu *gpu)
{
	return (struct pl_sim_gpu *)gpu;
}

void pl_sim_result_set(enum pl_sim_result result);

/* Remembers @result for the calling thread and gives back @err. */
static inline int pl_sim_refuse(int err, enum pl_sim_result result)
{
	pl_sim_result_set(result);
	return err;
}

/* ------------------------------------------------------------------ gpu_sim_fault.c */

int pl_sim_fault_set(struct pl_sim_gpu *sim, const char *what, unsigned int after,
		     unsigned int count);
/* "copy:3:1,pin:0:99"; -EINVAL and a sentence in @why. */
int pl_sim_fault_parse(struct pl_sim_gpu *sim, const char *text, char *why, size_t why_bytes);
/* Counts one operation; true if it has to fail. */
bool pl_sim_fault_hit(struct pl_sim_gpu *sim, enum pl_sim_fault fault);

/* ------------------------------------------------------------------ gpu_sim_object.c */

enum pl_sim_kind {
	PL_SIM_STREAM,
	PL_SIM_QUEUE,
	PL_SIM_MARK,
	PL_SIM_TASK,
	PL_SIM_NR_KINDS,
};

/* First member of everything that a forked child has to free without its threads. */
struct pl_sim_object {
	struct pl_sim_object *next;
	struct pl_sim_object **link; /* what points to this one */
	const void *owner;	     /* struct pl_sim_gpu; NULL: of the process */
};

void *pl_sim_object_create(enum pl_sim_kind kind, const void *owner, size_t bytes);
void pl_sim_object_destroy(void *object);
bool pl_sim_object_exists(enum pl_sim_kind kind, const void *object);
/* Any object of @owner, or NULL. */
void *pl_sim_object_first(enum pl_sim_kind kind, const void *owner);
/* Frees all objects of @owner, whatever their state. */
void pl_sim_object_forget(const void *owner);
void pl_sim_object_lock(void);
void pl_sim_object_unlock(void);

/* ------------------------------------------------------------------ gpu_sim_fifo.c */

struct pl_sim_fifo;

struct pl_sim_task {
	struct pl_sim_object object;
	struct pl_sim_task *next;
	void (*run)(struct pl_sim_fifo *fifo, struct pl_sim_task *task);
};

/* A thread that runs tasks in order and destroys each when it has run. */
struct pl_sim_fifo {
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows, up to @stopping */
	pthread_cond_t more;  /* a task came, or stop */
	pthread_cond_t less;  /* a task finished */
	struct pl_sim_task *head;
	struct pl_sim_task **tail;
	uint64_t nr_queued;
	uint64_t nr_finished;
	atomic_bool stopping;
	bool gave_up; /* the thread's own: what follows is dropped */
};

int pl_sim_fifo_start(struct pl_sim_fifo *fifo);
/* Finishes all tasks and joins the thread. */
void pl_sim_fifo_stop(struct pl_sim_fifo *fifo);
/* Returns the ticket to wait for. */
uint64_t pl_sim_fifo_push(struct pl_sim_fifo *fifo, struct pl_sim_task *task);
void pl_sim_fifo_wait(struct pl_sim_fifo *fifo, uint64_t ticket);
void pl_sim_fifo_sync(struct pl_sim_fifo *fifo);
void pl_sim_fifo_sleep(unsigned int us);

/* ------------------------------------------------------------------ gpu_sim_table.c */

enum pl_sim_state {
	PL_SIM_UNUSED,
	PL_SIM_LIVE,	   /* GPU memory */
	PL_SIM_FREED,	   /* GPU memory in quarantine: its addresses stay reserved */
	PL_SIM_PINNED,	   /* host memory of pin_alloc() */
	PL_SIM_UNPINNED,   /* the same, freed while a copy uses it */
	PL_SIM_REGISTERED, /* host memory of pin_register() */
	PL_SIM_INHERITED,  /* GPU memory of the parent of this process; not in the table */
};

/*
 * A piece of memory the simulated driver knows. Records are never freed, only used again, so the
 * fault checker may read them (state, base, bytes, shadow) with no lock.
 */
struct pl_sim_range {
	struct pl_sim_range *all;  /* next of all records */
	struct pl_sim_range *next; /* next unused record, or next in quarantine */
	_Atomic int state;
	_Atomic uintptr_t base;
	_Atomic size_t bytes;
	_Atomic uintptr_t shadow; /* where copies and kernels reach GPU memory; else 0 */
	uint64_t id;		  /* no two ranges ever have the same */
	int gpu;
	bool released;	  /* freed, and the memory behind it given back */
	atomic_uint refs; /* one for being alive and one for each copy at work */
};

void pl_sim_table_read(void);
void pl_sim_table_write(void);
void pl_sim_table_unlock(void);
/* The rest needs the lock; add and remove need it for writing. */
/* First range that ends after @addr, or NULL. */
struct pl_sim_range *pl_sim_table_find(uintptr_t addr);
/* NULL: no memory, or something else is there. Takes the place of registrations: they are stale
 * where the system has just given out the addresses. */
struct pl_sim_range *pl_sim_table_add(enum pl_sim_state state, uintptr_t base, size_t bytes,
				      uintptr_t shadow, int gpu);
void pl_sim_table_remove(struct pl_sim_range *range);
/* In a forked child, where GPU memory is not mapped: start afresh. Ends the caller's lock. */
void pl_sim_table_forget(void);
/* All records, used or not; needs no lock. */
struct pl_sim_range *pl_sim_table_all(void);

/* ------------------------------------------------------------------ gpu_sim_mem.c */

/* What a copy may find at an address. */
enum pl_sim_want {
	PL_SIM_WANT_GPU,
	PL_SIM_WANT_HOST,
	PL_SIM_WANT_ANY,
};

/* One side of a copy, held against being freed. */
struct pl_sim_side {
	char *host;		    /* where the CPU moves the bytes */
	struct pl_sim_range *range; /* what is held, or NULL */
	uint64_t id;		    /* of the range; 0: none */
	const void *owner;	    /* GPU context it belongs to; NULL: host memory */
	bool pinned;		    /* memory of pin_alloc() */
	bool careful;		    /* may vanish: a signal must not come of it */
};

int pl_sim_mem_alloc(struct pl_gpu *gpu, int ordinal, size_t bytes, void **out);
int pl_sim_mem_free(struct pl_gpu *gpu, void *addr);
int pl_sim_mem_query(struct pl_gpu *gpu, const void *addr, struct pl_mem *out);
/* -EFAULT: not wholly inside what is wanted. */
int pl_sim_mem_get(const void *addr, size_t bytes, enum pl_sim_want want, struct pl_sim_side *out);
void pl_sim_mem_put(struct pl_sim_side *side);
int pl_sim_mem_move(const struct pl_sim_side *dst, const struct pl_sim_side *src, size_t bytes);
/* Gets, moves and puts. */
int pl_sim_mem_copy(void *dst, const void *src, size_t bytes);
/* Gives memory back once neither its user nor a copy holds it; the table is locked for writing. */
void pl_sim_mem_drop(struct pl_sim_range *range);
void pl_sim_mem_forget(void);
/* @bytes in whole pages; the same and the guard page. */
size_t pl_sim_mem_round(size_t bytes);
size_t pl_sim_mem_span(size_t bytes);
/* Reserves addresses for @bytes and a guard page. They cannot be accessed, unless @populate. */
int pl_sim_mem_reserve(size_t bytes, bool populate, uintptr_t *out);
void pl_sim_mem_unmap(uintptr_t base, size_t bytes);

/* ------------------------------------------------------------------ gpu_sim_pin.c */

int pl_sim_pin_alloc(struct pl_gpu *gpu, size_t bytes, void **out);
void pl_sim_pin_free(struct pl_gpu *gpu, void *addr, size_t bytes);
int pl_sim_pin_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes);
void pl_sim_pin_unregister(struct pl_gpu *gpu, int ordinal, void *addr);
/* The table is locked for writing. */
void pl_sim_pin_uncount(size_t bytes);
void pl_sim_pin_forget(void);

/* ------------------------------------------------------------------ gpu_sim_check.c */

/* From now on a fault in simulated GPU memory is described on stderr before it takes its way. */
int pl_sim_check_install(void);

/* ------------------------------------------------------------------ gpu_sim_queue.c */

int pl_sim_queue_create(struct pl_gpu *gpu, void *owner, struct pl_queue **out);
void pl_sim_queue_destroy(struct pl_gpu *gpu, struct pl_queue *queue);
int pl_sim_queue_copy(struct pl_gpu *gpu, struct pl_queue *queue, enum pl_dir dir,
		      const struct pl_copy *list, unsigned int nr, struct pl_mark *mark);
int pl_sim_mark_create(struct pl_gpu *gpu, struct pl_queue *queue, struct pl_mark **out);
void pl_sim_mark_destroy(struct pl_gpu *gpu, struct pl_mark *mark);
int pl_sim_mark_done(struct pl_gpu *gpu, struct pl_mark *mark);

/* ------------------------------------------------------------------ gpu_sim_stream.c */

int pl_sim_stream_create(struct pl_gpu *gpu, int ordinal, void **out);
void pl_sim_stream_destroy(struct pl_gpu *gpu, void *stream);
int pl_sim_stream_sync(struct pl_gpu *gpu, void *stream);
int pl_sim_stream_key(struct pl_gpu *gpu, void *stream, uintptr_t key[2]);
int pl_sim_stream_call(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg);
int pl_sim_stream_hold(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value);
int pl_sim_stream_launch(struct pl_gpu *gpu, void *stream, const struct peerlane_kernel *kernel,
			 unsigned int nr_blocks, unsigned int nr_threads, void **args,
			 const size_t *arg_bytes, unsigned int nr_args);
int pl_sim_stream_copy(struct pl_gpu *gpu, void *dst, const void *src, size_t bytes);

#endif
