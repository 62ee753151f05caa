// SPDX-License-Identifier: MIT
/* Saving: tensors in memory become a safetensors file, all of it or nothing. */
#include "header.h"
#include "mover.h"
#include "replace.h"
#include "save_header.h"
#include "sum.h"
#include "tally.h"
#include "words.h"

#include "error.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ALIGN 8u
#define MAX_ALIGN (1u << 20)

struct save {
	struct peerlane *ctx;
	const char *path;
	struct peerlane_model_save_options opt;
	struct pl_outgoing *list;
	size_t nr;
	uint64_t data_bytes;
	struct pl_mover mover;
};

static int write_fault(const struct pl_move *move, uint64_t offset, int err, const char *why)
{
	const struct pl_outgoing *o = move->arg;

	(void)offset;
	if (!o)
		return pl_fail(err ? err : -EIO, "writing the header: %.120s", why);
	return pl_fail(err ? err : -EIO, "writing tensor \"%s\": %.120s",
		       pl_words_name(o->source->name).text, err ? why : "less was written");
}

/* As safetensors' own writer has them: every tensor begins at a multiple of its element's size. */
static int by_type(const void *a, const void *b)
{
	const struct peerlane_model_source *x = ((const struct pl_outgoing *)a)->source,
					   *y = ((const struct pl_outgoing *)b)->source;

	if (x->dtype != y->dtype)
		return x->dtype > y->dtype ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int check_source(const struct peerlane_model_source *s, size_t i, uint64_t *bytes)
{
	int err;

	if (!s->name)
		return pl_fail(-EINVAL, "source %zu has no name", i);
	if (!strcmp(s->name, "__metadata__"))
		return pl_fail(-EINVAL, "source %zu: no tensor can be called __metadata__", i);
	if (!peerlane_dtype_name(s->dtype))
		return pl_fail(-EINVAL, "tensor \"%s\": unknown dtype %d",
			       pl_words_name(s->name).text, (int)s->dtype);
	if (s->nr_dims > PL_MAX_DIMS || (s->nr_dims && !s->shape))
		return pl_fail(-EINVAL, "tensor \"%s\": %u dimensions%s",
			       pl_words_name(s->name).text, s->nr_dims,
			       s->shape ? "" : ", but no shape");
	err = pl_shape_bytes(s->dtype, s->shape, s->nr_dims, bytes);
	if (err)
		return pl_fail(err, "tensor \"%s\": %s", pl_words_name(s->name).text,
			       err == -EOVERFLOW ? "the size of its shape overflows"
						 : "its shape is not a whole number of bytes");
	if (*bytes && !s->addr)
		return pl_fail(-EINVAL, "tensor \"%s\": it has no memory",
			       pl_words_name(s->name).text);
	return 0;
}

static int make_list(struct save *s, const struct peerlane_model_source *sources)
{
	int err = 0;

	s->list = calloc(s->nr ? s->nr : 1, sizeof(*s->list));
	if (!s->list)
		return pl_fail(-ENOMEM, "no memory for %zu tensors", s->nr);
	for (size_t i = 0; i < s->nr && !err; i++) {
		s->list[i].source = &sources[i];
		err = check_source(&sources[i], i, &s->list[i].bytes);
	}
	if (err)
		return err;
	if (s->nr)
		qsort(s->list, s->nr, sizeof(*s->list), by_type);
	for (size_t i = 0; i < s->nr; i++) {
		s->list[i].begin = s->data_bytes;
		/* With room for the header. */
		if (__builtin_add_overflow(s->data_bytes, s->list[i].bytes, &s->data_bytes) ||
		    s->data_bytes > INT64_MAX / 2)
			return pl_fail(-EOVERFLOW, "the tensors together are too large");
	}
	return 0;
}

static int sum_all(struct save *s)
{
	struct pl_summer summer;
	int err = pl_summer_init(&summer, s->ctx);

	if (err)
		return err;
	for (size_t i = 0; i < s->nr && !err; i++)
		err = pl_summer_run(&summer, s->list[i].source->addr, s->list[i].bytes,
				    &s->list[i].sum);
	pl_summer_fini(&summer);
	return err;
}

/* Header and data into @file. */
static int write_all(struct save *s, struct peerlane_file *file, char *header, size_t header_bytes)
{
	struct pl_move move = { .file = file, .addr = header, .bytes = header_bytes };
	int err = pl_mover_init(&s->mover);

	if (!err)
		err = pl_mover_add(&s->mover, &move);
	for (size_t i = 0; i < s->nr && !err; i++) {
		const struct pl_outgoing *o = &s->list[i];

		move.addr = (char *)(uintptr_t)o->source->addr;
		move.bytes = o->bytes;
		move.offset = header_bytes + o->begin;
		move.arg = o;
		if (o->bytes)
			err = pl_mover_add(&s->mover, &move);
	}
	if (!err)
		err = pl_mover_finish(&s->mover);
	pl_mover_fini(&s->mover);
	return err;
}

static int write_file(struct save *s, char *header, size_t header_bytes)
{
	const bool sync = !(s->opt.flags & PEERLANE_MODEL_NO_SYNC);
	struct peerlane_file *file;
	struct pl_replace replace;
	int err, closed;

	s->mover.total = header_bytes + s->data_bytes;
	err = pl_replace_begin(&replace, s->path);
	if (err)
		return err;
	/* A disk that is too full says so now. Not every file system can tell. */
	if (fallocate(replace.fd, 0, 0, (off_t)s->mover.total) &&
	    (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
		err = pl_fail(-errno, "%llu bytes for %s: %s", (unsigned long long)s->mover.total,
			      pl_words_name(replace.name).text, strerror(errno));
		goto out;
	}
	err = peerlane_file_from_fd(s->ctx, replace.fd, &file);
	if (err)
		goto out;
	err = write_all(s, file, header, header_bytes);
	closed = peerlane_file_close(file);
	if (!err)
		err = closed;
	if (!err)
		err = pl_replace_commit(&replace, sync);
out:
	pl_replace_end(&replace);
	return err;
}

static int check(struct peerlane *ctx, const char *path,
		 const struct peerlane_model_source *sources, size_t nr,
		 const struct peerlane_model_stats *stats)
{
	if (!ctx || !path || (nr && !sources))
		return pl_fail(-EINVAL, "the context, the path or the sources are NULL");
	if (stats && stats->size != sizeof(*stats))
		return pl_fail(-EINVAL, "the statistics are of unknown size");
	return 0;
}

/* The options, and what they leave out. */
static int take_options(struct save *s, const struct peerlane_model_save_options *opt)
{
	if (opt && opt->size != sizeof(*opt))
		return pl_fail(-EINVAL, "the options are of unknown size");
	if (opt)
		s->opt = *opt;
	if (s->opt.flags & ~(PEERLANE_MODEL_CHECKSUM | PEERLANE_MODEL_NO_SYNC))
		return pl_fail(-EINVAL, "unknown flags in the options");
	if (s->opt.nr_metadata && !s->opt.metadata)
		return pl_fail(-EINVAL, "the metadata is NULL");
	if (!s->opt.align)
		s->opt.align = DEFAULT_ALIGN;
	if (s->opt.align < DEFAULT_ALIGN || s->opt.align > MAX_ALIGN ||
	    (s->opt.align & (s->opt.align - 1)))
		return pl_fail(-EINVAL, "the alignment %zu is not a power of two from 8 to 1 MiB",
			       s->opt.align);
	return 0;
}

int peerlane_model_save(struct peerlane *ctx, const char *path,
			const struct peerlane_model_source *sources, size_t nr,
			const struct peerlane_model_save_options *opt,
			struct peerlane_model_stats *stats)
{
	PL_KEEP_ERRNO;
	struct save s = { .ctx = ctx, .path = path, .nr = nr };
	struct pl_tally tally;
	char *header = NULL;
	size_t header_bytes;
	int err = check(ctx, path, sources, nr, stats);

	if (!err)
		err = take_options(&s, opt);
	if (err)
		return err;
	s.mover.ctx = ctx;
	s.mover.op = PEERLANE_WRITE;
	s.mover.fault = write_fault;
	s.mover.progress = s.opt.progress;
	s.mover.progress_arg = s.opt.progress_arg;
	pl_tally_begin(&tally, ctx, PEERLANE_WRITE);
	err = make_list(&s, sources);
	if (!err && (s.opt.flags & PEERLANE_MODEL_CHECKSUM))
		err = sum_all(&s);
	if (!err)
		err = pl_save_header(path, s.list, nr, &s.opt, &header, &header_bytes);
	if (!err)
		err = write_file(&s, header, header_bytes);
	if (!err)
		pl_tally_end(&tally, s.data_bytes, s.mover.total, s.mover.nr_requests, stats);
	free(header);
	free(s.list);
	return err;
}
