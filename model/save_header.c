// SPDX-License-Identifier: MIT
/* Headers to be written: from tables to text. */
#include "save_header.h"

#include "error.h"
#include "header.h"
#include "words.h"

#include <endian.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A memory stream for text, which has its own check for memory; @out is set by fclose(). */
struct text {
	FILE *f;
	char *out;
	size_t bytes;
};

/* @s in quotes, as JSON has it. */
static int put_string(struct text *t, const char *s)
{
	struct json_object *o = json_object_new_string(s);
	const char *quoted = NULL;

	if (o)
		quoted = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
								   JSON_C_TO_STRING_NOSLASHESCAPE);
	if (quoted)
		fputs(quoted, t->f);
	json_object_put(o);
	return quoted ? 0 : pl_fail(-ENOMEM, "no memory for the header");
}

static int put_pair(struct text *t, const char *key, const char *value, bool *first)
{
	int err;

	fputs(*first ? "" : ",", t->f);
	*first = false;
	err = put_string(t, key);
	fputc(':', t->f);
	return err ? err : put_string(t, value);
}

static int put_sum(struct text *t, const struct pl_outgoing *o, bool *first)
{
	char *key, value[17];
	int err;

	if (asprintf(&key, PL_SUM_KEY "%s", o->source->name) < 0)
		return pl_fail(-ENOMEM, "no memory for the header");
	snprintf(value, sizeof(value), "%016llx", (unsigned long long)o->sum);
	err = put_pair(t, key, value, first);
	free(key);
	return err;
}

static int put_metadata(struct text *t, const struct pl_outgoing *list, size_t nr,
			const struct peerlane_model_save_options *opt)
{
	const bool sums = opt->flags & PEERLANE_MODEL_CHECKSUM;
	bool first = true;
	int err = 0;

	if (!opt->nr_metadata && !(sums && nr))
		return 0;
	fputs("\"__metadata__\":{", t->f);
	for (size_t i = 0; i < opt->nr_metadata && !err; i++) {
		const char *key = opt->metadata[2 * i], *value = opt->metadata[2 * i + 1];

		if (!key || !value)
			return pl_fail(-EINVAL, "entry %zu of the metadata is NULL", i);
		/* Those of the file this came from say nothing of the new data. */
		if (!strncmp(key, PL_SUM_KEY, sizeof(PL_SUM_KEY) - 1))
			continue;
		err = put_pair(t, key, value, &first);
	}
	for (size_t i = 0; sums && i < nr && !err; i++)
		err = put_sum(t, &list[i], &first);
	fputs(nr ? "}," : "}", t->f);
	return err;
}

static int put_tensor(struct text *t, const struct pl_outgoing *o)
{
	const struct peerlane_model_source *s = o->source;
	int err = put_string(t, s->name);

	fprintf(t->f, ":{\"dtype\":\"%s\",\"shape\":[", peerlane_dtype_name(s->dtype));
	for (unsigned int i = 0; i < s->nr_dims; i++)
		fprintf(t->f, "%s%llu", i ? "," : "", (unsigned long long)s->shape[i]);
	fprintf(t->f, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)o->begin,
		(unsigned long long)o->begin + o->bytes);
	return err;
}

static int put_all(struct text *t, const struct pl_outgoing *list, size_t nr,
		   const struct peerlane_model_save_options *opt)
{
	uint64_t length = 0;
	long end;
	int err;

	/* The length comes when it is known. */
	fwrite(&length, sizeof(length), 1, t->f);
	fputc('{', t->f);
	err = put_metadata(t, list, nr, opt);
	for (size_t i = 0; i < nr && !err; i++) {
		fputs(i ? "," : "", t->f);
		err = put_tensor(t, &list[i]);
	}
	fputc('}', t->f);
	end = ftell(t->f);
	while (end > 0 && end++ % (long)opt->align)
		fputc(' ', t->f);
	return err;
}

/* What a reader would say. */
static int read_back(const char *path, const struct text *t, const struct pl_outgoing *list,
		     size_t nr)
{
	uint64_t data_bytes = nr ? list[nr - 1].begin + list[nr - 1].bytes : 0;
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct pl_header h;
	int err;

	if (t->bytes - sizeof(uint64_t) > PL_HEADER_MAX)
		return pl_fail(-E2BIG, "a header of %zu bytes; %u are the most", t->bytes,
			       PL_HEADER_MAX);
	err = pl_header_parse(path, t->out + sizeof(uint64_t), t->bytes - sizeof(uint64_t),
			      data_bytes, &h);
	if (!err)
		pl_header_fini(&h);
	if (err != -EUCLEAN)
		return err;
	/* It is the caller who was wrong, not a file. */
	peerlane_error(&info);
	return pl_fail(-EINVAL, "%s", info.text);
}

int pl_save_header(const char *path, const struct pl_outgoing *list, size_t nr,
		   const struct peerlane_model_save_options *opt, char **out, size_t *bytes)
{
	struct text t = { .out = NULL };
	uint64_t length;
	int err;

	t.f = open_memstream(&t.out, &t.bytes);
	if (!t.f)
		return pl_fail(-ENOMEM, "no memory for the header");
	err = put_all(&t, list, nr, opt);
	if (ferror(t.f) && !err)
		err = pl_fail(-ENOMEM, "no memory for the header");
	if (fclose(t.f) && !err)
		err = pl_fail(-ENOMEM, "no memory for the header");
	if (!err)
		err = read_back(path, &t, list, nr);
	if (err) {
		free(t.out);
		return err;
	}
	length = htole64(t.bytes - sizeof(length));
	memcpy(t.out, &length, sizeof(length));
	*out = t.out;
	*bytes = t.bytes;
	return 0;
}
