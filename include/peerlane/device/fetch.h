/* SPDX-License-Identifier: MIT */
/*
 * How a group of lanes brings pages in and writes them back. array.h is what kernels call.
 *
 * A frame that is FILLING or WRITING belongs to the group that started the command; nobody else can end
 * that. So a group that waits, for whatever, looks after its own commands meanwhile, and a frame is
 * claimed only when there is a slot for the command. References are held while waiting only to pages
 * that are on their way.
 *
 * All lanes of the group call every function here.
 */
#ifndef PEERLANE_DEVICE_FETCH_H
#define PEERLANE_DEVICE_FETCH_H

#include <peerlane/device/cache.h>

/* What a group needs to bring pages in: one in each lane, the same in all but for @stats. */
struct pld_group {
	const struct pld_cache *cache;
	uint32_t lanes;
	uint32_t status;       /* of the last command of this group that failed */
	uint32_t write_errors; /* write-backs of this group that failed */
	uint32_t reserved;
	struct pld_array_stats stats;	       /* this lane's share */
	struct pld_port port[PLD_MAX_TARGETS]; /* by path */
	uint64_t busy[PLD_MAX_TARGETS];	       /* slots with commands for frames */
	uint64_t left[PLD_MAX_TARGETS];	       /* of these, those that an earlier kernel left */
};

/* What a lane has of a page: a frame, and PLD_NONE, PLD_HELD, PLD_READY or a negative errno. */
struct pld_grip {
	uint32_t frame;
	int state;
};

/* A record: the frame and 1, and this bit if it is written. */
#define PLD_RECORD_WRITE 0x80000000u

PLD_FN uint32_t *pld_record_(const struct pld_group *g, uint32_t path, int token)
{
	const struct pld_path *p = &g->cache->stripe.path[path];
	const struct pld_port *port = &g->port[path];
	const uint32_t index =
		(uint32_t)(port->queue - p->queues) / (p->queue_step ? p->queue_step : 1);

	return &g->cache->records[p->first_slot + index * p->slots_per_queue + port->first +
				  (uint32_t)token];
}

PLD_FN int pld_grip_ends_(const struct pld_grip *grip)
{
	return grip->state == PLD_READY || grip->state < 0;
}

/* ------------------------------------------------------------------ commands */

/* The paths that have a slot left for this lane if all those before it that ask take one, too. */
PLD_FN uint32_t pld_room_(struct pld_group *g, uint32_t asking)
{
	const uint32_t rank = pld_rank(asking);
	uint32_t room = 0;

	for (uint32_t p = 0; p < g->cache->stripe.nr_paths; p++) {
		if (pld_count64(g->port[p].free) < pld_count32(asking))
			pld_reclaim_(&g->port[p]);
		if (pld_count64(g->port[p].free) > rank)
			room |= 1u << p;
	}
	return room;
}

/* What a command for a frame is. Returns the path. */
PLD_FN uint32_t pld_describe_(const struct pld_cache *c, uint32_t frame, int write,
			      struct pld_io *io)
{
	const uint64_t page = pld_page_of_(c, frame, pld_load_relaxed_dev64(&c->words[frame]));
	const uint32_t path = pld_path_of_(&c->stripe, page);
	const struct pld_dma *dma = c->stripe.path[path].dma;

	io->opcode = write ? PL_NVME_WRITE : PL_NVME_READ;
	io->memory = pld_frame_memory_(c, frame);
	io->dma = dma ? &dma[frame] : 0;
	pld_stripe_place_(&c->stripe, page, io);
	return path;
}

PLD_FN void pld_no_io_(struct pld_io *io)
{
	io->opcode = PL_NVME_FLUSH;
	io->nsid = 0;
	io->lba = 0;
	io->nr_blocks = 0;
	io->bytes = 0;
	io->memory = 0;
	io->dma = 0;
	io->token = -1;
}

/* Start a command for the frame of each lane that has one. There must be room. One doorbell a path. */
PLD_FN void pld_start_(struct pld_group *g, int mine, uint32_t frame, int write)
{
	uint32_t path = PLD_MAX_TARGETS;
	struct pld_io io;

	pld_no_io_(&io);
	if (mine)
		path = pld_describe_(g->cache, frame, write, &io);
	for (uint32_t p = 0; p < g->cache->stripe.nr_paths; p++) {
		const int here = path == p;

		if (!pld_ballot(g->lanes, here))
			continue;
		pld_io_start(&g->port[p], here, &io);
		if (here)
			pld_store_relaxed_dev32(pld_record_(g, p, io.token),
						(frame + 1) | (write ? PLD_RECORD_WRITE : 0));
		g->busy[p] |= pld_or64(g->lanes, here ? (uint64_t)1 << io.token : 0);
	}
	pld_sync(g->lanes);
}

PLD_FN void pld_note_end_(struct pld_group *g, int write, int err, uint32_t bytes)
{
	if (write) {
		g->stats.write_backs += !err;
		g->stats.bytes_written += err ? 0 : bytes;
		g->stats.write_errors += err != 0;
	} else {
		g->stats.bytes_read += err ? 0 : bytes;
		g->stats.read_errors += err != 0;
	}
}

/* See which commands in some slots have ended, no more of them than lanes, and tell their frames. */
PLD_FN void pld_poll_slots_(struct pld_group *g, uint32_t p, uint64_t slots)
{
	const uint32_t rank = pld_rank(g->lanes);
	const int token = rank < pld_count64(slots) ? (int)pld_nth64(slots, rank) : -1;
	const uint64_t bit = token < 0 ? 0 : (uint64_t)1 << token;
	struct pld_completion cpl = { 0, 0, 0 };
	uint32_t record = 0, frame = 0, failed;
	struct pld_io io;
	const int done = pld_poll(&g->port[p], token, &cpl);

	if (!pld_ballot(g->lanes, done))
		return;
	pld_no_io_(&io);
	if (done) {
		record = pld_load_relaxed_dev32(pld_record_(g, p, token));
		frame = (record & ~PLD_RECORD_WRITE) - 1;
		pld_describe_(g->cache, frame, (record & PLD_RECORD_WRITE) != 0, &io);
		io.token = token;
	}
	/* Nobody knows what became of it in between. */
	if (done && g->left[p] & bit)
		cpl.err = -EIO;
	pld_io_finish(&g->port[p], done, &io, &cpl);
	pld_sync(g->lanes);
	if (done) {
		pld_store_relaxed_dev32(pld_record_(g, p, token), 0);
		pld_note_end_(g, (record & PLD_RECORD_WRITE) != 0, cpl.err, io.bytes);
		pld_cache_settle_(g->cache, frame, (record & PLD_RECORD_WRITE) != 0, cpl.err);
	}
	failed = pld_ballot(g->lanes, done && cpl.err);
	if (failed) {
		g->status = pld_shfl32(g->lanes, cpl.status, pld_lowest32(failed));
		g->write_errors += pld_count32(
			pld_ballot(g->lanes, done && cpl.err && record & PLD_RECORD_WRITE));
	}
	slots = pld_or64(g->lanes, done ? bit : 0);
	g->busy[p] &= ~slots;
	g->left[p] &= ~slots;
}

/* See which commands of the group have ended. */
PLD_SLOW void pld_poll_own_(struct pld_group *g)
{
	for (uint32_t p = 0; p < g->cache->stripe.nr_paths; p++) {
		uint64_t todo = g->busy[p], some;

		while (todo) {
			some = todo;
			for (uint32_t i = pld_count32(g->lanes); i && todo; i--)
				todo &= todo - 1;
			pld_poll_slots_(g, p, some & ~todo);
		}
	}
}

/* ------------------------------------------------------------------ waiting */

/* A little time goes by. Returns 0, or ECANCELED, ETIMEDOUT, or EBUSY for those that want a frame. */
PLD_FN uint32_t pld_wait_on_(const struct pld_group *g, struct pld_patience *w)
{
	return pld_wait_turn_(&g->port[0], w, g->cache->timeout_ns, g->cache->busy_ns);
}

/* ------------------------------------------------------------------ pages */

/* For each lane that wants it: find a frame for a page that is not there. Returns what the claim gave. */
PLD_FN int pld_bring_(struct pld_group *g, int want, uint64_t page, uint32_t refs, uint32_t *frame)
{
	const uint32_t asking = pld_ballot(g->lanes, want);
	int claim = PLD_NONE, start;
	uint32_t room, evicted = 0;

	if (!asking)
		return claim;
	room = pld_room_(g, asking);
	if (want && room >> pld_path_of_(&g->cache->stripe, page) & 1)
		claim = pld_cache_claim_(g->cache, page, refs, room, frame, &evicted);
	g->stats.evictions += evicted;
	start = claim == PLD_CLAIM_FILL || claim == PLD_CLAIM_CLEAN;
	if (pld_ballot(g->lanes, start))
		pld_start_(g, start, *frame, claim == PLD_CLAIM_CLEAN);
	return claim;
}

/* One turn for the lanes that want a page and do not have it: poll, look, bring in. */
PLD_FN int pld_step_(struct pld_group *g, int want, uint64_t page, uint32_t refs, int write,
		     struct pld_grip *grip)
{
	uint32_t frame = 0;
	int claim;

	pld_poll_own_(g);
	if (want)
		grip->state = grip->state == PLD_HELD
				      ? pld_cache_check_(g->cache, grip->frame, refs, write)
				      : pld_cache_look_(g->cache, page, refs, write, &grip->frame);
	claim = pld_bring_(g, want && grip->state == PLD_NONE, page, refs, &frame);
	if (claim == PLD_CLAIM_FILL) {
		grip->frame = frame;
		grip->state = PLD_HELD;
	}
	return claim;
}

/*
 * Wait until one lane that wants a page has it, or an error. Others may have part of it in their grip, and
 * call again.
 */
PLD_SLOW struct pld_grip pld_fetch_(struct pld_group *g, int want, uint64_t page, int write,
				    struct pld_grip grip)
{
	const uint32_t errors = g->write_errors;
	struct pld_patience w;
	uint32_t over;
	int claim;

	pld_wait_begin_(&w);
	for (;;) {
		claim = pld_step_(g, want, page, 1, write, &grip);
		/* Where nothing can be written back there is no room. */
		if (want && grip.state == PLD_NONE && g->write_errors - errors > g->cache->ways)
			grip.state = -EIO;
		if (pld_ballot(g->lanes, want && pld_grip_ends_(&grip)))
			return grip;
		over = pld_wait_on_(g, &w);
		if (!over)
			continue;
		if (want && (over != EBUSY || claim == PLD_CLAIM_FULL)) {
			if (grip.state == PLD_HELD)
				pld_drop_(g->cache, grip.frame, 1);
			grip.state = -(int)over;
			g->stats.timeouts++;
		}
		if (pld_ballot(g->lanes, want && pld_grip_ends_(&grip)))
			return grip;
	}
}

/* Start to bring in pages, as far as there is room now. */
PLD_SLOW void pld_prefetch_(struct pld_group *g, int want, uint64_t page)
{
	const uint32_t same = pld_match64(g->lanes, want ? page : ~(uint64_t)0);
	uint32_t frame = 0;

	want = want && pld_leads(same) && !pld_cache_has_(g->cache, page);
	pld_bring_(g, want, page, 0, &frame);
	pld_poll_own_(g);
}

/* Write back one frame for each lane that wants it, if it is dirty. Returns 0 or a negative errno. */
PLD_SLOW int pld_write_back_(struct pld_group *g, int want, uint32_t frame)
{
	const uint32_t errors = g->write_errors;
	struct pld_patience w;
	int started = 0;
	uint32_t over, asking, room;

	pld_wait_begin_(&w);
	for (;;) {
		int claim = PLD_NONE;

		asking = pld_ballot(g->lanes, want && !started);
		room = pld_room_(g, asking);
		if (want && !started) {
			const uint64_t word = pld_load_relaxed_dev64(&g->cache->words[frame]);
			const uint64_t page = pld_page_of_(g->cache, frame, word);

			claim = PLD_HELD;
			if (!(word & PLD_DIRTY))
				claim = PLD_NONE;
			else if (room >> pld_path_of_(&g->cache->stripe, page) & 1)
				claim = pld_cache_clean_(g->cache, frame, word);
			want = claim != PLD_NONE;
		}
		if (pld_ballot(g->lanes, claim == PLD_CLAIM_CLEAN))
			pld_start_(g, claim == PLD_CLAIM_CLEAN, frame, 1);
		started |= claim == PLD_CLAIM_CLEAN;
		pld_poll_own_(g);
		if (want && started &&
		    pld_state_(pld_load_relaxed_dev64(&g->cache->words[frame])) != PLD_WRITING)
			want = 0;
		if (!pld_ballot(g->lanes, want))
			return g->write_errors == errors ? 0 : -EIO;
		over = pld_wait_on_(g, &w);
		if (over == ECANCELED || over == ETIMEDOUT) {
			g->stats.timeouts += want != 0;
			return -(int)over;
		}
	}
}

#endif
