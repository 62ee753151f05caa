// SPDX-License-Identifier: MIT
/* How many queues, how deep: the options of a device. */
#include "device.h"

#include "error.h"

#define MOST_DEPTH 32768u
#define MOST_QUEUES 65534u
#define MOST_TRANSFER ((size_t)2 << 20)

static bool is_power(size_t v)
{
	return v && !(v & (v - 1));
}

/* A ring has pages of its own: 64 bytes an entry, and 16. Both sizes are powers of two. */
size_t pl_sq_bytes(const struct pl_shape *shape)
{
	const size_t bytes = (size_t)shape->depth * sizeof(struct pl_nvme_sqe);

	return bytes < 4096 ? 4096 : bytes;
}

size_t pl_cq_bytes(const struct pl_shape *shape)
{
	const size_t bytes = (size_t)shape->depth * sizeof(struct pl_nvme_cqe);

	return bytes < 4096 ? 4096 : bytes;
}

size_t pl_rings_bytes(const struct pl_shape *shape)
{
	return shape->nr_queues * (pl_sq_bytes(shape) + pl_cq_bytes(shape));
}

static int check_slots(struct pl_shape *s)
{
	if (!s->slots_per_port) {
		s->slots_per_port = (s->depth - 1) / s->nr_ports;
		if (s->slots_per_port > PLD_MAX_SLOTS)
			s->slots_per_port = PLD_MAX_SLOTS;
	}
	if (!s->slots_per_port || s->slots_per_port > PLD_MAX_SLOTS ||
	    s->nr_ports > (s->depth - 1) / s->slots_per_port)
		return pl_fail(-EINVAL,
			       "%u ports of %u slots do not fit into a queue of depth %u: one "
			       "entry stays free, and a port has 1 to %u slots",
			       s->nr_ports, s->slots_per_port, s->depth, PLD_MAX_SLOTS);
	s->nr_slots = s->nr_ports * s->slots_per_port;
	return 0;
}

static int check_sizes(struct pl_shape *s, size_t transfer)
{
	if (!transfer)
		transfer = 4096;
	if (transfer < 512 || transfer > MOST_TRANSFER ||
	    (transfer < 4096 ? !is_power(transfer) : transfer % 4096))
		return pl_fail(-EINVAL,
			       "a transfer is 512, 1024, 2048 or a multiple of 4096 bytes, up "
			       "to 2 MiB, not %zu",
			       transfer);
	s->transfer_bytes = (uint32_t)transfer;
	if (!s->block_bytes)
		s->block_bytes = 512;
	if (s->block_bytes < 512 || s->block_bytes > 4096 || !is_power(s->block_bytes))
		return pl_fail(-EINVAL, "a block is a power of two from 512 to 4096 bytes, not %u",
			       s->block_bytes);
	if (transfer % s->block_bytes)
		return pl_fail(-EINVAL, "a transfer of %zu bytes is no whole block of %u", transfer,
			       s->block_bytes);
	return 0;
}

int pl_shape_take(struct pl_shape *shape, const struct peerlane_device_options *opt,
		  uint32_t nr_groups)
{
	static const struct peerlane_device_options defaults = { .size = sizeof(defaults) };
	struct pl_shape s;
	int err;

	if (!opt)
		opt = &defaults;
	if (opt->size != sizeof(*opt) || opt->flags & ~PEERLANE_DEVICE_BOUNCE)
		return pl_fail(-EINVAL, "the options have an unknown size or flag");
	s = (struct pl_shape){
		.nr_queues = opt->nr_queues ? opt->nr_queues : nr_groups,
		.depth = opt->depth ? opt->depth : 64,
		.nr_ports = opt->ports_per_queue ? opt->ports_per_queue : 1,
		.slots_per_port = opt->slots_per_port,
		.nr_threads = opt->nr_threads ? opt->nr_threads : 1,
		.block_bytes = opt->block_bytes,
	};
	if (s.nr_queues > MOST_QUEUES || s.nr_queues % nr_groups)
		return pl_fail(-EINVAL, "%u queues cannot be had of %u controllers", s.nr_queues,
			       nr_groups);
	if (s.depth < 2 || s.depth > MOST_DEPTH || !is_power(s.depth))
		return pl_fail(-EINVAL, "the depth is a power of two from 2 to %u, not %u",
			       MOST_DEPTH, s.depth);
	err = check_slots(&s);
	if (!err)
		err = check_sizes(&s, opt->max_transfer_bytes);
	if (err)
		return err;
	if (s.nr_threads > s.nr_queues)
		s.nr_threads = s.nr_queues;
	*shape = s;
	return 0;
}

size_t peerlane_device_rings_bytes(const struct peerlane_device_options *opt)
{
	struct pl_shape s = { 0 };

	if (pl_shape_take(&s, opt, 1))
		return 0;
	return pl_rings_bytes(&s);
}
