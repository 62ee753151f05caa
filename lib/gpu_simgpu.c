// SPDX-License-Identifier: MIT
/*
 * The test GPU of the VM lab (kmod/simgpu.c) as a back end: real GPU memory in a PCI BAR that the
 * CPU cannot address, copies by a call of its driver, streams, but no kernels of programs. One device
 * for all contexts of a process, as with CUDA: memory of one is GPU memory to the others.
 */
#include "error.h"
#include "gpu_simgpu.h"

#include "../kmod/simgpu.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PAGE 4096

struct alloc {
	struct alloc *next;
	uintptr_t base;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of the device */
static struct {
	int fd;
	unsigned int users; /* contexts */
	struct alloc *allocs;
	uintptr_t first, end; /* where GPU memory is or was: addresses are not used again */
} device = { .fd = -1 };

static _Thread_local int last_result; /* an errno */

void *const pl_simgpu_owner = &device;

int pl_simgpu_refuse(int err)
{
	last_result = -err;
	return err == -ENOMEM || err == -EFAULT || err == -EINVAL ? err : -EREMOTEIO;
}

static int sg_result(void)
{
	return last_result;
}

static const char *sg_result_name(struct pl_gpu *gpu, int result)
{
	const char *text = strerrordesc_np(result);

	(void)gpu;
	return text ? text : "unknown error";
}

/* ------------------------------------------------------------------ memory */

/* The allocation with @addr in it; lock held. */
static struct alloc *find(uintptr_t addr)
{
	struct alloc *a = device.allocs;

	while (a && addr - a->base >= a->bytes)
		a = a->next;
	return a;
}

static int sg_query(struct pl_gpu *gpu, const void *addr, struct pl_mem *out)
{
	uintptr_t at = (uintptr_t)addr;
	struct alloc *a;
	int err = 0;

	(void)gpu;
	memset(out, 0, sizeof(*out));
	out->kind = PL_MEM_HOST;
	out->gpu = -1;
	pthread_mutex_lock(&lock);
	a = find(at);
	if (a) {
		out->kind = PL_MEM_DEVICE;
		out->gpu = 0;
		out->owner = pl_simgpu_owner;
		out->base = a->base;
		out->bytes = a->bytes;
	} else if (at - device.first < device.end - device.first) {
		err = -EFAULT;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static int sg_alloc(struct pl_gpu *gpu, int ordinal, size_t bytes, void **out)
{
	struct simgpu_alloc call = { .bytes = bytes };
	struct alloc *a = malloc(sizeof(*a));

	(void)gpu;
	(void)ordinal;
	if (!a)
		return pl_simgpu_refuse(-ENOMEM);
	if (ioctl(device.fd, SIMGPU_IOC_ALLOC, &call)) {
		free(a);
		return pl_simgpu_refuse(-errno);
	}
	a->base = call.address;
	a->bytes = bytes;
	pthread_mutex_lock(&lock);
	a->next = device.allocs;
	device.allocs = a;
	if (!device.first || a->base < device.first)
		device.first = a->base;
	if (a->base + bytes > device.end)
		device.end = a->base + bytes;
	pthread_mutex_unlock(&lock);
	*out = (void *)a->base;
	return 0;
}

static int sg_free(struct pl_gpu *gpu, void *addr)
{
	struct alloc **at, *a = NULL;
	__u64 base = (uintptr_t)addr;
	int err;

	(void)gpu;
	pthread_mutex_lock(&lock);
	for (at = &device.allocs; *at && (*at)->base != base; at = &(*at)->next)
		;
	if (*at) {
		a = *at;
		*at = a->next;
	}
	pthread_mutex_unlock(&lock);
	if (!a)
		return pl_simgpu_refuse(-EINVAL);
	free(a);
	/* Waits for transfers under way into it: not with the lock. */
	err = ioctl(device.fd, SIMGPU_IOC_FREE, &base) ? pl_simgpu_refuse(-errno) : 0;
	return err;
}

static int sg_pin_alloc(struct pl_gpu *gpu, size_t bytes, void **out)
{
	void *mem = aligned_alloc(PAGE, (bytes + PAGE - 1) & ~(size_t)(PAGE - 1));

	(void)gpu;
	if (!mem)
		return pl_simgpu_refuse(-ENOMEM);
	*out = mem;
	return 0;
}

static void sg_pin_free(struct pl_gpu *gpu, void *addr, size_t bytes)
{
	(void)gpu;
	(void)bytes;
	free(addr);
}

static int sg_pin_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes)
{
	(void)gpu;
	(void)ordinal;
	(void)addr;
	(void)bytes;
	return -EOPNOTSUPP;
}

static void sg_pin_unregister(struct pl_gpu *gpu, int ordinal, void *addr)
{
	(void)gpu;
	(void)ordinal;
	(void)addr;
}

/* ------------------------------------------------------------------ copies */

static int move(const void *gpu, const void *host, size_t bytes, enum pl_dir dir)
{
	struct simgpu_copy call = { .address = (uintptr_t)gpu,
				    .bytes = bytes,
				    .user = (uintptr_t)host,
				    .to_gpu = dir == PL_TO_GPU };

	if (!ioctl(device.fd, SIMGPU_IOC_COPY, &call))
		return 0;
	/* Its word for memory that is not there. */
	return pl_simgpu_refuse(errno == EINVAL ? -EFAULT : -errno);
}

static int sg_queue_create(struct pl_gpu *gpu, void *owner, struct pl_queue **out)
{
	struct pl_queue *q = calloc(1, sizeof(*q));

	(void)gpu;
	if (!q)
		return pl_simgpu_refuse(-ENOMEM);
	q->owner = owner;
	*out = q;
	return 0;
}

static void sg_queue_destroy(struct pl_gpu *gpu, struct pl_queue *queue)
{
	(void)gpu;
	free(queue);
}

static int sg_mark_create(struct pl_gpu *gpu, struct pl_queue *queue, struct pl_mark **out)
{
	struct pl_mark *m = calloc(1, sizeof(*m));

	(void)gpu;
	(void)queue;
	if (!m)
		return pl_simgpu_refuse(-ENOMEM);
	*out = m;
	return 0;
}

static void sg_mark_destroy(struct pl_gpu *gpu, struct pl_mark *mark)
{
	(void)gpu;
	free(mark);
}

static int sg_copy(struct pl_gpu *gpu, struct pl_queue *queue, enum pl_dir dir,
		   const struct pl_copy *list, unsigned int nr, struct pl_mark *mark)
{
	int err = 0;

	(void)gpu;
	(void)queue;
	(void)mark;
	for (unsigned int i = 0; i < nr && !err; i++) {
		const struct pl_copy *c = &list[i];

		err = dir == PL_TO_GPU ? move(c->dst, c->src, c->bytes, dir)
				       : move(c->src, c->dst, c->bytes, dir);
	}
	return err;
}

static int sg_mark_done(struct pl_gpu *gpu, struct pl_mark *mark)
{
	(void)gpu;
	(void)mark;
	return 1;
}

static int sg_copy_sync(struct pl_gpu *gpu, void *dst, const void *src, size_t bytes)
{
	struct pl_mem to, from;
	char *bounce;
	int err = sg_query(gpu, dst, &to);

	if (!err)
		err = sg_query(gpu, src, &from);
	if (err)
		return pl_simgpu_refuse(err);
	if (to.kind == PL_MEM_HOST && from.kind == PL_MEM_HOST) {
		memmove(dst, src, bytes);
		return 0;
	}
	if (from.kind == PL_MEM_HOST)
		return move(dst, src, bytes, PL_TO_GPU);
	if (to.kind == PL_MEM_HOST)
		return move(src, dst, bytes, PL_FROM_GPU);
	bounce = malloc(bytes);
	if (!bounce)
		return pl_simgpu_refuse(-ENOMEM);
	err = move(src, bounce, bytes, PL_FROM_GPU);
	if (!err)
		err = move(dst, bounce, bytes, PL_TO_GPU);
	free(bounce);
	return err;
}

/* ------------------------------------------------------------------ the device */

static int sg_count(struct pl_gpu *gpu)
{
	(void)gpu;
	return 1;
}

static int sg_info(struct pl_gpu *gpu, int ordinal, struct peerlane_gpu_info *out)
{
	struct simgpu_state state;

	(void)gpu;
	(void)ordinal;
	if (ioctl(device.fd, SIMGPU_IOC_STATE, &state))
		return pl_simgpu_refuse(-errno);
	pl_text(out->name, sizeof(out->name), "Peerlane test GPU");
	pl_text(out->driver, sizeof(out->driver), "simgpu");
	pl_text(out->pci, sizeof(out->pci), "%04x:%02x:%02x.%x", (unsigned int)(state.pci >> 16),
		(unsigned int)(state.pci >> 8) & 0xff, (unsigned int)(state.pci >> 3) & 0x1f,
		(unsigned int)state.pci & 7);
	out->memory_bytes = state.bar_bytes;
	return 0;
}

static int sg_open(struct pl_gpu **out, char *why, size_t why_bytes)
{
	struct pl_gpu *gpu = calloc(1, sizeof(*gpu));
	int err = 0;

	if (!gpu)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	if (device.fd < 0)
		device.fd = open("/dev/simgpu", O_RDWR | O_CLOEXEC);
	if (device.fd < 0) {
		err = -ENODEV;
		pl_text(why, why_bytes, "/dev/simgpu: %s (the test GPU of tests/vm)",
			strerrordesc_np(errno));
	} else {
		device.users++;
	}
	pthread_mutex_unlock(&lock);
	if (err) {
		free(gpu);
		return err;
	}
	gpu->ops = &pl_gpu_simgpu;
	*out = gpu;
	return 0;
}

static void sg_close(struct pl_gpu *gpu)
{
	struct alloc *a;

	if (!gpu)
		return;
	pthread_mutex_lock(&lock);
	if (!--device.users) {
		pl_simgpu_streams_fini();
		/* Frees all memory as well. */
		close(device.fd);
		device.fd = -1;
		while ((a = device.allocs)) {
			device.allocs = a->next;
			free(a);
		}
	}
	pthread_mutex_unlock(&lock);
	free(gpu);
}

static void sg_abandon(struct pl_gpu *gpu)
{
	free(gpu);
}

/* Nothing is buffered between its memory and whoever reads it. */
static bool sg_orders_devices(struct pl_gpu *gpu, int ordinal)
{
	(void)gpu;
	(void)ordinal;
	return true;
}

static int sg_launch(struct pl_gpu *gpu, void *stream, const struct peerlane_kernel *kernel,
		     unsigned int nr_blocks, unsigned int nr_threads, void **args,
		     const size_t *arg_bytes, unsigned int nr_args)
{
	(void)gpu;
	(void)stream;
	(void)kernel;
	(void)nr_blocks;
	(void)nr_threads;
	(void)args;
	(void)arg_bytes;
	(void)nr_args;
	return -EOPNOTSUPP;
}

const struct pl_gpu_ops pl_gpu_simgpu = {
	.name = "simgpu",
	.open = sg_open,
	.close = sg_close,
	.abandon = sg_abandon,
	.result = sg_result,
	.result_name = sg_result_name,
	.query = sg_query,
	.pin_alloc = sg_pin_alloc,
	.pin_free = sg_pin_free,
	.pin_register = sg_pin_register,
	.pin_unregister = sg_pin_unregister,
	.queue_create = sg_queue_create,
	.queue_destroy = sg_queue_destroy,
	.mark_create = sg_mark_create,
	.mark_destroy = sg_mark_destroy,
	.orders_devices = sg_orders_devices,
	.copy = sg_copy,
	.mark_done = sg_mark_done,
	.stream_key = pl_simgpu_stream_key,
	.stream_call = pl_simgpu_stream_call,
	.stream_hold = pl_simgpu_stream_hold,
	.serve_create = pl_simgpu_serve_create,
	.serve_destroy = pl_simgpu_serve_destroy,
	.serve_launch = pl_simgpu_serve_launch,
	.serve_begin = pl_simgpu_serve_begin,
	.serve_state = pl_simgpu_serve_state,
	.serve_quit = pl_simgpu_serve_quit,
	.count = sg_count,
	.info = sg_info,
	.alloc = sg_alloc,
	.free = sg_free,
	.copy_sync = sg_copy_sync,
	.stream_create = pl_simgpu_stream_create,
	.stream_destroy = pl_simgpu_stream_destroy,
	.stream_sync = pl_simgpu_stream_sync,
	.launch = sg_launch,
};
