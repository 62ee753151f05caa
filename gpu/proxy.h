/* SPDX-License-Identifier: MIT */
/*
 * Proxies: threads that serve the queues of kernels as a controller would. Each has some of the queues
 * for itself. They look at doorbells in turn, take all new commands of a queue at once, and post
 * completions; they sleep when there is nothing to do for long.
 *
 * Whatever lies in the rings is the kernels' and may be anything: it is checked before it is used.
 */
#ifndef PL_PROXY_H
#define PL_PROXY_H

#include "device.h"

#include <stdbool.h>

struct pl_proxy;

/* Counted by the proxy, read by anybody. */
struct pl_proxy_counts {
	uint64_t commands;
	uint64_t bytes_read;
	uint64_t bytes_written;
	uint64_t errors;
	uint64_t cached;
	uint64_t bad_doorbells;
};

/* A queue, as its proxy sees it. */
struct pl_proxy_queue {
	const struct pl_nvme_sqe *sq;
	struct pl_nvme_cqe *cq;
	const uint32_t *sq_doorbell;
	const uint32_t *cq_doorbell;
	uint32_t depth, log_depth;
	uint32_t index;
	char *data;   /* of its slots */
	uint64_t prp; /* what commands must say for slot 0 */
	void *ops;    /* of the server: for each slot */
	/* All of these run on and wrap at 2^32. */
	uint32_t head;	       /* commands fetched */
	uint32_t tail;	       /* completions posted */
	uint32_t taken;	       /* completions that kernels have taken, as far as was looked */
	uint32_t in_flight;    /* commands fetched, not completed */
	uint32_t odd_doorbell; /* the last one that was wrong */
	struct pl_proxy_counts counts;
} __attribute__((aligned(128)));

/* Who carries commands out. */
struct pl_proxy_server {
	/* For each proxy; @own is its own. */
	int (*start)(struct pl_proxy *p);
	void (*end)(struct pl_proxy *p);
	/* Fetch the next @nr commands, for all of which there is room for completions. */
	void (*serve)(struct pl_proxy *p, struct pl_proxy_queue *q, uint32_t nr);
	/* Commands that take their time: go on with them, waiting so long for the first. Returns how
	 * many have moved. NULL: there are none. */
	unsigned int (*progress)(struct pl_proxy *p, unsigned int wait_us);
	bool (*busy)(const struct pl_proxy *p);
};

struct pl_proxy {
	struct pl_proxies *all;
	pthread_t thread;
	uint32_t index;
	bool parked;
	void *own; /* of the server */
};

struct pl_proxies {
	struct peerlane_device *dev;
	const struct pl_proxy_server *server;
	void *arg; /* of the server */
	struct pl_proxy_queue *queues;
	uint32_t nr_threads, nr_started;
	struct pl_proxy *threads;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	int want; /* enum in proxy.c; atomic, changed under the lock */
};

/* The queues of the device are there. Proxies are made, and parked. */
int pl_proxies_create(struct peerlane_device *dev, const struct pl_proxy_server *server, void *arg);
/* Ends what is outstanding, and the threads. Does not free @arg. */
void pl_proxies_destroy(struct peerlane_device *dev);
/* All outstanding commands have ended, and nobody looks at the queues any more. */
void pl_proxies_park(struct pl_proxies *ps);
void pl_proxies_go(struct pl_proxies *ps);
/* Parked: empty queues. */
int pl_proxies_clear(struct pl_proxies *ps);

/* A command that is to move data, checked. */
struct pl_proxy_command {
	uint32_t slot;
	uint32_t space;
	uint64_t offset; /* in bytes */
	uint32_t bytes;	 /* 0: flush */
	char *data;	 /* of the slot */
};

/* What is wrong with a command: a status, with the bit that says not to retry; 0: nothing. */
unsigned int pl_proxy_check(const struct pl_proxies *ps, const struct pl_proxy_queue *q,
			    const struct pl_nvme_sqe *sqe, struct pl_proxy_command *out);

static inline void pl_proxy_count(uint64_t *counter, uint64_t by)
{
	__atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

/* Write completion number @tail of queue @index, the status last. */
static inline void pl_proxy_write(struct pl_nvme_cqe *cq, uint32_t mask, uint32_t log_depth,
				  uint32_t tail, uint32_t head, uint32_t index, uint16_t cid,
				  unsigned int status, uint32_t result)
{
	struct pl_nvme_cqe *cqe = &cq[tail & mask];

	cqe->result = result;
	cqe->dw1 = 0;
	cqe->sqhd = (uint16_t)(head & mask);
	cqe->sqid = (uint16_t)(index + 1);
	cqe->cid = cid;
	__atomic_store_n(&cqe->status, (uint16_t)(status << 1 | (~tail >> log_depth & 1)),
			 __ATOMIC_RELEASE);
}

/* Post a completion. @status: as it stands in the completion, without the phase, from bit 0 on. */
static inline void pl_proxy_post(struct pl_proxy_queue *q, uint16_t cid, unsigned int status,
				 uint32_t result)
{
	pl_proxy_write(q->cq, q->depth - 1, q->log_depth, q->tail, q->head, q->index, cid, status,
		       result);
	q->tail++;
	if (status)
		pl_proxy_count(&q->counts.errors, 1);
}

/* serve_memory.c, serve_files.c */
extern const struct pl_proxy_server pl_serve_instant;
extern const struct pl_proxy_server pl_serve_memory;
extern const struct pl_proxy_server pl_serve_files;
int pl_files_open(struct peerlane_device *dev, const int *fds, uint32_t nr, struct pl_files **out);
void pl_files_close(struct pl_files *files);

#endif
