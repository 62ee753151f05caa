// SPDX-License-Identifier: MIT
/* The tiny controller: its transport, registers and queues. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_commands.h"

/* ------------------------------------------------------------------ the bus */

char *fake_at(struct fake *f, uint64_t bus, size_t bytes)
{
	uint64_t frame = bus >> 12;

	if (frame >= FAKE_FRAMES || !f->frames[frame] || (bus & 4095) + bytes > 4096)
		return NULL;
	return f->frames[frame] + (bus & 4095);
}

struct fake_mapping {
	struct pl_nvme_mapping m;
	void *block;
	uint64_t pages[];
};

/* Frames that were used lately are not used again soon. */
static uint64_t take_frames(struct fake *f, size_t nr)
{
	uint32_t at = f->next_frame;

	for (unsigned int tries = 0; tries < FAKE_FRAMES; tries++, at += (uint32_t)nr) {
		bool unused = true;

		at = (at + (uint32_t)nr - 1) / (uint32_t)nr * (uint32_t)nr;
		if (at + nr > FAKE_FRAMES)
			at = (uint32_t)(256 / nr * nr + nr);
		for (size_t i = 0; i < nr; i++)
			unused = unused && !f->frames[at + i];
		if (unused) {
			f->next_frame = at + (uint32_t)(f->scattered ? 2 * nr : nr);
			return at;
		}
	}
	return 0;
}

static int map_at(struct fake *f, char *ptr, char *cpu, size_t bytes, size_t page,
		  const struct pl_nvme_mapping **out)
{
	size_t offset = (uintptr_t)ptr & (page - 1), nr = (offset + bytes + page - 1) / page;
	struct fake_mapping *fm = calloc(1, sizeof(*fm) + nr * sizeof(uint64_t));

	for (size_t i = 0; i < nr; i++) {
		uint64_t frame = take_frames(f, page / 4096);

		if (!frame) {
			free(fm);
			return -ENOSPC;
		}
		fm->pages[i] = frame << 12;
		for (size_t j = 0; j < page / 4096; j++)
			f->frames[frame + j] = ptr - offset + i * page + j * 4096;
	}
	fm->m = (struct pl_nvme_mapping){
		.cpu = cpu,
		.bytes = bytes,
		.offset = offset,
		.page_bytes = page,
		.nr_pages = nr,
		.pages = fm->pages,
	};
	f->nr_maps++;
	*out = &fm->m;
	return 0;
}

static struct fake *self(struct pl_nvme_transport *t)
{
	return (struct fake *)(void *)t;
}

static int op_map(struct pl_nvme_transport *t, const struct pl_nvme_region *region,
		  const struct pl_nvme_mapping **out)
{
	char *cpu = region->kind == PL_NVME_GPU ? region->cpu : region->ptr;
	struct fake *f = self(t);
	int rc;

	pthread_mutex_lock(&f->lock);
	rc = map_at(f, region->ptr, cpu, region->bytes,
		    region->kind == PL_NVME_GPU ? 65536 : f->page_bytes, out);
	pthread_mutex_unlock(&f->lock);
	return rc;
}

static void op_unmap(struct pl_nvme_transport *t, const struct pl_nvme_mapping *m)
{
	struct fake *f = self(t);

	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < m->nr_pages; i++)
		for (size_t j = 0; j < m->page_bytes / 4096; j++)
			f->frames[(m->pages[i] >> 12) + j] = NULL;
	f->nr_maps--;
	pthread_mutex_unlock(&f->lock);
	free((void *)m);
}

static int op_alloc(struct pl_nvme_transport *t, size_t bytes, const struct pl_nvme_mapping **out)
{
	struct fake *f = self(t);
	char *block =
		aligned_alloc(f->page_bytes, (bytes + f->page_bytes - 1) & ~(f->page_bytes - 1));
	int rc;

	memset(block, 0, bytes);
	pthread_mutex_lock(&f->lock);
	rc = map_at(f, block, block, bytes, f->page_bytes, out);
	pthread_mutex_unlock(&f->lock);
	if (rc)
		free(block);
	else
		((struct fake_mapping *)(uintptr_t)*out)->block = block;
	return rc;
}

static void op_free(struct pl_nvme_transport *t, const struct pl_nvme_mapping *m)
{
	void *block = ((const struct fake_mapping *)m)->block;

	op_unmap(t, m);
	free(block);
}

/* ------------------------------------------------------------------ the rest of the transport */

static void op_close(struct pl_nvme_transport *t)
{
	struct fake *f = self(t);

	f->nr_opens--;
	if (!f->held)
		fake_free(f);
}

static bool op_gone(struct pl_nvme_transport *t)
{
	return __atomic_load_n(&self(t)->gone, __ATOMIC_RELAXED);
}

static int op_window(struct pl_nvme_transport *t, unsigned int index, struct pl_nvme_window *out)
{
	struct fake *f = self(t);

	if (index != 2)
		return -EOPNOTSUPP;
	*out = (struct pl_nvme_window){
		.ptr = f->cmb,
		.bytes = sizeof(f->cmb),
		.bus = (uint64_t)FAKE_FRAMES << 12,
	};
	return 0;
}

static int op_reset(struct pl_nvme_transport *t)
{
	struct fake *f = self(t);

	f->nr_flr++;
	f->stays_ready = false;
	f->stopped = false;
	pl_nvme_write32(f->bar, PL_NVME_REG_CC, 0);
	return 0;
}

static bool op_stopped(struct pl_nvme_transport *t)
{
	return __atomic_load_n(&self(t)->stopped, __ATOMIC_RELAXED);
}

void fake_stop(struct fake *f)
{
	__atomic_store_n(&f->stopped, true, __ATOMIC_RELAXED);
	pl_nvme_write32(f->bar, PL_NVME_REG_CC, 0);
}

static void op_idle(struct pl_nvme_transport *t)
{
	fake_turn(self(t));
}

static uint64_t op_now_ns(struct pl_nvme_transport *t)
{
	return __atomic_load_n(&self(t)->now_ns, __ATOMIC_RELAXED);
}

static const struct pl_nvme_transport_ops fake_ops = {
	.name = "fake",
	.close = op_close,
	.map = op_map,
	.unmap = op_unmap,
	.alloc = op_alloc,
	.free = op_free,
	.gone = op_gone,
	.window = op_window,
	.reset = op_reset,
	.stopped = op_stopped,
	.idle = op_idle,
	.now_ns = op_now_ns,
};

/* ------------------------------------------------------------------ queues */

char *fake_queue_at(struct fake *f, uint64_t bus, size_t bytes)
{
	uint64_t at = bus - ((uint64_t)FAKE_FRAMES << 12);

	if (bus >> 12 < FAKE_FRAMES)
		return fake_at(f, bus, bytes);
	return at < sizeof(f->cmb) && bytes <= sizeof(f->cmb) - at ? f->cmb + at : NULL;
}

/* Where an entry is now: its page may be unmapped since the queue was made, and that is fatal. */
static char *entry(struct fake *f, struct fake_queue *q, uint32_t index, size_t size)
{
	size_t page = fake_page(f), at = index * size;
	char *ptr = fake_queue_at(f, q->pages[at / page] + at % page, size);

	f->dma_fault = f->dma_fault || !ptr;
	return ptr;
}

/* The value of a shadow doorbell, which is the last one that the controller wants to be told. */
static uint32_t shadow_doorbell(struct fake *f, size_t at, uint32_t old)
{
	uint32_t *shadow = (void *)fake_at(f, f->shadow + at, 4);
	uint32_t *event = (void *)fake_at(f, f->eventidx + at, 4), value;

	if (!shadow || !event) {
		f->dma_fault = true;
		return old;
	}
	value = __atomic_load_n(shadow, __ATOMIC_ACQUIRE);
	__atomic_store_n(event, value, __ATOMIC_RELEASE);
	return value;
}

/* The shadows are one page each. Queues beyond it and the admin queue have none: their registers count. */
static uint32_t doorbell(struct fake *f, size_t shadow_at, size_t register_at, uint32_t depth,
			 uint32_t old)
{
	uint32_t value;

	if (f->shadow && shadow_at >= (size_t)8 << PL_NVME_CAP_DSTRD(f->cap) &&
	    shadow_at + 4 <= fake_page(f)) {
		value = shadow_doorbell(f, shadow_at, old);
	} else {
		value = pl_nvme_read32(f->bar, register_at);
		f->nr_mmio += value != old;
	}
	if (value < depth)
		return value;
	f->nr_bad++;
	return old;
}

static bool has_room(struct fake *f, unsigned int cqid)
{
	unsigned int dstrd = PL_NVME_CAP_DSTRD(f->cap);
	struct fake_queue *q = &f->cq[cqid];

	q->head = doorbell(f, PL_NVME_SHADOW_CQ(cqid, dstrd), PL_NVME_DOORBELL_CQ(cqid, dstrd),
			   q->depth, q->head);
	return (q->tail + 1) % q->depth != q->head;
}

void fake_post(struct fake *f, unsigned int cqid, const struct pl_nvme_cqe *cqe)
{
	struct fake_queue *q = &f->cq[cqid];
	struct pl_nvme_cqe *to = (void *)entry(f, q, q->tail, sizeof(*to));

	if (!to)
		return;
	to->result = cqe->result;
	to->sqhd = cqe->sqhd;
	to->sqid = cqe->sqid;
	to->cid = cqe->cid;
	__atomic_store_n(&to->status, (uint16_t)((cqe->status & ~1u) | q->phase), __ATOMIC_RELEASE);
	if (++q->tail == q->depth) {
		q->tail = 0;
		q->phase ^= 1;
	}
}

static bool works(const struct fake *f)
{
	return f->ready && !f->fatal && !f->dma_fault && !f->gone && !f->stopped;
}

static void fetch(struct fake *f, unsigned int qid)
{
	unsigned int dstrd = PL_NVME_CAP_DSTRD(f->cap);
	struct fake_queue *q = &f->sq[qid];
	uint32_t tail = doorbell(f, PL_NVME_SHADOW_SQ(qid, dstrd), PL_NVME_DOORBELL_SQ(qid, dstrd),
				 q->depth, q->head);

	while (q->exists && q->head != tail && works(f) && has_room(f, q->cqid)) {
		const void *from = entry(f, q, q->head, sizeof(struct pl_nvme_sqe));
		struct pl_nvme_cqe cqe = { .sqid = (uint16_t)qid };
		struct pl_nvme_sqe sqe;
		enum fake_do what;

		if (!from)
			return;
		memcpy(&sqe, from, sizeof(sqe));
		cqe.cid = sqe.cid;
		q->head = (q->head + 1) % q->depth;
		cqe.sqhd = (uint16_t)q->head;
		what = f->hook ? f->hook(f, qid, &sqe, &cqe) : FAKE_DO;
		if (qid)
			f->nr_io++;
		if (qid && what != FAKE_STATUS)
			f->last_io = sqe;
		if (what == FAKE_DROP)
			continue;
		if (what == FAKE_DO)
			cqe.status = 0;
		if (what == FAKE_DO || what == FAKE_SAY) {
			struct pl_nvme_cqe done = cqe;

			if (!(qid ? fake_io(f, &sqe, &done) : fake_admin(f, &sqe, &done)))
				continue; /* an event request: completes when there is one */
			if (what == FAKE_DO)
				cqe = done;
		}
		fake_post(f, q->cqid, &cqe);
	}
}

/* ------------------------------------------------------------------ registers */

void fake_drop_queue(struct fake_queue *q)
{
	free(q->pages);
	*q = (struct fake_queue){ .exists = false };
}

static void stop(struct fake *f)
{
	for (unsigned int i = 0; i < FAKE_QUEUES; i++) {
		fake_drop_queue(&f->sq[i]);
		fake_drop_queue(&f->cq[i]);
	}
	memset(f->events, 0, sizeof(f->events));
	for (size_t at = PL_NVME_REG_DOORBELLS; at < FAKE_BAR_BYTES; at += 4)
		pl_nvme_write32(f->bar, at, 0);
	f->shadow = f->eventidx = 0;
	f->dma_fault = false;
	f->ready = false;
}

static void start(struct fake *f)
{
	uint32_t aqa = pl_nvme_read32(f->bar, PL_NVME_REG_AQA);

	fake_make_queue(f, &f->sq[0], pl_nvme_read64(f->bar, PL_NVME_REG_ASQ), true,
			(aqa & 0xfff) + 1, 64);
	fake_make_queue(f, &f->cq[0], pl_nvme_read64(f->bar, PL_NVME_REG_ACQ), true,
			(aqa >> 16 & 0xfff) + 1, 16);
	f->nr_enables++;
	f->ready = true;
}

void fake_turn(struct fake *f)
{
	uint32_t cc, csts;

	pthread_mutex_lock(&f->lock);
	__atomic_store_n(&f->now_ns, f->now_ns + f->tick_ns, __ATOMIC_RELAXED);
	cc = pl_nvme_read32(f->bar, PL_NVME_REG_CC);
	if (cc & PL_NVME_CC_EN && !f->ready && !f->never_ready)
		start(f);
	if (!(cc & PL_NVME_CC_EN) && f->ready && !f->stays_ready)
		stop(f);
	csts = f->ready ? PL_NVME_CSTS_RDY : 0;
	if ((f->fatal || f->dma_fault) && cc & PL_NVME_CC_EN)
		csts |= PL_NVME_CSTS_CFS;
	if (cc >> PL_NVME_CC_SHN_SHIFT & 3 && !f->no_shutdown) {
		csts |= PL_NVME_SHST_COMPLETE << PL_NVME_CSTS_SHST_SHIFT;
		f->nr_shutdowns++;
	}
	pl_nvme_write32(f->bar, PL_NVME_REG_CSTS, f->gone || f->all_ones ? UINT32_MAX : csts);
	for (unsigned int i = 0; i < FAKE_QUEUES && works(f); i++)
		if (f->sq[i].exists)
			fetch(f, i);
	pthread_mutex_unlock(&f->lock);
}

struct fake *fake_new(void)
{
	struct fake *f = aligned_alloc(4096, (sizeof(*f) + 4095) & ~(size_t)4095);

	memset(f, 0, sizeof(*f));
	pthread_mutex_init(&f->lock, NULL);
	f->held = true;
	f->cap = (uint64_t)1023 | (uint64_t)1 << PL_NVME_CAP_CQR_SHIFT |
		 (uint64_t)20 << PL_NVME_CAP_TO_SHIFT |
		 (uint64_t)PL_NVME_CSS_NVM << PL_NVME_CAP_CSS_SHIFT;
	f->page_bytes = 4096;
	f->tick_ns = 1000;
	f->next_frame = 256;
	f->granted = 7 << 16 | 7;
	memset(f->id.sn, ' ', sizeof(f->id.sn));
	memcpy(f->id.sn, "FAKE1", 5);
	memcpy(f->id.mn, "fake", 4);
	f->id.mdts = 5;
	f->id.acl = 3;
	f->id.aerl = 3;
	f->id.sqes = 0x66;
	f->id.cqes = 0x44;
	f->id.nn = 2;
	f->id.oncs = PL_NVME_ONCS_COMPARE | PL_NVME_ONCS_DSM | PL_NVME_ONCS_WRITE_ZEROES;
	f->id.ver = PL_NVME_VS(1, 4, 0);
	for (unsigned int i = 0; i < 2; i++) {
		f->ns[i].nsze = f->ns[i].ncap = 65536;
		f->ns[i].lbaf[0] = (i ? 12u : 9u) << PL_NVME_LBAF_LBADS_SHIFT;
		f->disk[i] = mmap(NULL, (size_t)65536 << (i ? 12 : 9), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	return f;
}

void fake_free(struct fake *f)
{
	stop(f);
	for (unsigned int i = 0; i < 2; i++)
		munmap(f->disk[i], (size_t)65536 << (i ? 12 : 9));
	pthread_mutex_destroy(&f->lock);
	free(f);
}

int fake_open(struct fake *f, const struct peerlane_nvme_options *opt, struct peerlane_nvme **out)
{
	f->t.ops = &fake_ops;
	f->t.bar0.ptr = f->bar;
	if (!f->t.bar0.bytes)
		f->t.bar0.bytes = sizeof(f->bar);
	pl_nvme_write64(f->bar, PL_NVME_REG_CAP, f->cap);
	pl_nvme_write32(f->bar, PL_NVME_REG_CMBSZ, f->cmbsz);
	pl_nvme_write32(f->bar, PL_NVME_REG_CMBLOC, f->cmbloc);
	f->nr_opens++;
	return pl_nvme_ctrl_open(&f->t, opt, out);
}
