// SPDX-License-Identifier: MIT
/* Memory for parts: where each goes in an allocation, and the allocations. */
#include "part.h"

#include "error.h"

#include <peerlane/gpu.h>

#include <stdlib.h>

#define ALIGN 256u
#define HOST_ALIGN 4096u

struct peerlane_model_memory {
	struct peerlane *ctx;
	int gpu;
	size_t nr;
	void *addr[];
};

/* Sets where the parts @list[@from] to @list[@to - 1] go, and the size of all. */
static int lay_out(const struct pl_placed *list, size_t from, size_t to,
		   struct peerlane_model_part *parts, uint64_t *bytes)
{
	const struct pl_span *before = NULL;
	uint64_t at = 0;

	for (size_t i = from; i < to; i++) {
		const struct pl_span *s = &list[i].span;
		struct peerlane_model_part *p = &parts[list[i].part];
		bool joins = before && before->file == s->file && before->count == 1 &&
			     s->count == 1 && before->offset + before->chunk == s->offset &&
			     at % s->align == 0;

		if (s->count && !joins)
			at = (at + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
		p->at = at;
		if (__builtin_add_overflow(at, p->bytes, &at) || at > INT64_MAX)
			return pl_fail(-EOVERFLOW, "the parts together are too large");
		if (s->count)
			before = s;
	}
	*bytes = at;
	return 0;
}

static int check(const struct peerlane_model *m, const struct peerlane_model_part *parts, size_t nr,
		 const void *out)
{
	if (!m || (nr && !parts) || !out)
		return pl_fail(-EINVAL, "the model, the parts or the result is NULL");
	return 0;
}

int peerlane_model_layout(const struct peerlane_model *m, struct peerlane_model_part *parts,
			  size_t nr, uint64_t *bytes)
{
	struct pl_placed *list;
	int err = check(m, parts, nr, bytes);

	if (!err)
		err = pl_parts_place(m, parts, nr, &list);
	if (err)
		return err;
	err = lay_out(list, 0, nr, parts, bytes);
	free(list);
	return err;
}

/* One more allocation in @mem. */
static int allocate(struct peerlane_model_memory *mem, uint64_t bytes)
{
	void *addr = NULL;
	int err = 0;

	if (mem->gpu >= 0)
		err = peerlane_gpu_alloc(mem->ctx, mem->gpu, bytes, &addr);
	else if (posix_memalign(&addr, bytes < HOST_ALIGN ? ALIGN : HOST_ALIGN, bytes))
		err = pl_fail(-ENOMEM, "no memory for %llu bytes of tensors",
			      (unsigned long long)bytes);
	if (!err)
		mem->addr[mem->nr++] = addr;
	return err;
}

/* One allocation for the parts @from to @to - 1 of @list. */
static int allocate_group(struct peerlane_model_memory *mem, const struct pl_placed *list,
			  size_t from, size_t to, struct peerlane_model_part *parts)
{
	uint64_t bytes = 0;
	int err = lay_out(list, from, to, parts, &bytes);

	if (!err && bytes)
		err = allocate(mem, bytes);
	if (err)
		return err;
	for (size_t i = from; i < to; i++) {
		struct peerlane_model_part *p = &parts[list[i].part];

		p->addr = bytes ? (char *)mem->addr[mem->nr - 1] + p->at : NULL;
	}
	return 0;
}

int peerlane_model_memory_alloc(const struct peerlane_model *m, struct peerlane_model_part *parts,
				size_t nr, int gpu, unsigned int flags,
				struct peerlane_model_memory **out)
{
	PL_KEEP_ERRNO;
	struct peerlane_model_memory *mem;
	struct pl_placed *list;
	int err = check(m, parts, nr, out);

	if (err)
		return err;
	if (flags & ~PEERLANE_MODEL_PER_TENSOR)
		return pl_fail(-EINVAL, "unknown flags");
	if (gpu < -1)
		return pl_fail(-EINVAL, "GPU %d is neither a GPU nor -1 for host memory", gpu);
	err = pl_parts_place(m, parts, nr, &list);
	if (err)
		return err;
	mem = calloc(1, sizeof(*mem) + nr * sizeof(mem->addr[0]));
	if (!mem) {
		free(list);
		return pl_fail(-ENOMEM, "no memory for %zu parts", nr);
	}
	mem->ctx = m->ctx;
	mem->gpu = gpu;
	for (size_t from = 0, to; from < nr && !err; from = to) {
		to = from + 1;
		while (!(flags & PEERLANE_MODEL_PER_TENSOR) && to < nr &&
		       list[to].span.file == list[from].span.file)
			to++;
		err = allocate_group(mem, list, from, to, parts);
	}
	free(list);
	if (err) {
		peerlane_model_memory_free(mem);
		return err;
	}
	*out = mem;
	return 0;
}

void peerlane_model_memory_free(struct peerlane_model_memory *mem)
{
	PL_KEEP_ERRNO;
	if (!mem)
		return;
	for (size_t i = 0; i < mem->nr; i++) {
		if (mem->gpu >= 0)
			peerlane_gpu_free(mem->ctx, mem->addr[i]);
		else
			free(mem->addr[i]);
	}
	free(mem);
}
