// SPDX-License-Identifier: MIT
/* Loading: from parts to requests, and what is checked around them. */
#include "gather.h"
#include "mover.h"
#include "part.h"
#include "sum.h"
#include "tally.h"
#include "words.h"

#include "error.h"

#include <stdlib.h>

struct load {
	const struct peerlane_model *model;
	struct peerlane_model_part *parts;
	struct pl_placed *list;
	size_t nr;
	struct pl_mover mover;
	uint64_t file_bytes;
};

static int read_fault(const struct pl_move *move, uint64_t offset, int err, const char *why)
{
	const struct pl_shard *s = move->arg;
	const struct pl_tensor *t = pl_header_at(&s->header, offset - s->data_offset);
	const char *name = t ? t->name : "";

	if (!err)
		return pl_fail(-ESTALE, "%.60s: tensor \"%s\": the file ends inside of its data",
			       pl_words_file(s->path).text, pl_words_name(name).text);
	return pl_fail(err, "%.60s: tensor \"%s\": %.90s", pl_words_file(s->path).text,
		       pl_words_name(name).text, why);
}

/* The files of the parts, which follow each other in the list. */
static int unchanged(const struct load *l)
{
	int err = 0;

	for (size_t i = 0; i < l->nr && !err; i++)
		if (!i || l->list[i].span.file != l->list[i - 1].span.file)
			err = pl_shard_unchanged(l->list[i].span.shard);
	return err;
}

static int check_memory(struct load *l)
{
	for (size_t i = 0; i < l->nr; i++) {
		struct peerlane_model_part *p = &l->parts[i];

		if (p->bytes && !p->addr)
			return pl_fail(
				-EINVAL, "part %zu: tensor \"%s\": it has no memory", i,
				pl_words_name(l->model->entries[p->tensor].tensor->name).text);
		l->mover.total += p->bytes;
	}
	return 0;
}

/* Has one part read. */
static int load_part(struct load *l, const struct pl_placed *placed)
{
	const struct pl_span *s = &placed->span;
	const struct peerlane_model_part *p = &l->parts[placed->part];
	struct pl_move move = {
		.file = s->shard->file, .addr = p->addr, .bytes = s->chunk, .arg = s->shard
	};
	int err = 0;

	if (pl_gather_suits(s))
		return pl_gather_run(&l->mover, s, p->addr, &l->file_bytes);
	if (s->count == 1)
		move.base = (const char *)p->addr - p->at;
	for (uint64_t i = 0; i < s->count && !err; i++) {
		move.offset = s->offset + i * s->stride;
		move.addr = (char *)p->addr + i * s->chunk;
		err = pl_mover_add(&l->mover, &move);
	}
	l->file_bytes += p->bytes;
	return err;
}

static int load_all(struct load *l)
{
	int stale, err = pl_mover_init(&l->mover);

	for (size_t i = 0; i < l->nr && !err; i++)
		err = load_part(l, &l->list[i]);
	if (!err)
		err = pl_mover_finish(&l->mover);
	pl_mover_fini(&l->mover);
	/* That it changed explains any other error. */
	if (err == -ECANCELED)
		return err;
	stale = unchanged(l);
	return stale ? stale : err;
}

static int sum_all(const struct load *l)
{
	struct pl_summer summer;
	int err = pl_summer_init(&summer, l->model->ctx);

	if (err)
		return err;
	for (size_t i = 0; i < l->nr && !err; i++) {
		struct peerlane_model_part *p = &l->parts[i];
		const struct pl_entry *e = &l->model->entries[p->tensor];

		err = pl_summer_run(&summer, p->addr, p->bytes, &p->sum);
		if (!err && e->tensor->has_sum && p->sum != e->tensor->sum &&
		    p->bytes == e->tensor->end - e->tensor->begin)
			err = pl_fail(-EBADMSG,
				      "%.60s: tensor \"%s\": its checksum is %016llx, it should be "
				      "%016llx",
				      pl_words_file(l->model->shards[e->file].path).text,
				      pl_words_name(e->tensor->name).text,
				      (unsigned long long)p->sum,
				      (unsigned long long)e->tensor->sum);
	}
	pl_summer_fini(&summer);
	return err;
}

static int check(const struct peerlane_model *m, const struct peerlane_model_part *parts, size_t nr,
		 const struct peerlane_model_load_options *opt,
		 const struct peerlane_model_stats *stats)
{
	if (!m || (nr && !parts))
		return pl_fail(-EINVAL, "the model is NULL, or the parts are");
	if (opt && opt->size != sizeof(*opt))
		return pl_fail(-EINVAL, "the options are of unknown size");
	if (opt && (opt->flags & ~PEERLANE_MODEL_CHECKSUM))
		return pl_fail(-EINVAL, "unknown flags in the options");
	if (stats && stats->size != sizeof(*stats))
		return pl_fail(-EINVAL, "the statistics are of unknown size");
	return 0;
}

int peerlane_model_load(const struct peerlane_model *m, struct peerlane_model_part *parts,
			size_t nr, const struct peerlane_model_load_options *opt,
			struct peerlane_model_stats *stats)
{
	PL_KEEP_ERRNO;
	struct load l = { .model = m, .parts = parts, .nr = nr };
	struct pl_tally tally;
	int err = check(m, parts, nr, opt, stats);

	if (err)
		return err;
	l.mover.ctx = m->ctx;
	l.mover.op = PEERLANE_READ;
	l.mover.fault = read_fault;
	l.mover.progress = opt ? opt->progress : NULL;
	l.mover.progress_arg = opt ? opt->progress_arg : NULL;
	err = pl_parts_place(m, parts, nr, &l.list);
	if (err)
		return err;
	pl_tally_begin(&tally, m->ctx, PEERLANE_READ);
	err = check_memory(&l);
	if (!err)
		err = unchanged(&l);
	if (!err)
		err = load_all(&l);
	if (!err && opt && (opt->flags & PEERLANE_MODEL_CHECKSUM))
		err = sum_all(&l);
	if (!err)
		pl_tally_end(&tally, l.mover.total, l.file_bytes, l.mover.nr_requests, stats);
	free(l.list);
	return err;
}
