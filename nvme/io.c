// SPDX-License-Identifier: MIT
/* Submitting I/O: checking it, making commands of it, splitting what is too long for one. */
#include "queue.h"
#include "prp.h"
#include "sgl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What an opcode takes. */
struct kind {
	uint8_t known;
	uint8_t flags; /* that it may have */
	uint8_t data;
	uint8_t writes;
	uint8_t oncs; /* the bit that says that the controller has it, or 0 */
};

#define RW_FLAGS (PEERLANE_NVME_FUA | PEERLANE_NVME_LIMITED_RETRY)

static const struct kind kinds[16] = {
	[PL_NVME_FLUSH] = { .known = 1 },
	[PL_NVME_WRITE] = { .known = 1, .flags = RW_FLAGS, .data = 1, .writes = 1 },
	[PL_NVME_READ] = { .known = 1, .flags = RW_FLAGS, .data = 1 },
	[PL_NVME_COMPARE] = { .known = 1,
			      .flags = RW_FLAGS,
			      .data = 1,
			      .oncs = PL_NVME_ONCS_COMPARE },
	[PL_NVME_WRITE_ZEROES] = { .known = 1,
				   .flags = RW_FLAGS | PEERLANE_NVME_DEALLOCATE,
				   .writes = 1,
				   .oncs = PL_NVME_ONCS_WRITE_ZEROES },
	[PL_NVME_DSM] = { .known = 1,
			  .flags = PEERLANE_NVME_DEALLOCATE,
			  .data = 1,
			  .writes = 1,
			  .oncs = PL_NVME_ONCS_DSM },
};

/* Describe data by an SGL if it fits into the list of the slot: PRPs always do, but for odd addresses. */
static __attribute__((noinline)) int describe_sgl(struct peerlane_nvme_queue *q,
						  const struct pl_nvme_pages *v, size_t offset,
						  size_t bytes, size_t at, struct pl_nvme_sqe *sqe,
						  uint8_t *flags)
{
	union pl_nvme_dptr dptr;

	if (!pl_nvme_sgl_build(v, offset, bytes, q->page_bytes, &q->lists, at, q->list_bytes,
			       &dptr)) {
		sqe->dptr = dptr;
		*flags = PL_NVME_PSDT_SGL;
		return 0;
	}
	if ((v->skip + offset) & 3)
		return -EINVAL;
	return pl_nvme_prp_build(v, offset, bytes, q->page_bytes, &q->lists, at, q->list_bytes,
				 &sqe->dptr);
}

/* One command; there is a slot. Every member of the entry is written, for it is an old one. */
static inline __attribute__((always_inline)) int issue(struct peerlane_nvme_queue *q,
						       const struct peerlane_nvme_io *io,
						       const struct pl_nvme_pages *v, size_t bytes,
						       uint32_t cdw12, void *owner)
{
	struct pl_nvme_ring *r = &q->ring;
	uint16_t index = r->unused[r->nr_unused - 1];
	struct pl_nvme_slot *slot = &r->slots[index];
	struct pl_nvme_sqe *sqe = pl_nvme_ring_entry(r);
	size_t at = q->lists_offset + index * q->list_bytes;
	uint8_t flags = 0;
	int rc = 0;

	if (!v) {
		sqe->dptr.prp.prp1 = 0;
		sqe->dptr.prp.prp2 = 0;
	} else if (__builtin_expect(q->use_sgl, 0)) {
		rc = describe_sgl(q, v, io->offset, bytes, at, sqe, &flags);
	} else {
		rc = pl_nvme_prp_build(v, io->offset, bytes, q->page_bytes, &q->lists, at,
				       q->list_bytes, &sqe->dptr);
	}
	if (__builtin_expect(rc, 0))
		return rc;
	pl_nvme_slot_take(r);
	sqe->opcode = io->opcode;
	sqe->flags = flags;
	sqe->cid = slot->cid;
	sqe->nsid = io->ns->nsid;
	sqe->cdw2 = 0;
	sqe->cdw3 = 0;
	sqe->mptr = 0;
	sqe->cdw10 = (uint32_t)io->lba;
	sqe->cdw11 = (uint32_t)(io->lba >> 32);
	sqe->cdw12 = cdw12;
	sqe->cdw13 = 0;
	sqe->cdw14 = 0;
	sqe->cdw15 = 0;
	slot->user = io->user;
	slot->owner = owner;
	slot->tick = q->tick;
	pl_nvme_ring_push(r);
	return 0;
}

static inline uint32_t rw_flags(unsigned int flags)
{
	return (flags & PEERLANE_NVME_FUA ? PL_NVME_RW_FUA : 0) |
	       (flags & PEERLANE_NVME_LIMITED_RETRY ? PL_NVME_RW_LR : 0) |
	       (flags & PEERLANE_NVME_DEALLOCATE ? PL_NVME_RW_DEAC : 0);
}

/* Is the memory there, and where the controller can take it? */
static inline int check_memory(const struct peerlane_nvme_queue *q,
			       const struct peerlane_nvme_io *io, size_t bytes)
{
	const struct peerlane_nvme_map *map = io->map;

	if (!map || map->nvme != q->nvme)
		return -EINVAL;
	if (__atomic_load_n(&map->lost, __ATOMIC_RELAXED))
		return -EFAULT;
	if (io->offset > map->v.bytes || bytes > map->v.bytes - io->offset)
		return -ERANGE;
	return (map->v.skip + io->offset) & q->align_mask ? -EINVAL : 0;
}

void pl_nvme_queue_pump(struct peerlane_nvme_queue *q)
{
	struct pl_nvme_big *b;

	while ((b = q->waiting) && q->ring.nr_unused) {
		unsigned int shift = b->io.ns->block_shift;
		uint32_t nr = b->io.nr_blocks < b->most ? b->io.nr_blocks : b->most;
		const struct pl_nvme_pages *v = b->io.map ? &b->io.map->v : NULL;
		int rc = issue(q, &b->io, v, (size_t)nr << shift, (nr - 1) | rw_flags(b->io.flags),
			       b);

		if (rc) {
			/* Not possible with what was checked; then it is told. */
			pl_nvme_complete_lost(&b->cpl, b->cpl.user, rc);
			b->io.nr_blocks = 0;
		} else {
			b->nr_live++;
			q->nr_big_live++;
			b->io.lba += nr;
			b->io.offset += (size_t)nr << shift;
			b->io.nr_blocks -= nr;
		}
		if (!b->io.nr_blocks)
			pl_nvme_big_drop(q, b);
	}
}

/* Take it out of those that wait. */
void pl_nvme_big_drop(struct peerlane_nvme_queue *q, struct pl_nvme_big *b)
{
	struct pl_nvme_big **at = &q->waiting;

	while (*at && *at != b)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = b->next;
	if (q->waiting_end == &b->next)
		q->waiting_end = at;
}

bool pl_nvme_big_ended(struct peerlane_nvme_queue *q, struct pl_nvme_big *b,
		       struct peerlane_nvme_completion *cpl)
{
	uint64_t user = b->cpl.user;

	b->nr_live--;
	q->nr_big_live--;
	/* The first error is that of the whole, and nothing more of it is submitted. */
	if (!b->cpl.err) {
		b->cpl = *cpl;
		b->cpl.user = user;
		if (cpl->err && b->io.nr_blocks) {
			pl_nvme_big_drop(q, b);
			b->io.nr_blocks = 0;
		}
	}
	if (b->nr_live || b->io.nr_blocks)
		return false;
	*cpl = b->cpl;
	b->next = q->unused_bigs;
	q->unused_bigs = b;
	q->nr_bigs--;
	return true;
}

static int get_bigs(struct peerlane_nvme_queue *q)
{
	q->bigs = calloc(q->ring.nr_slots, sizeof(*q->bigs));
	if (!q->bigs)
		return -ENOMEM;
	for (uint32_t i = 0; i < q->ring.nr_slots; i++) {
		q->bigs[i].next = q->unused_bigs;
		q->unused_bigs = &q->bigs[i];
	}
	return 0;
}

/* More than one command. */
static int split(struct peerlane_nvme_queue *q, const struct peerlane_nvme_io *io, uint32_t most)
{
	struct pl_nvme_big *b;
	int rc;

	if (!most)
		return -EOPNOTSUPP;
	if (!q->bigs) {
		rc = get_bigs(q);
		if (rc)
			return rc;
	}
	b = q->unused_bigs;
	if (!b)
		return -EAGAIN;
	q->unused_bigs = b->next;
	*b = (struct pl_nvme_big){ .io = *io, .cpl.user = io->user, .most = most };
	*q->waiting_end = b;
	q->waiting_end = &b->next;
	q->nr_bigs++;
	pl_nvme_queue_pump(q);
	return 0;
}

/* Commands without data of blocks. */
static int other(struct peerlane_nvme_queue *q, const struct peerlane_nvme_io *io)
{
	const struct peerlane_nvme_ns *ns = io->ns;
	uint64_t limit = q->nvme->max_transfer_bytes;
	struct peerlane_nvme_io plain = *io;
	size_t bytes;
	int rc;

	switch (io->opcode) {
	case PL_NVME_FLUSH:
		if (io->nr_blocks || io->lba || io->map || io->offset)
			return -EINVAL;
		return issue(q, io, NULL, 0, 0, NULL);
	case PL_NVME_DSM:
		if (!io->nr_blocks || io->nr_blocks > PL_NVME_DSM_MAX_RANGES || io->lba)
			return -EINVAL;
		bytes = io->nr_blocks * sizeof(struct pl_nvme_dsm_range);
		rc = bytes > q->max_bytes ? -EINVAL : check_memory(q, io, bytes);
		if (rc)
			return rc;
		/* cdw10 ranges, cdw11 what to do: where others have their first block. */
		plain.lba = (io->nr_blocks - 1) | (uint64_t)(io->flags ? PL_NVME_DSM_DEALLOCATE : 0)
							  << 32;
		return issue(q, &plain, &io->map->v, bytes, 0, NULL);
	case PL_NVME_WRITE_ZEROES:
		if (io->map || io->offset)
			return -EINVAL;
		/* It moves no data, yet not every controller takes more than MDTS. */
		if (!limit || limit >> ns->block_shift > PL_NVME_RW_MAX_BLOCKS)
			limit = (uint64_t)PL_NVME_RW_MAX_BLOCKS << ns->block_shift;
		if (io->nr_blocks > limit >> ns->block_shift)
			return split(q, io, (uint32_t)(limit >> ns->block_shift));
		return issue(q, io, NULL, 0, (io->nr_blocks - 1) | rw_flags(io->flags), NULL);
	default:
		return -EINVAL;
	}
}

/* Whatever is not as plain as quick() wants it: checked one by one, for the right error. */
static __attribute__((noinline)) int submit(struct peerlane_nvme_queue *q,
					    const struct peerlane_nvme_io *io)
{
	const struct peerlane_nvme_ns *ns = io->ns;
	const struct kind *k = &kinds[io->opcode & 15];
	size_t bytes;
	int rc;

	if (io->opcode > 15 || !k->known || io->flags & ~k->flags || io->reserved || !ns ||
	    ns->nvme != q->nvme)
		return -EINVAL;
	if (k->oncs && !(q->nvme->id.oncs & k->oncs))
		return -EOPNOTSUPP;
	if (k->writes && ns->read_only)
		return -EROFS;
	if (!q->ring.nr_unused)
		return -EAGAIN;
	if (io->opcode == PL_NVME_FLUSH || io->opcode == PL_NVME_DSM)
		return other(q, io);
	if (!io->nr_blocks)
		return -EINVAL;
	if (io->lba >= ns->nr_blocks || io->nr_blocks > ns->nr_blocks - io->lba)
		return -ERANGE;
	if (!k->data)
		return other(q, io);
	bytes = (size_t)io->nr_blocks << ns->block_shift;
	rc = check_memory(q, io, bytes);
	if (rc)
		return rc;
	if (bytes > q->max_bytes)
		return split(q, io, (uint32_t)(q->max_bytes >> ns->block_shift));
	return issue(q, io, &io->map->v, bytes, (io->nr_blocks - 1) | rw_flags(io->flags), NULL);
}

/* A plain read or write of one command, without flags, by PRPs: false if it is anything else. */
static inline __attribute__((always_inline)) bool quick(struct peerlane_nvme_queue *q,
							const struct peerlane_nvme_io *io)
{
	const struct peerlane_nvme_ns *ns = io->ns;
	const struct peerlane_nvme_map *map = io->map;
	size_t bytes;

	if ((io->opcode != PL_NVME_READ && io->opcode != PL_NVME_WRITE) ||
	    io->flags | io->reserved || !ns || !map || ns->nvme != q->nvme ||
	    map->nvme != q->nvme || __atomic_load_n(&map->lost, __ATOMIC_RELAXED) ||
	    ns->read_only || q->use_sgl || !q->ring.nr_unused)
		return false;
	/* None is one less than none: more than there are. */
	if (io->lba >= ns->nr_blocks || io->nr_blocks - (uint64_t)1 >= ns->nr_blocks - io->lba)
		return false;
	bytes = (size_t)io->nr_blocks << ns->block_shift;
	if (bytes > q->max_bytes || io->offset > map->v.bytes ||
	    bytes > map->v.bytes - io->offset || (map->v.skip + io->offset) & 3)
		return false;
	return !issue(q, io, &map->v, bytes, io->nr_blocks - 1, NULL);
}

int peerlane_nvme_submit(struct peerlane_nvme_queue *queue, const struct peerlane_nvme_io *io,
			 unsigned int nr)
{
	unsigned int i;
	int rc;

	if (!queue || (!io && nr) || nr > INT32_MAX)
		return -EINVAL;
	/* Pairs with the store that begins a reset. */
	if (__builtin_expect(queue->generation !=
				     __atomic_load_n(&queue->nvme->generation, __ATOMIC_ACQUIRE),
			     0)) {
		rc = pl_nvme_queue_revive(queue);
		if (rc)
			return rc;
	}
	rc = 0;
	for (i = 0; i < nr; i++) {
		if (quick(queue, &io[i]))
			continue;
		rc = submit(queue, &io[i]);
		if (rc)
			break;
	}
	pl_nvme_ring_submit(&queue->ring);
	return i ? (int)i : rc;
}
