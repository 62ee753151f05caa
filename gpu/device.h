/* SPDX-License-Identifier: MIT */
/* A device: the queues of kernels, the memory they lie in, and who serves them. */
#ifndef PL_DEVICE_H
#define PL_DEVICE_H

#include "kmem.h"
#include <peerlane/device.h>
#include <peerlane/device/queue.h>

#include <pthread.h>
#include <stdbool.h>

struct pl_controllers; /* nvme_server.c */
struct pl_files;       /* files.h */
struct pl_proxies;     /* proxy.h */

#define PL_PROXY_PAGE 4096u

/* The options, checked and with their defaults. */
struct pl_shape {
	uint32_t nr_queues;
	uint32_t depth;
	uint32_t nr_ports; /* of a queue */
	uint32_t slots_per_port;
	uint32_t nr_slots; /* of a queue */
	uint32_t nr_threads;
	uint32_t block_bytes;
	uint32_t transfer_bytes;
};

/* A file or namespace. */
struct pl_space {
	uint32_t controller;
	uint32_t nsid;
	uint32_t block_bytes;
	uint64_t nr_blocks;
	bool read_only;
};

/* What the server knows of a queue and kernels must. */
struct pl_face {
	uint32_t qid;
	uint32_t *sq_doorbell; /* where kernels find it */
	uint32_t *cq_doorbell;
};

struct peerlane_device {
	enum peerlane_device_server server;
	struct pl_kmem kmem;
	struct pl_shape shape;
	uint32_t page_bytes; /* of PRPs */
	uint32_t nr_controllers;
	bool has_bounce;
	bool given_rings; /* the rings lie in memory that the caller gave, of a GPU */

	struct pl_shared control; /* the stop word, then the doorbells of proxies */
	struct pl_shared rings;	  /* all SQs, then all CQs; none with given_rings */
	struct pl_shared data;	  /* of the slots of all queues, then the blocks of "memory" */
	char *rings_dev;	  /* where kernels find the rings */
	size_t data_at;		  /* of the blocks in @data */

	/* Memory of kernels: queues, slots, marks, addresses of slots. @image is what it begins with. */
	char *kernel, *image;
	size_t kernel_bytes, slots_at, marks_at, dma_at;

	struct pl_space *spaces;
	uint32_t nr_spaces;
	/* One of these. */
	struct pl_controllers *controllers;
	struct pl_proxies *proxies;
	struct pl_files *files; /* of the proxies, or NULL */

	pthread_mutex_t lock; /* guards maps, and resets */
	struct peerlane_device_map *maps;
};

/* options.c: -EINVAL, with words. nr_groups: queues are a multiple of it. */
int pl_shape_take(struct pl_shape *shape, const struct peerlane_device_options *opt,
		  uint32_t nr_groups);
size_t pl_sq_bytes(const struct pl_shape *shape);
size_t pl_cq_bytes(const struct pl_shape *shape);
size_t pl_rings_bytes(const struct pl_shape *shape);

/* device.c: an empty device of this shape; freed by peerlane_device_close(), also when half made. */
int pl_device_create(enum peerlane_device_server server, const struct peerlane_device_options *opt,
		     uint32_t nr_groups, struct peerlane_device **out);

/* describe.c: whether it is no real storage. */
bool pl_device_emulated(const struct peerlane_device *dev);

/* queues.c: memory for the queues, with @extra bytes of data behind that of the slots. Rings that the
 * caller gave are in @rings_dev already. */
int pl_queues_create(struct peerlane_device *dev, size_t extra);
void pl_queues_destroy(struct peerlane_device *dev);
/* Everything in it as at the beginning. Nobody may use it. */
int pl_queues_clear(struct peerlane_device *dev, const struct pl_face *faces);
/* Addresses of the slots of a queue, to be filled in the image. */
struct pld_dma *pl_queues_dma(struct peerlane_device *dev, uint32_t queue);
/* A queue as the CPU reaches it. */
struct pl_nvme_sqe *pl_queues_sq(const struct peerlane_device *dev, uint32_t queue);
struct pl_nvme_cqe *pl_queues_cq(const struct peerlane_device *dev, uint32_t queue);
/* The doorbells of a queue that proxies serve, by @base: dev->control.cpu or dev->control.dev. */
uint32_t *pl_queues_sq_doorbell(char *base, uint32_t queue);
uint32_t *pl_queues_cq_doorbell(char *base, uint32_t queue);
uint32_t *pl_queues_stop(const struct peerlane_device *dev);
/* Where the data of the slots of a queue begin in @data. */
size_t pl_queues_data_at(const struct peerlane_device *dev, uint32_t queue);
/* A counter of a queue that kernels count up: @at is its place in struct pld_queue. */
int pl_queues_counter32(struct peerlane_device *dev, uint32_t queue, size_t at, uint32_t *out);
int pl_queues_counter64(struct peerlane_device *dev, uint32_t queue, size_t at, uint64_t *out);

/* nvme_server.c */
int pl_controllers_create(struct peerlane_device *dev, const struct peerlane_device_options *opt,
			  struct peerlane_nvme *const *nvme, uint32_t nr, uint32_t nsid);
void pl_controllers_destroy(struct peerlane_device *dev);
/* Delete all queue pairs, and create them anew. */
int pl_controllers_reset(struct peerlane_device *dev);
struct peerlane_nvme *pl_controllers_get(const struct peerlane_device *dev, uint32_t index);

#endif
