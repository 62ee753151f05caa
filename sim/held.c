// SPDX-License-Identifier: MIT
/* Commands that wait: held, delayed or gathered by a fault, or for an event to report. */
#include "held.h"

#include "command.h"
#include "queue.h"

#include <errno.h>
#include <stdlib.h>

/* Turns after which gathered commands are carried out though more were awaited. */
#define GATHER_TURNS 1000u

int pl_sn_held_add(struct pl_simnvme *c, struct pl_sn_sq *sq, const struct pl_nvme_sqe *sqe,
		   enum pl_sn_held_as as, uint64_t until, uint64_t window)
{
	struct pl_sn_held *h = malloc(sizeof(*h)), **last = &c->held;

	if (!h)
		return -ENOMEM;
	*h = (struct pl_sn_held){
		.sqe = *sqe, .sq = sq, .as = as, .until = until, .window = window
	};
	while (*last)
		last = &(*last)->next;
	*last = h;
	c->nr_held++;
	c->nr_event_requests += as == PL_SN_EVENT_REQUEST;
	if (as == PL_SN_GATHERED) {
		c->nr_gathered++;
		c->gathered_at = c->turn;
	}
	return 0;
}

/* Take one out of the list. */
static void release(struct pl_simnvme *c, struct pl_sn_held **at, struct pl_sn_held *out)
{
	struct pl_sn_held *h = *at;

	*out = *h;
	*at = h->next;
	c->nr_held--;
	c->nr_event_requests -= h->as == PL_SN_EVENT_REQUEST;
	c->nr_gathered -= h->as == PL_SN_GATHERED;
	free(h);
}

/* The newest of the gathered ones. */
static struct pl_sn_held **newest(struct pl_simnvme *c)
{
	struct pl_sn_held **found = NULL;

	for (struct pl_sn_held **at = &c->held; *at; at = &(*at)->next)
		if ((*at)->as == PL_SN_GATHERED)
			found = at;
	return found;
}

static void run_gathered(struct pl_simnvme *c)
{
	struct pl_sn_held **at, h;

	while ((at = newest(c))) {
		release(c, at, &h);
		pl_sn_execute(c, h.sq, &h.sqe);
	}
}

void pl_sn_held_run(struct pl_simnvme *c)
{
	struct pl_sn_held **at = newest(c), h;

	if (at && (c->nr_gathered >= (*at)->window || c->turn - c->gathered_at > GATHER_TURNS))
		run_gathered(c);
	for (at = &c->held; *at;) {
		if ((*at)->as != PL_SN_DELAYED || (*at)->until > c->turn) {
			at = &(*at)->next;
			continue;
		}
		release(c, at, &h);
		pl_sn_execute(c, h.sq, &h.sqe);
		/* That may have changed the list. */
		at = &c->held;
	}
}

bool pl_sn_held_abort(struct pl_simnvme *c, uint32_t qid, uint16_t cid)
{
	for (struct pl_sn_held **at = &c->held; *at; at = &(*at)->next) {
		struct pl_sn_held h;

		if ((*at)->sq->qid != qid || (*at)->sqe.cid != cid)
			continue;
		release(c, at, &h);
		pl_sn_complete(c, h.sq, &h.sqe, PL_NVME_SC_ABORTED, 0);
		return true;
	}
	return false;
}

void pl_sn_held_abort_queue(struct pl_simnvme *c, struct pl_sn_sq *sq)
{
	for (struct pl_sn_held **at = &c->held; *at;) {
		struct pl_sn_held h;

		if ((*at)->sq != sq) {
			at = &(*at)->next;
			continue;
		}
		release(c, at, &h);
		pl_sn_complete(c, sq, &h.sqe, PL_NVME_SC_SQ_DELETED, 0);
	}
}

bool pl_sn_held_event_request(struct pl_simnvme *c, struct pl_nvme_sqe *sqe)
{
	for (struct pl_sn_held **at = &c->held; *at; at = &(*at)->next) {
		struct pl_sn_held h;

		if ((*at)->as != PL_SN_EVENT_REQUEST)
			continue;
		release(c, at, &h);
		*sqe = h.sqe;
		return true;
	}
	return false;
}

void pl_sn_held_clear(struct pl_simnvme *c)
{
	struct pl_sn_held h;

	while (c->held)
		release(c, &c->held, &h);
}
