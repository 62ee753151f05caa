// SPDX-License-Identifier: MIT
/* Creating and deleting queue pairs. */
#include "queue.h"
#include "prp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_DEPTH 128u
#define DEFAULT_TRANSFER ((size_t)1 << 20)
/* 65536 blocks of 512 bytes: so the count of blocks never needs another check. */
#define MOST_TRANSFER ((size_t)32 << 20)

/* Depth and transfer size as asked for, or the defaults; false if they cannot be had. */
static bool shape(const struct peerlane_nvme *nvme, unsigned int *depth, size_t *transfer)
{
	unsigned int entries = PL_NVME_CAP_MQES(nvme->cap) + 1;
	uint64_t limit = nvme->max_transfer_bytes;

	if (!*depth)
		*depth = entries < DEFAULT_DEPTH ? entries : DEFAULT_DEPTH;
	if (!*transfer)
		*transfer = DEFAULT_TRANSFER;
	else if (*transfer < 4096 || *transfer > MOST_TRANSFER || *transfer % 512)
		return false;
	if (limit && *transfer > limit)
		*transfer = (size_t)limit;
	return *depth >= 2 && *depth <= entries;
}

size_t peerlane_nvme_lists_bytes(const struct peerlane_nvme *nvme, unsigned int depth,
				 size_t max_transfer_bytes)
{
	if (!nvme || !shape(nvme, &depth, &max_transfer_bytes))
		return 0;
	return pl_nvme_prp_lists_bytes(max_transfer_bytes, (size_t)1 << nvme->page_shift) *
	       (depth - 1);
}

/* Where a ring is: an address, or that of a list of its pages. */
static void place(struct pl_nvme_sqe *sqe, const struct peerlane_nvme_map *map, size_t offset,
		  uint64_t list)
{
	sqe->dptr.prp.prp1 = list ? list : pl_nvme_bus(&map->v, offset);
	sqe->cdw11 |= list ? 0 : PL_NVME_QUEUE_PC;
}

static int delete (struct peerlane_nvme *nvme, uint8_t opcode, uint16_t qid)
{
	struct pl_nvme_sqe sqe = { .opcode = opcode, .cdw10 = qid };

	return pl_nvme_admin_locked(nvme, &sqe, NULL);
}

/*
 * Delete a queue pair, or its CQ alone, unless a reset has done that since @generation. If it cannot be deleted, only
 * a reset makes sure that the controller does not use memory that is no longer ours.
 */
static void drop(struct peerlane_nvme *nvme, uint16_t qid, bool has_sq, uint32_t generation)
{
	int rc = 0;

	if (nvme->generation != generation || nvme->dead)
		return;
	if (has_sq)
		rc = delete (nvme, PL_NVME_ADMIN_DELETE_SQ, qid);
	if (!rc)
		rc = delete (nvme, PL_NVME_ADMIN_DELETE_CQ, qid);
	if (rc && nvme->generation == generation && !nvme->dead)
		pl_nvme_reset_locked(nvme);
}

static bool lost(const struct peerlane_nvme_map *map)
{
	return map && map->lost;
}

int pl_nvme_queue_start(struct peerlane_nvme_queue *q)
{
	struct peerlane_nvme *nvme = q->nvme;
	uint32_t what = (q->ring.depth - 1) << PL_NVME_QUEUE_SIZE_SHIFT | q->ring.qid;
	struct pl_nvme_sqe cq = { .opcode = PL_NVME_ADMIN_CREATE_CQ, .cdw10 = what };
	struct pl_nvme_sqe sq = { .opcode = PL_NVME_ADMIN_CREATE_SQ, .cdw10 = what };
	uint32_t generation = nvme->generation;
	int rc;

	if (lost(q->sq_map) || lost(q->cq_map) || lost(q->lists_map))
		return -EFAULT;
	pl_nvme_doorbells(nvme, &q->ring);
	pl_nvme_ring_restart(&q->ring);
	place(&cq, q->cq_map, q->cq_offset, q->cq_list);
	sq.cdw11 = (uint32_t)q->ring.qid << PL_NVME_SQ_CQID_SHIFT;
	if (q->cmb_bytes) {
		sq.dptr.prp.prp1 = nvme->cmb.bus + q->cmb_offset;
		sq.cdw11 |= PL_NVME_QUEUE_PC;
	} else {
		place(&sq, q->sq_map, q->sq_offset, q->sq_list);
	}
	rc = pl_nvme_admin_locked(nvme, &cq, NULL);
	if (rc)
		return rc;
	rc = pl_nvme_admin_locked(nvme, &sq, NULL);
	if (rc) {
		drop(nvme, q->ring.qid, false, generation);
		return rc;
	}
	q->state = PL_NVME_QUEUE_LIVE;
	q->error = 0;
	q->known_generation = generation;
	q->generation = q->ring.sq && q->ring.cq ? generation : 0;
	return 0;
}

int pl_nvme_qid_take(struct peerlane_nvme *nvme, uint16_t *qid)
{
	const struct pl_nvme_remote_ops *remote = nvme->t->ops->remote;

	if (remote)
		return remote->take_queue(nvme->t, nvme->admin_timeout_ns, qid);
	for (unsigned int i = 1; i <= nvme->nr_queues; i++)
		if (!(nvme->used_qids[i / 64] >> i % 64 & 1)) {
			nvme->used_qids[i / 64] |= (uint64_t)1 << i % 64;
			*qid = (uint16_t)i;
			return 0;
		}
	return -ENOSPC;
}

void pl_nvme_qid_give(struct peerlane_nvme *nvme, uint16_t qid)
{
	const struct pl_nvme_remote_ops *remote = nvme->t->ops->remote;

	if (remote) {
		/* One that is dead has nothing to give. */
		if (!nvme->dead)
			remote->give_queue(nvme->t, nvme->admin_timeout_ns, qid);
		return;
	}
	nvme->used_qids[qid / 64] &= ~((uint64_t)1 << qid % 64);
}

/* Memory that the caller gave: is it this controller's, large enough, and at a page? */
static int check_given(const struct peerlane_nvme *nvme, const struct peerlane_nvme_map *map,
		       size_t offset, size_t bytes)
{
	if (!map)
		return offset ? -EINVAL : 0;
	if (map->nvme != nvme || offset > map->v.bytes || bytes > map->v.bytes - offset)
		return -EINVAL;
	return (map->v.skip + offset) & (((size_t)1 << nvme->page_shift) - 1) ? -EINVAL : 0;
}

static size_t page_up(const struct peerlane_nvme *nvme, size_t bytes)
{
	size_t page = (size_t)1 << nvme->page_shift;

	return (bytes + page - 1) & ~(page - 1);
}

/* Room for a list of the pages of a ring that may not be contiguous. */
static size_t ring_list_bytes(const struct peerlane_nvme *nvme, size_t bytes)
{
	size_t pages = page_up(nvme, bytes) >> nvme->page_shift;

	/* At most one entry in so many is a chain. */
	return page_up(nvme, (pages + pages / 256 + 1) * 8);
}

/*
 * All that the driver allocates for a queue is one piece: SQ, CQ, PRP lists, and lists of the pages of
 * the rings, each at a page.
 */
static int get_memory(struct peerlane_nvme_queue *q, const struct peerlane_nvme_queue_options *opt)
{
	struct peerlane_nvme *nvme = q->nvme;
	size_t sq = page_up(nvme, q->ring.depth * sizeof(struct pl_nvme_sqe));
	size_t cq = page_up(nvme, q->ring.depth * sizeof(struct pl_nvme_cqe));
	size_t lists = page_up(nvme, q->list_bytes * q->ring.nr_slots), at = 0;
	size_t own_sq = opt->sq || q->cmb_bytes ? 0 : sq, own_cq = opt->cq ? 0 : cq;
	size_t own_lists = opt->lists ? 0 : lists;
	size_t sq_list = ring_list_bytes(nvme, sq), cq_list = ring_list_bytes(nvme, cq);
	int rc;

	rc = pl_nvme_map_alloc_locked(nvme, own_sq + own_cq + own_lists + sq_list + cq_list,
				      &q->own);
	if (rc)
		return rc;
	q->sq_map = own_sq ? q->own : opt->sq;
	q->sq_offset = opt->sq_offset;
	q->cq_map = own_cq ? q->own : opt->cq;
	q->cq_offset = own_cq ? own_sq : opt->cq_offset;
	q->lists = opt->lists ? opt->lists->v : q->own->v;
	q->lists_map = opt->lists;
	q->lists_offset = opt->lists ? opt->lists_offset : own_sq + own_cq;

	/* A ring that is not contiguous is described by a list, if the controller takes that. */
	at = own_sq + own_cq + own_lists;
	if (q->sq_map && pl_nvme_run(&q->sq_map->v, q->sq_offset, sq) < sq) {
		q->sq_list = pl_nvme_bus(&q->own->v, at);
		rc = pl_nvme_prp_fill(&q->sq_map->v, q->sq_offset, q->sq_offset + sq, q->page_bytes,
				      &q->own->v, at, sq_list);
	}
	at += sq_list;
	if (!rc && pl_nvme_run(&q->cq_map->v, q->cq_offset, cq) < cq) {
		q->cq_list = pl_nvme_bus(&q->own->v, at);
		rc = pl_nvme_prp_fill(&q->cq_map->v, q->cq_offset, q->cq_offset + cq, q->page_bytes,
				      &q->own->v, at, cq_list);
	}
	if (!rc && (q->sq_list || q->cq_list) && PL_NVME_CAP_CQR(nvme->cap))
		rc = -EINVAL;
	return rc;
}

static void set_pointers(struct peerlane_nvme_queue *q)
{
	struct pl_nvme_ring *r = &q->ring;

	if (q->cmb_bytes) {
		r->sq = (void *)((uintptr_t)q->nvme->cmb.ptr + q->cmb_offset);
		r->in_device = true;
	} else if (q->sq_map->v.cpu) {
		r->sq = (void *)(q->sq_map->v.cpu + q->sq_offset);
		r->in_device = q->sq_map->gpu || (q->lists_map && q->lists_map->gpu);
	}
	if (q->cq_map->v.cpu)
		r->cq = (void *)(q->cq_map->v.cpu + q->cq_offset);
}

static void unlink_queue(struct peerlane_nvme_queue *q)
{
	if (!q->link)
		return;
	*q->link = q->next;
	if (q->next)
		q->next->link = q->link;
}

/* Free all, with the lock held; takes a half-built one. */
static void release(struct peerlane_nvme_queue *q)
{
	struct peerlane_nvme *nvme = q->nvme;

	unlink_queue(q);
	nvme->nr_bad += q->ring.nr_bad;
	pl_nvme_unmap_locked(q->own);
	if (q->cmb_bytes)
		pl_nvme_cmb_give(nvme, q->cmb_offset, q->cmb_bytes);
	if (q->ring.qid)
		pl_nvme_qid_give(nvme, q->ring.qid);
	pl_nvme_ring_fini(&q->ring);
	free(q->bigs);
	free(q);
}

static int build(struct peerlane_nvme_queue *q, const struct peerlane_nvme_queue_options *opt,
		 unsigned int depth)
{
	struct peerlane_nvme *nvme = q->nvme;
	size_t sq_bytes = depth * sizeof(struct pl_nvme_sqe);
	int rc;

	if (nvme->dead)
		return nvme->dead;
	rc = pl_nvme_ring_init(&q->ring, depth);
	if (!rc)
		rc = pl_nvme_qid_take(nvme, &q->ring.qid);
	if (!rc && opt->flags & PEERLANE_NVME_QUEUE_CMB) {
		rc = pl_nvme_cmb_take(nvme, sq_bytes, &q->cmb_offset);
		q->cmb_bytes = rc ? 0 : sq_bytes;
	}
	if (!rc)
		rc = get_memory(q, opt);
	if (rc)
		return rc;
	set_pointers(q);
	/* Who drives it elsewhere knows nothing of shadow doorbells. */
	if (nvme->has_dbbuf && !(q->ring.sq && q->ring.cq))
		return -EOPNOTSUPP;
	pl_nvme_queue_watch_init(q);
	rc = pl_nvme_queue_start(q);
	if (rc)
		return rc;
	q->next = nvme->queues;
	q->link = &nvme->queues;
	if (q->next)
		q->next->link = &q->next;
	nvme->queues = q;
	return 0;
}

static int check_options(const struct peerlane_nvme *nvme,
			 const struct peerlane_nvme_queue_options *opt, unsigned int *depth,
			 size_t *transfer)
{
	int rc;

	if (opt->size != sizeof(*opt) ||
	    opt->flags & ~(PEERLANE_NVME_QUEUE_CMB | PEERLANE_NVME_QUEUE_SGL) ||
	    (opt->flags & PEERLANE_NVME_QUEUE_CMB && opt->sq) || !shape(nvme, depth, transfer))
		return -EINVAL;
	rc = check_given(nvme, opt->sq, opt->sq_offset, *depth * sizeof(struct pl_nvme_sqe));
	if (!rc)
		rc = check_given(nvme, opt->cq, opt->cq_offset,
				 *depth * sizeof(struct pl_nvme_cqe));
	if (!rc)
		rc = check_given(nvme, opt->lists, opt->lists_offset,
				 peerlane_nvme_lists_bytes(nvme, *depth, *transfer));
	/* The driver writes the lists, wherever they are. */
	if (!rc && opt->lists && !opt->lists->v.cpu)
		rc = -EINVAL;
	return rc;
}

int peerlane_nvme_queue_create(struct peerlane_nvme *nvme,
			       const struct peerlane_nvme_queue_options *opt,
			       struct peerlane_nvme_queue **out)
{
	static const struct peerlane_nvme_queue_options defaults = { .size = sizeof(defaults) };
	struct peerlane_nvme_queue *q;
	unsigned int depth;
	size_t transfer;
	int rc;

	if (!nvme || !out)
		return -EINVAL;
	if (!opt)
		opt = &defaults;
	depth = opt->depth;
	transfer = opt->max_transfer_bytes;
	rc = check_options(nvme, opt, &depth, &transfer);
	if (rc)
		return rc;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->nvme = nvme;
	q->page_bytes = (size_t)1 << nvme->page_shift;
	q->max_bytes = transfer;
	q->list_bytes = pl_nvme_prp_lists_bytes(transfer, q->page_bytes);
	q->use_sgl = opt->flags & PEERLANE_NVME_QUEUE_SGL && nvme->id.sgls & PL_NVME_SGLS_MASK;
	q->align_mask = q->use_sgl && (nvme->id.sgls & PL_NVME_SGLS_MASK) == PL_NVME_SGLS_BYTE ? 0
											       : 3;
	q->waiting_end = &q->waiting;
	pthread_mutex_lock(&nvme->lock);
	rc = build(q, opt, depth);
	if (rc)
		release(q);
	pthread_mutex_unlock(&nvme->lock);
	if (!rc)
		*out = q;
	return rc;
}

void peerlane_nvme_queue_destroy(struct peerlane_nvme_queue *queue)
{
	struct peerlane_nvme *nvme;

	if (!queue)
		return;
	nvme = queue->nvme;
	pthread_mutex_lock(&nvme->lock);
	drop(nvme, queue->ring.qid, true, queue->known_generation);
	release(queue);
	pthread_mutex_unlock(&nvme->lock);
}

int peerlane_nvme_queue_get_info(const struct peerlane_nvme_queue *queue,
				 struct peerlane_nvme_queue_info *info)
{
	const struct pl_nvme_ring *r;

	if (!queue || !info || info->size != sizeof(*info))
		return -EINVAL;
	r = &queue->ring;
	*info = (struct peerlane_nvme_queue_info){
		.size = sizeof(*info),
		.qid = r->qid,
		.depth = r->depth,
		.max_transfer_bytes = queue->max_bytes,
		.nr_outstanding = pl_nvme_queue_outstanding(queue),
		.sq = r->sq,
		.cq = (void *)(uintptr_t)r->cq,
		.sq_doorbell = PL_NVME_DOORBELL_SQ(r->qid, queue->nvme->dstrd),
		.cq_doorbell = PL_NVME_DOORBELL_CQ(r->qid, queue->nvme->dstrd),
		.bar0 = queue->nvme->bar,
		.bar0_bytes = queue->nvme->t->bar0.bytes,
	};
	return 0;
}
