// SPDX-License-Identifier: MIT
/*
 * Batches. The engine refuses a submission of which one request is wrong; here such a request
 * becomes an event that says it failed, and the others run.
 */
#include "batch.h"

#include "buffer.h"
#include "cufile.h"
#include "driver.h"
#include "error.h"
#include "handle.h"
#include "log.h"
#include "stats.h"

#include "../lib/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 256u
/* Some programs pass a number where the time-out's address belongs. */
#define LOWEST_ADDRESS 65536u

struct entry {
	struct entry *next; /* free, or failed and not yet collected */
	void *cookie;
	ssize_t result;	   /* of one that failed at once */
	CUfileHandle_t fh; /* for the log; NULL: not wanted */
	enum peerlane_op op;
	uint64_t start; /* for the statistics; 0: not wanted, and what follows is not set */
	void *addr;
	size_t bytes;
	off_t offset;
};

struct batch {
	struct peerlane_batch *engine;
	pthread_mutex_t lock; /* guards the lists */
	struct entry *free, *failed;
	unsigned int nr, nr_free;
	struct entry entries[];
};

static void destroy(void *object);

static struct pl_cf_table table = {
	.kind = 2,
	.destroy = destroy,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

static void destroy(void *object)
{
	struct batch *b = object;

	peerlane_batch_destroy(b->engine);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* ------------------------------------------------------------------ entries */

/* @nr free entries as a list; NULL if there are not so many. */
static struct entry *take(struct batch *b, unsigned int nr)
{
	struct entry *list = NULL;

	pthread_mutex_lock(&b->lock);
	for (unsigned int i = 0; nr <= b->nr_free && i < nr; i++) {
		struct entry *e = b->free;

		b->free = e->next;
		e->next = list;
		list = e;
	}
	if (list)
		b->nr_free -= nr;
	pthread_mutex_unlock(&b->lock);
	return list;
}

/* @nr entries, listed from @first to @last. */
static void give_back(struct batch *b, struct entry *first, struct entry *last, unsigned int nr)
{
	if (!nr)
		return;
	pthread_mutex_lock(&b->lock);
	last->next = b->free;
	b->free = first;
	b->nr_free += nr;
	pthread_mutex_unlock(&b->lock);
}

static void fail(struct batch *b, struct entry *e, ssize_t result)
{
	struct entry **p;

	e->result = result;
	e->next = NULL;
	pthread_mutex_lock(&b->lock);
	for (p = &b->failed; *p; p = &(*p)->next)
		;
	*p = e;
	pthread_mutex_unlock(&b->lock);
}

/* ------------------------------------------------------------------ submission */

/* What the engine will be asked for one entry; a negative code when it is wrong already. */
static int translate(const CUfileIOParams_t *p, const struct pl_cf_file *f, struct entry *e,
		     struct pl_cf_range *range, struct peerlane_io *io)
{
	uintptr_t base = (uintptr_t)p->u.batch.devPtr_base;

	io->file = f->file;
	io->addr = (void *)(base + (uintptr_t)p->u.batch.devPtr_offset);
	io->bytes = p->u.batch.size;
	io->offset = p->u.batch.file_offset;
	io->op = p->opcode == CUFILE_WRITE ? PEERLANE_WRITE : PEERLANE_READ;
	io->flags = 0;
	io->cookie = e;
	if (p->opcode != CUFILE_READ && p->opcode != CUFILE_WRITE)
		return -EINVAL;
	if (!base || io->offset < 0 || p->u.batch.devPtr_offset < 0 || (uintptr_t)io->addr < base)
		return -EIO;
	if (io->op == PEERLANE_READ ? !f->readable : !f->writable)
		return -EIO;
	return p->u.batch.devPtr_offset ? pl_cf_buffer_check(range, p->u.batch.devPtr_base,
							     io->bytes, p->u.batch.devPtr_offset)
					: 0;
}

/* What the statistics will want to know of it. */
static void note(struct entry *e, const struct peerlane_io *io)
{
	e->addr = io->addr;
	e->bytes = io->bytes;
	e->offset = io->offset;
}

/* A read for which the memory is too short counts as far as the file goes: what is after its end
 * comes to no memory. */
static int start_one(struct batch *b, const struct peerlane_io *io)
{
	struct peerlane_io less = *io;
	int err = peerlane_batch_submit(b->engine, io, 1);

	if (err != -EFAULT || io->op != PEERLANE_READ)
		return err;
	less.bytes = pl_io_until_end(io->file, io->bytes, io->offset);
	return less.bytes < io->bytes ? peerlane_batch_submit(b->engine, &less, 1) : err;
}

/* All at once; if the engine finds one of them wrong, one by one. */
static void start(struct batch *b, const struct peerlane_io *io, unsigned int nr)
{
	int err;

	if (!nr || !peerlane_batch_submit(b->engine, io, nr))
		return;
	for (unsigned int i = 0; i < nr; i++) {
		err = start_one(b, &io[i]);
		if (err)
			fail(b, io[i].cookie, err);
	}
}

/* Entry @i is of the same file as the one before it: that is held once for all in a row. */
static bool same_file(const CUfileIOParams_t *params, unsigned int i)
{
	return i && params[i].fh == params[i - 1].fh;
}

static void let_go(const CUfileIOParams_t *params, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		if (!same_file(params, i))
			pl_cf_file_put(params[i].fh);
}

/* The files of all entries, held; false if one of them has none. */
static bool hold_files(const CUfileIOParams_t *params, unsigned int nr, struct pl_cf_file **files)
{
	enum pl_cf_found found;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		files[i] = params[i].mode != CUFILE_BATCH ? NULL
			   : same_file(params, i)	  ? files[i - 1]
							  : pl_cf_file_get(params[i].fh, &found);
		if (!files[i])
			break;
	}
	if (i == nr)
		return true;
	let_go(params, i);
	return false;
}

static void submit_held(struct batch *b, const CUfileIOParams_t *params, unsigned int nr,
			struct pl_cf_file **files, struct entry *list, uint64_t began)
{
	struct pl_cf_range range = { .base = NULL };
	struct peerlane_io io[MAX_ENTRIES];
	unsigned int good = 0;

	for (unsigned int i = 0; i < nr; i++) {
		struct entry *e = list;
		int err;

		list = e->next;
		e->cookie = params[i].cookie;
		e->start = began;
		e->fh = files[i]->name[0] ? params[i].fh : NULL;
		err = translate(&params[i], files[i], e, &range, &io[good]);
		e->op = io[good].op;
		if (began)
			note(e, &io[good]);
		if (err)
			fail(b, e, err);
		else
			good++;
	}
	if (good)
		pl_cf_file_explain(files[0], io[0].op, io[0].addr, io[0].bytes, io[0].offset);
	start(b, io, good);
}

static bool is_mixed(const CUfileIOParams_t *params, unsigned int nr)
{
	for (unsigned int i = 1; i < nr; i++)
		if (params[i].opcode != params[0].opcode)
			return true;
	return false;
}

static bool submit(struct batch *b, const CUfileIOParams_t *params, unsigned int nr)
{
	uint64_t began = pl_cf_stats_begin();
	struct pl_cf_file *files[MAX_ENTRIES];
	struct entry *list;

	if (!params || !nr || nr > MAX_ENTRIES || !hold_files(params, nr, files))
		return false;
	list = take(b, nr);
	if (list)
		submit_held(b, params, nr, files, list, began);
	let_go(params, nr);
	if (began)
		pl_cf_stats_batch_submit(nr, list, is_mixed(params, nr), began);
	return list;
}

CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned int nr,
				  CUfileIOParams_t *params, unsigned int flags)
{
	enum pl_cf_found found;
	struct batch *b;
	bool ok = false;

	(void)flags;
	if (!pl_cf_enter())
		return pl_cf_status(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	b = pl_cf_table_get(&table, batch, &found);
	if (b) {
		ok = submit(b, params, nr);
		pl_cf_table_put(&table, batch);
	}
	if (!ok)
		pl_cf_log(PL_CF_ERROR, "batch of %u not submitted", nr);
	pl_cf_leave();
	return pl_cf_status(ok ? CU_FILE_SUCCESS : CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
}

/* ------------------------------------------------------------------ events */

/* One of a file that is deregistered already is in no line of the log. */
static void count(const struct entry *e, ssize_t result)
{
	enum pl_cf_found found;
	struct pl_cf_file *f = pl_cf_file_get(e->fh, &found);

	if (!f)
		return;
	pl_cf_file_count(f, e->op, result);
	pl_cf_file_put(e->fh);
}

static void finish(struct peerlane *ctx, const struct entry *e, ssize_t result, size_t p2p,
		   CUfileIOEvents_t *out)
{
	ssize_t n = pl_cf_event_count(result);

	out->cookie = e->cookie;
	out->ret = (size_t)n;
	out->status = n >= 0 ? CUFILE_COMPLETE : n == -ECANCELED ? CUFILE_CANCELED : CUFILE_FAILED;
	if (e->fh)
		count(e, n);
	if (e->start)
		pl_cf_stats_batch_io(pl_cf_stats_gpu(ctx, e->addr), e->op, e->addr, e->bytes,
				     e->offset, n, p2p, e->start);
}

/* Those that failed at once. */
static unsigned int collect_failed(struct peerlane *ctx, struct batch *b, CUfileIOEvents_t *out,
				   unsigned int max)
{
	struct entry *first, *e, *last = NULL;
	unsigned int n = 0;

	pthread_mutex_lock(&b->lock);
	first = b->failed;
	for (; n < max && b->failed; n++) {
		last = b->failed;
		b->failed = last->next;
	}
	pthread_mutex_unlock(&b->lock);
	e = first;
	for (unsigned int i = 0; i < n; i++, e = e->next)
		finish(ctx, e, e->result, 0, &out[i]);
	give_back(b, first, last, n);
	return n;
}

static unsigned int collect(struct peerlane *ctx, struct batch *b, unsigned int min_nr,
			    CUfileIOEvents_t *out, unsigned int max, const struct timespec *timeout)
{
	struct peerlane_event events[MAX_ENTRIES];
	size_t p2p[MAX_ENTRIES];
	unsigned int n = collect_failed(ctx, b, out, max), room = max - n;
	struct entry *first = NULL, *last = NULL;
	int got;

	if (room > MAX_ENTRIES)
		room = MAX_ENTRIES;
	min_nr = min_nr > n ? min_nr - n : 0;
	got = pl_batch_wait(b->engine, min_nr < room ? min_nr : room, events, p2p, room, timeout);
	for (int i = 0; i < got; i++) {
		struct entry *e = events[i].cookie;

		finish(ctx, e, events[i].result, p2p[i], &out[n++]);
		e->next = first;
		first = e;
		last = last ? last : e;
	}
	give_back(b, first, last, got > 0 ? (unsigned int)got : 0);
	return n;
}

/* A time the engine takes. No address there, or no time behind it, means to wait: some programs
 * pass the address of a single number, and what follows it is anything. */
static const struct timespec *sane(const struct timespec *timeout, struct timespec *copy)
{
	if ((uintptr_t)timeout < LOWEST_ADDRESS)
		return NULL;
	*copy = *timeout;
	return copy->tv_sec < 0 || copy->tv_nsec < 0 || copy->tv_nsec > 999999999 ? NULL : copy;
}

CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch, unsigned int min_nr,
				     unsigned int *nr, CUfileIOEvents_t *events,
				     struct timespec *timeout)
{
	struct timespec copy;
	enum pl_cf_found found;
	struct peerlane *ctx;
	struct batch *b;

	ctx = pl_cf_enter();
	if (!ctx)
		return pl_cf_status(CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR);
	b = pl_cf_table_get(&table, batch, &found);
	if (!b) {
		pl_cf_leave();
		return pl_cf_status(CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR);
	}
	if (!nr || min_nr > *nr || (*nr && !events)) {
		pl_cf_table_put(&table, batch);
		pl_cf_leave();
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	}
	*nr = collect(ctx, b, min_nr, events, *nr, sane(timeout, &copy));
	pl_cf_table_put(&table, batch);
	pl_cf_leave();
	return pl_cf_status(CU_FILE_SUCCESS);
}

/* ------------------------------------------------------------------ life */

static int create(struct peerlane *ctx, unsigned int nr, CUfileBatchHandle_t *out)
{
	struct batch *b = calloc(1, sizeof(*b) + nr * sizeof(b->entries[0]));

	if (!b)
		return -ENOMEM;
	if (peerlane_batch_create(ctx, nr, &b->engine)) {
		free(b);
		return -ENOMEM;
	}
	pthread_mutex_init(&b->lock, NULL);
	b->nr = nr;
	for (unsigned int i = 0; i < nr; i++)
		give_back(b, &b->entries[i], &b->entries[i], 1);
	*out = pl_cf_table_add(&table, b);
	if (*out)
		return 0;
	destroy(b);
	return -ENOMEM;
}

CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned int nr)
{
	struct peerlane *ctx = pl_cf_enter();
	CUfileOpError err = CU_FILE_SUCCESS;
	CUfileBatchHandle_t made = NULL;

	if (!ctx)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	if (!batch || !nr || nr > MAX_ENTRIES)
		err = CU_FILE_INVALID_VALUE;
	else if (create(ctx, nr, &made))
		err = CU_FILE_INTERNAL_BATCH_SETUP_ERROR;
	else
		*batch = made;
	PL_CF_COUNT(batch_setup_ops, !err);
	pl_cf_leave();
	return pl_cf_status(err);
}

/*
 * Stops what has not started, waits for the rest and drops all their events, also of entries that
 * were done before: NVIDIA's library gives none after a cancel, and programs rely on it. They could not
 * tell otherwise when their memory is their own again, so this waits.
 */
static void cancel(struct peerlane *ctx, struct batch *b)
{
	CUfileIOEvents_t dropped[MAX_ENTRIES];
	unsigned int left, n;

	pthread_mutex_lock(&b->lock);
	left = b->nr - b->nr_free;
	pthread_mutex_unlock(&b->lock);
	peerlane_batch_cancel(b->engine);
	/* Another thread may collect some of them. */
	for (; left; left -= n) {
		n = collect(ctx, b, left, dropped, left, NULL);
		if (!n)
			break;
	}
}

CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch)
{
	struct peerlane *ctx = pl_cf_enter();
	enum pl_cf_found found;
	struct batch *b;

	if (!ctx)
		return pl_cf_status(CU_FILE_SUCCESS);
	b = pl_cf_table_get(&table, batch, &found);
	if (b) {
		cancel(ctx, b);
		pl_cf_table_put(&table, batch);
		PL_CF_COUNT(batch_cancel_ops, true);
	}
	pl_cf_leave();
	return pl_cf_status(CU_FILE_SUCCESS);
}

void cuFileBatchIODestroy(CUfileBatchHandle_t batch)
{
	if (!pl_cf_enter())
		return;
	PL_CF_COUNT(batch_destroy_ops, pl_cf_table_remove(&table, batch));
	pl_cf_leave();
}

void pl_cf_batches_clear(void)
{
	pl_cf_table_clear(&table);
}

void pl_cf_batches_forget(void)
{
	pl_cf_table_forget(&table);
}
