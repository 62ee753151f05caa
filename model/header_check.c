// SPDX-License-Identifier: MIT
/* Headers as a whole: names, the order of the data, checksums; and finding tensors in them. */
#include "header_check.h"

#include "error.h"
#include "words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pl_header_fault(const char *file, const char *tensor, const char *fmt, ...)
{
	char what[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return pl_fail(-EUCLEAN, "%.60s: tensor \"%s\": %s", pl_words_file(file).text,
		       pl_words_name(tensor).text, what);
}

static int compare_data(const void *a, const void *b)
{
	const struct pl_tensor *x = *(struct pl_tensor *const *)a,
			       *y = *(struct pl_tensor *const *)b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b)
{
	return strcmp((*(struct pl_tensor *const *)a)->name, (*(struct pl_tensor *const *)b)->name);
}

static int check_names(const char *file, struct pl_header *h)
{
	h->by_name = malloc((h->nr ? h->nr : 1) * sizeof(*h->by_name));
	if (!h->by_name)
		return pl_fail(-ENOMEM, "no memory for the tensors");
	if (!h->nr)
		return 0;
	memcpy(h->by_name, h->tensors, h->nr * sizeof(*h->by_name));
	qsort(h->by_name, h->nr, sizeof(*h->by_name), compare_name);
	for (size_t i = 1; i < h->nr; i++)
		if (!strcmp(h->by_name[i]->name, h->by_name[i - 1]->name))
			return pl_header_fault(file, h->by_name[i]->name, "it is there twice");
	return 0;
}

static int check_data(const char *file, const struct pl_header *h, uint64_t data_bytes)
{
	const struct pl_tensor *t, *before = NULL;
	uint64_t at = 0;

	for (size_t i = 0; i < h->nr; i++, before = t) {
		t = h->tensors[i];
		if (t->begin < at && before)
			return pl_header_fault(file, t->name, "its data overlaps that of \"%.40s\"",
					       pl_words_name(before->name).text);
		if (t->begin > at)
			return pl_header_fault(file, t->name,
					       "there is a gap of %llu bytes before its data",
					       (unsigned long long)(t->begin - at));
		at = t->end;
		if (at > data_bytes)
			return pl_header_fault(file, t->name,
					       "its data ends at byte %llu, but the file has only "
					       "%llu (truncated?)",
					       (unsigned long long)at,
					       (unsigned long long)data_bytes);
	}
	if (at == data_bytes)
		return 0;
	if (before)
		return pl_header_fault(file, before->name,
				       "%llu bytes follow its data, the last of the file",
				       (unsigned long long)(data_bytes - at));
	return pl_fail(-EUCLEAN, "%s: %llu bytes of data, but no tensors", pl_words_file(file).text,
		       (unsigned long long)data_bytes);
}

struct pl_tensor *pl_header_find(const struct pl_header *h, const char *name)
{
	size_t low = 0, high = h->nr;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(name, h->by_name[mid]->name);

		if (!order)
			return h->by_name[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

const struct pl_tensor *pl_header_at(const struct pl_header *h, uint64_t at)
{
	size_t low = 0, high = h->nr;

	/* The first that ends behind it. */
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (h->tensors[mid]->end <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low < h->nr ? h->tensors[low] : NULL;
}

/* Checksums stand in the metadata, which anyone may write: those of other tensors are nobody's. */
static int take_sums(const char *file, const struct pl_header *h)
{
	const size_t prefix = sizeof(PL_SUM_KEY) - 1;

	for (size_t i = 0; i < h->nr_metadata; i++) {
		const char *key = h->metadata[i].key, *value = h->metadata[i].value;
		struct pl_tensor *t;

		if (strncmp(key, PL_SUM_KEY, prefix) != 0)
			continue;
		t = pl_header_find(h, key + prefix);
		if (!t)
			continue;
		if (strlen(value) != 16 || strspn(value, "0123456789abcdef") != 16)
			return pl_header_fault(file, t->name,
					       "its checksum is not 16 hexadecimal digits");
		t->sum = strtoull(value, NULL, 16);
		t->has_sum = true;
	}
	return 0;
}

static int compare_key(const void *a, const void *b)
{
	return strcmp((*(struct pl_pair *const *)a)->key, (*(struct pl_pair *const *)b)->key);
}

static int check_keys(const char *file, const struct pl_header *h)
{
	struct pl_pair **sorted;
	int err = 0;

	if (h->nr_metadata < 2)
		return 0;
	sorted = malloc(h->nr_metadata * sizeof(*sorted));
	if (!sorted)
		return pl_fail(-ENOMEM, "no memory for the metadata");
	for (size_t i = 0; i < h->nr_metadata; i++)
		sorted[i] = &h->metadata[i];
	qsort(sorted, h->nr_metadata, sizeof(*sorted), compare_key);
	for (size_t i = 1; i < h->nr_metadata && !err; i++)
		if (!strcmp(sorted[i]->key, sorted[i - 1]->key))
			err = pl_fail(-EUCLEAN, "%s: __metadata__: \"%s\" is there twice",
				      pl_words_file(file).text, pl_words_name(sorted[i]->key).text);
	free(sorted);
	return err;
}

int pl_header_check(const char *file, struct pl_header *h, uint64_t data_bytes)
{
	int err = check_names(file, h);

	if (err)
		return err;
	if (h->nr)
		qsort(h->tensors, h->nr, sizeof(*h->tensors), compare_data);
	err = check_data(file, h, data_bytes);
	if (!err)
		err = check_keys(file, h);
	if (!err)
		err = take_sums(file, h);
	return err;
}
