// SPDX-License-Identifier: MIT
/* The admin queue: one command that somebody waits for, beside event requests and aborts. */
#include "ctrl.h"
#include "prp.h"

#include <errno.h>
#include <string.h>

int pl_nvme_admin_init(struct peerlane_nvme *nvme)
{
	uint32_t depth = PL_NVME_CAP_MQES(nvme->cap) + 1;
	size_t page = (size_t)1 << nvme->page_shift;
	int rc;

	if (depth > PL_NVME_ADMIN_DEPTH)
		depth = PL_NVME_ADMIN_DEPTH;
	rc = pl_nvme_map_alloc_locked(nvme, 2 * page, &nvme->admin_rings);
	if (rc)
		return rc;
	nvme->admin.sq = (void *)nvme->admin_rings->v.cpu;
	nvme->admin.cq = (void *)(nvme->admin_rings->v.cpu + page);
	return pl_nvme_ring_init(&nvme->admin, depth);
}

void pl_nvme_admin_fini(struct peerlane_nvme *nvme)
{
	pl_nvme_ring_fini(&nvme->admin);
}

static void push(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command,
		 enum pl_nvme_admin_kind kind)
{
	struct pl_nvme_slot *slot = pl_nvme_slot_take(&nvme->admin);
	struct pl_nvme_sqe *sqe = pl_nvme_ring_entry(&nvme->admin);

	slot->kind = (uint8_t)kind;
	*sqe = *command;
	sqe->cid = slot->cid;
	pl_nvme_ring_push(&nvme->admin);
	pl_nvme_ring_submit(&nvme->admin);
}

/* A command that failed without a completion: what becomes of the controller. */
static int failed(struct peerlane_nvme *nvme, int rc)
{
	if (nvme->resetting)
		return rc;
	if (rc == -ENODEV)
		pl_nvme_give_up(nvme, rc);
	else
		pl_nvme_reset_locked(nvme);
	return rc;
}

static int completed(const struct pl_nvme_cqe *cqe, struct peerlane_nvme_completion *cpl)
{
	struct peerlane_nvme_completion done;

	pl_nvme_complete(&done, 0, cqe);
	if (cpl)
		*cpl = done;
	return done.err;
}

/* By the process that has the admin queue. */
static int remote_admin(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command, void *data,
			size_t bytes, struct peerlane_nvme_completion *cpl)
{
	struct pl_nvme_cqe cqe;
	int rc;

	if (nvme->dead)
		return nvme->dead;
	rc = nvme->t->ops->remote->admin(nvme->t, command, data, bytes, nvme->admin_timeout_ns,
					 &cqe);
	/* What the owner refuses was not done, and nothing is wrong with the controller. */
	if (rc == -ENODEV || rc == -ETIMEDOUT)
		return failed(nvme, rc);
	return rc ? rc : completed(&cqe, cpl);
}

int pl_nvme_admin_send(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command,
		       enum pl_nvme_admin_kind kind)
{
	/* Its owner waits for it. */
	if (nvme->t->ops->remote)
		return remote_admin(nvme, command, NULL, 0, NULL);
	/* The last slot is for the command that somebody waits for. */
	if (nvme->admin.nr_unused < 2)
		return -EAGAIN;
	push(nvme, command, kind);
	return 0;
}

void pl_nvme_admin_poll(struct peerlane_nvme *nvme)
{
	struct pl_nvme_ring *r = &nvme->admin;
	uint32_t from = r->head, budget = r->depth;
	struct pl_nvme_slot *slot;
	struct pl_nvme_cqe cqe;

	if (nvme->t->ops->remote)
		return;
	while (pl_nvme_ring_next(r, &budget, &slot, &cqe)) {
		uint8_t kind = slot->kind;

		pl_nvme_slot_give(r, slot);
		switch (kind) {
		case PL_NVME_KIND_EVENT:
			pl_nvme_event_arrived(nvme, &cqe);
			break;
		case PL_NVME_KIND_ABORT:
			nvme->nr_aborts--;
			break;
		default:
			nvme->sync_cqe = cqe;
			nvme->sync_done = true;
			break;
		}
	}
	pl_nvme_ring_ack(r, from);
}

void pl_nvme_admin_lost(struct peerlane_nvme *nvme)
{
	struct pl_nvme_ring *r = &nvme->admin;

	for (uint32_t i = 0; r->slots && i < r->nr_slots; i++)
		if (r->slots[i].cid != PL_NVME_CID_NONE)
			pl_nvme_slot_give(r, &r->slots[i]);
	nvme->nr_aborts = 0;
}

static int wait_done(struct peerlane_nvme *nvme)
{
	uint64_t start = pl_nvme_now_ns(nvme);
	unsigned int turns = 0;
	bool late = false;
	int rc;

	for (;;) {
		pl_nvme_admin_poll(nvme);
		if (nvme->sync_done)
			return 0;
		if (late)
			return -ETIMEDOUT;
		pl_nvme_relax(nvme, &turns);
		if (turns % 16)
			continue;
		rc = pl_nvme_ctrl_check(nvme);
		if (rc)
			return rc;
		late = pl_nvme_now_ns(nvme) - start > nvme->admin_timeout_ns;
	}
}

int pl_nvme_admin_locked(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command,
			 struct peerlane_nvme_completion *cpl)
{
	int rc;

	if (nvme->t->ops->remote)
		return remote_admin(nvme, command, NULL, 0, cpl);
	if (nvme->dead)
		return nvme->dead;
	nvme->sync_done = false;
	push(nvme, command, PL_NVME_KIND_SYNC);
	rc = wait_done(nvme);
	return rc ? failed(nvme, rc) : completed(&nvme->sync_cqe, cpl);
}

/* A buffer of the driver for data, with room for their list before them. */
static int get_data(struct peerlane_nvme *nvme, size_t bytes, size_t *list_bytes)
{
	size_t page = (size_t)1 << nvme->page_shift;
	struct peerlane_nvme_map *map;
	int rc;

	*list_bytes = (pl_nvme_prp_lists_bytes(bytes, page) + page - 1) & ~(page - 1);
	if (nvme->data && nvme->data->v.bytes >= *list_bytes + bytes)
		return 0;
	rc = pl_nvme_map_alloc_locked(nvme, *list_bytes + bytes, &map);
	if (rc)
		return rc;
	pl_nvme_unmap_locked(nvme->data);
	nvme->data = map;
	return 0;
}

int pl_nvme_admin_data(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command, void *data,
		       size_t bytes, struct peerlane_nvme_completion *cpl)
{
	struct pl_nvme_sqe sqe = *command;
	size_t at;
	int rc;

	if (nvme->dead)
		return nvme->dead;
	sqe.flags &= (uint8_t)~PL_NVME_PSDT_MASK;
	sqe.dptr.prp.prp1 = 0;
	sqe.dptr.prp.prp2 = 0;
	if (nvme->t->ops->remote)
		return remote_admin(nvme, &sqe, data, bytes, cpl);
	if (!bytes)
		return pl_nvme_admin_locked(nvme, &sqe, cpl);
	rc = get_data(nvme, bytes, &at);
	if (rc)
		return rc;
	rc = pl_nvme_prp_build(&nvme->data->v, at, bytes, (size_t)1 << nvme->page_shift,
			       &nvme->data->v, 0, at, &sqe.dptr);
	if (rc)
		return rc;
	if (sqe.opcode & 1)
		memcpy(nvme->data->v.cpu + at, data, bytes);
	else
		memset(nvme->data->v.cpu + at, 0, bytes);
	rc = pl_nvme_admin_locked(nvme, &sqe, cpl);
	if (!rc && sqe.opcode & 2)
		memcpy(data, nvme->data->v.cpu + at, bytes);
	return rc;
}

static bool is_ours(const struct pl_nvme_sqe *command)
{
	switch (command->opcode) {
	case PL_NVME_ADMIN_CREATE_SQ:
	case PL_NVME_ADMIN_DELETE_SQ:
	case PL_NVME_ADMIN_CREATE_CQ:
	case PL_NVME_ADMIN_DELETE_CQ:
	case PL_NVME_ADMIN_ASYNC_EVENT:
	case PL_NVME_ADMIN_DBBUF:
		return true;
	case PL_NVME_ADMIN_SET_FEATURES:
		return (command->cdw10 & 0xff) == PL_NVME_FEAT_NR_QUEUES;
	default:
		return false;
	}
}

int peerlane_nvme_admin(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command, void *data,
			size_t bytes, struct peerlane_nvme_completion *cpl)
{
	int rc;

	if (!nvme || !command || command->mptr || !data != !bytes || bytes % 4 ||
	    bytes > PL_NVME_ADMIN_BYTES)
		return -EINVAL;
	if (is_ours(command))
		return -EPERM;
	if (nvme->max_transfer_bytes && bytes > nvme->max_transfer_bytes)
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	rc = pl_nvme_admin_data(nvme, command, data, bytes, cpl);
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}
