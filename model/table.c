// SPDX-License-Identifier: MIT
/* The table of a model; see table.h. */
#include "table.h"

#include "error.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>

/* Room for what was counted; never of no bytes. */
static int make_room(struct peerlane_model_table *t)
{
	struct peerlane_tensor *tensors = calloc(t->nr + 1, sizeof(*tensors));
	uint64_t *lengths = calloc(t->nr_lengths + 1, sizeof(*lengths));
	char *names = malloc(t->names_bytes + 1);

	t->tensors = tensors;
	t->lengths = lengths;
	t->names = names;
	return tensors && lengths && names ? 0 : pl_fail(-ENOMEM, "no memory for the model");
}

int pl_table_make(struct peerlane_model *m)
{
	struct peerlane_model_table *t = &m->table;
	struct peerlane_tensor *out;
	uint64_t *lengths;
	char *names;
	int err;

	t->size = sizeof(*t);
	t->nr = m->nr;
	for (size_t i = 0; i < m->nr; i++) {
		t->names_bytes += strlen(m->entries[i].tensor->name) + 1;
		t->nr_lengths += m->entries[i].tensor->nr_dims;
	}
	err = make_room(t);
	if (err)
		return err;
	out = (struct peerlane_tensor *)(uintptr_t)t->tensors;
	lengths = (uint64_t *)(uintptr_t)t->lengths;
	names = (char *)(uintptr_t)t->names;
	for (size_t i = 0; i < m->nr; i++) {
		const struct pl_tensor *in = m->entries[i].tensor;
		unsigned int file = m->entries[i].file;

		out[i] = (struct peerlane_tensor){ .size = sizeof(out[i]),
						   .name = names,
						   .dtype = in->dtype,
						   .nr_dims = in->nr_dims,
						   .shape = lengths,
						   .bytes = in->end - in->begin,
						   .file = file,
						   .offset = m->shards[file].data_offset +
							     in->begin };
		memcpy(lengths, in->shape, in->nr_dims * sizeof(*lengths));
		lengths += in->nr_dims;
		names = stpcpy(names, in->name) + 1;
	}
	return 0;
}

void pl_table_free(struct peerlane_model_table *t)
{
	free((void *)(uintptr_t)t->tensors);
	free((void *)(uintptr_t)t->lengths);
	free((void *)(uintptr_t)t->names);
}
