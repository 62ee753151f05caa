/* SPDX-License-Identifier: MIT */
/* An io_uring for reads and writes at given positions. One thread at a time uses a ring. */
#ifndef PL_RING_H
#define PL_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pl_ring;

/* One finished request. */
struct pl_ring_done {
	uint64_t tag;
	int result; /* bytes or a negative errno */
};

/* Whether this process may use io_uring; a reason when not, NULL when it may. */
const char *pl_ring_refused(void);

/* @mem is where most requests will read or write: pinned once for all of them where allowed. */
int pl_ring_create(struct pl_ring **out, unsigned int depth, void *mem, size_t bytes);
void pl_ring_destroy(struct pl_ring *ring);
/* In a forked child, where its memory is not mapped: closes the descriptor only. */
void pl_ring_abandon(struct pl_ring *ring);

/* Files that are used often: the kernel then need not look them up, nor count who uses them. */
int pl_ring_files(struct pl_ring *ring, const int *fds, unsigned int nr);

/* Queues a request without submitting it. @flags are PL_RING_*. -EAGAIN when the ring is full. */
int pl_ring_push(struct pl_ring *ring, unsigned int flags, int fd, void *mem, size_t bytes,
		 off_t offset, uint64_t tag);
#define PL_RING_WRITE 0x1u
#define PL_RING_DURABLE 0x2u
#define PL_RING_SYNC 0x4u   /* no data: what was written before is to be durable */
#define PL_RING_NOWAIT 0x8u /* a read: -EAGAIN instead of waiting for a device */
#define PL_RING_FILE 0x10u  /* @fd is the number of a file of pl_ring_files() */
/* Submits what was pushed and collects what is done: waits up to @wait_us for the first (0: does
 * not wait). Returns how many, or a negative errno. */
int pl_ring_collect(struct pl_ring *ring, struct pl_ring_done *done, unsigned int max,
		    unsigned int wait_us);
/* Asks the kernel to cancel everything in flight; the requests still come out of collect(). */
void pl_ring_cancel(struct pl_ring *ring);
unsigned int pl_ring_in_flight(const struct pl_ring *ring);
/* Whether there may be no room for as many requests as a participant takes at once. */
bool pl_ring_full(const struct pl_ring *ring);

#endif
