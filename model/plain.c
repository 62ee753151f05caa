// SPDX-License-Identifier: MIT
/* Entries in the common form; see plain.h. */
#include "plain.h"

#include <string.h>

/* Numbers of so many digits cannot overflow. */
#define MAX_DIGITS 18
#define MAX_DTYPE 16

struct text {
	const char *at, *end;
};

static void skip_space(struct text *t)
{
	while (t->at < t->end &&
	       (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
		t->at++;
}

static bool take(struct text *t, char c)
{
	skip_space(t);
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool take_string(struct text *t, const char **string, size_t *bytes)
{
	if (!take(t, '"'))
		return false;
	*string = t->at;
	while (t->at < t->end && *t->at >= 0x20 && *t->at < 0x7f && *t->at != '"' && *t->at != '\\')
		t->at++;
	*bytes = (size_t)(t->at - *string);
	return t->at < t->end && *t->at++ == '"';
}

static bool take_number(struct text *t, uint64_t *out)
{
	const char *from;

	skip_space(t);
	from = t->at;
	*out = 0;
	while (t->at < t->end && *t->at >= '0' && *t->at <= '9' && t->at - from < MAX_DIGITS)
		*out = *out * 10 + (uint64_t)(*t->at++ - '0');
	/* What follows says whether it ended here. */
	return t->at > from && (*from != '0' || t->at - from == 1);
}

static bool take_numbers(struct text *t, uint64_t *out, uint64_t most, uint64_t *nr)
{
	*nr = 0;
	if (!take(t, '['))
		return false;
	if (take(t, ']'))
		return true;
	do {
		if (*nr == most || !take_number(t, &out[*nr]))
			return false;
		++*nr;
	} while (take(t, ','));
	return take(t, ']');
}

static bool take_dtype(struct text *t, enum peerlane_dtype *out)
{
	char name[MAX_DTYPE];
	const char *string;
	size_t bytes;
	int found;

	if (!take_string(t, &string, &bytes) || bytes >= sizeof(name))
		return false;
	memcpy(name, string, bytes);
	name[bytes] = '\0';
	found = peerlane_dtype_find(name);
	*out = (enum peerlane_dtype)found;
	return found >= 0;
}

static bool is(const char *string, size_t bytes, const char *word)
{
	return bytes == strlen(word) && !memcmp(string, word, bytes);
}

/* The members of the value; @seen gets a bit for each, and none comes twice. */
static bool take_members(struct text *t, struct pl_plain *out)
{
	unsigned int seen = 0, bit;
	const char *key;
	uint64_t nr;
	size_t bytes;
	bool good;

	if (!take(t, '{'))
		return false;
	do {
		if (!take_string(t, &key, &bytes) || !take(t, ':'))
			return false;
		if (is(key, bytes, "dtype")) {
			bit = 1;
			good = take_dtype(t, &out->dtype);
		} else if (is(key, bytes, "shape")) {
			bit = 2;
			good = take_numbers(t, out->shape, PL_MAX_DIMS, &out->nr_dims);
		} else {
			bit = 4;
			good = is(key, bytes, "data_offsets") &&
			       take_numbers(t, out->offsets, 2, &nr) && nr == 2;
		}
		if (!good || (seen & bit))
			return false;
		seen |= bit;
	} while (take(t, ','));
	return seen == 7 && take(t, '}');
}

bool pl_plain_read(const char **at, const char *end, struct pl_plain *out)
{
	struct text t = { *at, end };
	uint64_t bytes;

	if (!take_string(&t, &out->name, &out->name_bytes) || !take(&t, ':') ||
	    !take_members(&t, out) || is(out->name, out->name_bytes, "__metadata__"))
		return false;
	if (out->offsets[0] > out->offsets[1] ||
	    pl_shape_bytes(out->dtype, out->shape, (unsigned int)out->nr_dims, &bytes) ||
	    bytes != out->offsets[1] - out->offsets[0])
		return false;
	*at = t.at;
	return true;
}
