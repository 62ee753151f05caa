// SPDX-License-Identifier: MIT
/*
 * Fuzzes the readers of headers and of index files. What is accepted must be sound: tensors one after the
 * other, sizes that fit, names once, shards inside their folder. And entries that are read without json-c are judged as it
 * would.
 * Called as fuzz.h says.
 */
#include "header.h"
#include "index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz.h"

static void require(bool good)
{
	if (!good)
		abort();
}

static void check_header(const struct pl_header *h, uint64_t data_bytes)
{
	uint64_t at = 0, bytes;

	for (size_t i = 0; i < h->nr; i++) {
		const struct pl_tensor *t = h->tensors[i];

		require(t->begin == at && t->end >= at && t->end <= data_bytes);
		require(t->nr_dims <= PL_MAX_DIMS && peerlane_dtype_name(t->dtype));
		require(!pl_shape_bytes(t->dtype, t->shape, t->nr_dims, &bytes));
		require(bytes == t->end - t->begin);
		require(pl_header_find(h, t->name) == t);
		require(bytes == 0 || pl_header_at(h, at) == t);
		at = t->end;
	}
	require(at == data_bytes);
	for (size_t i = 0; i < h->nr_metadata; i++)
		require(h->metadata[i].key && h->metadata[i].value);
}

/* The same text with an escape in each "dtype": entries with one are read by json-c, and by it alone. */
static char *escape(const char *text, size_t bytes, size_t *out_bytes)
{
	static const char word[] = "\"dtype", escaped[] = "\"\\u0064type";
	const size_t n = sizeof(word) - 1, m = sizeof(escaped) - 1;
	char *out = malloc(bytes / n * m + bytes + 1), *to = out;

	require(out);
	for (size_t i = 0; i < bytes;) {
		bool found = bytes - i >= n && !memcmp(text + i, word, n);

		memcpy(to, found ? escaped : text + i, found ? m : 1);
		to += found ? m : 1;
		i += found ? n : 1;
	}
	*out_bytes = (size_t)(to - out);
	return out;
}

/* Whoever reads an entry, it is judged and understood alike. @h is NULL if the text was refused. */
static void check_alike(const struct pl_header *h, const char *text, size_t bytes,
			uint64_t data_bytes)
{
	struct pl_header other;
	char *same = escape(text, bytes, &bytes);
	int err = pl_header_parse("fuzz", same, bytes, data_bytes, &other);

	free(same);
	require(!err == (h != NULL));
	if (err)
		return;
	require(h->nr == other.nr && h->nr_metadata == other.nr_metadata);
	for (size_t i = 0; i < h->nr; i++) {
		const struct pl_tensor *a = h->tensors[i], *b = other.tensors[i];

		require(!strcmp(a->name, b->name) && a->dtype == b->dtype && a->begin == b->begin &&
			a->end == b->end && a->nr_dims == b->nr_dims &&
			!memcmp(a->shape, b->shape, a->nr_dims * sizeof(a->shape[0])));
	}
	pl_header_fini(&other);
}

static void check_index(const struct pl_index *x)
{
	require(x->nr > 0 && x->nr_shards > 0);
	for (size_t i = 0; i < x->nr; i++) {
		require(x->entries[i].shard < x->nr_shards);
		require(!i || strcmp(x->entries[i - 1].tensor, x->entries[i].tensor) < 0);
	}
	for (unsigned int i = 0; i < x->nr_shards; i++) {
		const char *s = x->shards[i];

		require(*s && *s != '/' && strcmp(s, "..") != 0 && strncmp(s, "../", 3) != 0);
		require(!strstr(s, "/../"));
	}
}

static unsigned long accepted;

/* The first two bytes say how much data there is; the rest is the text, for both readers. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_header h;
	struct pl_index x;
	uint64_t data_bytes;
	char *text;

	if (size < 2)
		return 0;
	data_bytes = data[0] | (uint64_t)data[1] << 8;
	/* A copy of its own length, so that a read past its end is seen. */
	text = malloc(size - 2 ? size - 2 : 1);
	require(text);
	memcpy(text, data + 2, size - 2);
	if (!pl_header_parse("fuzz", text, size - 2, data_bytes, &h)) {
		check_header(&h, data_bytes);
		check_alike(&h, text, size - 2, data_bytes);
		pl_header_fini(&h);
		accepted++;
	} else {
		check_alike(NULL, text, size - 2, data_bytes);
	}
	if (!pl_index_parse("fuzz", text, size - 2, &x)) {
		check_index(&x);
		pl_index_fini(&x);
		accepted++;
	}
	free(text);
	return 0;
}

#ifndef FUZZ_LIB
static const struct {
	uint16_t data_bytes;
	const char *text;
} seeds[] = {
	{ 14, "{\"__metadata__\":{\"format\":\"pt\",\"peerlane.xxh3:a\":\"0123456789abcdef\"},"
	      "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
	      "\"b\":{\"dtype\":\"F4\",\"shape\":[4,3],\"data_offsets\":[8,14]}}" },
	{ 9, "{\"x\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
	     "\"y\\u00e4\":{\"shape\":[0,5],\"data_offsets\":[8,8],\"dtype\":\"BF16\"},"
	     "\"z\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[8,9],\"q\":[{}]}}   " },
	{ 0, "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"m-1.safetensors\","
	     "\"b\":\"m-2.safetensors\",\"c\":\"sub/m-1.safetensors\"}}" },
	/* Close to what is accepted. */
	{ 8, "{\"x\":{\"dtype\":\"U8\",\"shape\":[8],\"dtype\":\"U8\",\"data_offsets\":[0,8]}}" },
	{ 8, "{\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}" },
	{ 0, "{}" },
};

#define NR_SEEDS (sizeof(seeds) / sizeof(seeds[0]))

static size_t mutate(uint8_t *out, size_t room)
{
	static const char pieces[] =
		"{}[]\",:-0918446744073709551615e.truenull\\u0000../\"shape\":[0,4]}}\\\"";
	size_t which = fuzz_rnd() % NR_SEEDS, len = strlen(seeds[which].text) + 2;
	uint16_t data_bytes =
		(uint16_t)(fuzz_rnd() % 8 ? seeds[which].data_bytes : (uint16_t)(fuzz_rnd() % 32));

	memcpy(out, &data_bytes, 2);
	memcpy(out + 2, seeds[which].text, len - 2);
	return fuzz_change_text(out, 2, len, room, pieces, 8);
}

/* A reader that accepts nothing would have nothing to check. */
static void end(void)
{
	printf("%lu accepted\n", accepted);
	require(accepted > 0);
}

const struct fuzz fuzz_program = {
	.room = 1024,
	.least = 5000,
	.make = mutate,
	.end = end,
};
#endif
