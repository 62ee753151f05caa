/* SPDX-License-Identifier: MIT */
/*
 * An array whose elements are stored on drives or in files, cached in GPU memory, for the threads
 * of a kernel. docs/array.md shows it in use; the host sets it up with peerlane/device_array.h.
 *
 *	struct pld_array a;
 *	double x;
 *
 *	pld_array_open(&a, cache, group, lanes);
 *	err = pld_array_read(&a, 1, i, &x, sizeof(x));
 *	pld_array_close(&a);
 *
 * All lanes of the group call every function together, with the same array but their own elements; lanes
 * that want nothing say so. Lanes that ask for the same page share one look, and if it is not there one
 * command. What a function returns is this lane's: 0, or
 *
 *	-ERANGE		there is no such element
 *	-EIO		the drive failed the command; a->status is its status. The element is not there
 *	-ETIMEDOUT	the time of the cache's timeout_ns is over
 *	-ECANCELED	the host wants kernels to end
 *	-EBUSY		all frames that could take the page were in use for busy_ns
 *
 * A group that has started commands, by pld_array_prefetch() or pld_array_issue(), is the only one to see
 * that they end, and others may wait for its pages. It must call functions of the array, pld_array_poll() at
 * least, until it closes the array.
 *
 * Elements are 1, 2, 4, ... 64 bytes. Reads never mark anything as changed. Threads that read and write
 * the same element at once must agree among themselves, as on any memory.
 */
#ifndef PEERLANE_DEVICE_ARRAY_H
#define PEERLANE_DEVICE_ARRAY_H

#include <peerlane/device/fetch.h>

/* ------------------------------------------------------------------ inside */

/* Copy one element; frames are aligned to every element. After inlining, one case is left. */
PLD_FN void pld_element_(char *frame, void *value, uint32_t bytes, int write)
{
	switch (bytes) {
#define PLD_ELEMENT_(n, align)                                                                     \
	case n:                                                                                    \
		if (write)                                                                         \
			memcpy(__builtin_assume_aligned(frame, align), value, n);                  \
		else                                                                               \
			memcpy(value, __builtin_assume_aligned(frame, align), n);                  \
		break
		PLD_ELEMENT_(1, 1);
		PLD_ELEMENT_(2, 2);
		PLD_ELEMENT_(4, 4);
		PLD_ELEMENT_(8, 8);
		PLD_ELEMENT_(16, 16);
		PLD_ELEMENT_(32, 16);
		PLD_ELEMENT_(64, 16);
#undef PLD_ELEMENT_
	default:
		break;
	}
}

/* What lane @from has in its grip. */
PLD_FN struct pld_grip pld_grip_of_(const struct pld_array *a, struct pld_grip grip, uint32_t from)
{
	const uint64_t v =
		pld_shfl64(a->lanes, (uint64_t)grip.frame << 32 | (uint32_t)grip.state, from);

	grip.frame = (uint32_t)(v >> 32);
	grip.state = (int)(uint32_t)v;
	return grip;
}

PLD_FN int pld_access_(struct pld_array *a, int want, uint64_t index, void *value, uint32_t bytes,
		       int write)
{
	const struct pld_cache *c = a->cache;
	const uint64_t at = index * bytes, page = at >> c->stripe.log_page;
	const uint32_t within = (uint32_t)at & ((1u << c->stripe.log_page) - 1);
	int todo = want && index < c->stripe.bytes / bytes;
	int err = want && !todo ? -ERANGE : 0;
	const uint32_t same = pld_match64(a->lanes, todo ? page : ~(uint64_t)0);
	const int leads = pld_leads(same);
	struct pld_grip grip = { 0, PLD_NONE }, got;

	if (leads && todo) {
		grip.state = pld_cache_look_(c, page, 1, write, &grip.frame);
		a->stats.hits += grip.state == PLD_READY;
		a->stats.misses += grip.state != PLD_READY;
	}
	while (pld_ballot(a->lanes, todo)) {
		if (!pld_ballot(a->lanes, leads && todo && pld_grip_ends_(&grip)))
			grip = pld_fetch_(a, leads && todo, page, write, grip);
		got = pld_grip_of_(a, grip, pld_lowest32(same));
		/* What the leader has seen by now, all see; and they are done before he lets go. */
		pld_sync(a->lanes);
		if (todo && got.state == PLD_READY)
			pld_element_(pld_frame_memory_(c, got.frame) + within, value, bytes, write);
		pld_sync(a->lanes);
		if (!todo || !pld_grip_ends_(&got))
			continue;
		if (got.state < 0)
			err = got.state;
		else if (leads)
			pld_drop_(c, got.frame, write ? PLD_WRITER : 1);
		todo = 0;
	}
	return err;
}

/* Look for a page with all lanes at once. */
PLD_FN struct pld_grip pld_look_together_(struct pld_array *a, uint64_t page, int write)
{
	const struct pld_cache *c = a->cache;
	const uint32_t tag = pld_tag_(c, page), first = pld_set_(c, page) * c->ways;
	const uint32_t ways = c->ways, rank = pld_rank(a->lanes);
	struct pld_grip grip = { 0, PLD_NONE };

	for (uint32_t base = 0; base < ways; base += pld_count32(a->lanes)) {
		const uint64_t seen =
			base + rank < ways ? pld_load_relaxed_dev64(&c->words[first + base + rank])
					   : 0;
		const uint32_t found = pld_ballot(a->lanes, pld_is_of_(seen, tag));

		if (!found)
			continue;
		if (pld_leads(found)) {
			grip.frame = first + base + rank;
			grip.state = write ? pld_take_write_(c, grip.frame, seen, tag)
					   : pld_take_read_(c, grip.frame, seen, tag, 1);
		}
		return pld_grip_of_(a, grip, pld_lowest32(found));
	}
	return grip;
}

/* Get a page for the whole group, with one reference or one writer; pages up to @last are wanted next. */
PLD_FN struct pld_grip pld_get_page_(struct pld_array *a, uint64_t page, uint64_t last, int write)
{
	const int leads = pld_leads(a->lanes);
	struct pld_grip grip = pld_look_together_(a, page, write);
	const uint64_t ahead = page + pld_rank(a->lanes);

	a->stats.hits += leads && grip.state == PLD_READY;
	a->stats.misses += leads && grip.state != PLD_READY;
	if (grip.state == PLD_NONE)
		pld_prefetch_(a, ahead <= last, ahead);
	while (!pld_grip_ends_(&grip))
		grip = pld_grip_of_(a, pld_fetch_(a, leads, page, write, grip),
				    pld_lowest32(a->lanes));
	pld_sync(a->lanes);
	return grip;
}

PLD_FN void pld_put_page_(struct pld_array *a, uint32_t frame, int write)
{
	pld_sync(a->lanes);
	if (pld_leads(a->lanes))
		pld_drop_(a->cache, frame, write ? PLD_WRITER : 1);
}

PLD_FN int pld_run_(struct pld_array *a, uint64_t at, uint64_t bytes, char *memory, int write)
{
	const struct pld_stripe *s = &a->cache->stripe;
	const uint32_t page_bytes = 1u << s->log_page;

	if ((at | bytes | (uintptr_t)memory) & 15)
		return -EINVAL;
	if (at > s->bytes || bytes > s->bytes - at)
		return -ERANGE;
	while (bytes) {
		const uint32_t within = (uint32_t)at & (page_bytes - 1);
		const uint32_t nr = bytes < page_bytes - within ? (uint32_t)bytes
								: page_bytes - within;
		const struct pld_grip grip =
			pld_get_page_(a, at >> s->log_page, (at + bytes - 1) >> s->log_page, write);
		char *frame = pld_frame_memory_(a->cache, grip.frame) + within;

		if (grip.state < 0)
			return grip.state;
		pld_copy(a->lanes, write ? frame : memory, write ? memory : frame, nr);
		pld_put_page_(a, grip.frame, write);
		at += nr;
		memory += nr;
		bytes -= nr;
	}
	return 0;
}

/* ------------------------------------------------------------------ elements */

/* Read element @index into @out. */
PLD_FN int pld_array_read(struct pld_array *a, int want, uint64_t index, void *out, uint32_t bytes)
{
	return pld_access_(a, want, index, out, bytes, 0);
}

/* Write element @index. It is stored when its page is evicted or flushed. */
PLD_FN int pld_array_write(struct pld_array *a, int want, uint64_t index, const void *value,
			   uint32_t bytes)
{
	return pld_access_(a, want, index, (void *)(uintptr_t)value, bytes, 1);
}

/* Functions NAME_read(a, want, i, &x) and NAME_write(a, want, i, x) for elements of a type. */
#define PLD_ARRAY_OF(name, type)                                                                   \
	typedef char name##_must_be_of_1_to_64_bytes                                               \
		[sizeof(type) <= 64 && !(sizeof(type) & (sizeof(type) - 1)) ? 1 : -1];             \
	PLD_FN int name##_read(struct pld_array *a, int want, uint64_t i, type *out)               \
	{                                                                                          \
		return pld_array_read(a, want, i, out, sizeof(type));                              \
	}                                                                                          \
	PLD_FN int name##_write(struct pld_array *a, int want, uint64_t i, type value)             \
	{                                                                                          \
		return pld_array_write(a, want, i, &value, sizeof(type));                          \
	}

/* ------------------------------------------------------------------ whole runs */

/* Read bytes [at, at + bytes) together, 16 bytes a lane at a time; all multiples of 16, else -EINVAL. */
PLD_FN int pld_array_read_run(struct pld_array *a, uint64_t at, uint64_t bytes, void *to)
{
	return pld_run_(a, at, bytes, (char *)to, 0);
}

/* Write them. */
PLD_FN int pld_array_write_run(struct pld_array *a, uint64_t at, uint64_t bytes, const void *from)
{
	return pld_run_(a, at, bytes, (char *)(uintptr_t)from, 1);
}

/*
 * Hold the page that has byte @at, to read in place: *data is that byte, and *bytes how many follow it
 * in the page. It stays until pld_array_let_go().
 */
PLD_FN int pld_array_hold(struct pld_array *a, uint64_t at, const char **data, uint32_t *bytes)
{
	const struct pld_stripe *s = &a->cache->stripe;
	const uint32_t within = (uint32_t)at & ((1u << s->log_page) - 1);
	struct pld_grip grip;

	if (at >= s->bytes)
		return -ERANGE;
	grip = pld_get_page_(a, at >> s->log_page, at >> s->log_page, 0);
	if (grip.state < 0)
		return grip.state;
	*data = pld_frame_memory_(a->cache, grip.frame) + within;
	*bytes = (1u << s->log_page) - within;
	if (*bytes > s->bytes - at)
		*bytes = (uint32_t)(s->bytes - at);
	return 0;
}

PLD_FN void pld_array_let_go(struct pld_array *a, const char *data)
{
	pld_put_page_(
		a, (uint32_t)((uint64_t)(data - a->cache->frames) >> a->cache->stripe.log_page), 0);
}

/* ------------------------------------------------------------------ ahead of time */

/* Have element @index brought in. Does not wait; does nothing where there is no room. */
PLD_FN void pld_array_prefetch(struct pld_array *a, int want, uint64_t index, uint32_t bytes)
{
	pld_prefetch_(a, want && index < a->cache->stripe.bytes / bytes,
		      index * bytes >> a->cache->stripe.log_page);
}

/* See to the commands of this group; see above. */
PLD_FN void pld_array_poll(struct pld_array *a)
{
	pld_poll_own_(a);
}

/* An element on its way; one lane's. Holds its page until pld_array_release(). */
struct pld_ticket {
	uint64_t at; /* byte */
	struct pld_grip grip;
};

/*
 * Look whether it is there: 1 and it stays there; 0 not yet; or a negative errno, and the ticket is
 * released. Tickets that hold nothing (released, or below) are 0 for ever.
 */
PLD_SLOW int pld_array_ready(struct pld_array *a, struct pld_ticket *t)
{
	const uint64_t page = t->at >> a->cache->stripe.log_page;
	const int asks = t->at != ~(uint64_t)0 && !pld_grip_ends_(&t->grip);
	const int none = asks && t->grip.state == PLD_NONE;
	const uint32_t same = pld_match64(a->lanes, none ? page : ~(uint64_t)0);
	const uint32_t refs = none ? pld_count32(same) : 1;
	struct pld_grip got;

	/* Those that have nothing of their page ask for it as one, with a reference for each. */
	pld_step_(a, asks && (!none || pld_leads(same)), page, refs, 0, &t->grip);
	got = pld_grip_of_(a, t->grip, pld_lowest32(same));
	pld_sync(a->lanes);
	if (none)
		t->grip = got;
	if (t->grip.state < 0)
		t->at = ~(uint64_t)0;
	return t->grip.state == PLD_READY ? 1 : t->grip.state < 0 ? t->grip.state : 0;
}

/* Ask for element @index. Does not wait; returns as pld_array_ready(), or -ERANGE. */
PLD_FN int pld_array_issue(struct pld_array *a, int want, uint64_t index, uint32_t bytes,
			   struct pld_ticket *t)
{
	const int ok = want && index < a->cache->stripe.bytes / bytes;
	int err;

	t->at = ok ? index * bytes : ~(uint64_t)0;
	t->grip.frame = 0;
	t->grip.state = PLD_NONE;
	err = pld_array_ready(a, t);
	a->stats.hits += err == 1;
	a->stats.misses += ok && err != 1;
	return want && !ok ? -ERANGE : err;
}

/* Where the element of a ticket is that is ready. */
PLD_FN const void *pld_ticket_data(const struct pld_array *a, const struct pld_ticket *t)
{
	return pld_frame_memory_(a->cache, t->grip.frame) +
	       (t->at & ((1u << a->cache->stripe.log_page) - 1));
}

/* Let go of it, ready or not. Of one lane: others need not call. */
PLD_FN void pld_array_release(struct pld_array *a, struct pld_ticket *t)
{
	if (t->at != ~(uint64_t)0 && t->grip.state > PLD_NONE)
		pld_drop_(a->cache, t->grip.frame, 1);
	t->at = ~(uint64_t)0;
	t->grip.state = PLD_NONE;
}

/* ------------------------------------------------------------------ beginning and end */

/*
 * Open an array for a group. No two groups may have the same number at a time. Returns 0, or -EINVAL: a
 * path has no port for this group.
 */
PLD_SLOW int pld_array_open(struct pld_array *a, const struct pld_cache *cache, uint32_t group,
			    uint32_t lanes)
{
	const struct pld_array_stats none = { 0, 0, 0, 0, 0, 0, 0, 0, 0 };

	a->cache = cache;
	a->lanes = lanes;
	a->status = 0;
	a->write_errors = 0;
	a->stats = none;
	for (uint32_t p = 0; p < cache->stripe.nr_paths; p++) {
		const struct pld_path *path = &cache->stripe.path[p];
		struct pld_queue *q =
			path->queues +
			(group % path->nr_queues) * (path->queue_step ? path->queue_step : 1);
		const uint32_t index = path->first_port + group / path->nr_queues;
		uint64_t left = 0;

		if (index >= q->nr_ports)
			return -EINVAL;
		pld_port_open(&a->port[p], q, index, lanes);
		for (uint32_t i = pld_rank(lanes); i < q->slots_per_port; i += pld_count32(lanes))
			if (pld_load_relaxed_dev32(pld_record_(a, p, (int)i)))
				left |= (uint64_t)1 << i;
		left = pld_or64(lanes, left);
		a->busy[p] = a->left[p] = left;
		a->port[p].free &= ~left;
		a->port[p].lost &= ~left;
	}
	pld_poll_own_(a);
	return 0;
}

/*
 * Write changed pages back: of the frames, part @part of @nr_parts; a kernel whose groups call with all
 * parts flushes all. Afterwards, whoever reads the drive reads what was written before the call.
 * Returns the same in all lanes: 0; -EIO pages could not be written, and are still changed; -ETIMEDOUT,
 * -ECANCELED.
 */
PLD_SLOW int pld_array_flush(struct pld_array *a, uint32_t part, uint32_t nr_parts)
{
	const uint32_t width = pld_count32(a->lanes);
	const uint64_t nr = (uint64_t)a->cache->ways << a->cache->log_sets;
	int first = 0;

	for (uint64_t base = (uint64_t)part * width; base < nr;
	     base += (uint64_t)nr_parts * width) {
		const uint64_t frame = base + pld_rank(a->lanes);
		const int dirty = frame < nr &&
				  pld_load_relaxed_dev64(&a->cache->words[frame]) & PLD_DIRTY;
		int err;

		if (!pld_ballot(a->lanes, dirty))
			continue;
		err = pld_write_back_(a, dirty, (uint32_t)frame);
		first = first ? first : err;
		if (err == -ETIMEDOUT || err == -ECANCELED)
			break;
	}
	return first;
}

/* Have the targets make what was written to them durable. Returns as pld_array_flush(). */
PLD_SLOW int pld_array_commit(struct pld_array *a)
{
	const struct pld_stripe *s = &a->cache->stripe;
	const int leads = pld_leads(a->lanes);
	int first = 0;

	for (uint32_t t = 0; t < s->nr_targets; t++) {
		struct pld_port *port = &a->port[s->target[t].path];
		struct pld_completion cpl;
		struct pld_patience w;
		struct pld_io io;
		int err = 0;

		pld_no_io_(&io);
		io.nsid = s->target[t].nsid;
		pld_wait_begin_(&w);
		/* Its slots may all be in use by commands for frames. */
		while (!err) {
			const int again = pld_io_start(port, leads, &io) && leads;
			uint32_t over;

			if (!pld_ballot(a->lanes, again))
				break;
			over = pld_wait_on_(a, &w);
			pld_poll_own_(a);
			err = over == ETIMEDOUT || over == ECANCELED ? -(int)over : 0;
		}
		if (!err)
			err = pld_io_wait(port, &io, a->cache->timeout_ns, &cpl);
		first = first ? first : err;
	}
	return (int)pld_shfl32(a->lanes, (uint32_t)first, pld_lowest32(a->lanes));
}

PLD_FN uint64_t pld_sum_(uint32_t lanes, uint64_t v)
{
	uint64_t sum = 0;

	for (uint32_t left = lanes; left; left &= left - 1)
		sum += pld_shfl64(lanes, v, pld_lowest32(left));
	return sum;
}

/*
 * Wait for what the group has started, and add its statistics to those of the cache. Returns 0, -ETIMEDOUT
 * or -ECANCELED: commands are still outstanding, and the next to open the array with this group's number
 * looks after them. Changed pages are not written back: see pld_array_flush().
 */
PLD_SLOW int pld_array_close(struct pld_array *a)
{
	struct pld_patience w;
	uint64_t busy;
	uint32_t over;

	pld_wait_begin_(&w);
	do {
		pld_poll_own_(a);
		busy = 0;
		for (uint32_t p = 0; p < a->cache->stripe.nr_paths; p++)
			busy |= a->busy[p];
		over = busy ? pld_wait_on_(a, &w) : 0;
	} while (busy && over != ETIMEDOUT && over != ECANCELED);
#define PLD_ADD_(what)                                                                             \
	do {                                                                                       \
		const uint64_t sum = pld_sum_(a->lanes, a->stats.what);                            \
		if (sum && pld_leads(a->lanes))                                                    \
			pld_count_dev64(&a->cache->stats->what, sum);                              \
		a->stats.what = 0;                                                                 \
	} while (0)
	PLD_ADD_(hits);
	PLD_ADD_(misses);
	PLD_ADD_(evictions);
	PLD_ADD_(write_backs);
	PLD_ADD_(bytes_read);
	PLD_ADD_(bytes_written);
	PLD_ADD_(read_errors);
	PLD_ADD_(write_errors);
	PLD_ADD_(timeouts);
#undef PLD_ADD_
	return busy ? -(int)over : 0;
}

#endif
