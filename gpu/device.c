// SPDX-License-Identifier: MIT
/* Devices: opening them with one server or another, what they tell, stop, reset and the end. */
#include "device.h"
#include "proxy.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

/* Where kernels find rings that the caller gave; NULL: nowhere. */
static char *rings_of(const struct peerlane_device *dev, const struct peerlane_nvme_memory *m)
{
	return pl_kmem_on_gpu(&dev->kmem) || !(m->flags & PEERLANE_NVME_MEMORY_GPU) ? m->ptr
										    : m->cpu;
}

int pl_device_create(enum peerlane_device_server server, const struct peerlane_device_options *opt,
		     uint32_t nr_groups, struct peerlane_device **out)
{
	struct peerlane_device *dev = calloc(1, sizeof(*dev));
	int err;

	if (!dev) {
		pl_fail(-ENOMEM, "no memory for a device");
		return -ENOMEM;
	}
	dev->server = server;
	dev->nr_controllers = 1;
	dev->page_bytes = PL_PROXY_PAGE;
	dev->has_bounce = server != PEERLANE_DEVICE_NVME ||
			  (opt && opt->flags & PEERLANE_DEVICE_BOUNCE);
	pthread_mutex_init(&dev->lock, NULL);
	err = pl_shape_take(&dev->shape, opt, nr_groups);
	if (!err && opt)
		err = pl_kmem_init(&dev->kmem, opt->ctx, opt->gpu);
	if (!err && opt && opt->rings &&
	    (server != PEERLANE_DEVICE_NVME || opt->rings->size != sizeof(*opt->rings) ||
	     !rings_of(dev, opt->rings) || opt->rings->bytes < pl_rings_bytes(&dev->shape)))
		err = pl_fail(-EINVAL, "memory for rings is too small, out of the kernels' reach, "
				       "or for no controller");
	if (!err && opt && opt->rings)
		dev->rings_dev = rings_of(dev, opt->rings);
	if (err)
		peerlane_device_close(dev);
	else
		*out = dev;
	return err;
}

/* Everything a proxy needs is there: let them begin. */
static int begin(struct peerlane_device *dev, const struct pl_proxy_server *server, void *arg,
		 size_t extra)
{
	int err = pl_queues_create(dev, extra);

	if (!err)
		err = pl_proxies_create(dev, server, arg);
	if (!err)
		pl_proxies_go(dev->proxies);
	return err;
}

int peerlane_device_open_nvme(struct peerlane_device **out,
			      const struct peerlane_device_options *opt,
			      struct peerlane_nvme *const *controllers, unsigned int nr,
			      uint32_t nsid)
{
	PL_KEEP_ERRNO;
	struct peerlane_device *dev;
	int err;

	if (!out || !controllers || !nr)
		return pl_fail(-EINVAL, "there is no controller, or no place for the result");
	err = pl_device_create(PEERLANE_DEVICE_NVME, opt, nr, &dev);
	if (err)
		return err;
	err = pl_controllers_create(dev, opt, controllers, nr, nsid);
	if (err)
		peerlane_device_close(dev);
	else
		*out = dev;
	return err;
}

int peerlane_device_open_files(struct peerlane_device **out,
			       const struct peerlane_device_options *opt, const int *fds,
			       unsigned int nr)
{
	PL_KEEP_ERRNO;
	struct peerlane_device *dev;
	int err;

	if (!out || !fds || !nr)
		return pl_fail(-EINVAL, "there is no file, or no place for the result");
	err = pl_device_create(PEERLANE_DEVICE_FILES, opt, 1, &dev);
	if (err)
		return err;
	err = pl_files_open(dev, fds, nr, &dev->files);
	if (!err)
		err = begin(dev, &pl_serve_files, dev->files, 0);
	if (err)
		peerlane_device_close(dev);
	else
		*out = dev;
	return err;
}

static int one_space(struct peerlane_device *dev, uint64_t nr_blocks)
{
	dev->spaces = calloc(1, sizeof(*dev->spaces));
	if (!dev->spaces)
		return pl_fail(-ENOMEM, "no memory for a device");
	dev->nr_spaces = 1;
	dev->spaces[0] = (struct pl_space){ .nsid = 1,
					    .block_bytes = dev->shape.block_bytes,
					    .nr_blocks = nr_blocks };
	return 0;
}

/* The place of a block is told in 32 bits, in units of 512 bytes. */
static bool can_place(const struct peerlane_device *dev, size_t bytes)
{
	const uint64_t slots =
		(uint64_t)dev->shape.nr_slots * dev->shape.transfer_bytes * dev->shape.nr_queues;

	return bytes && !(bytes % dev->shape.block_bytes) && (bytes + slots) / 512 <= UINT32_MAX &&
	       bytes <= SIZE_MAX - slots;
}

int peerlane_device_open_memory(struct peerlane_device **out,
				const struct peerlane_device_options *opt, size_t bytes,
				void **memory)
{
	PL_KEEP_ERRNO;
	struct peerlane_device *dev;
	int err;

	if (!out)
		return pl_fail(-EINVAL, "there is no place for the result");
	err = pl_device_create(PEERLANE_DEVICE_MEMORY, opt, 1, &dev);
	if (err)
		return err;
	if (!can_place(dev, bytes))
		err = pl_fail(-EINVAL, "%zu bytes are no whole blocks, or over 2 TiB", bytes);
	if (!err)
		err = one_space(dev, bytes / dev->shape.block_bytes);
	if (!err)
		err = begin(dev, &pl_serve_memory, NULL, bytes);
	if (err) {
		peerlane_device_close(dev);
		return err;
	}
	if (memory)
		*memory = dev->data.cpu + dev->data_at;
	*out = dev;
	return 0;
}

int peerlane_device_open_instant(struct peerlane_device **out,
				 const struct peerlane_device_options *opt)
{
	PL_KEEP_ERRNO;
	struct peerlane_device *dev;
	int err;

	if (!out)
		return pl_fail(-EINVAL, "there is no place for the result");
	err = pl_device_create(PEERLANE_DEVICE_INSTANT, opt, 1, &dev);
	if (err)
		return err;
	err = one_space(dev, UINT64_MAX / dev->shape.block_bytes);
	if (!err)
		err = begin(dev, &pl_serve_instant, NULL, 0);
	if (err)
		peerlane_device_close(dev);
	else
		*out = dev;
	return err;
}

void peerlane_device_close(struct peerlane_device *dev)
{
	PL_KEEP_ERRNO;
	if (!dev)
		return;
	pl_proxies_destroy(dev);
	/* Before the maps: until their queues are gone, they may use them. */
	pl_controllers_destroy(dev);
	while (dev->maps)
		peerlane_device_unmap(dev->maps);
	pl_files_close(dev->files);
	pl_queues_destroy(dev);
	pthread_mutex_destroy(&dev->lock);
	free(dev->spaces);
	free(dev);
}

int peerlane_device_get_info(const struct peerlane_device *dev, struct peerlane_device_info *info)
{
	PL_KEEP_ERRNO;
	if (!dev || !info || info->size != sizeof(*info))
		return pl_fail(-EINVAL, "the info struct is NULL or of an unknown size");
	*info = (struct peerlane_device_info){
		.size = sizeof(*info),
		.server = dev->server,
		.emulated = pl_device_emulated(dev),
		.on_gpu = pl_kmem_on_gpu(&dev->kmem),
		.has_bounce = dev->has_bounce,
		.queues = (struct pld_queue *)dev->kernel,
		.nr_queues = dev->shape.nr_queues,
		.nr_controllers = dev->nr_controllers,
		.depth = dev->shape.depth,
		.ports_per_queue = dev->shape.nr_ports,
		.slots_per_port = dev->shape.slots_per_port,
		.max_transfer_bytes = dev->shape.transfer_bytes,
		.page_bytes = dev->page_bytes,
		.nr_spaces = dev->nr_spaces,
		.nr_threads = dev->proxies ? dev->shape.nr_threads : 0,
	};
	return 0;
}

int peerlane_device_get_space(const struct peerlane_device *dev, unsigned int index,
			      struct peerlane_device_space *space)
{
	PL_KEEP_ERRNO;
	const struct pl_space *s;

	if (!dev || !space || space->size != sizeof(*space))
		return pl_fail(-EINVAL, "the space struct is NULL or of an unknown size");
	if (index >= dev->nr_spaces)
		return pl_fail(-ENXIO, "no space %u; there are %u", index, dev->nr_spaces);
	s = &dev->spaces[index];
	*space = (struct peerlane_device_space){ .size = sizeof(*space),
						 .controller = s->controller,
						 .nsid = s->nsid,
						 .block_bytes = s->block_bytes,
						 .nr_blocks = s->nr_blocks,
						 .read_only = s->read_only };
	return 0;
}

void peerlane_device_stop(struct peerlane_device *dev)
{
	if (dev)
		__atomic_store_n(pl_queues_stop(dev), 1, __ATOMIC_RELEASE);
}

int peerlane_device_reset(struct peerlane_device *dev)
{
	PL_KEEP_ERRNO;
	int err;

	if (!dev)
		return pl_fail(-EINVAL, "the device is NULL");
	pthread_mutex_lock(&dev->lock);
	if (dev->proxies) {
		pl_proxies_park(dev->proxies);
		err = pl_proxies_clear(dev->proxies);
		if (!err)
			pl_proxies_go(dev->proxies);
	} else {
		err = pl_controllers_reset(dev);
	}
	pthread_mutex_unlock(&dev->lock);
	return err;
}

static uint64_t counted(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

int peerlane_device_get_stats(struct peerlane_device *dev, unsigned int queue,
			      struct peerlane_device_stats *stats)
{
	PL_KEEP_ERRNO;
	const bool instant = dev && dev->server == PEERLANE_DEVICE_INSTANT;
	struct peerlane_device_stats s = { .size = sizeof(s) };
	uint32_t head;
	int err;

	if (!dev || !stats || stats->size != sizeof(*stats))
		return pl_fail(-EINVAL, "the stats struct is NULL or of an unknown size");
	if (queue >= dev->shape.nr_queues)
		return pl_fail(-ENXIO, "no queue %u; there are %u", queue, dev->shape.nr_queues);
	err = pl_queues_counter64(dev, queue, offsetof(struct pld_queue, nr_bad),
				  &s.bad_completions);
	if (err)
		return err;
	if (dev->proxies) {
		const struct pl_proxy_counts *c = &dev->proxies->queues[queue].counts;

		s.commands = counted(&c->commands);
		s.bytes_read = instant ? PEERLANE_DEVICE_UNKNOWN : counted(&c->bytes_read);
		s.bytes_written = instant ? PEERLANE_DEVICE_UNKNOWN : counted(&c->bytes_written);
		s.errors = counted(&c->errors);
		s.cached = counted(&c->cached);
		s.bad_doorbells = counted(&c->bad_doorbells);
	} else {
		err = pl_queues_counter32(dev, queue, offsetof(struct pld_queue, head), &head);
		if (err)
			return err;
		s.commands = head;
		s.bytes_read = s.bytes_written = s.errors = PEERLANE_DEVICE_UNKNOWN;
	}
	*stats = s;
	return 0;
}
