// SPDX-License-Identifier: MIT
/* Many pieces, few requests; see mover.h. */
#include "mover.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* As many requests are in flight at a time, in groups of half of it. */
#define ROOM 2048u
#define GROUP (ROOM / 2)
/* A group goes when it has this much: long enough that its start and its end do not matter. */
#define GROUP_BYTES (1ull << 30)
/* From here on the engine has enough to do with one request alone. */
#define LARGE_BYTES (256ull << 20)
/* And is asked to say how far it is, after about this time. Between two pieces the device idles: the fewer the better. */
#define PIECE_NS 2000000000ull
#define MOST_BYTES (4ull << 30)

int pl_mover_init(struct pl_mover *m)
{
	int err = peerlane_batch_create(m->ctx, ROOM, &m->batch);

	if (err)
		return err;
	m->moves = calloc(ROOM, sizeof(*m->moves));
	m->idle = calloc(ROOM, sizeof(*m->idle));
	m->queue = calloc(GROUP, sizeof(*m->queue));
	if (!m->moves || !m->idle || !m->queue) {
		pl_mover_fini(m);
		return pl_fail(-ENOMEM, "no memory for the requests");
	}
	for (; m->nr_idle < ROOM; m->nr_idle++)
		m->idle[m->nr_idle] = m->nr_idle;
	return pl_mover_tell(m, 0);
}

void pl_mover_fini(struct pl_mover *m)
{
	peerlane_batch_destroy(m->batch);
	free(m->moves);
	free(m->idle);
	free(m->queue);
	m->batch = NULL;
	m->moves = NULL;
	m->idle = NULL;
	m->queue = NULL;
}

int pl_mover_tell(struct pl_mover *m, uint64_t bytes)
{
	m->done += bytes;
	if (m->progress && m->progress(m->progress_arg, m->done, m->total))
		return pl_fail(-ECANCELED, "stopped after %llu of %llu bytes",
			       (unsigned long long)m->done, (unsigned long long)m->total);
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* The piece after one of @bytes that took @ns; not much longer, for what follows may be slower. */
static uint64_t next_piece(uint64_t bytes, uint64_t ns)
{
	if (ns < PIECE_NS / 4 && bytes < MOST_BYTES)
		return bytes * 4;
	return ns > PIECE_NS * 2 && bytes > LARGE_BYTES ? bytes / 2 : bytes;
}

/* One at a time, in pieces only where somebody listens. */
static int move_large(struct pl_mover *m, const struct pl_move *move)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	uint64_t done = 0, piece = m->progress ? LARGE_BYTES : move->bytes;
	int err = 0;

	while (done < move->bytes && !err) {
		uint64_t left = move->bytes - done, bytes = left < piece ? left : piece;
		uint64_t began = now_ns();
		ssize_t n;

		if (m->op == PEERLANE_READ)
			n = peerlane_read(move->file, move->addr + done, bytes,
					  (off_t)(move->offset + done));
		else
			n = peerlane_write(move->file, move->addr + done, bytes,
					   (off_t)(move->offset + done), 0);
		m->nr_requests++;
		if (n <= 0) {
			peerlane_error(&info);
			return m->fault(move, move->offset + done, (int)n, info.text);
		}
		/* The reason for less than all comes with the next call. */
		done += (uint64_t)n;
		if ((uint64_t)n == piece)
			piece = next_piece(piece, now_ns() - began);
		err = pl_mover_tell(m, (uint64_t)n);
	}
	return err;
}

/* What comes after the first @got bytes: the call says why they came short, or does it. */
static int move_rest(struct pl_mover *m, const struct pl_move *move, uint64_t got)
{
	struct pl_move rest = *move;

	rest.addr += got;
	rest.offset += got;
	rest.bytes -= got;
	return move_large(m, &rest);
}

/* Collects events until at most @most requests are in flight. */
static int collect(struct pl_mover *m, unsigned int most)
{
	struct peerlane_event events[64];
	int err = 0;

	while (m->in_flight > most && !err) {
		unsigned int want = m->in_flight - most;
		uint64_t bytes = 0;
		int n = peerlane_batch_wait(m->batch, want < 64 ? want : 64, events, 64, NULL);

		if (n < 0)
			return n;
		for (int i = 0; i < n; i++) {
			const struct pl_move *move = events[i].cookie;
			ssize_t got = events[i].result;

			if (!err && got < 0)
				err = m->fault(move, move->offset, (int)got,
					       peerlane_strerror((int)got));
			else if (!err && (uint64_t)got < move->bytes)
				err = move_rest(m, move, (uint64_t)got);
			if (got > 0)
				bytes += (uint64_t)got;
			m->idle[m->nr_idle++] = (unsigned int)(move - m->moves);
		}
		m->in_flight -= (unsigned int)n;
		if (!err)
			err = pl_mover_tell(m, bytes);
	}
	return err;
}

/* The batch says which request it refused by its number. */
static int refused(const struct pl_mover *m, int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	const struct pl_move *move;
	unsigned int i;
	int at = 0;

	peerlane_error(&info);
	if (sscanf(info.text, "request %u: %n", &i, &at) != 1 || !at || i >= m->nr_queued)
		return err;
	move = m->queue[i].cookie;
	return m->fault(move, move->offset, err, info.text + at);
}

static int submit(struct pl_mover *m)
{
	int err;

	if (!m->nr_queued)
		return 0;
	err = peerlane_batch_submit(m->batch, m->queue, m->nr_queued);
	if (err)
		return refused(m, err);
	m->nr_requests += m->nr_queued;
	m->in_flight += m->nr_queued;
	m->nr_queued = 0;
	m->queued_bytes = 0;
	/* The next group is gathered while this one runs, and starts before it ends. */
	return collect(m, GROUP);
}

/* Gives @m->last to the engine. */
static int dispatch(struct pl_mover *m)
{
	struct pl_move move = m->last, *kept;
	int err = 0;

	m->last.bytes = 0;
	if (!move.bytes)
		return 0;
	if (move.bytes >= LARGE_BYTES) {
		err = submit(m);
		return err ? err : move_large(m, &move);
	}
	kept = &m->moves[m->idle[--m->nr_idle]];
	*kept = move;
	m->queue[m->nr_queued++] = (struct peerlane_io){ .file = move.file,
							 .addr = move.addr,
							 .bytes = move.bytes,
							 .offset = (off_t)move.offset,
							 .op = m->op,
							 .cookie = kept };
	m->queued_bytes += move.bytes;
	if (m->nr_queued == GROUP || m->queued_bytes >= GROUP_BYTES)
		err = submit(m);
	return err;
}

int pl_mover_add(struct pl_mover *m, const struct pl_move *move)
{
	int err;

	if (m->last.bytes && m->last.file == move->file && move->base &&
	    m->last.base == move->base && m->last.addr + m->last.bytes == move->addr &&
	    m->last.offset + m->last.bytes == move->offset) {
		m->last.bytes += move->bytes;
		return 0;
	}
	err = dispatch(m);
	if (!err)
		m->last = *move;
	return err;
}

int pl_mover_finish(struct pl_mover *m)
{
	int err = dispatch(m);

	if (!err)
		err = submit(m);
	return err ? err : collect(m, 0);
}
