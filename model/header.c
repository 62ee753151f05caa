// SPDX-License-Identifier: MIT
/* Headers: from text to tables. What the whole must fulfil is in header_check.c. */
#include "header.h"

#include "error.h"
#include "header_check.h"
#include "json.h"
#include "plain.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

struct reader {
	struct pl_json json;
	const char *file;
	struct pl_header *h;
	size_t room, meta_room;
};

static int bad_tensor(const struct reader *r, const char *name, const char *what)
{
	return pl_header_fault(r->file, name, "%s", what);
}

int pl_shape_bytes(enum peerlane_dtype dtype, const uint64_t *shape, unsigned int nr_dims,
		   uint64_t *bytes)
{
	uint64_t n = 1;

	for (unsigned int i = 0; i < nr_dims; i++)
		if (__builtin_mul_overflow(n, shape[i], &n))
			return -EOVERFLOW;
	/* In bits it fits into 64, so in bytes into an off_t. */
	if (__builtin_mul_overflow(n, (uint64_t)peerlane_dtype_bits(dtype), &n))
		return -EOVERFLOW;
	if (n % 8)
		return -EINVAL;
	*bytes = n / 8;
	return 0;
}

/* Room for one more of @size bytes in an array that doubles. */
static void *more(void *array, size_t nr, size_t *room, size_t size)
{
	void *bigger;

	if (nr < *room)
		return array;
	bigger = reallocarray(array, *room ? *room * 2 : 64, size);
	if (bigger)
		*room = *room ? *room * 2 : 64;
	return bigger;
}

/* Numbers of the array @o, up to @max, in @out; false: it is not such an array. */
static bool numbers(struct json_object *o, uint64_t *out, size_t max, size_t *nr)
{
	if (!json_object_is_type(o, json_type_array))
		return false;
	*nr = json_object_array_length(o);
	for (size_t i = 0; i < *nr && i < max; i++)
		if (!pl_json_number(json_object_array_get_idx(o, i), &out[i]))
			return false;
	return true;
}

static struct pl_tensor *tensor_create(const char *name, size_t name_bytes, const uint64_t *shape,
				       size_t nr_dims)
{
	size_t shape_bytes = nr_dims * sizeof(*shape);
	struct pl_tensor *t = calloc(1, sizeof(*t) + shape_bytes + name_bytes + 1);

	if (!t)
		return NULL;
	t->nr_dims = (unsigned int)nr_dims;
	memcpy(t->shape, shape, shape_bytes);
	memcpy((char *)t->shape + shape_bytes, name, name_bytes);
	t->name = (const char *)t->shape + shape_bytes;
	return t;
}

/* The type of a tensor, from the object @o. */
static int read_dtype(const struct reader *r, const char *name, struct json_object *o)
{
	struct json_object *member;
	int dtype;

	if (!json_object_object_get_ex(o, "dtype", &member) ||
	    !json_object_is_type(member, json_type_string))
		return bad_tensor(r, name, "its dtype is missing or no text");
	dtype = peerlane_dtype_find(json_object_get_string(member));
	if (dtype < 0)
		return pl_header_fault(r->file, name, "unknown dtype \"%.20s\"",
				       pl_words_name(json_object_get_string(member)).text);
	return dtype;
}

/* One more tensor, which was checked. */
static int add_tensor(struct reader *r, const struct pl_plain *p)
{
	struct pl_tensor *t, **grown;

	grown = more(r->h->tensors, r->h->nr, &r->room, sizeof(*grown));
	if (!grown)
		return pl_fail(-ENOMEM, "no memory for the tensors");
	r->h->tensors = grown;
	t = tensor_create(p->name, p->name_bytes, p->shape, p->nr_dims);
	if (!t)
		return pl_fail(-ENOMEM, "no memory for the tensors");
	t->dtype = p->dtype;
	t->begin = p->offsets[0];
	t->end = p->offsets[1];
	r->h->tensors[r->h->nr++] = t;
	return 0;
}

/* One tensor from the object @o. */
static int read_tensor(struct reader *r, const char *name, struct json_object *o)
{
	struct pl_plain p = { .name = name, .name_bytes = strlen(name) };
	struct json_object *member;
	size_t nr_dims, nr_offsets;
	uint64_t bytes;
	int err, dtype;

	if (!json_object_is_type(o, json_type_object))
		return bad_tensor(r, name, "its entry is not an object");
	if (!pl_words_is_utf8(name))
		return bad_tensor(r, name, "its name is not UTF-8");
	dtype = read_dtype(r, name, o);
	if (dtype < 0)
		return dtype;
	if (!json_object_object_get_ex(o, "shape", &member) ||
	    !numbers(member, p.shape, PL_MAX_DIMS, &nr_dims))
		return bad_tensor(r, name, "its shape is missing or not a list of sizes");
	if (nr_dims > PL_MAX_DIMS)
		return pl_header_fault(r->file, name, "%zu dimensions; %u are the most", nr_dims,
				       PL_MAX_DIMS);
	if (!json_object_object_get_ex(o, "data_offsets", &member) ||
	    !numbers(member, p.offsets, 2, &nr_offsets) || nr_offsets != 2)
		return bad_tensor(r, name, "its data_offsets are missing or not two positions");
	if (p.offsets[0] > p.offsets[1])
		return bad_tensor(r, name, "its data ends before it begins");
	p.dtype = (enum peerlane_dtype)dtype;
	p.nr_dims = nr_dims;
	err = pl_shape_bytes(p.dtype, p.shape, (unsigned int)nr_dims, &bytes);
	if (err)
		return bad_tensor(r, name,
				  err == -EOVERFLOW ? "the size of its shape overflows"
						    : "its shape is not a whole number of bytes");
	if (p.offsets[1] - p.offsets[0] != bytes)
		return pl_header_fault(r->file, name,
				       "its shape is %llu bytes, its data_offsets are %llu",
				       (unsigned long long)bytes,
				       (unsigned long long)(p.offsets[1] - p.offsets[0]));
	return add_tensor(r, &p);
}

static int add_metadata(struct reader *r, const char *key, const char *value)
{
	struct pl_pair pair, *grown;

	grown = more(r->h->metadata, r->h->nr_metadata, &r->meta_room, sizeof(*grown));
	if (!grown)
		return pl_fail(-ENOMEM, "no memory for the metadata");
	r->h->metadata = grown;
	pair.key = strdup(key);
	pair.value = strdup(value);
	if (!pair.key || !pair.value) {
		free(pair.key);
		free(pair.value);
		return pl_fail(-ENOMEM, "no memory for the metadata");
	}
	r->h->metadata[r->h->nr_metadata++] = pair;
	return 0;
}

/* __metadata__: an object of texts. */
static int read_metadata(struct reader *r)
{
	struct json_object *key, *value;
	const char *name;
	int err = pl_json_enter(&r->json);

	if (err)
		return pl_fail(err, "%s: __metadata__ is not an object",
			       pl_words_file(r->file).text);
	for (;;) {
		err = pl_json_next(&r->json, &key);
		if (err <= 0)
			return err;
		name = json_object_get_string(key);
		err = pl_json_value(&r->json, &value);
		if (!err &&
		    (!json_object_is_type(value, json_type_string) || !pl_words_is_utf8(name) ||
		     !pl_words_is_utf8(json_object_get_string(value))))
			err = pl_fail(-EUCLEAN, "%s: __metadata__: the value of \"%s\" is not text",
				      pl_words_file(r->file).text, pl_words_name(name).text);
		else if (!err)
			err = add_metadata(r, name, json_object_get_string(value));
		else
			value = NULL;
		json_object_put(value);
		json_object_put(key);
		if (err)
			return err;
	}
}

/* What json-c says of a value, with the tensor's name. */
static int name_fault(const struct reader *r, const char *name, int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	const char *text;

	if (err != -EUCLEAN)
		return err;
	peerlane_error(&info);
	text = strstr(info.text, ": ");
	return pl_header_fault(r->file, name, "%.120s", text ? text + 2 : info.text);
}

static int read_members(struct reader *r)
{
	struct json_object *key, *value;
	bool seen_metadata = false;
	struct pl_plain plain;
	const char *name;
	int err = pl_json_enter(&r->json);

	while (!err) {
		err = pl_json_more(&r->json);
		if (err <= 0)
			break;
		if (pl_plain_read(&r->json.at, r->json.end, &plain)) {
			err = add_tensor(r, &plain);
			continue;
		}
		err = pl_json_key(&r->json, &key);
		if (err)
			break;
		name = json_object_get_string(key);
		if (!strcmp(name, "__metadata__")) {
			err = seen_metadata ? bad_tensor(r, name, "it is there twice")
					    : read_metadata(r);
			seen_metadata = true;
		} else {
			err = pl_json_value(&r->json, &value);
			if (err) {
				err = name_fault(r, name, err);
			} else {
				err = read_tensor(r, name, value);
				json_object_put(value);
			}
		}
		json_object_put(key);
	}
	return err ? err : pl_json_end(&r->json);
}

int pl_header_parse(const char *file, const char *text, size_t bytes, uint64_t data_bytes,
		    struct pl_header *out)
{
	struct pl_header h = { .nr = 0 };
	struct reader r = { .file = file, .h = &h };
	int err = pl_json_init(&r.json, file, text, bytes);

	if (err)
		return err;
	if (!bytes || *text != '{')
		err = pl_fail(-EUCLEAN,
			      "%s: not a safetensors file: the header does not begin with {",
			      pl_words_file(file).text);
	else
		err = read_members(&r);
	if (!err)
		err = pl_header_check(file, &h, data_bytes);
	pl_json_fini(&r.json);
	if (err)
		pl_header_fini(&h);
	else
		*out = h;
	return err;
}

void pl_header_fini(struct pl_header *h)
{
	for (size_t i = 0; i < h->nr; i++)
		free(h->tensors[i]);
	for (size_t i = 0; i < h->nr_metadata; i++) {
		free(h->metadata[i].key);
		free(h->metadata[i].value);
	}
	free(h->tensors);
	free(h->by_name);
	free(h->metadata);
	*h = (struct pl_header){ .nr = 0 };
}
