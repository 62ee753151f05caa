// SPDX-License-Identifier: MIT
/* The queues as kernels see them, and the memory that they lie in. */
#include "device.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

/* Doorbells: each has a line for itself, and so has the stop word before them. */
#define LINE 64u
#define DOORBELLS_AT 128u

static size_t align(size_t at)
{
	return (at + 255) & ~(size_t)255;
}

static uint32_t log2_up(uint32_t v)
{
	return v < 2 ? 0 : 32 - (uint32_t)__builtin_clz(v - 1);
}

static size_t slots_bytes(const struct pl_shape *s)
{
	return (size_t)s->nr_slots * s->transfer_bytes;
}

size_t pl_queues_data_at(const struct peerlane_device *dev, uint32_t queue)
{
	return queue * slots_bytes(&dev->shape);
}

static void lay_out(struct peerlane_device *dev)
{
	const struct pl_shape *s = &dev->shape;
	const size_t nr = s->nr_queues;

	dev->slots_at = align(nr * sizeof(struct pld_queue));
	dev->marks_at = align(dev->slots_at + nr * s->nr_slots * sizeof(uint64_t));
	dev->dma_at =
		align(dev->marks_at + (s->nr_ports > 1 ? nr * s->depth * sizeof(uint64_t) : 0));
	dev->kernel_bytes =
		dev->dma_at + (dev->has_bounce ? nr * s->nr_slots * sizeof(struct pld_dma) : 0);
}

int pl_queues_create(struct peerlane_device *dev, size_t extra)
{
	const struct pl_shape *s = &dev->shape;
	const size_t nr = s->nr_queues;
	void *kernel;
	int err;

	lay_out(dev);
	dev->data_at = dev->has_bounce ? nr * slots_bytes(s) : 0;
	if (extra > SIZE_MAX / 2 - dev->data_at)
		return pl_fail(-ENOMEM, "%zu bytes are too many", extra);
	err = pl_kmem_share(&dev->kmem, DOORBELLS_AT + nr * 2 * LINE, &dev->control);
	dev->given_rings = dev->rings_dev;
	if (!err && !dev->given_rings) {
		err = pl_kmem_share(&dev->kmem, pl_rings_bytes(s), &dev->rings);
		dev->rings_dev = dev->rings.dev;
	}
	if (!err && dev->data_at + extra)
		err = pl_kmem_share(&dev->kmem, dev->data_at + extra, &dev->data);
	if (err)
		return err;
	dev->image = calloc(1, dev->kernel_bytes);
	if (!dev->image)
		return pl_fail(-ENOMEM, "no memory for %zu queues", nr);
	err = pl_kmem_alloc(&dev->kmem, dev->kernel_bytes, &kernel);
	if (!err)
		dev->kernel = kernel;
	return err;
}

void pl_queues_destroy(struct peerlane_device *dev)
{
	pl_kmem_free(&dev->kmem, dev->kernel);
	free(dev->image);
	pl_kmem_unshare(&dev->kmem, &dev->data);
	pl_kmem_unshare(&dev->kmem, &dev->rings);
	pl_kmem_unshare(&dev->kmem, &dev->control);
}

struct pld_dma *pl_queues_dma(struct peerlane_device *dev, uint32_t queue)
{
	return (struct pld_dma *)(dev->image + dev->dma_at) + (size_t)queue * dev->shape.nr_slots;
}

static size_t sq_at(const struct peerlane_device *dev, uint32_t queue)
{
	return queue * pl_sq_bytes(&dev->shape);
}

static size_t cq_at(const struct peerlane_device *dev, uint32_t queue)
{
	return sq_at(dev, dev->shape.nr_queues) + queue * pl_cq_bytes(&dev->shape);
}

struct pl_nvme_sqe *pl_queues_sq(const struct peerlane_device *dev, uint32_t queue)
{
	return (struct pl_nvme_sqe *)(dev->rings.cpu + sq_at(dev, queue));
}

struct pl_nvme_cqe *pl_queues_cq(const struct peerlane_device *dev, uint32_t queue)
{
	return (struct pl_nvme_cqe *)(dev->rings.cpu + cq_at(dev, queue));
}

uint32_t *pl_queues_sq_doorbell(char *base, uint32_t queue)
{
	return (uint32_t *)(base + DOORBELLS_AT + (size_t)queue * 2 * LINE);
}

uint32_t *pl_queues_cq_doorbell(char *base, uint32_t queue)
{
	return (uint32_t *)(base + DOORBELLS_AT + (size_t)queue * 2 * LINE + LINE);
}

uint32_t *pl_queues_stop(const struct peerlane_device *dev)
{
	return (uint32_t *)dev->control.cpu;
}

static void fill(struct peerlane_device *dev, uint32_t i, const struct pl_face *face)
{
	const struct pl_shape *s = &dev->shape;
	struct pld_queue *q = (struct pld_queue *)dev->image + i;
	char *slots = dev->kernel + dev->slots_at, *marks = dev->kernel + dev->marks_at;
	const char *dma = dev->kernel + dev->dma_at;

	*q = (struct pld_queue){
		.sq = (struct pl_nvme_sqe *)(dev->rings_dev + sq_at(dev, i)),
		.cq = (struct pl_nvme_cqe *)(dev->rings_dev + cq_at(dev, i)),
		.sq_doorbell = face->sq_doorbell,
		.cq_doorbell = face->cq_doorbell,
		.slots = (uint64_t *)slots + (size_t)i * s->nr_slots,
		.marks = s->nr_ports > 1 ? (uint64_t *)marks + (size_t)i * s->depth : NULL,
		.stop = (const uint32_t *)dev->control.dev,
		.page_bytes = dev->page_bytes,
		.depth = s->depth,
		.log_depth = log2_up(s->depth),
		.nr_ports = s->nr_ports,
		.slots_per_port = s->slots_per_port,
		.slot_bits = log2_up(s->nr_slots),
		.qid = face->qid,
	};
	if (dev->has_bounce) {
		q->bounce = dev->data.dev + pl_queues_data_at(dev, i);
		q->bounce_bytes = s->transfer_bytes;
		q->bounce_dma = (const struct pld_dma *)dma + (size_t)i * s->nr_slots;
	}
	if (dev->server == PEERLANE_DEVICE_MEMORY)
		q->flags = PLD_RESULT_PLACE;
}

int pl_queues_clear(struct peerlane_device *dev, const struct pl_face *faces)
{
	for (uint32_t i = 0; i < dev->shape.nr_queues; i++)
		fill(dev, i, &faces[i]);
	memset(dev->control.cpu + sizeof(uint32_t), 0, dev->control.bytes - sizeof(uint32_t));
	__atomic_store_n(pl_queues_stop(dev), 0, __ATOMIC_RELEASE);
	return pl_kmem_put(&dev->kmem, dev->kernel, dev->image, dev->kernel_bytes);
}

int pl_queues_counter32(struct peerlane_device *dev, uint32_t queue, size_t at, uint32_t *out)
{
	const char *from = dev->kernel + queue * sizeof(struct pld_queue) + at;

	if (pl_kmem_on_gpu(&dev->kmem))
		return pl_kmem_get(&dev->kmem, out, from, sizeof(*out));
	*out = __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);
	return 0;
}

int pl_queues_counter64(struct peerlane_device *dev, uint32_t queue, size_t at, uint64_t *out)
{
	const char *from = dev->kernel + queue * sizeof(struct pld_queue) + at;

	if (pl_kmem_on_gpu(&dev->kmem))
		return pl_kmem_get(&dev->kmem, out, from, sizeof(*out));
	*out = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);
	return 0;
}
