// SPDX-License-Identifier: MIT
/*
 * Time-outs of I/O, and aborting it.
 *
 * Commands are not stamped with the time, which costs as much as submitting them. Each queue counts ticks
 * while it is polled; a command remembers the tick in which it was submitted. So one is never late too early,
 * and a program that does not poll never finds its commands late when it comes back.
 */
#include "queue.h"

#include <errno.h>

#define TICKS 8u
#define LONGEST_TICK_NS 250000000u

void pl_nvme_queue_watch_init(struct peerlane_nvme_queue *q)
{
	uint64_t timeout = q->nvme->timeout_ns, tick = timeout / TICKS;

	/* Short enough to see a fatal error of the controller soon. */
	if (tick > LONGEST_TICK_NS)
		tick = LONGEST_TICK_NS;
	q->tick_ns = tick;
	q->tick_limit = (uint32_t)(timeout / tick) + 1;
	q->tick_at_ns = pl_nvme_now_ns(q->nvme);
}

/* Ask for an abort, with the lock held. */
static int send_abort(struct peerlane_nvme_queue *q, const struct pl_nvme_slot *slot)
{
	struct peerlane_nvme *nvme = q->nvme;
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_ABORT,
		.cdw10 = (uint32_t)slot->cid << PL_NVME_ABORT_CID_SHIFT | q->ring.qid,
	};
	int rc;

	if (nvme->dead || nvme->generation != q->generation)
		return -ENODEV;
	if (nvme->nr_aborts > nvme->id.acl || nvme->nr_aborts >= PL_NVME_ABORTS)
		return -EAGAIN;
	rc = pl_nvme_admin_send(nvme, &sqe, PL_NVME_KIND_ABORT);
	/* Another process has waited for it. */
	if (!rc && !nvme->t->ops->remote)
		nvme->nr_aborts++;
	return rc;
}

/* True if nothing but a reset helps. */
static bool look_at(struct peerlane_nvme_queue *q, struct pl_nvme_slot *slot, bool locked)
{
	uint32_t age = q->tick - slot->tick;

	if (slot->cid == PL_NVME_CID_NONE || age <= q->tick_limit)
		return false;
	if (slot->aborting)
		return true;
	if (locked && !send_abort(q, slot)) {
		slot->aborting = 1;
		slot->tick = q->tick;
		return false;
	}
	/* It could not even be asked for. */
	if (age <= 2 * q->tick_limit)
		return false;
	slot->aborting = 1;
	return true;
}

void pl_nvme_queue_watch(struct peerlane_nvme_queue *q)
{
	struct peerlane_nvme *nvme = q->nvme;
	uint64_t now = pl_nvme_now_ns(nvme);
	bool locked, stuck;

	if (now - q->tick_at_ns < q->tick_ns)
		return;
	q->tick_at_ns = now;
	q->tick++;
	stuck = pl_nvme_ctrl_check(nvme) != 0;
	locked = !stuck && !pthread_mutex_trylock(&nvme->lock);
	if (locked && !nvme->dead)
		pl_nvme_admin_poll(nvme);
	for (uint32_t i = 0; i < q->ring.nr_slots && !stuck; i++)
		stuck = look_at(q, &q->ring.slots[i], locked);
	if (locked)
		pthread_mutex_unlock(&nvme->lock);
	if (stuck)
		pl_nvme_recover(nvme, q->generation);
}

int peerlane_nvme_abort(struct peerlane_nvme_queue *queue, uint64_t user)
{
	bool found = false;
	int nr = 0, rc = 0;

	if (!queue)
		return -EINVAL;
	pthread_mutex_lock(&queue->nvme->lock);
	if (!queue->nvme->dead)
		pl_nvme_admin_poll(queue->nvme);
	for (uint32_t i = 0; i < queue->ring.nr_slots && !rc; i++) {
		struct pl_nvme_slot *slot = &queue->ring.slots[i];

		if (slot->cid == PL_NVME_CID_NONE || slot->user != user)
			continue;
		found = true;
		rc = send_abort(queue, slot);
		nr += !rc;
	}
	pthread_mutex_unlock(&queue->nvme->lock);
	if (!found)
		return -ENOENT;
	return nr ? nr : rc;
}
