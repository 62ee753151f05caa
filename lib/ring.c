// SPDX-License-Identifier: MIT
/* io_uring, over liburing. */
#include "ring.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

struct pl_ring {
	struct io_uring uring;
	unsigned int depth;
	unsigned int in_flight; /* pushed and not yet collected */
	char *fixed;		/* memory registered with the ring; NULL: none */
	size_t fixed_bytes;
};

/* No request has it: marks the cancel request's own completion. */
#define CANCEL_TAG UINT64_MAX

/* Whether requests can be submitted and come back: a filter may allow setting up only. */
static int try_nop(struct io_uring *uring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(uring);
	struct io_uring_cqe *cqe;
	int n;

	if (!sqe)
		return -EBUSY;
	io_uring_prep_nop(sqe);
	n = io_uring_submit_and_wait(uring, 1);
	if (n < 0)
		return n;
	n = io_uring_peek_cqe(uring, &cqe);
	if (n)
		return n;
	io_uring_cqe_seen(uring, cqe);
	return 0;
}

const char *pl_ring_refused(void)
{
	struct io_uring uring;
	int err = io_uring_queue_init(2, &uring, 0);

	if (!err) {
		err = try_nop(&uring);
		if (err) {
			io_uring_queue_exit(&uring);
			return "io_uring can be set up but not used (a seccomp filter)";
		}
		/* Needed to wait with a bound and without a timer request (Linux 5.11). */
		bool bounded = uring.features & IORING_FEAT_EXT_ARG;

		io_uring_queue_exit(&uring);
		return bounded ? NULL : "the kernel's io_uring is too old (Linux 5.11 is needed)";
	}
	switch (-err) {
	case ENOSYS:
		return "the kernel has no io_uring";
	case EPERM:
	case EACCES:
		return "io_uring is forbidden here (sysctl kernel.io_uring_disabled or a seccomp "
		       "filter, as in containers)";
	case ENOMEM:
		return "io_uring found no locked memory (ulimit -l)";
	default:
		return "io_uring could not be set up";
	}
}

int pl_ring_create(struct pl_ring **out, unsigned int depth, void *mem, size_t bytes)
{
	struct pl_ring *r = calloc(1, sizeof(*r));
	struct iovec iov = { .iov_base = mem, .iov_len = bytes };
	int err;

	if (!r)
		return -ENOMEM;
	err = io_uring_queue_init(depth, &r->uring, 0);
	if (err) {
		free(r);
		return err;
	}
	io_uring_ring_dontfork(&r->uring);
	r->depth = depth;
	/* Saves the kernel from looking up every page of every request; needs locked memory. */
	if (!io_uring_register_buffers(&r->uring, &iov, 1)) {
		r->fixed = mem;
		r->fixed_bytes = bytes;
	}
	*out = r;
	return 0;
}

int pl_ring_files(struct pl_ring *r, const int *fds, unsigned int nr)
{
	return io_uring_register_files(&r->uring, fds, nr);
}

void pl_ring_destroy(struct pl_ring *r)
{
	if (!r)
		return;
	io_uring_queue_exit(&r->uring);
	free(r);
}

void pl_ring_abandon(struct pl_ring *r)
{
	if (!r)
		return;
	close(r->uring.ring_fd);
	free(r);
}

unsigned int pl_ring_in_flight(const struct pl_ring *r)
{
	return r->in_flight;
}

bool pl_ring_full(const struct pl_ring *r)
{
	return r->in_flight >= r->depth;
}

static bool is_fixed(const struct pl_ring *r, const void *mem, size_t bytes)
{
	size_t at = (size_t)((const char *)mem - r->fixed);

	return r->fixed && at < r->fixed_bytes && bytes <= r->fixed_bytes - at;
}

int pl_ring_push(struct pl_ring *r, unsigned int flags, int fd, void *mem, size_t bytes,
		 off_t offset, uint64_t tag)
{
	bool write = flags & PL_RING_WRITE;
	struct io_uring_sqe *sqe;

	if (r->in_flight >= r->depth)
		return -EAGAIN;
	sqe = io_uring_get_sqe(&r->uring);
	if (!sqe)
		return -EAGAIN;
	if (flags & PL_RING_SYNC)
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
	else if (is_fixed(r, mem, bytes) && write)
		io_uring_prep_write_fixed(sqe, fd, mem, (unsigned int)bytes, (uint64_t)offset, 0);
	else if (is_fixed(r, mem, bytes))
		io_uring_prep_read_fixed(sqe, fd, mem, (unsigned int)bytes, (uint64_t)offset, 0);
	else if (write)
		io_uring_prep_write(sqe, fd, mem, (unsigned int)bytes, (uint64_t)offset);
	else
		io_uring_prep_read(sqe, fd, mem, (unsigned int)bytes, (uint64_t)offset);
	if (flags & PL_RING_DURABLE)
		sqe->rw_flags = RWF_DSYNC;
	if (flags & PL_RING_NOWAIT)
		sqe->rw_flags = RWF_NOWAIT;
	if (flags & PL_RING_FILE)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data64(sqe, tag);
	r->in_flight++;
	return 0;
}

static unsigned int reap(struct pl_ring *r, struct pl_ring_done *done, unsigned int max)
{
	struct io_uring_cqe *cqe;
	unsigned int n = 0;

	while (n < max && !io_uring_peek_cqe(&r->uring, &cqe)) {
		if (cqe->user_data != CANCEL_TAG) {
			done[n].tag = cqe->user_data;
			done[n].result = cqe->res;
			n++;
			r->in_flight--;
		}
		io_uring_cqe_seen(&r->uring, cqe);
	}
	return n;
}

int pl_ring_collect(struct pl_ring *r, struct pl_ring_done *done, unsigned int max,
		    unsigned int wait_us)
{
	struct __kernel_timespec ts = { .tv_sec = wait_us / 1000000,
					.tv_nsec = wait_us % 1000000 * 1000ll };
	struct io_uring_cqe *cqe;
	int err;

	if (wait_us && r->in_flight && !io_uring_cq_ready(&r->uring))
		err = io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, &ts, NULL);
	else
		err = io_uring_sq_ready(&r->uring) ? io_uring_submit(&r->uring) : 0;
	/* Out of kernel memory for the moment: what is in flight will free some. */
	if (err < 0 && err != -ETIME && err != -EAGAIN && err != -EBUSY && err != -EINTR)
		return err;
	return (int)reap(r, done, max);
}

void pl_ring_cancel(struct pl_ring *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	if (!sqe)
		return;
	io_uring_prep_cancel(sqe, NULL, IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY);
	io_uring_sqe_set_data64(sqe, CANCEL_TAG);
	io_uring_submit(&r->uring);
}
