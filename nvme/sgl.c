// SPDX-License-Identifier: MIT
/* SGLs: one data descriptor per run, in segments that are chained where a page ends. */
#include "sgl.h"

#include <errno.h>
#include <string.h>

static void describe(struct pl_nvme_sgl *sgl, unsigned int type, uint64_t addr, size_t bytes)
{
	memset(sgl, 0, sizeof(*sgl));
	sgl->addr = addr;
	sgl->length = (uint32_t)bytes;
	sgl->type = (uint8_t)(type << 4);
}

static size_t count_runs(const struct pl_nvme_pages *v, size_t offset, size_t end)
{
	size_t nr = 0;

	for (; offset < end; nr++)
		offset += pl_nvme_run(v, offset, end - offset);
	return nr;
}

int pl_nvme_sgl_build(const struct pl_nvme_pages *data, size_t offset, size_t bytes, size_t page,
		      const struct pl_nvme_pages *lists, size_t list_offset, size_t list_bytes,
		      union pl_nvme_dptr *out)
{
	size_t end = offset + bytes, size = sizeof(out->sgl), run;
	size_t nr = count_runs(data, offset, end), at = list_offset;
	struct pl_nvme_sgl *pointer = &out->sgl, *to;

	if (nr == 1) {
		describe(&out->sgl, PL_NVME_SGL_DATA, pl_nvme_bus(data, offset), bytes);
		return 0;
	}
	while (nr) {
		uint64_t bus;
		size_t room, here;
		bool last;

		/* A segment ends where its page does, or the room. */
		if (at - list_offset + size > list_bytes)
			return -ENOBUFS;
		bus = pl_nvme_bus(lists, at);
		room = (page - (bus & (page - 1))) / size;
		last = nr <= room;
		here = last ? nr : room;
		if (at - list_offset + here * size > list_bytes)
			return -ENOBUFS;
		describe(pointer, last ? PL_NVME_SGL_LAST_SEGMENT : PL_NVME_SGL_SEGMENT, bus,
			 here * size);
		to = (struct pl_nvme_sgl *)(void *)(lists->cpu + at);
		at += here * size;
		/* The last descriptor of a segment that is not the last leads to the next one. */
		for (here -= !last; here; here--, nr--, to++) {
			run = pl_nvme_run(data, offset, end - offset);
			describe(to, PL_NVME_SGL_DATA, pl_nvme_bus(data, offset), run);
			offset += run;
		}
		pointer = to;
	}
	return 0;
}
