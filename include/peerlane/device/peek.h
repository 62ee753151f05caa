/* SPDX-License-Identifier: MIT */
/*
 * Bytes of an array without their pages: for places of whose page nothing else will be wanted soon. A lane gets
 * the blocks that have its bytes, straight from the drive, and no page is brought in or has to go; what is cached comes
 * from there, with what was written to it.
 *
 *	err = pld_array_peek(&a, want, at, bytes, memory, 0, &data);
 *
 * All lanes of the group call together. Where pages are used well, pld_array_hold() is cheaper.
 */
#ifndef PEERLANE_DEVICE_PEEK_H
#define PEERLANE_DEVICE_PEEK_H

#include <peerlane/device/array.h>

/* Where the blocks of some bytes begin, and how many bytes they are. The bytes are all of one page. */
PLD_FN uint32_t pld_peek_span_(const struct pld_stripe *s, uint64_t at, uint32_t bytes,
			       uint64_t *first)
{
	const uint64_t page = at >> s->log_page;
	const uint32_t block = 1u << s->target[pld_target_of_(s, page)].log_block;

	*first = at & ~(uint64_t)(block - 1);
	return (uint32_t)(((at + bytes + block - 1) & ~(uint64_t)(block - 1)) - *first);
}

/* What a command for these blocks is. Returns the path. */
PLD_FN uint32_t pld_peek_describe_(const struct pld_stripe *s, uint64_t first, uint32_t bytes,
				   char *memory, const struct pld_dma *dma, struct pld_io *io)
{
	const uint64_t page = first >> s->log_page;
	const struct pld_target *t = &s->target[pld_target_of_(s, page)];

	pld_stripe_place_(s, page, io);
	io->opcode = PL_NVME_READ;
	io->lba += (first & ((1u << s->log_page) - 1)) >> t->log_block;
	io->nr_blocks = bytes >> t->log_block;
	io->bytes = bytes;
	io->memory = memory;
	io->dma = dma ? &dma[t->path] : 0;
	return t->path;
}

/* A read of blocks by a lane. */
struct pld_peek_io_ {
	struct pld_io io; /* its token is below 0 while it is not outstanding */
	uint32_t path;
	int todo; /* it has not ended */
	int err;
};

/* Begin those that are not outstanding yet, as far as there are slots: on all paths, so that all drives work. */
PLD_FN void pld_peek_start_(struct pld_group *g, struct pld_peek_io_ *r)
{
	for (uint32_t p = 0; p < g->cache->stripe.nr_paths; p++) {
		const int here = r->todo && r->io.token < 0 && r->path == p;
		struct pld_io io = r->io;
		int err;

		if (!pld_ballot(g->lanes, here))
			continue;
		err = pld_io_start(&g->port[p], here, &io);
		if (here)
			r->io.token = io.token;
		if (here && err == -EFAULT) {
			r->err = err;
			r->todo = 0;
		}
	}
}

/* Finish those that have ended; or, with @over, all: they are given up. */
PLD_FN void pld_peek_finish_(struct pld_group *g, struct pld_peek_io_ *r, uint32_t over)
{
	for (uint32_t p = 0; p < g->cache->stripe.nr_paths; p++) {
		const int mine = r->todo && r->io.token >= 0 && r->path == p;
		struct pld_completion cpl = { 0, 0, 0 };
		struct pld_io io = r->io;
		uint32_t failed;
		int done;

		if (!pld_ballot(g->lanes, mine))
			continue;
		done = pld_poll(&g->port[p], mine ? io.token : -1, &cpl);
		if (over && mine && !done) {
			cpl.err = -(int)over;
			g->stats.timeouts++;
			done = 1;
		} else if (done) {
			pld_note_end_(g, 0, cpl.err, io.bytes);
		}
		pld_io_finish(&g->port[p], done, &io, &cpl);
		failed = pld_ballot(g->lanes, done && cpl.status);
		if (failed)
			g->status = pld_shfl32(g->lanes, cpl.status, pld_lowest32(failed));
		if (done) {
			r->io.token = -1;
			r->err = cpl.err;
			r->todo = 0;
		}
	}
}

/* Blocks from the drive, for each lane that wants them. Meanwhile the group looks after its pages, for which others may wait. */
PLD_FN int pld_peek_read_(struct pld_group *g, int want, uint64_t first, uint32_t bytes,
			  char *memory, const struct pld_dma *dma)
{
	struct pld_peek_io_ r;
	struct pld_patience w;
	uint32_t over = 0;

	pld_no_io_(&r.io);
	r.path = PLD_MAX_TARGETS;
	r.todo = want;
	r.err = 0;
	if (want)
		r.path = pld_peek_describe_(&g->cache->stripe, first, bytes, memory, dma, &r.io);
	pld_wait_begin_(&w);
	while (pld_ballot(g->lanes, r.todo) && !over) {
		pld_peek_start_(g, &r);
		pld_peek_finish_(g, &r, 0);
		if (!pld_ballot(g->lanes, r.todo))
			break;
		pld_poll_own_(g);
		over = pld_wait_on_(g, &w);
		over = over == EBUSY ? 0 : over;
	}
	if (over)
		pld_peek_finish_(g, &r, over);
	/* Those for which there was no slot. */
	if (r.todo) {
		r.err = -(int)over;
		g->stats.timeouts++;
	}
	return r.err;
}

/* What a lane wants: bytes of the array, the blocks that have them, and where to. */
struct pld_peek_ {
	uint64_t at, first;
	uint32_t bytes, span;
	char *memory; /* of the first block */
};

/*
 * Copy what is cached, or on its way, and let go of it; of the rest of the blocks, which others may be writing, not more than
 * is in the same 16 bytes. Returns PLD_NONE where the drive is to be read, PLD_READY, or an error.
 */
PLD_FN int pld_peek_cached_(struct pld_group *g, int want, const struct pld_peek_ *p)
{
	const struct pld_cache *c = g->cache;
	const uint64_t page = p->at >> c->stripe.log_page, from = p->at & ~(uint64_t)15;
	const uint32_t within = (uint32_t)from & ((1u << c->stripe.log_page) - 1);
	const uint32_t bytes = (uint32_t)(((p->at + p->bytes + 15) & ~(uint64_t)15) - from);
	struct pld_grip grip = { 0, PLD_NONE };
	int ready;

	if (want)
		grip.state = pld_cache_look_(c, page, 1, 0, &grip.frame);
	/* If it failed for another, here or below, the drive is asked again. */
	if (grip.state < 0)
		grip.state = PLD_NONE;
	if (grip.state == PLD_READY)
		g->stats.hits++;
	else
		g->stats.misses += want != 0;
	while (pld_ballot(g->lanes, grip.state == PLD_HELD))
		grip = pld_fetch_(g, grip.state == PLD_HELD, page, 0, grip);
	if (grip.state == -EIO)
		grip.state = PLD_NONE;
	ready = grip.state == PLD_READY;
	if (!pld_ballot(g->lanes, ready))
		return grip.state;
	pld_copy_each_(g->lanes, ready, p->memory + (from - p->first),
		       pld_frame_memory_(c, grip.frame) + within, bytes);
	pld_sync(g->lanes);
	if (ready)
		pld_drop_(c, grip.frame, 1);
	return grip.state;
}

PLD_SLOW int pld_peek_(struct pld_group *g, int want, struct pld_peek_ p, const struct pld_dma *dma)
{
	int state = pld_peek_cached_(g, want, &p), err = 0;
	const int missing = want && state == PLD_NONE;

	if (pld_ballot(g->lanes, missing))
		err = pld_peek_read_(g, missing, p.first, p.span, p.memory, dma);
	pld_sync(g->lanes);
	return state < 0 ? state : err;
}

/* The room that any such peek needs: the bytes, and the rest of the first and of the last block. */
PLD_FN uint32_t pld_peek_room(const struct pld_array *a, uint32_t bytes)
{
	uint32_t block = 512;

	for (uint32_t t = 0; t < a->cache->stripe.nr_targets; t++)
		if (block < 1u << a->cache->stripe.target[t].log_block)
			block = 1u << a->cache->stripe.target[t].log_block;
	return ((bytes + block - 2) / block + 1) * block;
}

/* Whether a command can name this memory: two pages of the controller only if it begins with one. */
PLD_FN int pld_peek_fits_(const struct pld_array *a, const struct pld_peek_ *p,
			  const struct pld_dma *dma)
{
	const struct pld_stripe *s = &a->cache->stripe;
	const uint32_t path = pld_path_of_(s, p->at >> s->log_page);
	const struct pld_queue *q = a->group->port[path].queue;
	const uint32_t within = dma ? (uint32_t)dma[path].first & (q->page_bytes - 1) : 0;

	return q->bounce || !within || within + p->span <= q->page_bytes;
}

/*
 * Have bytes [at, at + bytes), all of one page, in this lane's own memory, of the GPU and 16-aligned, with
 * pld_peek_room() of them; *data says where they begin. All lanes may read what each got. Of @dma there is one for each path:
 * where its controller finds the memory, which then begins with a page of the controller or is all in one; NULL where data
 * go by the host. Returns what other functions of arrays do, or
 *
 *	-EINVAL		there are no bytes, or they are not of one page; or the memory is not as above
 *	-EFAULT		the controller does not reach the memory: @dma is needed
 *
 * After -ETIMEDOUT and -ECANCELED the memory may still be written.
 */
PLD_FN int pld_array_peek(struct pld_array *a, int want, uint64_t at, uint32_t bytes, char *memory,
			  const struct pld_dma *dma, const char **data)
{
	const struct pld_stripe *s = &a->cache->stripe;
	struct pld_peek_ p = { at, 0, bytes, 0, memory };
	int err = 0, got;

	if (want && (at >= s->bytes || bytes > s->bytes - at))
		err = -ERANGE;
	else if (want && (!bytes || at >> s->log_page != (at + bytes - 1) >> s->log_page))
		err = -EINVAL;
	if (want && !err) {
		p.span = pld_peek_span_(s, at, bytes, &p.first);
		if (!pld_peek_fits_(a, &p, dma))
			err = -EINVAL;
	}
	want = want && !err;
	got = pld_peek_(a->group, want, p, dma);
	if (want && !got)
		*data = memory + (at - p.first);
	return want ? got : err;
}

#endif
