// SPDX-License-Identifier: MIT
/* Opening models: a file, an index and its shards, or a folder with either. */
#include "model.h"

#include "error.h"
#include "index.h"
#include "table.h"
#include "words.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct by_name {
	const char *name;
	size_t number;
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct by_name *)a)->name, ((const struct by_name *)b)->name);
}

/* The table by name, once the entries are there. */
static int sort_names(struct peerlane_model *m)
{
	struct by_name *list = malloc((m->nr ? m->nr : 1) * sizeof(*list));

	m->by_name = malloc((m->nr ? m->nr : 1) * sizeof(*m->by_name));
	if (!list || !m->by_name) {
		free(list);
		return pl_fail(-ENOMEM, "no memory for the model");
	}
	for (size_t i = 0; i < m->nr; i++)
		list[i] = (struct by_name){ m->entries[i].tensor->name, i };
	qsort(list, m->nr, sizeof(*list), compare);
	for (size_t i = 0; i < m->nr; i++)
		m->by_name[i] = list[i].number;
	free(list);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct pl_entry *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->tensor->begin != y->tensor->begin)
		return x->tensor->begin < y->tensor->begin ? -1 : 1;
	if (x->tensor->end != y->tensor->end)
		return x->tensor->end < y->tensor->end ? -1 : 1;
	return strcmp(x->tensor->name, y->tensor->name);
}

static int make_room(struct peerlane_model *m, unsigned int nr_shards, size_t nr)
{
	m->shards = calloc(nr_shards, sizeof(*m->shards));
	m->entries = calloc(nr ? nr : 1, sizeof(*m->entries));
	if (!m->shards || !m->entries)
		return pl_fail(-ENOMEM, "no memory for the model");
	return 0;
}

static int open_single(struct peerlane_model *m, const char *path)
{
	struct pl_shard s;
	int err = pl_shard_open(m->ctx, AT_FDCWD, path, path, &s);

	if (err)
		return err;
	err = make_room(m, 1, s.header.nr);
	if (err) {
		pl_shard_close(&s);
		return err;
	}
	m->shards[m->nr_shards++] = s;
	for (; m->nr < s.header.nr; m->nr++)
		m->entries[m->nr].tensor = s.header.tensors[m->nr];
	return 0;
}

static int open_shards(struct peerlane_model *m, const struct pl_index *index, const char *path,
		       int dir_fd)
{
	const char *slash = strrchr(path, '/');
	int err = 0, dir = slash ? (int)(slash - path) + 1 : 0;
	char *name;

	for (unsigned int i = 0; i < index->nr_shards && !err; i++) {
		if (asprintf(&name, "%.*s%s", dir, path, index->shards[i]) < 0)
			return pl_fail(-ENOMEM, "no memory for a path");
		err = pl_shard_open(m->ctx, dir_fd, index->shards[i], name, &m->shards[i]);
		if (err == -ENOENT)
			pl_fail(err, "%s: the shard \"%s\" is not there", pl_words_file(path).text,
				pl_words_name(index->shards[i]).text);
		m->nr_shards += !err;
		free(name);
	}
	for (size_t i = 0; i < index->nr && !err; i++) {
		const struct pl_index_entry *e = &index->entries[i];
		const struct pl_tensor *t = pl_header_find(&m->shards[e->shard].header, e->tensor);

		if (!t)
			return pl_fail(-EUCLEAN, "%.60s: tensor \"%s\": it is not in its shard %s",
				       pl_words_file(path).text, pl_words_name(e->tensor).text,
				       pl_words_file(index->shards[e->shard]).text);
		m->entries[m->nr++] = (struct pl_entry){ t, e->shard };
	}
	if (!err)
		qsort(m->entries, m->nr, sizeof(*m->entries), by_place);
	return err;
}

/* The folder of @path, or -1 with errno. */
static int open_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	free(dir);
	return fd;
}

static int open_index(struct peerlane_model *m, const char *path)
{
	struct pl_index index = { .nr = 0 };
	char *text = NULL;
	size_t bytes;
	int dir_fd = -1, err, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return pl_fail(-errno, "%.150s: %s", path, pl_error_open(path, errno));
	err = pl_text_read(fd, path, PL_HEADER_MAX, &text, &bytes);
	if (!err)
		err = pl_index_parse(path, text, bytes, &index);
	free(text);
	close(fd);
	if (err)
		return err;
	dir_fd = open_folder(path);
	if (dir_fd < 0)
		err = pl_fail(-errno, "the folder of %.150s: %s", path, strerror(errno));
	if (!err)
		err = make_room(m, index.nr_shards, index.nr);
	if (!err)
		err = open_shards(m, &index, path, dir_fd);
	if (dir_fd >= 0)
		close(dir_fd);
	pl_index_fini(&index);
	return err;
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && !strcmp(text + n - k, end);
}

#define INDEX ".safetensors.index.json"
#define SINGLE ".safetensors"

/* Entries of a folder that end so, and the name of one; hidden ones are somebody's temporary files. */
static size_t count_entries(DIR *dir, const char *end, char *name, size_t size)
{
	const struct dirent *e;
	size_t nr = 0;

	rewinddir(dir);
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.' && ends_in(e->d_name, end) && !nr++)
			snprintf(name, size, "%s", e->d_name);
	return nr;
}

/* The model of a folder: that with the usual name, else the only one. */
static int find_in_folder(const char *path, char *name, size_t size)
{
	static const char *const ends[] = { INDEX, SINGLE };
	DIR *dir = opendir(path);
	size_t nr = 0;

	if (!dir)
		return pl_fail(-errno, "%.150s: %s", path, strerror(errno));
	for (int i = 0; i < 2 && !nr; i++) {
		snprintf(name, size, "model%s", ends[i]);
		nr = !faccessat(dirfd(dir), name, F_OK, 0);
	}
	for (int i = 0; i < 2 && !nr; i++)
		nr = count_entries(dir, ends[i], name, size);
	closedir(dir);
	if (!nr)
		return pl_fail(-ENOENT, "%.150s: no safetensors file in this folder", path);
	if (nr > 1)
		return pl_fail(-EINVAL, "%.120s: %zu %s; name one of them", path, nr,
			       ends_in(name, INDEX) ? "index files"
						    : "safetensors files and no index");
	return 0;
}

static int open_in_folder(struct peerlane_model *m, const char *path)
{
	char name[NAME_MAX + 1], *full;
	int err = find_in_folder(path, name, sizeof(name));

	if (err)
		return err;
	if (asprintf(&full, "%s/%s", path, name) < 0)
		return pl_fail(-ENOMEM, "no memory for a path");
	err = ends_in(name, INDEX) ? open_index(m, full) : open_single(m, full);
	free(full);
	return err;
}

int peerlane_model_open(struct peerlane *ctx, const char *path, struct peerlane_model **out)
{
	PL_KEEP_ERRNO;
	struct peerlane_model *m;
	struct stat st;
	int err;

	if (!ctx || !path || !out)
		return pl_fail(-EINVAL, "the context, the path or the result is NULL");
	m = calloc(1, sizeof(*m));
	if (!m)
		return pl_fail(-ENOMEM, "no memory for the model");
	m->ctx = ctx;
	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		err = open_in_folder(m, path);
	else if (ends_in(path, ".json"))
		err = open_index(m, path);
	else
		err = open_single(m, path);
	if (!err)
		err = sort_names(m);
	if (!err)
		err = pl_table_make(m);
	if (err) {
		peerlane_model_close(m);
		return err;
	}
	*out = m;
	return 0;
}
