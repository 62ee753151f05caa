/* SPDX-License-Identifier: MIT */
/*
 * NVMe queue pairs driven by the threads of a kernel.
 *
 * A group of lanes (a warp, or one thread) owns a port: some command slots of one queue pair, for itself
 * alone. All ports of a queue together have fewer slots than the queue has entries, so neither ring can
 * overflow, an entry that is written was fetched before, and no group ever waits for another to get one.
 * Where a queue has several ports, entries are taken by one atomic add. Doorbells and completions are
 * looked after by whichever group comes first; the others do not wait for it but look for their own.
 *
 * What the controller writes is checked: a completion that names no outstanding command is counted and
 * not believed. A command id has the slot in its lower bits and a number above that changes with each
 * use, so one that comes twice or late finds nothing, unless all numbers were used meanwhile: there are 64 or more
 * for queues of up to 1024 slots, which count the sends of a port, and fewer for others, where slots count for
 * themselves.
 *
 * Who serves the queue, a drive or a program, does not show here. See io.h for data and array.h for
 * a cached view; the host part is peerlane/device.h.
 */
#ifndef PEERLANE_DEVICE_QUEUE_H
#define PEERLANE_DEVICE_QUEUE_H

#include <errno.h>

#include <peerlane/device/port.h>
#include <peerlane/nvme_spec.h>

/* Most slots of a port. */
#define PLD_MAX_SLOTS 64u

/* Slots of a queue, in bits, up to which the sends of a port number its commands. */
#define PLD_COUNTED_BITS 10u

/* That the host wants an end is seen after so long at the latest, by who waits. */
#define PLD_LOOK_NS 50000000u

/* Flags of struct pld_queue. */
#define PLD_RESULT_PLACE                                                                           \
	0x1u /* reads: the result says where in @bounce the data lie, in 512 bytes */

/* Addresses of a piece of memory for the controller. Its pages follow each other in @list. */
struct pld_dma {
	uint64_t first;	 /* its first page */
	uint64_t second; /* its second page, or 0 */
	uint64_t list;	 /* PRP list from the second page on, or 0 if it has no third */
};

/*
 * A queue pair. The host fills it before a kernel runs; the part from @tail on is the kernels'. An
 * outstanding command is command id << 48 | PLD_PENDING in its slot, a completed one
 * id << 48 | status << 32 | result.
 */
struct pld_queue {
	struct pl_nvme_sqe *sq;
	struct pl_nvme_cqe *cq;
	uint32_t *sq_doorbell;
	uint32_t *cq_doorbell;
	uint64_t *slots;      /* in GPU memory: nr_ports * slots_per_port */
	uint64_t *marks;      /* in GPU memory: @depth, all 0 at first; NULL with one port */
	const uint32_t *stop; /* not 0: the host wants kernels to end */
	/* Data by way of the host: for each slot @bounce_bytes at @bounce, and its addresses. NULL: the
	 * controller moves data itself. */
	char *bounce;
	const struct pld_dma *bounce_dma;
	uint32_t bounce_bytes;
	uint32_t page_bytes; /* of the controller */
	uint32_t depth;	     /* of both rings, a power of two */
	uint32_t log_depth;
	uint32_t nr_ports;
	uint32_t slots_per_port; /* 1 to PLD_MAX_SLOTS */
	uint32_t slot_bits;	 /* of the command id */
	uint32_t qid;
	uint32_t flags;
	uint32_t reserved[5];

	/* All counters run on and wrap at 2^32. Each group of words has a line for itself. */
	uint32_t tail; /* entries taken */
	uint32_t pad1[31];
	uint32_t ringing; /* somebody rings */
	uint32_t rung;	  /* entries the controller knows of */
	uint32_t pad2[30];
	uint32_t reaping; /* somebody takes completions */
	uint32_t head;	  /* completions taken */
	uint32_t pad3[30];
	uint64_t nr_bad; /* completions that made no sense */
	uint32_t pad4[30];
};

#define PLD_PENDING ((uint64_t)1 << 47)

/* A group's share of a queue; the same in all its lanes. What never changes of the queue is here again. */
struct pld_port {
	struct pld_queue *queue;
	struct pl_nvme_sqe *sq;
	struct pl_nvme_cqe *cq;
	uint64_t *slots;
	uint64_t *marks;
	uint32_t mask; /* of places in the rings */
	uint32_t log_depth;
	uint32_t nr_slots; /* of the queue */
	uint32_t slot_bits;
	uint32_t nr_own;
	uint32_t first; /* slot */
	uint32_t lanes; /* the group */
	uint32_t tail;	/* with one port these two are known here */
	uint32_t head;
	uint32_t use; /* the number in the ids of the next commands */
	/* The controller hears of completions that were taken when so many have been: a power of two, so
	 * that it never lacks room for those of the commands that are outstanding. */
	uint32_t tell_step;
	uint64_t free; /* slots that can be used */
	uint64_t lost; /* given up by their users, not by the controller */
};

/* A command, as far as it is not always the same. */
struct pld_request {
	uint8_t opcode; /* enum pl_nvme_opcode */
	uint32_t nsid;
	uint64_t lba;
	uint32_t nr_blocks; /* 1 to 65536; 0 for flush */
	uint64_t prp1, prp2;
};

/* How it ended. */
struct pld_completion {
	int err; /* 0; -EIO see @status; -ETIMEDOUT; -ECANCELED the host wanted an end */
	uint32_t
		status; /* of the completion without the phase: code, type, retry delay, more, dnr */
	uint32_t result;
};

/* ------------------------------------------------------------------ inside */

/* Entries from t on that were written and not rung: so many. */
PLD_FN uint32_t pld_marked_(const struct pld_port *port, uint32_t t)
{
	const uint64_t mark = pld_load_acquire_dev64(&port->marks[t & port->mask]);

	return (uint32_t)mark == t + 1 ? (uint32_t)(mark >> 32) : 0;
}

/*
 * Ring for all entries that are written without a gap. Who finds somebody at it leaves: the exchange by
 * which that one ends comes after ours, sees our mark, and makes him look again.
 */
PLD_FN void pld_ring_marked_(struct pld_port *port)
{
	struct pld_queue *q = port->queue;
	uint32_t from, to, nr;

	do {
		if (pld_exchange_dev32(&q->ringing, 1))
			return;
		from = to = pld_load_relaxed_dev32(&q->rung);
		while ((nr = pld_marked_(port, to)))
			to += nr;
		if (to != from) {
			pld_store_relaxed_dev32(&q->rung, to);
			pld_ring(q->sq_doorbell, to & port->mask);
		}
		pld_exchange_dev32(&q->ringing, 0);
	} while (pld_marked_(port, to));
}

/*
 * Entries [first, first + nr) are written by lanes of the group: let the controller know. The doorbell
 * orders, for all of the machine, also what others wrote before the marks that its ringer has seen.
 */
PLD_FN void pld_publish_(struct pld_port *port, uint32_t first, uint32_t nr)
{
	pld_sync(port->lanes);
	if (!pld_leads(port->lanes))
		return;
	if (!port->marks) {
		pld_ring(port->queue->sq_doorbell, (first + nr) & port->mask);
		return;
	}
	pld_store_release_dev64(&port->marks[first & port->mask],
				(uint64_t)nr << 32 | (uint32_t)(first + 1));
	pld_ring_marked_(port);
}

/* Take nr entries of the SQ; the first one. */
PLD_FN uint32_t pld_take_(struct pld_port *port, uint32_t nr)
{
	uint32_t first = port->tail;

	if (!port->marks) {
		port->tail += nr;
		if (pld_leads(port->lanes))
			pld_store_relaxed_dev32(&port->queue->tail, port->tail);
		return first;
	}
	if (pld_leads(port->lanes))
		first = pld_add_dev32(&port->queue->tail, nr);
	return pld_shfl32(port->lanes, first, pld_lowest32(port->lanes));
}

/* The id for the next use of a slot. */
PLD_FN uint32_t pld_next_cid_(const struct pld_port *port, uint32_t slot)
{
	const uint32_t step = 1u << port->slot_bits;
	uint32_t cid = port->use << port->slot_bits | slot;

	if (port->slot_bits > PLD_COUNTED_BITS) {
		/* The first time it is 0, which need not be of this slot. */
		cid = (uint32_t)(pld_load_relaxed_dev64(&port->slots[slot]) >> 48);
		cid = (cid & ~(step - 1)) + step + slot;
	}
	cid &= 0xffff;
	return cid == PL_NVME_CID_NONE ? slot : cid;
}

/* The number for the next sends. All ones are left out: with one slot they make the id that is none. */
PLD_FN void pld_next_use_(struct pld_port *port)
{
	const uint32_t ones = 0xffffu >> port->slot_bits;

	port->use++;
	if ((port->use & ones) == ones)
		port->use++;
}

PLD_FN void pld_write_sqe_(const struct pld_port *port, uint32_t entry, uint32_t cid,
			   const struct pld_request *rq)
{
	char *sqe = (char *)&port->sq[entry & port->mask];
	struct pld_vec v[4] = {
		{ { 0, 0, 0, 0 } }, { { 0, 0, 0, 0 } }, { { 0, 0, 0, 0 } }, { { 0, 0, 0, 0 } }
	};

	v[0].w[0] = rq->opcode | cid << 16;
	v[0].w[1] = rq->nsid;
	v[1].w[2] = (uint32_t)rq->prp1;
	v[1].w[3] = (uint32_t)(rq->prp1 >> 32);
	v[2].w[0] = (uint32_t)rq->prp2;
	v[2].w[1] = (uint32_t)(rq->prp2 >> 32);
	v[2].w[2] = (uint32_t)rq->lba;
	v[2].w[3] = (uint32_t)(rq->lba >> 32);
	v[3].w[0] = rq->nr_blocks ? rq->nr_blocks - 1 : 0;
	for (int i = 0; i < 4; i++)
		pld_store16(sqe + 16 * i, v[i]);
}

/* A completion that is there: hand it to its slot. */
PLD_FN void pld_deliver_(const struct pld_port *port, const struct pld_vec *v)
{
	struct pld_queue *q = port->queue;
	const uint32_t cid = v->w[3] & 0xffff, slot = cid & ((1u << port->slot_bits) - 1);
	const uint64_t pending = (uint64_t)cid << 48 | PLD_PENDING;
	const uint64_t done = (uint64_t)cid << 48 | (uint64_t)(v->w[3] >> 17) << 32 | v->w[0];
	uint64_t was = 0;

	/* With one port it is for a lane of this group, which meets the others before it looks. */
	if (v->w[2] >> 16 == q->qid && slot < port->nr_slots)
		was = port->marks ? pld_cas_release_dev64(&port->slots[slot], pending, done)
				  : pld_cas_relaxed_dev64(&port->slots[slot], pending, done);
	if (was != pending)
		pld_count_dev64(&q->nr_bad, 1);
}

/* Completions up to the port's head were taken; up to @was they were before. */
PLD_FN void pld_tell_(struct pld_port *port, uint32_t was)
{
	pld_store_relaxed_dev32(&port->queue->head, port->head);
	if ((was ^ port->head) & ~(port->tell_step - 1))
		pld_ring(port->queue->cq_doorbell, port->head & port->mask);
}

/*
 * How many completions to look for: as many as can be there. What a look brings over the bus for nothing is lost for
 * data. A controller that posts too many has them taken one at a time.
 */
PLD_FN uint32_t pld_awaited_(uint32_t tail, uint32_t head)
{
	return (int32_t)(tail - head) > 0 ? tail - head : 1;
}

/* Have the port's head where the next completion will be, for this group alone. Returns how many to look
 * for; 0: another group is at it. */
PLD_FN uint32_t pld_begin_reap_(struct pld_port *port)
{
	struct pld_queue *q = port->queue;
	uint64_t got = 0;

	if (!port->marks)
		return pld_awaited_(port->tail, port->head);
	if (pld_leads(port->lanes) && !pld_load_relaxed_dev32(&q->reaping) &&
	    !pld_lock_dev32(&q->reaping)) {
		const uint32_t head = pld_load_relaxed_dev32(&q->head);

		got = (uint64_t)pld_awaited_(pld_load_relaxed_dev32(&q->tail), head) << 32 | head;
	}
	got = pld_shfl64(port->lanes, got, pld_lowest32(port->lanes));
	port->head = (uint32_t)got;
	return (uint32_t)(got >> 32);
}

/*
 * Take what completions are there, one for each lane at most. Returns how many; 0 also when another group
 * is at it.
 */
PLD_FN uint32_t pld_reap_(struct pld_port *port)
{
	const uint32_t lanes = port->lanes, rank = pld_rank(lanes);
	const uint32_t most = pld_begin_reap_(port);
	uint32_t at, stale, run;
	struct pld_vec v;
	int fresh;

	if (!most)
		return 0;
	at = port->head + rank;
	/* The first time round the phase is 1. A lane that would see an entry twice sees none. */
	fresh = rank < most && rank <= port->mask &&
		pld_load_fresh_sys(&port->cq[at & port->mask], PL_NVME_CQE_PHASE,
				   at >> port->log_depth & 1, &v);
	stale = lanes & ~pld_ballot(lanes, fresh);
	run = stale ? pld_count32(lanes & ((1u << pld_lowest32(stale)) - 1)) : pld_count32(lanes);
	if (rank < run)
		pld_deliver_(port, &v);
	if (run)
		pld_sync(lanes);
	port->head += run;
	if (pld_leads(lanes)) {
		if (run)
			pld_tell_(port, port->head - run);
		if (port->marks)
			pld_store_release_dev32(&port->queue->reaping, 0);
	}
	return run;
}

PLD_FN int pld_is_pending_(const struct pld_port *port, uint32_t slot)
{
	return (pld_load_acquire_dev64(&port->slots[slot]) & PLD_PENDING) != 0;
}

/* Those of some slots of the port that are outstanding. */
PLD_FN uint64_t pld_pending_of_(const struct pld_port *port, uint64_t slots)
{
	uint64_t mine = 0;

	for (uint32_t i = pld_rank(port->lanes); i < port->nr_own; i += pld_count32(port->lanes))
		if (slots >> i & 1 && pld_is_pending_(port, port->first + i))
			mine |= (uint64_t)1 << i;
	return pld_or64(port->lanes, mine);
}

/* Slots whose commands were given up, and have ended since, can be used again. */
PLD_FN void pld_reclaim_(struct pld_port *port)
{
	uint64_t still;

	if (!port->lost)
		return;
	pld_reap_(port);
	still = pld_pending_of_(port, port->lost);
	port->free |= port->lost & ~still;
	port->lost = still;
}

/* ------------------------------------------------------------------ waiting */

/* A wait of a group: when to look what, and when to give up. */
struct pld_patience {
	uint64_t start;
	uint64_t look_ns; /* after so long at the stop word */
	uint32_t turns, nap;
};

PLD_FN void pld_wait_begin_(struct pld_patience *w)
{
	w->start = pld_clock_ns();
	w->look_ns = 1000000;
	w->turns = 0;
	w->nap = 32;
}

/*
 * A little time goes by. Returns 0, ECANCELED, ETIMEDOUT, or EBUSY after @busy_ns. The stop word is one for all, in host
 * memory, and a GPU reads a line of that for one group after the other: who waits long looks seldom.
 */
PLD_FN uint32_t pld_wait_turn_(const struct pld_port *port, struct pld_patience *w,
			       uint64_t timeout_ns, uint64_t busy_ns)
{
	uint32_t over = 0;

	if (pld_leads(port->lanes) && !(++w->turns & 15)) {
		const uint64_t ns = pld_clock_ns() - w->start;

		over = ns > timeout_ns ? ETIMEDOUT : ns > busy_ns ? EBUSY : 0;
		if (ns > w->look_ns) {
			w->look_ns = ns + (ns < PLD_LOOK_NS ? ns : PLD_LOOK_NS);
			if (pld_load_relaxed_sys32(port->queue->stop))
				over = ECANCELED;
		}
	}
	over = pld_shfl32(port->lanes, over, pld_lowest32(port->lanes));
	pld_nap(w->nap);
	if (w->nap < 1024)
		w->nap *= 2;
	return over;
}

/* ------------------------------------------------------------------ for everybody */

/*
 * Every function here is called by all lanes of the port together.
 */

/* Open a port; no other group may have it. What it left outstanding when it was last used stays lost. */
PLD_FN void pld_port_open(struct pld_port *port, struct pld_queue *q, uint32_t index,
			  uint32_t lanes)
{
	const uint64_t all = q->slots_per_port < 64 ? ((uint64_t)1 << q->slots_per_port) - 1
						    : ~(uint64_t)0;

	port->queue = q;
	port->sq = q->sq;
	port->cq = q->cq;
	port->slots = q->slots;
	port->marks = q->marks;
	port->mask = q->depth - 1;
	port->log_depth = q->log_depth;
	port->nr_slots = q->nr_ports * q->slots_per_port;
	port->slot_bits = q->slot_bits;
	port->nr_own = q->slots_per_port;
	port->first = index * q->slots_per_port;
	port->lanes = lanes;
	/* The same for all lanes, whatever others do meanwhile, and after what the group did before. */
	pld_sync(lanes);
	port->tail = pld_shfl32(lanes, pld_load_relaxed_dev32(&q->tail), pld_lowest32(lanes));
	port->head = pld_shfl32(lanes, pld_load_relaxed_dev32(&q->head), pld_lowest32(lanes));
	port->use = port->tail;
	pld_next_use_(port);
	port->tell_step = 1;
	while (port->tell_step * 2 <= q->depth - port->nr_slots)
		port->tell_step *= 2;
	port->lost = 0;
	port->free = all;
	port->lost = pld_pending_of_(port, all);
	port->free = all & ~port->lost;
}

/*
 * Get slots for the lanes that want one. Returns this lane's token, to be given to pld_free() in the end,
 * or -EAGAIN: there was none left for it. Until it is sent, nothing is outstanding.
 */
PLD_FN int pld_reserve(struct pld_port *port, int want)
{
	const uint32_t asking = pld_ballot(port->lanes, want), rank = pld_rank(asking);
	uint32_t nr = pld_count32(asking);
	int token = -EAGAIN;

	if (pld_count64(port->free) < nr)
		pld_reclaim_(port);
	if (pld_count64(port->free) < nr)
		nr = pld_count64(port->free);
	if (want && rank < nr)
		token = (int)pld_nth64(port->free, rank);
	while (nr--)
		port->free &= port->free - 1;
	return token;
}

/* Send the commands of the lanes that have a token, with one doorbell. The requests must be good. */
PLD_FN void pld_send(struct pld_port *port, int token, const struct pld_request *rq)
{
	const uint32_t sending = pld_ballot(port->lanes, token >= 0), nr = pld_count32(sending);
	uint32_t first, slot, cid;

	if (!nr)
		return;
	first = pld_take_(port, nr);
	if (token >= 0) {
		slot = port->first + (uint32_t)token;
		cid = pld_next_cid_(port, slot);
		pld_store_relaxed_dev64(&port->slots[slot], (uint64_t)cid << 48 | PLD_PENDING);
		pld_write_sqe_(port, first + pld_rank(sending), cid, rq);
	}
	pld_next_use_(port);
	pld_publish_(port, first, nr);
}

/* Both: returns the token, or -EAGAIN. */
PLD_FN int pld_submit(struct pld_port *port, int want, const struct pld_request *rq)
{
	const int token = pld_reserve(port, want);

	pld_send(port, token, rq);
	return token;
}

/* What a token's slot holds; PLD_PENDING for none. */
PLD_FN uint64_t pld_look_(const struct pld_port *port, int token)
{
	return token < 0 ? PLD_PENDING
			 : pld_load_acquire_dev64(&port->slots[port->first + (uint32_t)token]);
}

/* Look once. Returns 1 if this lane's command has ended, and how; else 0. A token below 0 has not. */
PLD_FN int pld_poll(struct pld_port *port, int token, struct pld_completion *out)
{
	uint64_t word = pld_look_(port, token);

	if (pld_ballot(port->lanes, token >= 0 && word & PLD_PENDING) && pld_reap_(port))
		word = pld_look_(port, token);
	if (word & PLD_PENDING)
		return 0;
	out->status = (uint32_t)(word >> 32) & 0x7fff;
	out->result = (uint32_t)word;
	out->err = out->status ? -EIO : 0;
	return 1;
}

/*
 * Wait until all lanes' commands have ended, the time is over or the host wants an end. Lanes with a
 * token below 0 only take part. Commands that have not ended get -ETIMEDOUT or -ECANCELED: the
 * controller may still use their memory.
 */
PLD_FN void pld_wait(struct pld_port *port, int token, uint64_t timeout_ns,
		     struct pld_completion *out)
{
	struct pld_patience w;
	int done = token < 0;
	uint32_t over;

	out->err = 0;
	out->status = 0;
	out->result = 0;
	pld_wait_begin_(&w);
	for (;;) {
		done |= pld_poll(port, done ? -1 : token, out);
		if (!pld_ballot(port->lanes, !done))
			return;
		over = pld_wait_turn_(port, &w, timeout_ns, ~(uint64_t)0);
		if (over)
			break;
	}
	if (!done)
		out->err = -(int)over;
}

/* Give slots back. Those of commands that have not ended come back when they do. */
PLD_FN void pld_free(struct pld_port *port, int token)
{
	const uint64_t bit = token < 0 ? 0 : (uint64_t)1 << token;
	const int pending = token >= 0 && pld_is_pending_(port, port->first + (uint32_t)token);

	port->lost |= pld_or64(port->lanes, pending ? bit : 0);
	port->free |= pld_or64(port->lanes, pending ? 0 : bit);
}

#endif
