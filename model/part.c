// SPDX-License-Identifier: MIT
/* Parts: tensors and slices of them, checked and turned into positions of files. */
#include "part.h"

#include "error.h"
#include "words.h"

#include <stdlib.h>

static int check_slice(const struct pl_tensor *t, const struct peerlane_model_part *p, size_t i)
{
	if (p->flags & ~PEERLANE_MODEL_SLICE)
		return pl_fail(-EINVAL, "part %zu: unknown flags", i);
	if (!(p->flags & PEERLANE_MODEL_SLICE))
		return 0;
	if (p->dim >= t->nr_dims)
		return pl_fail(-EINVAL, "part %zu: tensor \"%s\" has %u dimensions, not %u", i,
			       pl_words_name(t->name).text, t->nr_dims, p->dim + 1);
	if (p->start > p->stop || p->stop > t->shape[p->dim])
		return pl_fail(-EINVAL,
			       "part %zu: tensor \"%s\": [%llu, %llu) is no slice of %llu along "
			       "dimension %u",
			       i, pl_words_name(t->name).text, (unsigned long long)p->start,
			       (unsigned long long)p->stop, (unsigned long long)t->shape[p->dim],
			       p->dim);
	return 0;
}

/* The slice of a tensor that has data; nothing overflows, since all of it is inside the tensor. */
static int slice(const struct pl_tensor *t, const struct peerlane_model_part *p, size_t i,
		 struct pl_span *s)
{
	uint64_t outer = 1, inner = peerlane_dtype_bits(t->dtype), row;

	for (unsigned int d = 0; d < p->dim; d++)
		outer *= t->shape[d];
	for (unsigned int d = p->dim + 1; d < t->nr_dims; d++)
		inner *= t->shape[d];
	row = inner * t->shape[p->dim];
	if (p->start * inner % 8 || p->stop * inner % 8 || (outer > 1 && row % 8))
		return pl_fail(-EINVAL,
			       "part %zu: tensor \"%s\": the slice begins or ends inside a byte", i,
			       pl_words_name(t->name).text);
	s->offset += p->start * inner / 8;
	s->chunk = (p->stop - p->start) * inner / 8;
	s->stride = row / 8;
	s->count = s->chunk ? outer : 0;
	/* All along the dimension: one piece. */
	if (s->count && s->chunk == s->stride) {
		s->chunk *= outer;
		s->count = 1;
	}
	return 0;
}

int pl_part_span(const struct peerlane_model *m, struct peerlane_model_part *parts, size_t i,
		 struct pl_span *out)
{
	struct peerlane_model_part *p = &parts[i];
	const struct pl_tensor *t;
	struct pl_span s = { .count = 0 };
	unsigned int bits;
	int err;

	if (p->tensor >= m->nr)
		return pl_fail(-EINVAL, "part %zu: there is no tensor %zu; the model has %zu", i,
			       p->tensor, m->nr);
	t = m->entries[p->tensor].tensor;
	err = check_slice(t, p, i);
	if (err)
		return err;
	bits = peerlane_dtype_bits(t->dtype);
	s.align = bits % 8 ? 1 : bits / 8;
	s.file = m->entries[p->tensor].file;
	s.shard = &m->shards[s.file];
	s.offset = s.shard->data_offset + t->begin;
	s.chunk = s.stride = t->end - t->begin;
	s.count = s.chunk != 0;
	if (s.count && (p->flags & PEERLANE_MODEL_SLICE))
		err = slice(t, p, i, &s);
	if (err)
		return err;
	p->bytes = s.chunk * s.count;
	*out = s;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct pl_placed *x = a, *y = b;

	if (x->span.file != y->span.file)
		return x->span.file < y->span.file ? -1 : 1;
	if (x->span.offset != y->span.offset)
		return x->span.offset < y->span.offset ? -1 : 1;
	return x->part < y->part ? -1 : x->part > y->part;
}

int pl_parts_place(const struct peerlane_model *m, struct peerlane_model_part *parts, size_t nr,
		   struct pl_placed **out)
{
	struct pl_placed *list;
	int err = 0;

	list = calloc(nr ? nr : 1, sizeof(*list));
	if (!list)
		return pl_fail(-ENOMEM, "no memory for %zu parts", nr);
	for (size_t i = 0; i < nr && !err; i++) {
		list[i].part = i;
		err = pl_part_span(m, parts, i, &list[i].span);
	}
	if (err) {
		free(list);
		return err;
	}
	qsort(list, nr, sizeof(*list), by_place);
	*out = list;
	return 0;
}
