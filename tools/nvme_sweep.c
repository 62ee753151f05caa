/* SPDX-License-Identifier: MIT */
/* Blocks of a drive from first to last, several commands at a time, seen in order. */
#include "nvme_sweep.h"

#include "message.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <string.h>

#define PIECE_BYTES (256u << 10)
#define PIECES 8u
#define WAIT_MS 200 /* signals are seen that often */

struct piece {
	uint64_t at; /* bytes from the start */
	uint32_t nr_blocks;
	bool done;
	struct peerlane_nvme_completion cpl; /* once it is */
};

struct sweep {
	struct pl_sweep *s;
	struct peerlane_nvme_queue *queue;
	struct peerlane_nvme_map *map;
	char *memory;
	uint32_t block_bytes;
	uint64_t bytes;		     /* of all */
	uint64_t next;		     /* bytes that were submitted */
	unsigned int first, nr_busy; /* pieces under way, oldest first */
	bool failed;		     /* one of them: no more are begun */
	struct piece pieces[PIECES];
};

static char *data_of(struct sweep *w, unsigned int i)
{
	return w->memory + (size_t)i * PIECE_BYTES;
}

static int submit(struct sweep *w)
{
	unsigned int i = (w->first + w->nr_busy) % PIECES;
	uint64_t left = w->bytes - w->next;
	size_t bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
	struct peerlane_nvme_io io = {
		.opcode = w->s->opcode,
		.nr_blocks = (uint32_t)(bytes / w->block_bytes),
		.lba = w->s->block + w->next / w->block_bytes,
		.ns = w->s->drive->ns,
		.map = w->map,
		.offset = (size_t)i * PIECE_BYTES,
		.user = i,
	};
	int err = 0;

	if (w->s->opcode == PL_NVME_WRITE)
		err = w->s->see(w->s->arg, data_of(w, i), w->next, bytes);
	if (err)
		return err;
	err = peerlane_nvme_submit(w->queue, &io, 1);
	if (err < 0) {
		pl_message_error("%s: %s: %s", w->s->drive->address, w->s->what, strerror(-err));
		return err;
	}
	w->pieces[i] = (struct piece){ .at = w->next, .nr_blocks = io.nr_blocks };
	w->next += bytes;
	w->nr_busy++;
	return 0;
}

/* Pieces that are done, from the oldest on. */
static int pass(struct sweep *w)
{
	int err = 0;

	while (!err && w->nr_busy && w->pieces[w->first].done) {
		struct piece *p = &w->pieces[w->first];
		size_t bytes = (size_t)p->nr_blocks * w->block_bytes;

		err = p->cpl.err;
		if (err)
			pl_drive_complain(w->s->drive, w->s->what,
					  w->s->block + p->at / w->block_bytes, p->nr_blocks,
					  &p->cpl);
		else if (w->s->opcode == PL_NVME_READ)
			err = w->s->see(w->s->arg, data_of(w, w->first), p->at, bytes);
		if (!err)
			w->s->done_bytes = p->at + bytes;
		w->first = (w->first + 1) % PIECES;
		w->nr_busy--;
	}
	return err;
}

static int wait_some(struct sweep *w)
{
	struct peerlane_nvme_completion cpl[PIECES];
	int nr = peerlane_nvme_wait(w->queue, cpl, 1, PIECES, WAIT_MS);

	if (nr < 0) {
		pl_message_error("%s: %s: %s", w->s->drive->address, w->s->what, strerror(-nr));
		return nr;
	}
	for (int i = 0; i < nr; i++) {
		struct piece *p = &w->pieces[cpl[i].user];

		p->cpl = cpl[i];
		p->done = true;
		w->failed = w->failed || cpl[i].err;
	}
	return 0;
}

static int run(struct sweep *w)
{
	struct pl_progress progress;
	int err = 0;

	pl_progress_start(&progress, w->s->what, w->bytes);
	while (!err && (w->next < w->bytes || w->nr_busy)) {
		while (!err && !w->failed && w->next < w->bytes && w->nr_busy < PIECES)
			err = submit(w);
		if (!err)
			err = wait_some(w);
		if (!err)
			err = pass(w);
		if (!err && pl_stop_requested())
			err = -ECANCELED;
		pl_progress_show(&progress, w->s->done_bytes);
	}
	pl_progress_clear();
	return err;
}

int pl_sweep_run(struct pl_sweep *s)
{
	struct sweep w = { .s = s, .block_bytes = s->drive->ns_info.block_bytes };
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt),
						   .max_transfer_bytes = PIECE_BYTES };
	void *memory;
	int err;

	w.bytes = s->nr_blocks * w.block_bytes;
	s->done_bytes = 0;
	err = peerlane_nvme_map_alloc(s->drive->nvme, (size_t)PIECES * PIECE_BYTES, &memory,
				      &w.map);
	if (err) {
		pl_message_error("%s: no memory for the controller: %s", s->drive->address,
				 strerror(-err));
		return err;
	}
	w.memory = memory;
	err = peerlane_nvme_queue_create(s->drive->nvme, &opt, &w.queue);
	if (err)
		pl_message_error("%s: no queue: %s", s->drive->address, strerror(-err));
	else
		err = run(&w);
	/* First the queue: what is still under way uses the memory. */
	peerlane_nvme_queue_destroy(w.queue);
	peerlane_nvme_unmap(w.map);
	return err;
}
