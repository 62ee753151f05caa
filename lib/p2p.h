/* SPDX-License-Identifier: MIT */
/*
 * The path p2p: GPU memory that peerlane.ko has mapped into the process, so that O_DIRECT makes the
 * drive write and read it by DMA. A segment of a request gets the address in that mapping, if the
 * module, the memory, the drive and the file allow it; its whole blocks then go there.
 *
 * Pins can be revoked: when the GPU's driver takes the memory back, I/O into the mapping fails with
 * EFAULT, so no request need ask first whether a pin is still good. A persistent pin would not
 * tell, and a later allocation at the same address would be missed.
 */
#ifndef PL_P2P_H
#define PL_P2P_H

#include "buffer.h"
#include "job.h"

#include <uapi/peerlane.h>

/* What the test of a GPU and a drive reads, unless the file is shorter. */
#define PL_P2P_TEST_BYTES 16384u

struct pl_p2p_pin;
struct pl_p2p_route;

enum pl_p2p_state {
	PL_P2P_UNTRIED,
	PL_P2P_READY,
	PL_P2P_NONE, /* @why says why */
};

struct pl_p2p {
	pthread_mutex_t lock;	 /* guards all below, and is held while pins and routes are made */
	enum pl_p2p_state state; /* also read without the lock */
	int fd;
	uint64_t max_pin_bytes;
	bool asks_adapters; /* the module can be asked about RDMA adapters */
	char why[160], fix[160];
	struct pl_p2p_pin *pins;
	unsigned int nr_pins; /* of memory that is not registered */
	uint64_t clock;	      /* of their use */
	struct pl_p2p_route *routes;
	unsigned int nr_routes;
};

void pl_p2p_init(struct pl_p2p *p);
/* All requests have ended. */
void pl_p2p_fini(struct pl_p2p *p);
/* In a forked child, which has none of the mappings. */
void pl_p2p_abandon(struct pl_p2p *p);

/*
 * Gives @seg of a request in direction @dir its address in the mapping, if it can go that way.
 * *@buf is the registered buffer it lies in, or NULL; then it may become one that stands for
 * the memory, with a reference, for pl_buffer_put() when the request has ended.
 */
void pl_p2p_attach(struct peerlane *ctx, struct pl_seg *seg, enum peerlane_op dir,
		   const struct pl_mem *mem, struct pl_buffer **buf);
/*
 * The same in two steps, for a request that must call no driver when it runs: what @file and the
 * memory allow is found out first, and *@way lasts as long as the reference to *@buf.
 */
void pl_p2p_hold(struct peerlane *ctx, const struct peerlane_file *file, enum peerlane_op dir,
		 const struct pl_mem *mem, struct pl_buffer **buf, struct pl_p2p_way *way);
/* Then @seg, which lies in that memory, gets its address. Calls nothing. */
void pl_p2p_take(struct pl_seg *seg, enum peerlane_op dir, const struct pl_p2p_way *way);
/* The same question, answered in words. Moves no data but that of the test. */
void pl_p2p_judge(struct peerlane *ctx, const struct pl_seg *seg, enum peerlane_op dir,
		  const struct pl_mem *mem, struct pl_buffer *buf, struct peerlane_verdict *out);
/* Whether its memory was still there when last seen. */
bool pl_p2p_alive(const struct pl_seg *seg);
/* A transfer by @seg's mapping failed with @err (negative). Returns -EFAULT if that is because the
 * memory is gone, @err otherwise. */
int pl_p2p_failed(const struct peerlane *ctx, const struct pl_seg *seg, int err);
/* ...and then succeeded the other way, so it was not the drive: such a route is not taken for ever. */
void pl_p2p_misled(struct peerlane *ctx, const struct pl_seg *seg, int err);
/*
 * A pin of @buf for a device that somebody else drives, who undoes it (pl_p2p_pin_undo()) when the device
 * cannot reach it any more. A negative errno, and why in words if @out is not NULL.
 */
int pl_p2p_pin_apart(struct peerlane *ctx, const struct pl_buffer *buf, struct pl_p2p_pin *pin,
		     struct peerlane_verdict *out);
/* @buf is going away and nobody uses it. */
void pl_p2p_release(struct peerlane *ctx, struct pl_buffer *buf);

/* Blocks that may go by the mapping are multiples of this, in the file and in memory. On writes it
 * is a page at least, so that they never share one with what goes through the page cache. */
static inline size_t pl_p2p_block(const struct peerlane_file *file, enum peerlane_op dir)
{
	return dir == PEERLANE_WRITE && file->align < 4096 ? 4096 : file->align;
}

/* --- p2p_pin.c --- */

struct pl_p2p_pin {
	struct pl_p2p_pin *next;
	struct pl_buffer own;  /* stands for memory that is not registered */
	struct pl_buffer *buf; /* whose users are the pin's: @own, or the registered one */
	uintptr_t addr;
	size_t bytes;
	int err;	  /* it could not be made */
	uint64_t made_ns; /* or tried */
	uint64_t used;
	uint32_t handle;
	uint64_t gpu_pci;   /* domain << 16 | bus << 8 | device << 3 | function */
	uint32_t page_kind; /* PEERLANE_PAGES_* */
	char *map;
	size_t map_bytes, skip;
	bool dead; /* revoked; atomic */
};

/* The pin of @mem, or of @buf where that is not NULL. A negative errno. Lock held. */
int pl_p2p_pin_get(struct pl_p2p *p, const struct pl_mem *mem, struct pl_buffer *buf,
		   struct pl_p2p_pin **out);
/* Pins and maps [addr, addr + bytes). */
int pl_p2p_pin_make(struct pl_p2p *p, struct pl_p2p_pin *pin, unsigned int flags);
void pl_p2p_pin_undo(struct pl_p2p *p, struct pl_p2p_pin *pin);
void pl_p2p_pin_drop(struct pl_p2p *p, struct pl_p2p_pin *pin);

/* --- p2p_trial.c --- */

/*
 * A test of a drive and a GPU, for which no one vouches otherwise: a part of what the drive holds is read into
 * GPU memory, and looked at there.
 */
struct pl_p2p_trial {
	/* How it is read, into host memory and into GPU memory that is pinned: 1 it was, 0 that failed,
	 * -1 it failed for a reason that says nothing of the way. */
	int (*read_host)(void *arg, void *to, size_t bytes, off_t offset);
	int (*read_gpu)(void *arg, const struct pl_p2p_pin *pin, size_t bytes, off_t offset);
	void *arg;
	int64_t size; /* of what can be read */
	size_t align; /* of blocks */
	bool zeros_tell; /* zeros come from the drive, too; else the CPU may have written them (holes) */
};

#define PL_P2P_TRIAL_FAILED "the test failed: the drive did not write the GPU's memory as it should"
#define PL_P2P_TRIAL_FIX "see dmesg; the PCIe topology may not carry such transfers"

/* 1: what was read arrived; 0: it did not; -1: it cannot be told. */
int pl_p2p_trial_run(struct peerlane *ctx, const struct pl_p2p_trial *t, int gpu);
/* The same in a word, for the log. */
const char *pl_p2p_trial_word(int result);

/* --- p2p_route.c --- */

/* Between a GPU and the drive of a file. Lives as long as the context. */
struct pl_p2p_route {
	struct pl_p2p_route *next;
	uint64_t gpu_pci;
	dev_t dev;
	unsigned int verdict; /* PEERLANE_ROUTE_* */
	bool tested;
	bool untested;	     /* a member of a stacked device could not be */
	bool revoked;	     /* nothing could be told: the pin was gone */
	unsigned int misled; /* atomic */
	char adapter[64];    /* of RDMA, that moves the data; "" if it is the drive itself */
	char why[160], fix[160];
};

/* The route from @file's drive to the GPU of @pin, tested if it can be. Lock held. NULL: no
 * memory, or none for more; or the pin was revoked. */
struct pl_p2p_route *pl_p2p_route_get(struct peerlane *ctx, const struct peerlane_file *file,
				      struct pl_p2p_pin *pin, int gpu);
/* Whether transfers may take it now; @why and @fix of it say why not. */
bool pl_p2p_route_open(const struct pl_p2p_route *route);

#endif
