/* SPDX-License-Identifier: MIT */
/*
 * NVMe controllers that files of this process use by the driver of nvme/. One controller is opened once,
 * however many files and contexts it serves, and closed with the last of them.
 */
#ifndef PL_NVME_SHARED_H
#define PL_NVME_SHARED_H

#include "buffer.h"

#include <peerlane/nvme.h>
#include <stdbool.h>
#include <sys/types.h>

/* Bytes that one call moves at a time by way of a lane's memory. */
#define PL_NVME_LANE_BYTES ((size_t)1 << 20)
#define PL_NVME_LANES 8u

/* A queue pair with memory that the controller reaches; one thread has it at a time. */
struct pl_nvme_lane {
	struct pl_nvme_lane *next; /* that is free */
	struct peerlane_nvme_queue *queue;
	struct peerlane_nvme_map *map;
	char *mem;
};

struct pl_nvme_ref;
struct pl_nvme_route;

/* Guards the table, the counts of users, and the maps of buffers; held while controllers are opened. */
extern pthread_mutex_t pl_nvme_table_lock;

struct pl_nvme_shared {
	struct pl_nvme_shared *next;
	unsigned int users;
	struct pl_nvme_ref *refs;     /* maps of registered buffers, see nvme_reach.h */
	struct pl_nvme_route *routes; /* to GPUs; these four: guarded by the table's lock */
	char *address;
	pid_t pid; /* which opened it: a forked child must not touch it */
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_info info;
	/* Held alone while a block is read, changed and written back; together by other writers. */
	pthread_rwlock_t partial;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t freed;
	struct pl_nvme_lane *free;
	unsigned int nr_lanes;
	int failed;	 /* errno of the last I/O that failed, negative */
	char words[224]; /* ...and what of it is known */
};

/*
 * A controller by its address ("sim:...", "kmod:...", "vfio:...") or its serial number, for
 * pl_nvme_shared_put(). A serial number is looked for among the controllers that are open, those named in
 * PEERLANE_NVME, and those bound to the kernel module. -ENODEV there is none; else what
 * peerlane_nvme_open() gives. The reason is recorded for peerlane_error().
 */
int pl_nvme_shared_get(const char *name, struct pl_nvme_shared **out);
void pl_nvme_shared_put(struct pl_nvme_shared *s);

/* A lane, waiting for one if need be. A negative errno: not one could be made. */
int pl_nvme_lane_take(struct pl_nvme_shared *s, struct pl_nvme_lane **out);
void pl_nvme_lane_give(struct pl_nvme_shared *s, struct pl_nvme_lane *lane);

#endif
