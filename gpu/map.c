// SPDX-License-Identifier: MIT
/* Memory of kernels, mapped for all controllers of a device, in pieces. */
#include "device.h"
#include "pieces.h"

#include "error.h"

#include <stdlib.h>

struct peerlane_device_map {
	struct peerlane_device *dev;
	struct peerlane_device_map *next, **link;
	uint32_t nr; /* controllers; 0: nothing needs to be mapped */
	struct part {
		struct peerlane_nvme_map *map, *lists;
		void *table; /* in memory of kernels */
	} parts[];
};

static int map_part(struct peerlane_device *dev, uint32_t index,
		    const struct peerlane_nvme_memory *memory, size_t piece, struct part *part)
{
	struct peerlane_nvme *nvme = pl_controllers_get(dev, index);
	const size_t nr = memory->bytes / piece;
	struct pld_dma *dma = calloc(nr, sizeof(*dma));
	int err;

	if (!dma)
		return -ENOMEM;
	err = peerlane_nvme_map(nvme, memory, &part->map);
	if (!err)
		err = pl_pieces_fill(nvme, part->map, nr, piece, dev->page_bytes, dma,
				     &part->lists);
	if (!err)
		err = pl_kmem_alloc(&dev->kmem, nr * sizeof(*dma), &part->table);
	if (!err)
		err = pl_kmem_put(&dev->kmem, part->table, dma, nr * sizeof(*dma));
	free(dma);
	return err;
}

static void destroy(struct peerlane_device_map *map)
{
	for (uint32_t i = 0; i < map->nr; i++) {
		peerlane_nvme_unmap(map->parts[i].map);
		peerlane_nvme_unmap(map->parts[i].lists);
		pl_kmem_free(&map->dev->kmem, map->parts[i].table);
	}
	free(map);
}

int peerlane_device_map(struct peerlane_device *dev, const struct peerlane_nvme_memory *memory,
			size_t piece_bytes, struct peerlane_device_map **out)
{
	PL_KEEP_ERRNO;
	struct peerlane_device_map *map;
	uint32_t nr;
	int err = 0;

	if (!dev || !memory || !out || memory->size != sizeof(*memory) || !memory->ptr)
		return pl_fail(-EINVAL, "a map needs a device, memory and a place for the result");
	if (piece_bytes < 512 || piece_bytes > dev->shape.transfer_bytes ||
	    (piece_bytes < 4096 ? piece_bytes & (piece_bytes - 1) : piece_bytes % 4096) ||
	    memory->bytes < piece_bytes)
		return pl_fail(-EINVAL, "%zu bytes cannot be mapped in pieces of %zu",
			       memory->bytes, piece_bytes);
	nr = dev->has_bounce ? 0 : dev->nr_controllers;
	map = calloc(1, sizeof(*map) + nr * sizeof(map->parts[0]));
	if (!map)
		return pl_fail(-ENOMEM, "no memory for a map");
	map->dev = dev;
	map->nr = nr;
	for (uint32_t i = 0; i < nr && !err; i++)
		err = map_part(dev, i, memory, piece_bytes, &map->parts[i]);
	if (err) {
		destroy(map);
		return pl_fail(err, "memory cannot be mapped for the controllers: %s",
			       peerlane_strerror(err));
	}
	pthread_mutex_lock(&dev->lock);
	map->next = dev->maps;
	map->link = &dev->maps;
	if (map->next)
		map->next->link = &map->next;
	dev->maps = map;
	pthread_mutex_unlock(&dev->lock);
	*out = map;
	return 0;
}

void peerlane_device_unmap(struct peerlane_device_map *map)
{
	PL_KEEP_ERRNO;
	if (!map)
		return;
	pthread_mutex_lock(&map->dev->lock);
	*map->link = map->next;
	if (map->next)
		map->next->link = map->link;
	pthread_mutex_unlock(&map->dev->lock);
	destroy(map);
}

const struct pld_dma *peerlane_device_map_dma(const struct peerlane_device_map *map,
					      unsigned int controller)
{
	return map && controller < map->nr ? map->parts[controller].table : NULL;
}
