// SPDX-License-Identifier: MIT
/*
 * Commands carried out on files. What the page cache has is read at once: a few commands by a call each, many
 * by one call for a batch, through an io_uring of the proxy. Everything else goes through the ring, too, or,
 * where that is not allowed, makes the proxy wait.
 */
#include "files.h"

#include "error.h"
#include "ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define RING_DEPTH 256u
#define COLLECT 64u
/* With fewer commands in a round a call for each is cheaper than the ring; more at once gain nothing. */
#define FEWEST 8u
#define BATCH 32u
/* Commands that are written by a device are not in the cache of this CPU: fetched so far ahead. */
#define AHEAD 8u
#define DNR (PL_NVME_CQE_DNR >> 1)

/* A proxy's own. */
struct lane {
	struct pl_ring *ring;		  /* NULL: none is allowed */
	bool has_files;			  /* it knows the files by number */
	unsigned int unsent;		  /* in it, and the kernel was not told */
	uint32_t found, before;		  /* commands, in this round and in the last */
	struct pl_file_op *first, **last; /* waiting for room in it */
};

static struct pl_files *files_of(const struct pl_proxy *p)
{
	return p->all->arg;
}

static unsigned int status_of(const struct pl_file_op *op, int err)
{
	switch (err) {
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return PL_NVME_SC_CAPACITY | DNR;
	case -EROFS:
	case -EBADF:
	case -EPERM:
		return PL_NVME_SC_READ_ONLY_RANGE | DNR;
	case -ECANCELED:
		return PL_NVME_SC_ABORTED;
	default:
		return op->opcode == PL_NVME_READ ? PL_NVME_SC_READ_ERROR : PL_NVME_SC_WRITE_FAULT;
	}
}

static void complete(struct pl_file_op *op, unsigned int status)
{
	struct pl_proxy_queue *q = op->queue;

	if (!status && op->opcode == PL_NVME_READ)
		pl_proxy_count(&q->counts.bytes_read, op->bytes);
	else if (!status)
		pl_proxy_count(&q->counts.bytes_written, op->bytes);
	op->in_use = false;
	q->in_flight--;
	pl_proxy_post(q, op->cid, status, 0);
}

/* The last block of a file that ended in it was written. */
static void grow(struct pl_file *f, uint64_t end)
{
	uint64_t was = __atomic_load_n(&f->bytes, __ATOMIC_RELAXED);

	while (was < end && !__atomic_compare_exchange_n(&f->bytes, &was, end, true,
							 __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

/* So many bytes were moved, or an error. Returns true: the command has ended. */
static bool advance(struct pl_file_op *op, ssize_t result)
{
	if (result == -EAGAIN || result == -EINTR)
		return false;
	if (result < 0) {
		complete(op, status_of(op, (int)result));
		return true;
	}
	op->done += (uint32_t)result;
	if (op->opcode == PL_NVME_READ && op->done >= op->need) {
		/* What the file does not have of its last block. */
		memset(op->data + op->done, 0, op->bytes - op->done);
	} else if (op->done < op->bytes) {
		if (result)
			return false;
		/* It ends before it did. */
		complete(op, status_of(op, -EIO));
		return true;
	} else if (op->opcode == PL_NVME_WRITE) {
		grow(op->file, op->offset + op->bytes);
	}
	complete(op, 0);
	return true;
}

/* Without a ring: wait for it here. */
static void do_now(struct pl_file_op *op)
{
	ssize_t n;

	do {
		char *at = op->data + op->done;
		const size_t left = op->bytes - op->done;
		const off_t offset = (off_t)(op->offset + op->done);

		if (op->opcode == PL_NVME_FLUSH) {
			n = fdatasync(op->file->fd);
		} else if (op->opcode == PL_NVME_READ) {
			n = pread(op->file->fd, at, left, offset);
		} else {
			n = pwrite(op->file->fd, at, left, offset);
			if (n > 0 && op->durable && fdatasync(op->file->fd))
				n = -1;
		}
	} while (!advance(op, n < 0 ? -errno : n));
}

static uint64_t tag_of(const struct pl_files *files, const struct pl_file_op *op)
{
	return (uint64_t)(op - files->ops);
}

static void push(struct pl_proxy *p, struct pl_file_op *op)
{
	struct lane *lane = p->own;
	unsigned int flags = op->nowait ? PL_RING_NOWAIT : 0;
	int fd = op->file->fd, err;

	if (!lane->ring) {
		do_now(op);
		return;
	}
	if (op->opcode == PL_NVME_WRITE)
		flags = PL_RING_WRITE | (op->durable ? PL_RING_DURABLE : 0);
	else if (op->opcode == PL_NVME_FLUSH)
		flags = PL_RING_SYNC;
	if (lane->has_files) {
		flags |= PL_RING_FILE;
		fd = (int)(op->file - files_of(p)->files);
	}
	err = pl_ring_push(lane->ring, flags, fd, op->data + op->done, op->bytes - op->done,
			   (off_t)(op->offset + op->done), tag_of(files_of(p), op));
	if (!err) {
		lane->unsent++;
		return;
	}
	op->next = NULL;
	*lane->last = op;
	lane->last = &op->next;
}

/* Read what is there without waiting for a device. Returns true: the command has ended. */
static bool read_now(struct pl_file_op *op)
{
	struct pl_file *f = op->file;
	struct iovec v;
	ssize_t n;

	do {
		v = (struct iovec){ op->data + op->done, op->bytes - op->done };
		n = preadv2(f->fd, &v, 1, (off_t)(op->offset + op->done),
			    f->in_memory ? 0 : RWF_NOWAIT);
		if (n < 0 && errno == EOPNOTSUPP)
			__atomic_store_n(&f->no_nowait, true, __ATOMIC_RELAXED);
		/* Errors are for those who look again. */
		if (n < 0)
			return false;
		if (!n && op->done < op->need)
			return false;
	} while (!advance(op, n));
	pl_proxy_count(&op->queue->counts.cached, 1);
	return true;
}

/* The same, by the ring, has ended so. */
static void read_at_once(struct pl_proxy *p, struct pl_file_op *op, int result)
{
	op->nowait = false;
	if (result == -EOPNOTSUPP)
		__atomic_store_n(&op->file->no_nowait, true, __ATOMIC_RELAXED);
	if (result < 0 || (!result && op->done < op->need) || !advance(op, result))
		push(p, op);
	else
		pl_proxy_count(&op->queue->counts.cached, 1);
}

static void start_read(struct pl_proxy *p, struct pl_file_op *op, bool many)
{
	const struct pl_file *f = op->file;
	const bool try = !f->direct && !__atomic_load_n(&f->no_nowait, __ATOMIC_RELAXED);

	if (try && (f->in_memory || !many) && read_now(op))
		return;
	op->nowait = try && many && !f->in_memory;
	push(p, op);
}

static void start_op(struct pl_proxy *p, struct pl_proxy_queue *q, const struct pl_nvme_sqe *sqe,
		     bool many)
{
	struct pl_files *files = files_of(p);
	struct pl_proxy_command c;
	struct pl_file_op *op;
	unsigned int status = pl_proxy_check(p->all, q, sqe, &c);
	uint64_t end;

	if (status) {
		pl_proxy_post(q, sqe->cid, status, 0);
		return;
	}
	op = (struct pl_file_op *)q->ops + c.slot;
	if (op->in_use) {
		pl_proxy_post(q, sqe->cid, PL_NVME_SC_CID_CONFLICT | DNR, 0);
		return;
	}
	*op = (struct pl_file_op){
		.queue = q,
		.file = &files->files[c.space],
		.data = c.data,
		.offset = c.offset,
		.bytes = c.bytes,
		.cid = sqe->cid,
		.opcode = sqe->opcode,
		.durable = sqe->cdw12 >> 30 & 1,
		.in_use = true,
	};
	end = __atomic_load_n(&op->file->bytes, __ATOMIC_ACQUIRE);
	end = end > c.offset ? end - c.offset : 0;
	op->need = end < c.bytes ? (uint32_t)end : c.bytes;
	q->in_flight++;
	if (sqe->opcode == PL_NVME_READ)
		start_read(p, op, many);
	else
		push(p, op);
}

static void push_waiting(struct pl_proxy *p)
{
	struct lane *lane = p->own;

	while (lane->first && !pl_ring_full(lane->ring)) {
		struct pl_file_op *op = lane->first;

		lane->first = op->next;
		if (!lane->first)
			lane->last = &lane->first;
		push(p, op);
	}
}

static unsigned int collect(struct pl_proxy *p, unsigned int wait_us)
{
	struct pl_ring_done done[COLLECT];
	struct lane *lane = p->own;
	int nr;

	if (!lane->ring || !pl_ring_in_flight(lane->ring))
		return 0;
	nr = pl_ring_collect(lane->ring, done, COLLECT, wait_us);
	lane->unsent = 0;
	for (int i = 0; i < nr; i++) {
		struct pl_file_op *op = &files_of(p)->ops[done[i].tag];

		if (op->nowait)
			read_at_once(p, op, done[i].result);
		else if (!advance(op, done[i].result))
			push(p, op);
	}
	push_waiting(p);
	return nr > 0 ? (unsigned int)nr : 0;
}

static void serve(struct pl_proxy *p, struct pl_proxy_queue *q, uint32_t nr)
{
	const uint32_t from = q->head, mask = q->depth - 1;
	struct lane *lane = p->own;
	struct pl_nvme_sqe sqe;
	bool many;

	q->head += nr;
	lane->found += nr;
	many = lane->ring && (lane->found >= FEWEST || lane->before >= FEWEST);
	for (uint32_t i = 0; i < nr && i < AHEAD; i++)
		__builtin_prefetch(&q->sq[(from + i) & mask]);
	for (uint32_t i = 0; i < nr; i++) {
		if (i + AHEAD < nr)
			__builtin_prefetch(&q->sq[(from + i + AHEAD) & mask]);
		memcpy(&sqe, &q->sq[(from + i) & mask], sizeof(sqe));
		start_op(p, q, &sqe, many);
		if (lane->unsent >= BATCH)
			collect(p, 0);
	}
}

/* A round ends. */
static unsigned int progress(struct pl_proxy *p, unsigned int wait_us)
{
	struct lane *lane = p->own;

	lane->before = lane->found;
	lane->found = 0;
	return collect(p, wait_us);
}

static bool busy(const struct pl_proxy *p)
{
	const struct lane *lane = p->own;

	return lane->ring && (lane->first || pl_ring_in_flight(lane->ring));
}

static int register_files(const struct pl_files *files, struct pl_ring *ring)
{
	int *fds = calloc(files->nr, sizeof(*fds)), err;

	if (!fds)
		return -ENOMEM;
	for (uint32_t i = 0; i < files->nr; i++)
		fds[i] = files->files[i].fd;
	err = pl_ring_files(ring, fds, files->nr);
	free(fds);
	return err;
}

static int start(struct pl_proxy *p)
{
	struct pl_files *files = files_of(p);
	struct lane *lane = calloc(1, sizeof(*lane));
	int err = 0;

	if (!lane)
		return pl_fail(-ENOMEM, "no memory for a proxy");
	p->own = lane;
	lane->last = &lane->first;
	if (!files->no_ring)
		err = pl_ring_create(&lane->ring, RING_DEPTH, files->dev->data.cpu,
				     files->dev->data.bytes);
	if (err) {
		free(lane);
		return pl_fail(err, "no io_uring for a proxy: %s", strerror(-err));
	}
	if (lane->ring)
		lane->has_files = !register_files(files, lane->ring);
	for (uint32_t i = p->index; i < files->dev->shape.nr_queues; i += p->all->nr_threads)
		p->all->queues[i].ops = files->ops + (size_t)i * files->dev->shape.nr_slots;
	return 0;
}

static void end(struct pl_proxy *p)
{
	struct lane *lane = p->own;

	pl_ring_destroy(lane->ring);
	free(lane);
}

const struct pl_proxy_server pl_serve_files = {
	.start = start,
	.end = end,
	.serve = serve,
	.progress = progress,
	.busy = busy,
};
