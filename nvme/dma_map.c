// SPDX-License-Identifier: MIT
/* DMA maps: memory of any kind, as one controller sees it. */
#include "ctrl.h"

#include <errno.h>
#include <stdlib.h>

size_t pl_nvme_run(const struct pl_nvme_pages *v, size_t offset, size_t most)
{
	size_t page = v->mask + 1, at = v->skip + offset, i = at >> v->shift, run;

	if (v->contiguous)
		return most;
	run = page - (at & v->mask);
	for (; run < most && v->pages[i + 1] == v->pages[i] + page; i++)
		run += page;
	return run < most ? run : most;
}

static bool sane(const struct pl_nvme_mapping *m)
{
	size_t page = m->page_bytes;

	if (page < 4096 || (page & (page - 1)) || !m->bytes || m->offset >= page || !m->pages)
		return false;
	if (m->bytes > SIZE_MAX - m->offset - (page - 1) ||
	    m->nr_pages != (m->offset + m->bytes + page - 1) / page)
		return false;
	for (size_t i = 0; i < m->nr_pages; i++)
		if (m->pages[i] & (page - 1))
			return false;
	return true;
}

/* Pages smaller than the controller's: where one does not follow the other, a controller page begins. */
static int join(const struct pl_nvme_mapping *m, unsigned int page_shift, struct pl_nvme_pages *out,
		uint64_t **joined)
{
	size_t page = (size_t)1 << page_shift, nr = 0, at;
	uint64_t first = m->pages[0] + m->offset, *pages;

	out->skip = first & (page - 1);
	out->shift = page_shift;
	pages = calloc((out->skip + m->bytes + page - 1) >> page_shift, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	pages[nr++] = first - out->skip;
	for (size_t i = 1; i < m->nr_pages; i++) {
		at = out->skip + i * m->page_bytes - m->offset;
		if (!(at & (page - 1)) && !(m->pages[i] & (page - 1))) {
			pages[nr++] = m->pages[i];
		} else if (m->pages[i] != m->pages[i - 1] + m->page_bytes) {
			free(pages);
			return -EOPNOTSUPP;
		}
	}
	out->pages = *joined = pages;
	return 0;
}

int pl_nvme_pages_join(const struct pl_nvme_mapping *mapping, unsigned int page_shift,
		       struct pl_nvme_pages *out, uint64_t **joined)
{
	struct pl_nvme_pages v = { .bytes = mapping->bytes, .cpu = mapping->cpu };
	uint64_t *made = NULL;
	size_t nr;
	int rc;

	if (!sane(mapping))
		return -EPROTO;
	if (mapping->page_bytes >> page_shift) {
		v.pages = mapping->pages;
		v.skip = mapping->offset;
		v.shift = (unsigned int)__builtin_ctzll(mapping->page_bytes);
	} else {
		rc = join(mapping, page_shift, &v, &made);
		if (rc)
			return rc;
	}
	v.mask = ((size_t)1 << v.shift) - 1;
	nr = (v.skip + v.bytes - 1) >> v.shift;
	v.contiguous = true;
	for (size_t i = 0; i < nr && v.contiguous; i++)
		v.contiguous = v.pages[i + 1] == v.pages[i] + v.mask + 1;
	*joined = made;
	*out = v;
	return 0;
}

/* Make the object of a mapping, which is undone if that fails. */
static int wrap(struct peerlane_nvme *nvme, const struct pl_nvme_mapping *mapping, bool allocated,
		struct peerlane_nvme_map **out)
{
	const struct pl_nvme_transport_ops *ops = nvme->t->ops;
	struct peerlane_nvme_map *map = calloc(1, sizeof(*map));
	int rc = -ENOMEM;

	if (map)
		rc = pl_nvme_pages_join(mapping, nvme->page_shift, &map->v, &map->joined);
	if (rc) {
		(allocated ? ops->free : ops->unmap)(nvme->t, mapping);
		free(map);
		return rc;
	}
	map->nvme = nvme;
	map->mapping = mapping;
	map->allocated = allocated;
	map->next = nvme->maps;
	map->link = &nvme->maps;
	if (map->next)
		map->next->link = &map->next;
	nvme->maps = map;
	*out = map;
	return 0;
}

void pl_nvme_unmap_locked(struct peerlane_nvme_map *map)
{
	const struct pl_nvme_transport_ops *ops;

	if (!map)
		return;
	*map->link = map->next;
	if (map->next)
		map->next->link = map->link;
	ops = map->nvme->t->ops;
	(map->allocated ? ops->free : ops->unmap)(map->nvme->t, map->mapping);
	free(map->joined);
	free(map);
}

void pl_nvme_maps_lose(struct peerlane_nvme *nvme)
{
	for (struct peerlane_nvme_map *map = nvme->maps; map; map = map->next)
		if (map->gpu)
			__atomic_store_n(&map->lost, true, __ATOMIC_RELAXED);
}

static int alloc(struct peerlane_nvme *nvme, size_t bytes, struct peerlane_nvme_map **out)
{
	const struct pl_nvme_mapping *mapping;
	int rc = nvme->t->ops->alloc(nvme->t, bytes, &mapping);

	return rc ? rc : wrap(nvme, mapping, true, out);
}

/* Begin at a controller page: leave out what is before. */
static void trim(struct pl_nvme_pages *v, size_t page)
{
	size_t lead = page - (v->skip & (page - 1)), at = v->skip + lead;

	v->pages += at >> v->shift;
	v->skip = at & v->mask;
	v->bytes -= lead;
	v->cpu += lead;
}

int pl_nvme_map_alloc_locked(struct peerlane_nvme *nvme, size_t bytes,
			     struct peerlane_nvme_map **out)
{
	size_t page = (size_t)1 << nvme->page_shift;
	int rc;

	if (!bytes || bytes > SIZE_MAX - 2 * page)
		return -EINVAL;
	bytes = (bytes + page - 1) & ~(page - 1);
	rc = alloc(nvme, bytes, out);
	if (rc || !((*out)->v.skip & (page - 1)))
		return rc;
	/* The transport's pages are smaller than the controller's. */
	pl_nvme_unmap_locked(*out);
	rc = alloc(nvme, bytes + page, out);
	if (!rc && (*out)->v.skip & (page - 1))
		trim(&(*out)->v, page);
	return rc;
}

int peerlane_nvme_map(struct peerlane_nvme *nvme, const struct peerlane_nvme_memory *memory,
		      struct peerlane_nvme_map **out)
{
	const struct pl_nvme_mapping *mapping;
	struct pl_nvme_region region;
	int rc;

	if (!nvme || !memory || !out || memory->size != sizeof(*memory) ||
	    memory->flags & ~PEERLANE_NVME_MEMORY_GPU || !memory->ptr || !memory->bytes ||
	    memory->bytes > UINTPTR_MAX - (uintptr_t)memory->ptr)
		return -EINVAL;
	region = (struct pl_nvme_region){
		.kind = memory->flags & PEERLANE_NVME_MEMORY_GPU ? PL_NVME_GPU : PL_NVME_HOST,
		.ptr = memory->ptr,
		.bytes = memory->bytes,
		.cpu = memory->cpu,
		.pin_fd = memory->pin_fd,
		.handle = memory->handle,
		.offset = memory->pin_offset,
	};
	/* Whoever finds the controller stopped must find all maps of GPU memory, this one as well. */
	pthread_mutex_lock(&nvme->lock);
	rc = nvme->t->ops->map(nvme->t, &region, &mapping);
	if (!rc)
		rc = wrap(nvme, mapping, false, out);
	if (!rc)
		(*out)->gpu = region.kind == PL_NVME_GPU;
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}

int peerlane_nvme_map_host(struct peerlane_nvme *nvme, void *ptr, size_t bytes,
			   struct peerlane_nvme_map **out)
{
	struct peerlane_nvme_memory memory = {
		.size = sizeof(memory),
		.ptr = ptr,
		.bytes = bytes,
		.pin_fd = -1,
	};

	return peerlane_nvme_map(nvme, &memory, out);
}

int peerlane_nvme_map_alloc(struct peerlane_nvme *nvme, size_t bytes, void **ptr,
			    struct peerlane_nvme_map **out)
{
	struct peerlane_nvme_map *map;
	int rc;

	if (!nvme || !ptr || !out)
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	rc = pl_nvme_map_alloc_locked(nvme, bytes, &map);
	pthread_mutex_unlock(&nvme->lock);
	if (rc)
		return rc;
	*ptr = map->v.cpu;
	*out = map;
	return 0;
}

void peerlane_nvme_unmap(struct peerlane_nvme_map *map)
{
	struct peerlane_nvme *nvme;

	if (!map)
		return;
	nvme = map->nvme;
	pthread_mutex_lock(&nvme->lock);
	pl_nvme_unmap_locked(map);
	pthread_mutex_unlock(&nvme->lock);
}

int peerlane_nvme_map_address(const struct peerlane_nvme_map *map, size_t offset, uint64_t *address,
			      size_t *run_bytes)
{
	if (!map || !address || offset >= map->v.bytes)
		return -EINVAL;
	*address = pl_nvme_bus(&map->v, offset);
	if (run_bytes)
		*run_bytes = pl_nvme_run(&map->v, offset, map->v.bytes - offset);
	return 0;
}

ssize_t peerlane_nvme_map_pages(const struct peerlane_nvme_map *map, size_t first, uint64_t *pages,
				size_t max)
{
	size_t page, skip, at, nr = 0;

	if (!map || (!pages && max) || max > PTRDIFF_MAX)
		return -EINVAL;
	page = (size_t)1 << map->nvme->page_shift;
	skip = map->v.skip & (page - 1);
	for (; nr < max && first + nr <= (skip + map->v.bytes - 1) / page; nr++) {
		at = first + nr ? (first + nr) * page - skip : 0;
		pages[nr] = pl_nvme_bus(&map->v, at);
	}
	return (ssize_t)nr;
}
