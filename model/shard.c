// SPDX-License-Identifier: MIT
/* Opening safetensors files; nothing of their data is read. */
#include "shard.h"

#include "error.h"
#include "words.h"

#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads all of @bytes at @offset. */
static int read_all(int fd, const char *path, char *to, size_t bytes, off_t offset)
{
	while (bytes) {
		ssize_t n = pread(fd, to, bytes, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return pl_fail(-errno, "%s: reading the header: %s",
				       pl_words_file(path).text, strerror(errno));
		if (!n)
			return pl_fail(-EUCLEAN, "%s: the file ends inside of its header",
				       pl_words_file(path).text);
		to += n;
		offset += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int stat_regular(int fd, const char *path, struct stat *st)
{
	if (fstat(fd, st))
		return pl_fail(-errno, "%s: %s", pl_words_file(path).text, strerror(errno));
	if (!S_ISREG(st->st_mode))
		return pl_fail(-EINVAL, "%s is not a regular file", pl_words_file(path).text);
	return 0;
}

int pl_text_read(int fd, const char *path, size_t max, char **out, size_t *bytes)
{
	struct stat st;
	char *text;
	int err = stat_regular(fd, path, &st);

	if (err)
		return err;
	if ((uint64_t)st.st_size > max)
		return pl_fail(-EUCLEAN, "%s has %lld bytes; %zu are the most",
			       pl_words_file(path).text, (long long)st.st_size, max);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return pl_fail(-ENOMEM, "no memory for %s", pl_words_file(path).text);
	err = read_all(fd, path, text, (size_t)st.st_size, 0);
	if (err) {
		free(text);
		return err;
	}
	text[st.st_size] = '\0';
	*out = text;
	*bytes = (size_t)st.st_size;
	return 0;
}

/* What files that are taken for models begin with. As a length each is far too large. */
static const struct {
	const char *begin, *words;
} others[] = {
	{ "GGUF", "it is GGUF, the format of llama.cpp" },
	{ "PK\3\4", "it is a ZIP archive, as torch.save() and numpy.savez() write" },
	{ "\x80\2", "it is a pickle, as old versions of torch.save() write" },
	{ "\x89HDF", "it is HDF5" },
	{ "\x93NUMPY", "it is a NumPy array" },
	{ "version ", "it is text, such as a Git LFS pointer; 'git lfs pull' fetches the file" },
	{ "<!DOCTYP", "it is a web page: the download failed" },
	{ "<html", "it is a web page: the download failed" },
};

/* @length: the first bytes of the file, read as the length of a header. */
static int not_safetensors(const struct pl_shard *s, uint64_t length)
{
	uint64_t begin = htole64(length);

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!memcmp(&begin, others[i].begin, strlen(others[i].begin)))
			return pl_fail(-EUCLEAN, "%s: not a safetensors file: %s",
				       pl_words_file(s->path).text, others[i].words);
	return pl_fail(-EUCLEAN,
		       "%s: not a safetensors file: the header would be %llu bytes (at most %u)",
		       pl_words_file(s->path).text, (unsigned long long)length, PL_HEADER_MAX);
}

/* The header of a file of @s->bytes. */
static int read_header(struct pl_shard *s)
{
	struct pl_header header;
	uint64_t length;
	char *text;
	int err;

	if (!s->bytes)
		return pl_fail(-EUCLEAN, "%s: not a safetensors file: it is empty",
			       pl_words_file(s->path).text);
	if (s->bytes < sizeof(length))
		return pl_fail(-EUCLEAN, "%s: not a safetensors file: it has only %llu bytes",
			       pl_words_file(s->path).text, (unsigned long long)s->bytes);
	err = read_all(s->fd, s->path, (char *)&length, sizeof(length), 0);
	if (err)
		return err;
	length = le64toh(length);
	if (length > PL_HEADER_MAX)
		return not_safetensors(s, length);
	if (length > s->bytes - sizeof(length))
		return pl_fail(-EUCLEAN,
			       "%s: not a safetensors file, or cut short: the header would be %llu "
			       "bytes, the file has only %llu",
			       pl_words_file(s->path).text, (unsigned long long)length,
			       (unsigned long long)s->bytes);
	text = malloc(length ? length : 1);
	if (!text)
		return pl_fail(-ENOMEM, "no memory for the header of %s",
			       pl_words_file(s->path).text);
	err = read_all(s->fd, s->path, text, length, sizeof(length));
	s->data_offset = sizeof(length) + length;
	if (!err)
		err = pl_header_parse(s->path, text, length, s->bytes - s->data_offset, &header);
	if (!err)
		s->header = header;
	free(text);
	return err;
}

int pl_shard_open(struct peerlane *ctx, int dir_fd, const char *name, const char *path,
		  struct pl_shard *out)
{
	struct pl_shard s = { .fd = -1 };
	struct stat st;
	int err;

	s.path = strdup(path);
	if (!s.path)
		return pl_fail(-ENOMEM, "no memory for a path");
	/* Without waiting, should it be a pipe. */
	s.fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (s.fd < 0) {
		err = pl_fail(-errno, "%.150s: %s", path, pl_error_open(path, errno));
		goto err_close;
	}
	err = stat_regular(s.fd, path, &st);
	if (err)
		goto err_close;
	s.bytes = (uint64_t)st.st_size;
	s.changed = st.st_mtim;
	err = read_header(&s);
	if (err)
		goto err_close;
	err = peerlane_file_from_fd(ctx, s.fd, &s.file);
	if (err)
		goto err_close;
	*out = s;
	return 0;

err_close:
	pl_shard_close(&s);
	return err;
}

void pl_shard_close(struct pl_shard *s)
{
	peerlane_file_close(s->file);
	if (s->fd >= 0)
		close(s->fd);
	pl_header_fini(&s->header);
	free(s->path);
}

int pl_shard_unchanged(const struct pl_shard *s)
{
	struct stat st;
	int err = stat_regular(s->fd, s->path, &st);

	if (err)
		return err;
	if ((uint64_t)st.st_size != s->bytes)
		return pl_fail(-ESTALE, "%s changed since it was opened: %llu bytes, now %llu",
			       pl_words_file(s->path).text, (unsigned long long)s->bytes,
			       (unsigned long long)st.st_size);
	if (st.st_mtim.tv_sec != s->changed.tv_sec || st.st_mtim.tv_nsec != s->changed.tv_nsec)
		return pl_fail(-ESTALE, "%s was written to since it was opened",
			       pl_words_file(s->path).text);
	return 0;
}
