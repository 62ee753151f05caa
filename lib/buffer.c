// SPDX-License-Identifier: MIT
/* Registered buffers: a sorted table, and the resolution of any address. */
#include "buffer.h"

#include "context.h"
#include "nvme_reach.h"
#include "p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A VMM reservation may be made of many mappings; more than this is not one buffer. */
#define MAX_JOINED 65536

int pl_buffers_init(struct pl_buffers *b)
{
	memset(b, 0, sizeof(*b));
	return -pthread_rwlock_init(&b->lock, NULL);
}

void pl_buffers_fini(struct pl_buffers *b)
{
	for (unsigned int i = 0; i < b->nr; i++) {
		pl_nvme_reach_forget(b->list[i]);
		free(b->list[i]);
	}
	free(b->list);
	pthread_rwlock_destroy(&b->lock);
}

/* Index of the first buffer whose base is above @addr. */
static unsigned int above(const struct pl_buffers *b, uintptr_t addr)
{
	unsigned int lo = 0, hi = b->nr;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;

		if (b->list[mid]->addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/*
 * The buffer that holds the whole range; *@inside tells whether any holds its start. Lock held.
 * Nested registrations make the walk backwards necessary; the longest one bounds it.
 */
static struct pl_buffer *find(const struct pl_buffers *b, uintptr_t addr, size_t bytes,
			      bool *inside)
{
	unsigned int i = above(b, addr);

	*inside = false;
	while (i-- > 0) {
		struct pl_buffer *buf = b->list[i];

		if (addr - buf->addr >= b->longest)
			break;
		if (addr - buf->addr >= buf->bytes)
			continue;
		*inside = true;
		if (bytes <= buf->bytes - (addr - buf->addr))
			return buf;
	}
	return NULL;
}

/* Makes @mem cover [addr, end) by joining neighbouring mappings of the same GPU. */
static int cover(struct peerlane *ctx, struct pl_mem *mem, uintptr_t end)
{
	struct pl_mem next;
	unsigned int joined = 0;
	int err;

	while (mem->bytes && end > mem->base + mem->bytes) {
		if (mem->kind != PL_MEM_DEVICE || !mem->joins || joined++ == MAX_JOINED)
			return -EFAULT;
		err = ctx->gpu->ops->query(ctx->gpu, (void *)(mem->base + mem->bytes), &next);
		if (err)
			return err;
		if (next.kind != mem->kind || next.gpu != mem->gpu || next.owner != mem->owner ||
		    next.base != mem->base + mem->bytes || !next.bytes || next.host || mem->host)
			return -EFAULT;
		mem->bytes += next.bytes;
		mem->lags |= next.lags;
	}
	return 0;
}

static int query(struct peerlane *ctx, uintptr_t addr, size_t bytes, struct pl_mem *mem)
{
	int err = ctx->gpu->ops->query(ctx->gpu, (void *)addr, mem);

	if (!err)
		err = cover(ctx, mem, addr + bytes);
	if (err == -EFAULT)
		return pl_fail(err,
			       "%zu bytes at %p pass the end of their allocation, or it was freed",
			       bytes, (void *)addr);
	if (err)
		return pl_fail_gpu(err, ctx->gpu->ops->result(),
				   "the driver could not tell what %p is", (void *)addr);
	return 0;
}

int pl_buffer_resolve(struct peerlane *ctx, const void *addr, size_t bytes, struct pl_mem *mem,
		      struct pl_buffer **buf)
{
	struct pl_buffers *b = &ctx->buffers;
	uintptr_t at = (uintptr_t)addr;
	struct pl_buffer *found = NULL;
	bool inside = false;

	*buf = NULL;
	if (!addr)
		return pl_fail(-EINVAL, "the memory address is NULL");
	if (at + bytes < at)
		return pl_fail(-EOVERFLOW, "%zu bytes at %p pass the end of the address space",
			       bytes, addr);
	if (__atomic_load_n(&b->nr, __ATOMIC_ACQUIRE)) {
		pthread_rwlock_rdlock(&b->lock);
		found = find(b, at, bytes, &inside);
		if (found) {
			__atomic_fetch_add(&found->users, 1, __ATOMIC_ACQ_REL);
			*mem = found->mem;
		}
		pthread_rwlock_unlock(&b->lock);
		if (!found && inside)
			return pl_fail(-ERANGE,
				       "%zu bytes at %p pass the end of the registered buffer",
				       bytes, addr);
	}
	if (found) {
		*buf = found;
		return 0;
	}
	return query(ctx, at, bytes, mem);
}

static bool lags(const struct peerlane *ctx, const struct pl_mem *mem)
{
	return mem->lags && !(ctx->opt.flags & PEERLANE_NO_WAIT_DEFAULT);
}

int pl_buffer_wait(struct peerlane *ctx, const struct pl_mem *mem)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	int err;

	if (!lags(ctx, mem) && !(ctx->opt.flags & PEERLANE_WAIT_DEFAULT))
		return 0;
	if (!mem->owner || !ops->wait_default)
		return 0;
	err = ops->wait_default(ctx->gpu, mem->owner, pl_deadline_ns(ctx));
	if (err == -ETIMEDOUT)
		return pl_fail(err, "the work on the default stream did not end in %u ms",
			       ctx->opt.timeout_ms);
	if (err)
		return pl_fail_gpu(err, ops->result(), "waiting for the default stream: %s",
				   ops->result_name(ctx->gpu, ops->result()));
	return 0;
}

void pl_buffer_wait_in(struct peerlane *ctx, const struct pl_mem *mem, void *stream)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;

	if (lags(ctx, mem) && mem->owner && ops->stream_behind_default)
		ops->stream_behind_default(ctx->gpu, stream, mem->owner);
}

/* The buffer with @addr in it that goes furthest, with a reference. */
static struct pl_buffer *find_longest(struct pl_buffers *b, uintptr_t addr)
{
	struct pl_buffer *best = NULL;
	unsigned int i;

	if (!__atomic_load_n(&b->nr, __ATOMIC_ACQUIRE))
		return NULL;
	pthread_rwlock_rdlock(&b->lock);
	for (i = above(b, addr); i-- > 0;) {
		struct pl_buffer *buf = b->list[i];

		if (addr - buf->addr >= b->longest)
			break;
		if (addr - buf->addr < buf->bytes &&
		    (!best || buf->addr + buf->bytes > best->addr + best->bytes))
			best = buf;
	}
	if (best)
		__atomic_fetch_add(&best->users, 1, __ATOMIC_ACQ_REL);
	pthread_rwlock_unlock(&b->lock);
	return best;
}

void pl_span_get(struct peerlane *ctx, void *addr, size_t most, struct pl_span *out)
{
	uintptr_t at = (uintptr_t)addr;

	memset(out, 0, sizeof(*out));
	out->addr = addr;
	out->past = -EFAULT;
	out->buf = find_longest(&ctx->buffers, at);
	if (out->buf) {
		out->past = -ERANGE;
		out->mem = out->buf->mem;
		out->room = out->buf->bytes - (at - out->buf->addr);
		/* A kernel may be what touches it, to which freed memory is fatal. */
		if (out->mem.owner)
			out->err = pl_buffer_recheck(ctx, out->buf);
		return;
	}
	out->err = query(ctx, at, 1, &out->mem);
	out->room = UINTPTR_MAX - at;
	if (out->err || !out->mem.bytes)
		return;
	/* As far as the mappings go, or as far as it matters. */
	while (most > (out->room = out->mem.base + out->mem.bytes - at) &&
	       !cover(ctx, &out->mem, at + out->room + 1))
		;
}

void pl_span_put(struct pl_span *span)
{
	pl_buffer_put(span->buf);
	span->buf = NULL;
	span->way = (struct pl_p2p_way){ .pin = NULL };
}

int pl_span_check(const struct pl_span *span, size_t bytes)
{
	if ((uintptr_t)span->addr + bytes < (uintptr_t)span->addr)
		return pl_fail(-EOVERFLOW, "%zu bytes at %p pass the end of the address space",
			       bytes, (void *)span->addr);
	if (span->err)
		return pl_fail(span->err, "the memory at %p cannot be used", (void *)span->addr);
	if (bytes > span->room)
		return pl_fail(span->past, "%zu bytes at %p pass the end of their %s", bytes,
			       (void *)span->addr,
			       span->past == -ERANGE ? "registered buffer" : "allocation");
	return 0;
}

int pl_buffer_recheck(struct peerlane *ctx, const struct pl_buffer *buf)
{
	struct pl_mem mem;
	int err = query(ctx, buf->addr, buf->bytes, &mem);

	if (!err && (mem.kind != buf->mem.kind || mem.owner != buf->mem.owner))
		err = pl_fail(-EFAULT, "the registered buffer at %p was freed", (void *)buf->addr);
	return err;
}

void pl_buffer_put(struct pl_buffer *buf)
{
	if (buf)
		__atomic_fetch_sub(&buf->users, 1, __ATOMIC_ACQ_REL);
}

/* Enters @buf into the table; write lock held. */
static int insert(struct pl_buffers *b, struct pl_buffer *buf)
{
	unsigned int at = above(b, buf->addr);

	if (at && b->list[at - 1]->addr == buf->addr)
		return pl_fail(-EEXIST, "%p is registered already", (void *)buf->addr);
	if (b->nr == b->room) {
		unsigned int room = b->room ? b->room * 2 : 16;
		struct pl_buffer **list = realloc(b->list, room * sizeof(*list));

		if (!list)
			return pl_fail(-ENOMEM, "no memory for the buffer table");
		b->list = list;
		b->room = room;
	}
	memmove(&b->list[at + 1], &b->list[at], (b->nr - at) * sizeof(b->list[0]));
	b->list[at] = buf;
	if (buf->bytes > b->longest)
		b->longest = buf->bytes;
	__atomic_store_n(&b->nr, b->nr + 1, __ATOMIC_RELEASE);
	return 0;
}

/* Whether plain memory is there at all: asks the kernel something that has no effect. */
static int check_mapped(uintptr_t addr, size_t bytes)
{
	uintptr_t page = addr & ~4095ul;

	if (msync((void *)page, bytes + (addr - page), MS_ASYNC) && errno == ENOMEM)
		return pl_fail(-EFAULT, "%zu bytes at %p are not all memory of this process", bytes,
			       (void *)addr);
	return 0;
}

int peerlane_buffer_register(struct peerlane *ctx, void *addr, size_t bytes, unsigned int flags)
{
	PL_KEEP_ERRNO;
	struct pl_buffer *buf;
	void *owner;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!addr || !bytes || flags)
		return pl_fail(-EINVAL, !addr	 ? "the buffer address is NULL"
					: !bytes ? "the buffer length is zero"
						 : "unknown buffer flags");
	if ((uintptr_t)addr + bytes < (uintptr_t)addr)
		return pl_fail(-EOVERFLOW, "the buffer passes the end of the address space");
	buf = calloc(1, sizeof(*buf));
	if (!buf)
		return pl_fail(-ENOMEM, "no memory for a buffer");
	buf->addr = (uintptr_t)addr;
	buf->bytes = bytes;
	err = query(ctx, buf->addr, bytes, &buf->mem);
	if (!err && buf->mem.kind == PL_MEM_HOST)
		err = check_mapped(buf->addr, bytes);
	if (err)
		goto err_free;
	owner = buf->mem.owner;
	pthread_rwlock_wrlock(&ctx->buffers.lock);
	err = insert(&ctx->buffers, buf);
	pthread_rwlock_unlock(&ctx->buffers.lock);
	if (err)
		goto err_free;
	pl_stat_add(&pl_ctx_stats(ctx)->buffers, 1);
	if (owner && ctx->gpu->ops->prepare)
		ctx->gpu->ops->prepare(ctx->gpu, owner);
	return 0;

err_free:
	free(buf);
	return err;
}

/* Takes the buffer at @addr out of the table if nobody uses it. Returns 0, -ENOENT or -EBUSY. */
static int remove_idle(struct pl_buffers *b, uintptr_t addr, struct pl_buffer **out)
{
	unsigned int at;
	int err = -ENOENT;

	pthread_rwlock_wrlock(&b->lock);
	at = above(b, addr);
	if (at && b->list[at - 1]->addr == addr) {
		*out = b->list[at - 1];
		err = __atomic_load_n(&(*out)->users, __ATOMIC_ACQUIRE) ? -EBUSY : 0;
		if (!err) {
			memmove(&b->list[at - 1], &b->list[at], (b->nr - at) * sizeof(b->list[0]));
			__atomic_store_n(&b->nr, b->nr - 1, __ATOMIC_RELEASE);
		}
	}
	pthread_rwlock_unlock(&b->lock);
	return err;
}

int peerlane_buffer_release(struct peerlane *ctx, void *addr)
{
	PL_KEEP_ERRNO;
	const struct timespec nap = { .tv_nsec = 100000 };
	struct pl_buffer *buf;
	uint64_t deadline;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	deadline = pl_deadline_ns(ctx);
	while ((err = remove_idle(&ctx->buffers, (uintptr_t)addr, &buf)) == -EBUSY) {
		if (pl_now_ns() > deadline)
			return pl_fail(-EBUSY, "I/O on the buffer at %p did not end in time", addr);
		nanosleep(&nap, NULL);
	}
	if (err)
		return pl_fail(err, "%p is not registered", addr);
	pl_nvme_reach_forget(buf);
	pl_p2p_release(ctx, buf);
	free(buf);
	pl_stat_sub(&pl_ctx_stats(ctx)->buffers, 1);
	return 0;
}
