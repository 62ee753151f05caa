// SPDX-License-Identifier: MIT
/* Index files, as those who publish models write them: an object with a weight_map in it. */
#include "index.h"

#include "error.h"
#include "json.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

struct pair {
	char *tensor, *shard;
};

struct list {
	const char *file;
	struct pair *pairs;
	size_t nr, room;
};

static int fault(const struct list *l, const char *tensor, const char *what)
{
	return pl_fail(-EUCLEAN, "%.60s: weight_map: tensor \"%s\": %s",
		       pl_words_file(l->file).text, pl_words_name(tensor).text, what);
}

/* A file below the folder of the index: no way out of it by its name. */
static bool is_inside(const char *name)
{
	if (!*name || *name == '/')
		return false;
	for (const char *p = name; p; p = strchr(p, '/')) {
		p += *p == '/';
		if (!strncmp(p, "..", 2) && (!p[2] || p[2] == '/'))
			return false;
	}
	return true;
}

static int add(struct list *l, const char *tensor, struct json_object *shard)
{
	struct pair *grown;

	if (!json_object_is_type(shard, json_type_string) || !pl_words_is_utf8(tensor))
		return fault(l, tensor, "its shard is not the name of a file");
	if (!is_inside(json_object_get_string(shard)))
		return fault(l, tensor, "its shard is not a file of the folder");
	if (l->nr == l->room) {
		size_t room = l->room ? l->room * 2 : 64;

		grown = reallocarray(l->pairs, room, sizeof(*grown));
		if (!grown)
			return pl_fail(-ENOMEM, "no memory for the index");
		l->pairs = grown;
		l->room = room;
	}
	grown = &l->pairs[l->nr];
	grown->tensor = strdup(tensor);
	grown->shard = strdup(json_object_get_string(shard));
	l->nr++;
	if (!grown->tensor || !grown->shard)
		return pl_fail(-ENOMEM, "no memory for the index");
	return 0;
}

static int read_map(struct pl_json *j, struct list *l)
{
	struct json_object *key, *value;
	const char *tensor;
	int err = pl_json_enter(j);

	while (!err) {
		err = pl_json_next(j, &key);
		if (err <= 0)
			break;
		tensor = json_object_get_string(key);
		err = pl_json_value(j, &value);
		if (!err) {
			err = add(l, tensor, value);
			json_object_put(value);
		}
		json_object_put(key);
	}
	return err;
}

static int read_object(struct pl_json *j, struct list *l)
{
	struct json_object *key, *value;
	bool is_map, seen = false;
	int err = pl_json_enter(j);

	while (!err) {
		err = pl_json_next(j, &key);
		if (err <= 0)
			break;
		is_map = !strcmp(json_object_get_string(key), "weight_map");
		json_object_put(key);
		if (is_map && seen)
			return pl_fail(-EUCLEAN, "%s: weight_map is there twice",
				       pl_words_file(l->file).text);
		seen |= is_map;
		err = is_map ? read_map(j, l) : pl_json_value(j, &value);
		if (!is_map && !err)
			json_object_put(value);
	}
	return err ? err : pl_json_end(j);
}

static int by_tensor(const void *a, const void *b)
{
	return strcmp(((const struct pair *)a)->tensor, ((const struct pair *)b)->tensor);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the shards, each once. */
static int list_shards(const struct list *l, struct pl_index *out)
{
	unsigned int n = 0;

	out->shards = calloc(l->nr, sizeof(*out->shards));
	if (!out->shards)
		return pl_fail(-ENOMEM, "no memory for the index");
	for (size_t i = 0; i < l->nr; i++)
		out->shards[i] = l->pairs[i].shard;
	qsort(out->shards, l->nr, sizeof(*out->shards), by_text);
	for (size_t i = 0; i < l->nr; i++)
		if (!n || strcmp(out->shards[n - 1], out->shards[i]) != 0)
			out->shards[n++] = out->shards[i];
	out->nr_shards = n;
	/* The list keeps its own. */
	for (n = 0; n < out->nr_shards; n++) {
		out->shards[n] = strdup(out->shards[n]);
		if (!out->shards[n]) {
			out->nr_shards = n;
			return pl_fail(-ENOMEM, "no memory for the index");
		}
	}
	return 0;
}

static int make(struct list *l, struct pl_index *out)
{
	int err;

	if (!l->pairs || !l->nr)
		return pl_fail(-EUCLEAN,
			       "%s: not the index of a model: no weight_map with tensors in it",
			       pl_words_file(l->file).text);
	qsort(l->pairs, l->nr, sizeof(*l->pairs), by_tensor);
	for (size_t i = 1; i < l->nr; i++)
		if (!strcmp(l->pairs[i].tensor, l->pairs[i - 1].tensor))
			return fault(l, l->pairs[i].tensor, "it is there twice");
	err = list_shards(l, out);
	if (err)
		return err;
	out->entries = calloc(l->nr, sizeof(*out->entries));
	if (!out->entries)
		return pl_fail(-ENOMEM, "no memory for the index");
	for (size_t i = 0; i < l->nr; i++) {
		char **found = bsearch(&l->pairs[i].shard, out->shards, out->nr_shards,
				       sizeof(*out->shards), by_text);

		out->entries[i].tensor = l->pairs[i].tensor;
		out->entries[i].shard = (unsigned int)(found - out->shards);
		l->pairs[i].tensor = NULL;
	}
	out->nr = l->nr;
	return 0;
}

int pl_index_parse(const char *file, const char *text, size_t bytes, struct pl_index *out)
{
	struct list l = { .file = file };
	struct pl_index index = { .nr = 0 };
	struct pl_json json;
	int err = pl_json_init(&json, file, text, bytes);

	if (err)
		return err;
	err = read_object(&json, &l);
	pl_json_fini(&json);
	if (!err)
		err = make(&l, &index);
	for (size_t i = 0; i < l.nr; i++) {
		free(l.pairs[i].tensor);
		free(l.pairs[i].shard);
	}
	free(l.pairs);
	if (err)
		pl_index_fini(&index);
	else
		*out = index;
	return err;
}

void pl_index_fini(struct pl_index *index)
{
	for (size_t i = 0; i < index->nr; i++)
		free(index->entries[i].tensor);
	for (unsigned int i = 0; i < index->nr_shards; i++)
		free(index->shards[i]);
	free(index->entries);
	free(index->shards);
	*index = (struct pl_index){ .nr = 0 };
}
