// SPDX-License-Identifier: MIT
/* Models: what is open, and questions about it. */
#include "model.h"

#include "error.h"
#include "table.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

void peerlane_model_close(struct peerlane_model *m)
{
	PL_KEEP_ERRNO;
	if (!m)
		return;
	for (unsigned int i = 0; i < m->nr_shards; i++)
		pl_shard_close(&m->shards[i]);
	free(m->shards);
	free(m->entries);
	free(m->by_name);
	pl_table_free(&m->table);
	free(m);
}

int peerlane_model_get_info(const struct peerlane_model *m, struct peerlane_model_info *out)
{
	struct peerlane_model_info info = { .size = sizeof(info) };

	if (!m || !out || out->size != sizeof(*out))
		return pl_fail(-EINVAL, "the model or the result is NULL or of unknown size");
	info.nr_tensors = m->nr;
	info.nr_files = m->nr_shards;
	for (size_t i = 0; i < m->nr; i++)
		info.bytes += m->entries[i].tensor->end - m->entries[i].tensor->begin;
	*out = info;
	return 0;
}

int peerlane_model_get_file(const struct peerlane_model *m, unsigned int file,
			    struct peerlane_model_file *out)
{
	const struct pl_shard *s;

	if (!m || !out || out->size != sizeof(*out))
		return pl_fail(-EINVAL, "the model or the result is NULL or of unknown size");
	if (file >= m->nr_shards)
		return pl_fail(-ENOENT, "there is no file %u; the model has %u", file,
			       m->nr_shards);
	s = &m->shards[file];
	*out = (struct peerlane_model_file){ .size = sizeof(*out),
					     .path = s->path,
					     .data_offset = s->data_offset,
					     .bytes = s->bytes,
					     .nr_metadata = s->header.nr_metadata };
	return 0;
}

int peerlane_model_get_tensor(const struct peerlane_model *m, size_t tensor,
			      struct peerlane_tensor *out)
{
	if (!m || !out || out->size != sizeof(*out))
		return pl_fail(-EINVAL, "the model or the result is NULL or of unknown size");
	if (tensor >= m->nr)
		return pl_fail(-ENOENT, "there is no tensor %zu; the model has %zu", tensor, m->nr);
	*out = m->table.tensors[tensor];
	return 0;
}

int peerlane_model_get_table(const struct peerlane_model *m, struct peerlane_model_table *out)
{
	if (!m || !out || out->size != sizeof(*out))
		return pl_fail(-EINVAL, "the model or the result is NULL or of unknown size");
	*out = m->table;
	return 0;
}

ssize_t peerlane_model_find(const struct peerlane_model *m, const char *name)
{
	size_t low = 0, high = m && name ? m->nr : 0;

	if (!m || !name)
		return pl_fail(-EINVAL, "the model or the name is NULL");
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(name, m->entries[m->by_name[mid]].tensor->name);

		if (!order)
			return (ssize_t)m->by_name[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return pl_fail(-ENOENT, "there is no tensor \"%s\"", pl_words_name(name).text);
}

int peerlane_model_metadata(const struct peerlane_model *m, unsigned int file, size_t entry,
			    const char **key, const char **value)
{
	const struct pl_header *h;

	if (!m || !key || !value)
		return pl_fail(-EINVAL, "the model or the result is NULL");
	if (file >= m->nr_shards || entry >= m->shards[file].header.nr_metadata)
		return pl_fail(-ENOENT, "there is no entry %zu in the metadata of file %u", entry,
			       file);
	h = &m->shards[file].header;
	*key = h->metadata[entry].key;
	*value = h->metadata[entry].value;
	return 0;
}
