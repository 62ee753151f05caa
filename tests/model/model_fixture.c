// SPDX-License-Identifier: MIT
/* Support of the tests of models; see model_fixture.h. */
#include "model_fixture.h"

#include <endian.h>

const char *mf_text(const char *name, const void *text, size_t bytes)
{
	const char *path = sim_path(name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
	return path;
}

static const char *write_file(const char *name, const char *header, size_t len, size_t data_bytes,
			      unsigned int seed)
{
	uint64_t length = htole64(len);
	char *all = malloc(8 + len + data_bytes);
	const char *path;

	assert_non_null(all);
	memcpy(all, &length, 8);
	memcpy(all + 8, header, len);
	sim_pattern(all + 8 + len, data_bytes, 0, seed);
	path = mf_text(name, all, 8 + len + data_bytes);
	free(all);
	return path;
}

const char *mf_file(const char *name, const char *header, size_t data_bytes, unsigned int seed)
{
	return write_file(name, header, strlen(header), data_bytes, seed);
}

void mf_begin(struct mf_header *h)
{
	*h = (struct mf_header){ .room = 4096 };
	h->text = malloc(h->room);
	assert_non_null(h->text);
	h->text[h->len++] = '{';
}

void mf_tensor(struct mf_header *h, const char *name, const char *dtype, const uint64_t *shape,
	       unsigned int nr_dims, uint64_t bytes)
{
	if (h->room - h->len < 2048 + strlen(name)) {
		h->room = h->room * 2 + strlen(name);
		h->text = realloc(h->text, h->room);
		assert_non_null(h->text);
	}
	h->len += (size_t)sprintf(h->text + h->len, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
				  h->len > 1 ? "," : "", name, dtype);
	for (unsigned int i = 0; i < nr_dims; i++)
		h->len += (size_t)sprintf(h->text + h->len, "%s%llu", i ? "," : "",
					  (unsigned long long)shape[i]);
	h->len += (size_t)sprintf(h->text + h->len, "],\"data_offsets\":[%llu,%llu]}",
				  (unsigned long long)h->bytes,
				  (unsigned long long)(h->bytes + bytes));
	h->bytes += bytes;
}

const char *mf_end(struct mf_header *h, const char *name, unsigned int padding, unsigned int seed)
{
	const char *path;

	assert_true(padding < 1024);
	h->text = realloc(h->text, h->len + 1 + padding);
	assert_non_null(h->text);
	h->text[h->len++] = '}';
	memset(h->text + h->len, ' ', padding);
	h->len += padding;
	path = write_file(name, h->text, h->len, h->bytes, seed);
	free(h->text);
	return path;
}

struct peerlane_model *mf_open(struct peerlane *ctx, const char *path)
{
	struct peerlane_model *m = NULL;
	struct peerlane_error_info info = { .size = sizeof(info) };
	int err = peerlane_model_open(ctx, path, &m);

	if (err) {
		peerlane_error(&info);
		fail_msg("%s: %d, %s", path, err, info.text);
	}
	return m;
}

void mf_words(int err, const char *words, int line)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	char copy[512], *save, *word;

	assert_int_equal(peerlane_error(&info), 0);
	if (info.err != err)
		fail_msg("line %d: error %d (%s), not %d", line, info.err, info.text, err);
	snprintf(copy, sizeof(copy), "%s", words);
	for (word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save))
		if (!strstr(info.text, word))
			fail_msg("line %d: no \"%s\" in \"%s\"", line, word, info.text);
}

void mf_check_refused(struct peerlane *ctx, const char *path, int err, const char *words, int line)
{
	struct peerlane_model *m = (struct peerlane_model *)-1;
	unsigned int fds = sim_count_fds();
	int got = peerlane_model_open(ctx, path, &m);

	if (got != err)
		fail_msg("line %d: %s gave %d, not %d", line, words, got, err);
	assert_ptr_equal(m, (struct peerlane_model *)-1);
	assert_int_equal(sim_count_fds(), fds);
	mf_words(err, words, line);
}

struct peerlane_tensor mf_get(const struct peerlane_model *m, const char *name)
{
	struct peerlane_tensor t = { .size = sizeof(t) };
	ssize_t i = peerlane_model_find(m, name);

	if (i < 0)
		fail_msg("no tensor %s", name);
	assert_int_equal(peerlane_model_get_tensor(m, (size_t)i, &t), 0);
	assert_string_equal(t.name, name);
	return t;
}

struct peerlane_model_part mf_whole(const struct peerlane_model *m, const char *name)
{
	struct peerlane_model_part p = { .tensor = (size_t)peerlane_model_find(m, name) };

	return p;
}

struct peerlane_model_part *mf_all(const struct peerlane_model *m, size_t *nr)
{
	struct peerlane_model_info info = { .size = sizeof(info) };
	struct peerlane_model_part *parts;

	assert_int_equal(peerlane_model_get_info(m, &info), 0);
	parts = calloc(info.nr_tensors + 1, sizeof(*parts));
	assert_non_null(parts);
	for (size_t i = 0; i < info.nr_tensors; i++)
		parts[i].tensor = i;
	*nr = info.nr_tensors;
	return parts;
}

void mf_assert_part(struct peerlane *ctx, const struct peerlane_model *m,
		    const struct peerlane_model_part *p, unsigned int seed)
{
	struct peerlane_tensor t = { .size = sizeof(t) };
	struct peerlane_model_file f = { .size = sizeof(f) };
	char *mem;

	assert_int_equal(peerlane_model_get_tensor(m, p->tensor, &t), 0);
	assert_int_equal(peerlane_model_get_file(m, t.file, &f), 0);
	assert_int_equal(p->bytes, t.bytes);
	if (!t.bytes)
		return;
	mem = malloc(t.bytes);
	assert_non_null(mem);
	assert_int_equal(peerlane_gpu_copy(ctx, mem, p->addr, t.bytes), 0);
	if (sim_differs(mem, t.bytes, (off_t)(t.offset - f.data_offset), seed) != t.bytes)
		fail_msg("tensor %s differs", t.name);
	free(mem);
}
