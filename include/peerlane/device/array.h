/* SPDX-License-Identifier: MIT */
/*
 * An array whose elements are stored on drives or in files, cached in GPU memory, for the threads
 * of a kernel. docs/array.md shows it in use; the host sets it up with peerlane/device_array.h.
 *
 *	struct pld_array a;
 *	struct pld_group g;
 *	double x;
 *
 *	pld_array_open(&a, &g, cache, group, lanes);
 *	err = pld_array_read(&a, 1, i, &x, sizeof(x));
 *	pld_array_close(&a);
 *
 * All lanes of the group call every function together, with the same array but their own elements; lanes
 * that want nothing say so. Lanes that ask for the same page share one look, and if it is not there one
 * command. What a function returns is this lane's: 0, or
 *
 *	-ERANGE		there is no such element
 *	-EIO		the drive failed the command; g.status is its status. The element is not there
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

/*
 * A group's access to an array: one in each lane. It is small, and its address goes nowhere, so compilers keep it
 * in registers. What is needed where pages are missing is apart.
 */
struct pld_array {
	const struct pld_cache *cache;
	struct pld_group *group;
	uint64_t hits; /* this lane's share */
	uint32_t lanes;
};

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
PLD_FN struct pld_grip pld_grip_of_(uint32_t lanes, struct pld_grip grip, uint32_t from)
{
	const uint64_t v =
		pld_shfl64(lanes, (uint64_t)grip.frame << 32 | (uint32_t)grip.state, from);

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
		if (grip.state == PLD_READY)
			a->hits++;
		else
			a->group->stats.misses++;
	}
	while (pld_ballot(a->lanes, todo)) {
		if (!pld_ballot(a->lanes, leads && todo && pld_grip_ends_(&grip)))
			grip = pld_fetch_(a->group, leads && todo, page, write, grip);
		got = pld_grip_of_(a->lanes, grip, pld_lowest32(same));
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

/* Look for a page with all lanes at once: each reads a word, and one that found it takes it. */
PLD_FN struct pld_grip pld_look_together_(const struct pld_cache *c, uint32_t lanes, uint64_t page,
					  int write)
{
	const uint32_t tag = pld_tag_(c, page), first = pld_set_(c, page) * c->ways;
	const uint32_t ways = c->ways, rank = pld_rank(lanes);
	struct pld_grip grip = { 0, PLD_NONE };

	for (uint32_t base = 0; base < ways; base += pld_count32(lanes)) {
		const uint64_t seen =
			base + rank < ways ? pld_load_relaxed_dev64(&c->words[first + base + rank])
					   : 0;
		const uint32_t found = pld_ballot(lanes, pld_is_of_(seen, tag));
		int state = PLD_NONE;

		if (!found)
			continue;
		grip.frame = first + base + pld_count32(lanes & (found ^ (found - 1)) >> 1);
		if (pld_leads(found))
			state = write ? pld_take_write_(c, grip.frame, seen, tag)
				      : pld_take_read_(c, grip.frame, seen, tag, 1);
		grip.state = (int)pld_shfl32(lanes, (uint32_t)state, pld_lowest32(found));
		break;
	}
	return grip;
}

/* Wait for a page that is not there, or cannot be had yet; pages up to @last are wanted next. */
PLD_SLOW struct pld_grip pld_get_missing_(struct pld_group *g, uint64_t page, uint64_t last,
					  int write, struct pld_grip grip)
{
	const int leads = pld_leads(g->lanes);
	const uint64_t ahead = page + pld_rank(g->lanes);

	g->stats.misses += (uint32_t)leads;
	if (grip.state == PLD_NONE && page < last)
		pld_prefetch_(g, ahead <= last, ahead);
	while (!pld_grip_ends_(&grip))
		grip = pld_grip_of_(g->lanes, pld_fetch_(g, leads, page, write, grip),
				    pld_lowest32(g->lanes));
	return grip;
}

/* Get a page for the whole group, with one reference or one writer; pages up to @last are wanted next. */
PLD_FN struct pld_grip pld_get_page_(struct pld_array *a, uint64_t page, uint64_t last, int write)
{
	struct pld_grip grip = pld_look_together_(a->cache, a->lanes, page, write);

	if (grip.state == PLD_READY)
		a->hits += (uint32_t)pld_leads(a->lanes);
	else
		grip = pld_get_missing_(a->group, page, last, write, grip);
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
	pld_prefetch_(a->group, want && index < a->cache->stripe.bytes / bytes,
		      index * bytes >> a->cache->stripe.log_page);
}

/* See to the commands of this group; see above. */
PLD_FN void pld_array_poll(struct pld_array *a)
{
	pld_poll_own_(a->group);
}

/* An element on its way; one lane's. Holds its page until pld_array_release(). */
struct pld_ticket {
	uint64_t at; /* byte */
	struct pld_grip grip;
};

PLD_SLOW int pld_ticket_ready_(struct pld_group *g, struct pld_ticket *t)
{
	const uint64_t page = t->at >> g->cache->stripe.log_page;
	const int asks = t->at != ~(uint64_t)0 && !pld_grip_ends_(&t->grip);
	const int none = asks && t->grip.state == PLD_NONE;
	const uint32_t same = pld_match64(g->lanes, none ? page : ~(uint64_t)0);
	const uint32_t refs = none ? pld_count32(same) : 1;
	struct pld_grip got;

	/* Those that have nothing of their page ask for it as one, with a reference for each. */
	pld_step_(g, asks && (!none || pld_leads(same)), page, refs, 0, &t->grip);
	got = pld_grip_of_(g->lanes, t->grip, pld_lowest32(same));
	pld_sync(g->lanes);
	if (none)
		t->grip = got;
	if (t->grip.state < 0)
		t->at = ~(uint64_t)0;
	return t->grip.state == PLD_READY ? 1 : t->grip.state < 0 ? t->grip.state : 0;
}

/*
 * Look whether it is there: 1 and it stays there; 0 not yet; or a negative errno, and the ticket is
 * released. Tickets that hold nothing (released, or below) are 0 for ever.
 */
PLD_FN int pld_array_ready(struct pld_array *a, struct pld_ticket *t)
{
	return pld_ticket_ready_(a->group, t);
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
	if (err == 1)
		a->hits++;
	else
		a->group->stats.misses += (uint32_t)ok;
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

PLD_SLOW int pld_group_open_(struct pld_group *g, const struct pld_cache *cache, uint32_t group,
			     uint32_t lanes)
{
	const struct pld_array_stats none = { 0, 0, 0, 0, 0, 0, 0, 0, 0 };

	g->cache = cache;
	g->lanes = lanes;
	g->status = 0;
	g->write_errors = 0;
	g->stats = none;
	for (uint32_t p = 0; p < cache->stripe.nr_paths; p++) {
		const struct pld_path *path = &cache->stripe.path[p];
		struct pld_queue *q =
			path->queues +
			(group % path->nr_queues) * (path->queue_step ? path->queue_step : 1);
		const uint32_t index = path->first_port + group / path->nr_queues;
		uint64_t left = 0;

		if (index >= q->nr_ports)
			return -EINVAL;
		pld_port_open(&g->port[p], q, index, lanes);
		for (uint32_t i = pld_rank(lanes); i < q->slots_per_port; i += pld_count32(lanes))
			if (pld_load_relaxed_dev32(pld_record_(g, p, (int)i)))
				left |= (uint64_t)1 << i;
		left = pld_or64(lanes, left);
		g->busy[p] = g->left[p] = left;
		g->port[p].free &= ~left;
		g->port[p].lost &= ~left;
	}
	pld_poll_own_(g);
	return 0;
}

PLD_FN void pld_array_begin_(struct pld_array *a, struct pld_group *g,
			     const struct pld_cache *cache, uint32_t lanes)
{
	a->cache = cache;
	a->group = g;
	a->hits = 0;
	a->lanes = lanes;
}

/*
 * Open an array for a group, with memory of the caller for what it needs. No two groups may have the same number
 * at a time. Returns 0, or -EINVAL: a path has no port for this group.
 */
PLD_FN int pld_array_open(struct pld_array *a, struct pld_group *g, const struct pld_cache *cache,
			  uint32_t group, uint32_t lanes)
{
	pld_array_begin_(a, g, cache, lanes);
	return pld_group_open_(g, cache, group, lanes);
}

PLD_SLOW int pld_flush_(struct pld_group *g, uint32_t part, uint32_t nr_parts)
{
	const uint32_t width = pld_count32(g->lanes);
	const uint64_t nr = (uint64_t)g->cache->ways << g->cache->log_sets;
	int first = 0;

	for (uint64_t base = (uint64_t)part * width; base < nr;
	     base += (uint64_t)nr_parts * width) {
		const uint64_t frame = base + pld_rank(g->lanes);
		const int dirty = frame < nr &&
				  pld_load_relaxed_dev64(&g->cache->words[frame]) & PLD_DIRTY;
		int err;

		if (!pld_ballot(g->lanes, dirty))
			continue;
		err = pld_write_back_(g, dirty, (uint32_t)frame);
		first = first ? first : err;
		if (err == -ETIMEDOUT || err == -ECANCELED)
			break;
	}
	return first;
}

/*
 * Write changed pages back: of the frames, part @part of @nr_parts; a kernel whose groups call with all
 * parts flushes all. Afterwards, whoever reads the drive reads what was written before the call.
 * Returns the same in all lanes: 0; -EIO pages could not be written, and are still changed; -ETIMEDOUT,
 * -ECANCELED.
 */
PLD_FN int pld_array_flush(struct pld_array *a, uint32_t part, uint32_t nr_parts)
{
	return pld_flush_(a->group, part, nr_parts);
}

PLD_SLOW int pld_commit_(struct pld_group *g)
{
	const struct pld_stripe *s = &g->cache->stripe;
	const int leads = pld_leads(g->lanes);
	int first = 0;

	for (uint32_t t = 0; t < s->nr_targets; t++) {
		struct pld_port *port = &g->port[s->target[t].path];
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

			if (!pld_ballot(g->lanes, again))
				break;
			over = pld_wait_on_(g, &w);
			pld_poll_own_(g);
			err = over == ETIMEDOUT || over == ECANCELED ? -(int)over : 0;
		}
		if (!err)
			err = pld_io_wait(port, &io, g->cache->timeout_ns, &cpl);
		first = first ? first : err;
	}
	return (int)pld_shfl32(g->lanes, (uint32_t)first, pld_lowest32(g->lanes));
}

/* Have the targets make what was written to them durable. Returns as pld_array_flush(). */
PLD_FN int pld_array_commit(struct pld_array *a)
{
	return pld_commit_(a->group);
}

PLD_FN uint64_t pld_sum_(uint32_t lanes, uint64_t v)
{
	uint64_t sum = 0;

	for (uint32_t left = lanes; left; left &= left - 1)
		sum += pld_shfl64(lanes, v, pld_lowest32(left));
	return sum;
}

PLD_SLOW int pld_group_close_(struct pld_group *g)
{
	struct pld_patience w;
	uint64_t busy;
	uint32_t over;

	pld_wait_begin_(&w);
	do {
		pld_poll_own_(g);
		busy = 0;
		for (uint32_t p = 0; p < g->cache->stripe.nr_paths; p++)
			busy |= g->busy[p];
		over = busy ? pld_wait_on_(g, &w) : 0;
	} while (busy && over != ETIMEDOUT && over != ECANCELED);
#define PLD_ADD_(what)                                                                             \
	do {                                                                                       \
		const uint64_t sum = pld_sum_(g->lanes, g->stats.what);                            \
		if (sum && pld_leads(g->lanes))                                                    \
			pld_count_dev64(&g->cache->stats->what, sum);                              \
		g->stats.what = 0;                                                                 \
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

/*
 * Wait for what the group has started, and add its statistics to those of the cache. Returns 0, -ETIMEDOUT
 * or -ECANCELED: commands are still outstanding, and the next to open the array with this group's number
 * looks after them. Changed pages are not written back: see pld_array_flush().
 */
PLD_FN int pld_array_close(struct pld_array *a)
{
	a->group->stats.hits += a->hits;
	a->hits = 0;
	return pld_group_close_(a->group);
}

#endif
