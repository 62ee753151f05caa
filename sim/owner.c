// SPDX-License-Identifier: MIT
/* What belongs to a client of a served controller. */
#include "owner.h"

#include "doorbell.h"
#include "queue.h"
#include "regs.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

int pl_sn_owner_map(struct pl_simnvme *c, uint64_t owner, uint64_t iova, int fd, uint64_t offset,
		    uint64_t bytes, unsigned int access)
{
	struct pl_sn_mapping mapping = {
		.iova = iova, .bytes = bytes, .access = access, .owner = owner
	};
	struct stat st;
	void *memory;
	int rc;

	if (fd < 0 || !bytes || offset % PL_SN_DMA_PAGE)
		return -EINVAL;
	if (fstat(fd, &st))
		return -errno;
	if (bytes > (uint64_t)st.st_size || offset > (uint64_t)st.st_size - bytes)
		return -EFAULT;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (memory == MAP_FAILED)
		return -errno;
	mapping.memory = memory;
	pl_sn_lock(c);
	rc = pl_sn_dma_add(&c->dma, &mapping);
	pl_sn_unlock(c);
	if (rc)
		munmap(memory, bytes);
	return rc;
}

int pl_sn_owner_unmap(struct pl_simnvme *c, uint64_t owner, uint64_t iova, uint64_t bytes)
{
	struct pl_sn_mapping removed;
	int rc;

	pl_sn_lock(c);
	rc = pl_sn_dma_remove(&c->dma, iova, bytes, owner, &removed);
	pl_sn_unlock(c);
	if (!rc)
		munmap(removed.memory, removed.bytes);
	return rc;
}

static bool owns(struct pl_simnvme *c, uint64_t owner, uint64_t address)
{
	const struct pl_sn_mapping *m = pl_sn_dma_find(&c->dma, address);

	return m && m->owner == owner;
}

static bool owns_ring(struct pl_simnvme *c, uint64_t owner, const struct pl_sn_ring *ring)
{
	return owns(c, owner, ring->pages ? ring->pages[0] : ring->base);
}

static void delete_queues(struct pl_simnvme *c, uint64_t owner)
{
	for (uint32_t qid = 1; qid <= c->config.queues; qid++) {
		struct pl_sn_sq *sq = c->sqs[qid];

		if (sq && (owns_ring(c, owner, &sq->ring) || owns_ring(c, owner, &sq->cq->ring)))
			pl_sn_sq_delete(c, sq);
	}
	for (uint32_t qid = 1; qid <= c->config.queues; qid++)
		if (c->cqs[qid] && !c->cqs[qid]->nr_sqs && owns_ring(c, owner, &c->cqs[qid]->ring))
			pl_sn_cq_delete(c, c->cqs[qid]);
}

static void drop_shadows(struct pl_simnvme *c)
{
	c->shadow = 0;
	c->event = 0;
	for (uint32_t qid = 0; qid <= c->config.queues; qid++) {
		if (c->sqs[qid])
			c->sqs[qid]->db.shadow = c->sqs[qid]->db.event = 0;
		if (c->cqs[qid])
			c->cqs[qid]->db.shadow = c->cqs[qid]->db.event = 0;
	}
}

static void unmap_all(struct pl_simnvme *c, uint64_t owner)
{
	struct pl_sn_mapping removed;

	while (pl_sn_dma_remove_owned(&c->dma, owner, &removed))
		munmap(removed.memory, removed.bytes);
}

void pl_sn_owner_revoke(struct pl_simnvme *c, uint64_t owner)
{
	pl_sn_lock(c);
	unmap_all(c, owner);
	pl_sn_unlock(c);
}

void pl_sn_owner_gone(struct pl_simnvme *c, uint64_t owner)
{
	pl_sn_lock(c);
	if (c->sqs[0] &&
	    (owns_ring(c, owner, &c->sqs[0]->ring) || owns_ring(c, owner, &c->cqs[0]->ring)))
		pl_sn_regs_reset(c);
	else
		delete_queues(c, owner);
	if (c->shadow && (owns(c, owner, c->shadow) || owns(c, owner, c->event)))
		drop_shadows(c);
	unmap_all(c, owner);
	pl_sn_unlock(c);
}
