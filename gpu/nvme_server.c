// SPDX-License-Identifier: MIT
/*
 * NVMe controllers that serve the queues of kernels: queue pairs made by the driver, whose rings and
 * doorbells are handed to the kernels. The driver itself never submits on them.
 */
#include "device.h"
#include "pieces.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

struct controller {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_map *rings, *data, *lists;
	void *bar0;	/* of the CPU; NULL: the kernels cannot reach it yet */
	char *bar0_dev; /* where kernels find it */
};

struct pl_controllers {
	uint32_t nr;
	struct controller *list;
	struct peerlane_nvme_queue **pairs; /* of all queues */
};

struct peerlane_nvme *pl_controllers_get(const struct peerlane_device *dev, uint32_t index)
{
	return dev->controllers->list[index].nvme;
}

/* What all of them can. */
static int look_at(struct peerlane_device *dev, const struct controller *c, uint32_t index,
		   uint32_t nsid)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_ns_info ns_info = { .size = sizeof(ns_info) };
	struct peerlane_nvme_ns *ns;
	int err;

	if (!c->nvme)
		return pl_fail(-EINVAL, "controller %u is NULL", index);
	err = peerlane_nvme_get_info(c->nvme, &info);
	if (!err)
		err = peerlane_nvme_ns_open(c->nvme, nsid, &ns);
	if (!err)
		err = peerlane_nvme_ns_get_info(ns, &ns_info);
	if (err)
		return pl_fail(err, "controller %u, namespace %u: %s", index, nsid,
			       peerlane_strerror(err));
	if (info.has_dbbuf)
		return pl_fail(-EOPNOTSUPP,
			       "controller %u uses shadow doorbells: open it with "
			       "PEERLANE_NVME_NO_DBBUF",
			       index);
	/* Rings lie at every page. */
	if (info.page_bytes != dev->page_bytes)
		return pl_fail(-EOPNOTSUPP, "controller %u has pages of %u bytes, not %u", index,
			       info.page_bytes, dev->page_bytes);
	if (info.max_transfer_bytes && info.max_transfer_bytes < dev->shape.transfer_bytes)
		dev->shape.transfer_bytes = (uint32_t)info.max_transfer_bytes;
	dev->spaces[index] = (struct pl_space){ .controller = index,
						.nsid = nsid,
						.block_bytes = ns_info.block_bytes,
						.nr_blocks = ns_info.nr_blocks,
						.read_only = ns_info.read_only };
	return 0;
}

/* Memory of the slots, for the queues of this controller. */
static int map_data(struct peerlane_device *dev, struct controller *c, uint32_t index)
{
	const struct pl_shape *s = &dev->shape;
	const size_t nr = (size_t)s->nr_queues * s->nr_slots;
	struct pld_dma *dma;
	int err;

	dma = calloc(nr, sizeof(*dma));
	if (!dma)
		return -ENOMEM;
	err = peerlane_nvme_map_host(c->nvme, dev->data.cpu, dev->data.bytes, &c->data);
	if (!err)
		err = pl_pieces_fill(c->nvme, c->data, nr, s->transfer_bytes, dev->page_bytes, dma,
				     &c->lists);
	for (uint32_t i = index; i < s->nr_queues && !err; i += dev->nr_controllers)
		memcpy(pl_queues_dma(dev, i), dma + (size_t)i * s->nr_slots,
		       s->nr_slots * sizeof(*dma));
	free(dma);
	return err;
}

static int map_rings(struct peerlane_device *dev, struct controller *c,
		     const struct peerlane_nvme_memory *rings)
{
	if (rings)
		return peerlane_nvme_map(c->nvme, rings, &c->rings);
	return peerlane_nvme_map_host(c->nvme, dev->rings.cpu, dev->rings.bytes, &c->rings);
}

static int create_pair(struct peerlane_device *dev, uint32_t queue)
{
	struct pl_controllers *cs = dev->controllers;
	const struct pl_shape *s = &dev->shape;
	struct controller *c = &cs->list[queue % cs->nr];
	struct peerlane_nvme_queue_options opt = {
		.size = sizeof(opt),
		.depth = s->depth,
		/* The driver sends nothing on it, so it needs no lists. */
		.max_transfer_bytes = 4096,
		.sq = c->rings,
		.sq_offset = queue * pl_sq_bytes(s),
		.cq = c->rings,
		.cq_offset = s->nr_queues * pl_sq_bytes(s) + queue * pl_cq_bytes(s),
	};
	int err = peerlane_nvme_queue_create(c->nvme, &opt, &cs->pairs[queue]);

	return err ? pl_fail(err, "controller %u: queue %u of %u cannot be created: %s",
			     queue % cs->nr, queue / cs->nr + 1, s->nr_queues / cs->nr,
			     peerlane_strerror(err))
		   : 0;
}

/* All doorbells that the controller can have, mapped for the kernels once. */
static int reach_registers(struct peerlane_device *dev, struct controller *c,
			   const struct peerlane_nvme_queue_info *pair)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	const size_t stride = pair->cq_doorbell - pair->sq_doorbell;
	void *at = NULL;
	size_t bytes;
	int err;

	if (c->bar0)
		return 0;
	err = peerlane_nvme_get_info(c->nvme, &info);
	if (err)
		return err;
	bytes = PL_NVME_REG_DOORBELLS + 2 * ((size_t)info.nr_queues + 1) * stride;
	if (bytes > pair->bar0_bytes)
		bytes = pair->bar0_bytes;
	err = pl_kmem_registers(&dev->kmem, (void *)(uintptr_t)pair->bar0, bytes, &at);
	if (err)
		return err;
	c->bar0 = (void *)(uintptr_t)pair->bar0;
	c->bar0_dev = at;
	return 0;
}

static int face_of(struct peerlane_device *dev, uint32_t queue, struct pl_face *face)
{
	struct pl_controllers *cs = dev->controllers;
	struct controller *c = &cs->list[queue % cs->nr];
	struct peerlane_nvme_queue_info info = { .size = sizeof(info) };
	int err = peerlane_nvme_queue_get_info(cs->pairs[queue], &info);

	if (!err)
		err = reach_registers(dev, c, &info);
	if (err)
		return err;
	face->qid = info.qid;
	face->sq_doorbell = (uint32_t *)(c->bar0_dev + info.sq_doorbell);
	face->cq_doorbell = (uint32_t *)(c->bar0_dev + info.cq_doorbell);
	return 0;
}

static void destroy_pairs(struct peerlane_device *dev)
{
	struct pl_controllers *cs = dev->controllers;

	for (uint32_t i = 0; i < dev->shape.nr_queues; i++) {
		peerlane_nvme_queue_destroy(cs->pairs[i]);
		cs->pairs[i] = NULL;
	}
}

static int clear_rings(struct peerlane_device *dev)
{
	const size_t bytes = pl_rings_bytes(&dev->shape);
	void *zero;
	int err;

	if (!dev->given_rings) {
		memset(dev->rings.cpu, 0, dev->rings.bytes);
		return 0;
	}
	zero = calloc(1, bytes);
	if (!zero)
		return pl_fail(-ENOMEM, "no memory for %zu bytes", bytes);
	err = pl_kmem_put(&dev->kmem, dev->rings_dev, zero, bytes);
	free(zero);
	return err;
}

int pl_controllers_reset(struct peerlane_device *dev)
{
	struct pl_face *faces = calloc(dev->shape.nr_queues, sizeof(*faces));
	int err;

	if (!faces)
		return pl_fail(-ENOMEM, "no memory for %u queues", dev->shape.nr_queues);
	destroy_pairs(dev);
	err = clear_rings(dev);
	for (uint32_t i = 0; i < dev->shape.nr_queues && !err; i++) {
		err = create_pair(dev, i);
		if (!err)
			err = face_of(dev, i, &faces[i]);
	}
	if (!err)
		err = pl_queues_clear(dev, faces);
	free(faces);
	return err;
}

int pl_controllers_create(struct peerlane_device *dev, const struct peerlane_device_options *opt,
			  struct peerlane_nvme *const *nvme, uint32_t nr, uint32_t nsid)
{
	const struct peerlane_nvme_memory *rings = opt ? opt->rings : NULL;
	struct pl_controllers *cs = calloc(1, sizeof(*cs));
	int err = 0;

	if (!cs)
		return pl_fail(-ENOMEM, "no memory for %u controllers", nr);
	dev->controllers = cs;
	dev->nr_controllers = dev->nr_spaces = nr;
	cs->nr = nr;
	cs->list = calloc(nr, sizeof(*cs->list));
	cs->pairs = calloc(dev->shape.nr_queues, sizeof(*cs->pairs));
	dev->spaces = calloc(nr, sizeof(*dev->spaces));
	if (!cs->list || !cs->pairs || !dev->spaces)
		return pl_fail(-ENOMEM, "no memory for %u controllers", nr);
	for (uint32_t i = 0; i < nr && !err; i++) {
		cs->list[i].nvme = nvme[i];
		err = look_at(dev, &cs->list[i], i, nsid);
	}
	if (!err)
		err = pl_queues_create(dev, 0);
	if (err)
		return err;
	for (uint32_t i = 0; i < nr && !err; i++) {
		err = map_rings(dev, &cs->list[i], rings);
		if (!err && dev->has_bounce)
			err = map_data(dev, &cs->list[i], i);
		if (err)
			return pl_fail(err, "controller %u: memory cannot be mapped: %s", i,
				       peerlane_strerror(err));
	}
	return pl_controllers_reset(dev);
}

void pl_controllers_destroy(struct peerlane_device *dev)
{
	struct pl_controllers *cs = dev->controllers;

	if (!cs)
		return;
	if (cs->pairs)
		destroy_pairs(dev);
	for (uint32_t i = 0; i < cs->nr && cs->list; i++) {
		struct controller *c = &cs->list[i];

		peerlane_nvme_unmap(c->lists);
		peerlane_nvme_unmap(c->data);
		peerlane_nvme_unmap(c->rings);
		pl_kmem_registers_end(&dev->kmem, c->bar0);
	}
	free(cs->pairs);
	free(cs->list);
	free(cs);
	dev->controllers = NULL;
}
