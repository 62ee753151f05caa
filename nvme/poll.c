// SPDX-License-Identifier: MIT
/* Completions: of the controller, and of what it will never complete. */
#include "queue.h"

#include <errno.h>

/* One completion for the caller, from one of the controller; false: it was a part of something longer. */
static inline __attribute__((always_inline)) bool deliver(struct peerlane_nvme_queue *q,
							  struct pl_nvme_slot *slot,
							  const struct pl_nvme_cqe *cqe,
							  struct peerlane_nvme_completion *out)
{
	struct pl_nvme_big *b = slot->owner;

	if (__builtin_expect(!(cqe->status & ~PL_NVME_CQE_PHASE), 1))
		*out = (struct peerlane_nvme_completion){
			.user = slot->user,
			.result = cqe->result,
		};
	else
		pl_nvme_complete(out, slot->user, cqe);
	if (slot->aborting && out->err == -ECANCELED)
		out->err = -ETIMEDOUT;
	pl_nvme_slot_give(&q->ring, slot);
	return !b || pl_nvme_big_ended(q, b, out);
}

static inline __attribute__((always_inline)) unsigned int take(struct peerlane_nvme_queue *q,
							       struct peerlane_nvme_completion *out,
							       unsigned int max)
{
	uint32_t budget = q->ring.depth;
	struct pl_nvme_slot *slot;
	struct pl_nvme_cqe cqe;
	unsigned int nr = 0;

	while (nr < max && pl_nvme_ring_next(&q->ring, &budget, &slot, &cqe))
		nr += deliver(q, slot, &cqe, &out[nr]);
	return nr;
}

/* What the controller will never complete, as far as there is room. */
static unsigned int lose(struct peerlane_nvme_queue *q, struct peerlane_nvme_completion *out,
			 unsigned int max)
{
	struct pl_nvme_ring *r = &q->ring;
	unsigned int nr = 0;
	struct pl_nvme_big *b;

	for (; nr < max && q->lost_slot < r->nr_slots; q->lost_slot++) {
		struct pl_nvme_slot *slot = &r->slots[q->lost_slot];

		if (slot->cid == PL_NVME_CID_NONE)
			continue;
		b = slot->owner;
		pl_nvme_complete_lost(&out[nr], slot->user,
				      slot->aborting ? -ETIMEDOUT : q->lost_err);
		pl_nvme_slot_give(r, slot);
		nr += !b || pl_nvme_big_ended(q, b, &out[nr]);
	}
	/* Those that are left waited and had no command outstanding. */
	while (nr < max && (b = q->waiting)) {
		pl_nvme_complete_lost(&out[nr], b->cpl.user, q->lost_err);
		b->nr_live++;
		q->nr_big_live++;
		nr += pl_nvme_big_ended(q, b, &out[nr]);
	}
	if (q->lost_slot == r->nr_slots && !q->waiting)
		q->state = PL_NVME_QUEUE_DOWN;
	return nr;
}

/*
 * The controller was reset or given up since the queue was last used. Whoever did that holds the lock
 * until the controller is stopped, so with the lock nothing can be written into our memory any more.
 */
static bool begin(struct peerlane_nvme_queue *q)
{
	struct peerlane_nvme *nvme = q->nvme;

	if (pthread_mutex_trylock(&nvme->lock))
		return false;
	q->lost_err = nvme->dead ? -ENODEV : -ECONNRESET;
	q->lost_slot = 0;
	q->generation = 0;
	q->state = PL_NVME_QUEUE_DRAINING;
	pthread_mutex_unlock(&nvme->lock);
	return true;
}

/* Make the queue anew: 0, -EAGAIN somebody has the lock, or why it cannot be. */
static int restart(struct peerlane_nvme_queue *q)
{
	struct peerlane_nvme *nvme = q->nvme;
	int rc;

	if (pthread_mutex_trylock(&nvme->lock))
		return -EAGAIN;
	if (nvme->dead) {
		q->error = nvme->dead;
	} else if (!q->error || q->tried_generation != nvme->generation) {
		rc = pl_nvme_queue_start(q);
		if (rc) {
			/* Not ready is no reason to try for ever. */
			q->error = rc == -EAGAIN ? -EIO : rc;
			q->tried_generation = nvme->generation;
		}
	}
	pthread_mutex_unlock(&nvme->lock);
	return q->error;
}

static __attribute__((noinline)) int recover(struct peerlane_nvme_queue *q,
					     struct peerlane_nvme_completion *out, unsigned int max)
{
	unsigned int nr = 0;
	int rc;

	if (!q->ring.cq || !q->ring.sq)
		return -EOPNOTSUPP;
	if (q->state == PL_NVME_QUEUE_LIVE && !begin(q))
		return 0;
	if (q->state == PL_NVME_QUEUE_DRAINING) {
		nr = take(q, out, max);
		if (nr < max)
			q->state = PL_NVME_QUEUE_LOSING;
	}
	if (q->state == PL_NVME_QUEUE_LOSING)
		nr += lose(q, out + nr, max - nr);
	if (q->state == PL_NVME_QUEUE_DOWN && nr < max) {
		rc = restart(q);
		if (!nr && rc != -EAGAIN)
			return rc;
	}
	return (int)nr;
}

int pl_nvme_queue_revive(struct peerlane_nvme_queue *q)
{
	if (!q->ring.cq || !q->ring.sq)
		return -EOPNOTSUPP;
	if (q->state == PL_NVME_QUEUE_LIVE && !begin(q))
		return -EAGAIN;
	/* With nothing outstanding there is nothing to report first. */
	if (q->state != PL_NVME_QUEUE_DOWN && !pl_nvme_queue_outstanding(q))
		q->state = PL_NVME_QUEUE_DOWN;
	return q->state == PL_NVME_QUEUE_DOWN ? restart(q) : -EAGAIN;
}

int peerlane_nvme_poll(struct peerlane_nvme_queue *queue, struct peerlane_nvme_completion *out,
		       unsigned int max)
{
	uint32_t from;
	unsigned int nr;

	if (!queue || (!out && max) || max > INT32_MAX)
		return -EINVAL;
	/* Pairs with the store that begins a reset. */
	if (__builtin_expect(queue->generation !=
				     __atomic_load_n(&queue->nvme->generation, __ATOMIC_ACQUIRE),
			     0))
		return recover(queue, out, max);
	from = queue->ring.head;
	nr = take(queue, out, max);
	pl_nvme_ring_ack(&queue->ring, from);
	if (__builtin_expect(queue->waiting != NULL, 0)) {
		pl_nvme_queue_pump(queue);
		pl_nvme_ring_submit(&queue->ring);
	}
	if (!(++queue->polls % 64))
		pl_nvme_queue_watch(queue);
	return (int)nr;
}

int peerlane_nvme_wait(struct peerlane_nvme_queue *queue, struct peerlane_nvme_completion *out,
		       unsigned int min, unsigned int max, int timeout_ms)
{
	unsigned int nr = 0, turns = 0;
	uint64_t start = 0;
	int rc;

	if (!queue || (!out && max) || min > max || max > INT32_MAX)
		return -EINVAL;
	for (;;) {
		rc = peerlane_nvme_poll(queue, out + nr, max - nr);
		if (rc < 0)
			return nr ? (int)nr : rc;
		nr += (unsigned int)rc;
		if (nr >= min || !pl_nvme_queue_outstanding(queue))
			return (int)nr;
		if (rc)
			turns = 0;
		pl_nvme_relax(queue->nvme, &turns);
		if (timeout_ms < 0 || turns % 16)
			continue;
		if (!start)
			start = pl_nvme_now_ns(queue->nvme);
		else if (pl_nvme_now_ns(queue->nvme) - start >
			 (uint64_t)timeout_ms * (uint64_t)1000000)
			return (int)nr;
	}
}

int peerlane_nvme_run(struct peerlane_nvme_queue *queue, const struct peerlane_nvme_io *io,
		      struct peerlane_nvme_completion *cpl)
{
	struct peerlane_nvme_completion done = { .err = -EIO };
	unsigned int turns = 0;
	int rc;

	if (!queue || !io)
		return -EINVAL;
	if (pl_nvme_queue_outstanding(queue))
		return -EBUSY;
	/* A queue that is just being recovered will take it in a moment. */
	while ((rc = peerlane_nvme_submit(queue, io, 1)) == -EAGAIN)
		pl_nvme_relax(queue->nvme, &turns);
	if (rc < 0)
		return rc;
	rc = peerlane_nvme_wait(queue, &done, 1, 1, -1);
	if (rc != 1)
		return rc < 0 ? rc : -EIO;
	if (cpl)
		*cpl = done;
	return done.err;
}
