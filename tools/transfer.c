/* SPDX-License-Identifier: MIT */
/* One file to another through GPU memory, reading ahead of the writing. */
#include "transfer.h"

#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NR_SLOTS 2

/* A chunk on its way: read whole, then written whole. */
struct slot {
	void *memory;
	uint64_t offset;
	size_t bytes, done;
	enum peerlane_op op;
	bool busy;
};

struct pipeline {
	struct pl_transfer *t;
	struct peerlane_batch *batch;
	struct slot slots[NR_SLOTS];
	uint64_t next;	   /* first byte not yet given to a slot */
	uint64_t data_end; /* end of the data that next lies in */
};

/* Finds the next stretch of data at or after p->next; false when only holes are left. */
static bool find_data(struct pipeline *p)
{
	struct pl_transfer *t = p->t;
	off_t data, hole;

	if (p->next < p->data_end)
		return true;
	if (p->next >= t->bytes)
		return false;
	data = lseek(t->src_fd, (off_t)p->next, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return false;
	hole = data < 0 ? -1 : lseek(t->src_fd, data, SEEK_HOLE);
	if (hole < 0) {
		/* A file system that cannot tell has data everywhere. */
		data = (off_t)p->next;
		hole = (off_t)t->bytes;
	}
	p->next = (uint64_t)data;
	p->data_end = (uint64_t)hole < t->bytes ? (uint64_t)hole : t->bytes;
	return p->next < p->data_end;
}

static int submit(struct pipeline *p, struct slot *s)
{
	struct peerlane_io io = {
		.file = s->op == PEERLANE_READ ? p->t->src : p->t->dst,
		.addr = (char *)s->memory + s->done,
		.bytes = s->bytes - s->done,
		.offset = (off_t)(s->offset + s->done),
		.op = s->op,
		.cookie = s,
	};
	int err = peerlane_batch_submit(p->batch, &io, 1);

	if (err)
		snprintf(p->t->error, sizeof(p->t->error), "%s", pl_session_reason(err).text);
	return err;
}

/* Gives an idle slot the next chunk, if there is one. */
static int start(struct pipeline *p, struct slot *s)
{
	uint64_t left;

	s->busy = find_data(p);
	if (!s->busy)
		return 0;
	left = p->data_end - p->next;
	s->offset = p->next;
	s->bytes = left < p->t->chunk_bytes ? (size_t)left : p->t->chunk_bytes;
	s->done = 0;
	s->op = PEERLANE_READ;
	p->next += s->bytes;
	return submit(p, s);
}

static int failed(struct pl_transfer *t, const struct slot *s, ssize_t result)
{
	const char *what = s->op == PEERLANE_READ ? "reading" : "writing";
	unsigned long long at = s->offset + s->done;

	if (result) {
		snprintf(t->error, sizeof(t->error), "%s at byte %llu: %s", what, at,
			 peerlane_strerror((int)result));
		return (int)result;
	}
	snprintf(t->error, sizeof(t->error), "%s at byte %llu: %s", what, at,
		 s->op == PEERLANE_READ ? "the source became shorter" : "nothing could be written");
	return -EIO;
}

/* One step of a slot is over: the rest of a short one, the write after the read, a new chunk. */
static int advance(struct pipeline *p, const struct peerlane_event *event)
{
	struct slot *s = event->cookie;

	if (event->result <= 0)
		return failed(p->t, s, event->result);
	s->done += (size_t)event->result;
	if (s->done < s->bytes)
		return submit(p, s);
	if (s->op == PEERLANE_READ) {
		s->op = PEERLANE_WRITE;
		s->done = 0;
		return submit(p, s);
	}
	p->t->copied_bytes += s->bytes;
	return start(p, s);
}

static bool busy(const struct pipeline *p)
{
	for (int i = 0; i < NR_SLOTS; i++)
		if (p->slots[i].busy)
			return true;
	return false;
}

static int pump(struct pipeline *p)
{
	const struct timespec tick = { .tv_nsec = 100000000 };
	struct peerlane_event events[NR_SLOTS];
	struct pl_progress progress;
	int err = 0, nr;

	pl_progress_start(&progress, "copy", p->t->bytes);
	for (int i = 0; i < NR_SLOTS && !err; i++)
		err = start(p, &p->slots[i]);
	while (!err && busy(p)) {
		nr = peerlane_batch_wait(p->batch, 1, events, NR_SLOTS, &tick);
		if (nr < 0) {
			err = nr;
			snprintf(p->t->error, sizeof(p->t->error), "%s",
				 pl_session_reason(err).text);
		}
		for (int i = 0; i < nr && !err; i++)
			err = advance(p, &events[i]);
		pl_progress_show(&progress, p->next);
		if (!err && pl_stop_requested())
			err = -ECANCELED;
	}
	pl_progress_clear();
	return err;
}

static int prepare(struct pipeline *p)
{
	struct pl_session *s = p->t->session;
	int err = peerlane_batch_create(s->ctx, NR_SLOTS, &p->batch);

	for (int i = 0; i < NR_SLOTS && !err; i++)
		err = peerlane_gpu_alloc(s->ctx, s->gpu, p->t->chunk_bytes, &p->slots[i].memory);
	if (err)
		snprintf(p->t->error, sizeof(p->t->error),
			 "no GPU memory for chunks of %zu bytes: %s", p->t->chunk_bytes,
			 pl_session_reason(err).text);
	return err;
}

int pl_transfer_run(struct pl_transfer *t)
{
	struct pipeline p = { .t = t };
	int err;

	t->copied_bytes = 0;
	t->error[0] = 0;
	if (!t->bytes)
		return 0;
	if (t->chunk_bytes > t->bytes)
		t->chunk_bytes = (size_t)t->bytes;
	err = prepare(&p);
	if (!err)
		err = pump(&p);
	/* Waits for what is still in flight, so that the memory may go. */
	peerlane_batch_destroy(p.batch);
	for (int i = 0; i < NR_SLOTS; i++)
		peerlane_gpu_free(t->session->ctx, p.slots[i].memory);
	return err;
}
