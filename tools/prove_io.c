/* SPDX-License-Identifier: MIT */
/* Reads and writes of prove, of all sizes and alignments; every byte is compared. */
#include "prove.h"

#include "human.h"
#include "progress.h"
#include "stop.h"

#include <stdlib.h>
#include <string.h>

#define KIB 1024u
#define MIB (1024u * KIB)
#define NR_RANDOM 40u

/* Where in GPU memory, how much, where in the file. */
struct piece {
	size_t at, bytes;
	uint64_t offset;
};

static const struct piece pieces[] = {
	{ 0, 4 * KIB, 0 },
	{ 0, 8 * KIB, 4 * KIB },
	{ 4 * KIB, 64 * KIB, 8 * KIB },
	{ 60 * KIB, 128 * KIB, 4 * KIB },
	{ 0, MIB, 64 * KIB },
	{ MIB, 2 * MIB, MIB },
	{ 0, 4 * MIB, 0 },
	/* Odd, but alike in memory and file: whole blocks between the ends go by p2p. */
	{ 1000, 300 * KIB, 1000 },
	{ 1000 + 4 * KIB, 300 * KIB + 77, 28 * KIB + 1000 },
	{ 64 * KIB + 999, MIB + 1, 12 * KIB + 999 },
	/* Odd, and not alike: they go another way, and must be right all the same. */
	{ 3, 200 * KIB, 0 },
	{ 100, 100, 5 },
	{ 512, 512, 512 },
	{ 100, 5000, 8100 },
	{ 777, 65537, 99999 },
};

#define NR_PIECES (sizeof(pieces) / sizeof(pieces[0]))

/* A random piece in @room bytes of memory and @span bytes of the file; two of three aligned. */
static struct piece random_piece(struct pl_prove *p, size_t room, uint64_t span)
{
	size_t grain = pl_prove_random(p, 3) ? 4 * KIB : 1;
	struct piece x;

	x.bytes = (1 + pl_prove_random(p, (uint64_t)1 << (12 + pl_prove_random(p, 10))));
	x.bytes = (x.bytes + grain - 1) / grain * grain;
	x.at = pl_prove_random(p, (room - x.bytes) / grain + 1) * grain;
	x.offset = pl_prove_random(p, (span - x.bytes) / grain + 1) * grain;
	return x;
}

static bool read_piece(struct pl_prove_run *r, const struct piece *x)
{
	char what[128];
	ssize_t n = peerlane_read(r->file, r->gpu + x->at, x->bytes, (off_t)x->offset);

	if (n != (ssize_t)x->bytes)
		return pl_prove_run_wrong(r, "a read of %zu bytes at %llu gave %zd%s%s", x->bytes,
					  (unsigned long long)x->offset, n, n < 0 ? ": " : "",
					  n < 0 ? pl_session_reason((int)n).text : "");
	pl_prove_run_count(r, r->gpu + x->at, x->bytes, x->offset);
	pl_prove_file_pattern(r->model + x->at, x->bytes, x->offset, PL_PROVE_SEED);
	snprintf(what, sizeof(what), "GPU memory after a read of %zu bytes at %llu to %zu",
		 x->bytes, (unsigned long long)x->offset, x->at);
	return pl_prove_run_look(r, what, x->at, x->bytes, x->offset);
}

/* The whole of the half that is only read, in large reads. */
static bool sweep(struct pl_prove_run *r)
{
	uint64_t end = pl_prove_half(r->prove);
	size_t bytes = r->room;

	for (uint64_t at = 0; at + bytes <= end; at += bytes) {
		struct piece x = { 0, bytes, at };

		if (pl_stop_requested() || !read_piece(r, &x))
			return false;
		pl_progress_count(r->name, (unsigned int)(at / bytes), (unsigned int)(end / bytes));
	}
	return true;
}

void pl_prove_reads(struct pl_prove *p)
{
	struct pl_prove_run r;
	bool good = pl_prove_run_begin(&r, p, "reads");

	for (size_t i = 0; i < NR_PIECES && good; i++)
		good = read_piece(&r, &pieces[i]);
	for (unsigned int i = 0; i < NR_RANDOM && good && !pl_stop_requested(); i++) {
		struct piece x = random_piece(p, r.room, pl_prove_half(p));

		good = read_piece(&r, &x);
	}
	pl_prove_run_end(&r, "sizes from 100 bytes, aligned and not");
	if (!pl_stop_requested() && pl_prove_run_begin(&r, p, "read_all")) {
		sweep(&r);
		pl_prove_run_end(&r, "half of the file from front to back");
	}
}

/* ------------------------------------------------------------------ writes */

/* A part of the file that is written, and what it must hold. */
struct window {
	uint64_t start;
	size_t bytes;
	unsigned char *model, *seen;
};

/* By plain reads: as the page cache has it, and again from the drive. */
static bool look_at_file(struct pl_prove_run *r, struct window *w, const char *what)
{
	const struct pl_prove_file *f = &r->prove->file;
	char text[160];

	for (int cold = 0; cold < 2; cold++) {
		if (cold)
			pl_prove_file_drop(f, w->start, w->bytes);
		if (pl_prove_file_read(f, w->seen, w->bytes, w->start))
			return pl_prove_run_wrong(r, "the file cannot be read back");
		snprintf(text, sizeof(text), "the file %s after %s", cold ? "on the drive" : "",
			 what);
		if (!pl_prove_run_same(r, text, w->seen, w->model, w->bytes))
			return false;
	}
	return true;
}

static bool write_piece(struct pl_prove_run *r, struct window *w, const struct piece *x,
			bool durable)
{
	uint64_t offset = w->start + x->offset;
	char what[128];
	ssize_t n;

	/* Other bytes each time. */
	if (!pl_prove_run_refill(r, 2 + r->nr))
		return false;
	n = peerlane_write(r->file, r->gpu + x->at, x->bytes, (off_t)offset,
			   durable ? PEERLANE_DURABLE : 0);
	if (n != (ssize_t)x->bytes)
		return pl_prove_run_wrong(r, "a write of %zu bytes at %llu gave %zd%s%s", x->bytes,
					  (unsigned long long)offset, n, n < 0 ? ": " : "",
					  n < 0 ? pl_session_reason((int)n).text : "");
	pl_prove_run_count(r, r->gpu + x->at, x->bytes, offset);
	memcpy(w->model + x->offset, r->model + x->at, x->bytes);
	snprintf(what, sizeof(what), "a write of %zu bytes at %llu", x->bytes,
		 (unsigned long long)offset);
	return look_at_file(r, w, what);
}

/* A plain write, then a read by p2p: it must see it. */
static bool plain_then_read(struct pl_prove_run *r, struct window *w, const struct piece *x)
{
	uint64_t offset = w->start + x->offset;

	pl_prove_file_pattern(w->model + x->offset, x->bytes, r->nr, 7);
	if (pl_prove_file_write(&r->prove->file, w->model + x->offset, x->bytes, offset))
		return pl_prove_run_wrong(r, "a plain write failed");
	if (!pl_prove_run_refill(r, 2 + r->nr))
		return false;
	if (peerlane_read(r->file, r->gpu + x->at, x->bytes, (off_t)offset) != (ssize_t)x->bytes)
		return pl_prove_run_wrong(r, "a read after a plain write failed");
	pl_prove_run_count(r, r->gpu + x->at, x->bytes, offset);
	memcpy(r->model + x->at, w->model + x->offset, x->bytes);
	return pl_prove_run_look(r, "GPU memory after a plain write and a read by p2p", x->at,
				 x->bytes, offset);
}

static bool write_all(struct pl_prove_run *r, struct window *w)
{
	for (size_t i = 0; i < NR_PIECES + NR_RANDOM / 2; i++) {
		struct piece x = i < NR_PIECES ? pieces[i]
					       : random_piece(r->prove, r->room, w->bytes);

		if (pl_stop_requested() || !write_piece(r, w, &x, i % 3 == 0))
			return false;
		if (i % 4 == 0 && !plain_then_read(r, w, &x))
			return false;
		pl_progress_count(r->name, (unsigned int)i,
				  (unsigned int)(NR_PIECES + NR_RANDOM / 2));
	}
	return true;
}

void pl_prove_writes(struct pl_prove *p)
{
	struct pl_prove_run r;
	struct window w = { .start = pl_prove_half(p) };
	bool good = pl_prove_run_begin(&r, p, "writes");

	w.bytes = r.room;
	w.model = malloc(w.bytes);
	w.seen = malloc(w.bytes);
	if (good && w.model && w.seen) {
		pl_prove_file_pattern(w.model, w.bytes, w.start, PL_PROVE_SEED);
		write_all(&r, &w);
	} else {
		pl_prove_run_wrong(&r, "out of memory");
	}
	pl_prove_run_end(&r,
			 "read back by plain reads from the page cache and the drive, and plain "
			 "writes read by p2p");
	/* Later checks want the pattern here again. */
	pl_prove_file_restore(&p->file, w.start, w.bytes);
	free(w.model);
	free(w.seen);
}
