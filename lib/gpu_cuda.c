// SPDX-License-Identifier: MIT
/* The CUDA back end: devices, memory and copies through the driver API. */
#include "gpu_cuda.h"

#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Copies that are given to the driver as one list. */
#define MAX_LIST 32u

static __thread int last_result;

int pl_cuda_check(int result)
{
	last_result = result;
	switch (result) {
	case PL_CU_OK:
		return 0;
	case PL_CU_OUT_OF_MEMORY:
		return -ENOMEM;
	case PL_CU_NO_DEVICE:
		return -ENODEV;
	default:
		return -EREMOTEIO;
	}
}

int pl_cuda_check_address(int result)
{
	int err = pl_cuda_check(result);

	return result == PL_CU_INVALID_VALUE ? -EFAULT : err;
}

static int cuda_result(void)
{
	return last_result;
}

static const char *cuda_result_name(struct pl_gpu *gpu, int result)
{
	const char *name = NULL;

	if (pl_cuda_of(gpu)->api.error_name(result, &name) || !name)
		return "unknown CUDA error";
	return name;
}

static int cuda_open(struct pl_gpu **out, char *why, size_t why_bytes)
{
	struct pl_cuda *c = calloc(1, sizeof(*c));
	const char *name = NULL;
	int err, result;

	if (!c)
		return -ENOMEM;
	err = pl_cuda_api_load(&c->api, why, why_bytes);
	if (err)
		goto err_free;
	err = -ENODEV;
	result = c->api.init(0);
	if (!result)
		result = c->api.device_count(&c->nr_gpus);
	if (result) {
		c->api.error_name(result, &name);
		pl_text(why, why_bytes, "the CUDA driver did not start: %s (%d)",
			name ? name : "unknown", result);
		goto err_unload;
	}
	if (c->nr_gpus < 1) {
		pl_text(why, why_bytes, "the CUDA driver sees no GPU");
		goto err_unload;
	}
	if (c->nr_gpus > PL_CUDA_MAX_GPUS)
		c->nr_gpus = PL_CUDA_MAX_GPUS;
	pthread_mutex_init(&c->lock, NULL);
	c->gpu.ops = &pl_gpu_cuda;
	*out = &c->gpu;
	return 0;

err_unload:
	pl_cuda_api_unload(&c->api);
err_free:
	free(c);
	return err;
}

static void cuda_close(struct pl_gpu *gpu)
{
	struct pl_cuda *c = pl_cuda_of(gpu);

	pl_cuda_words_free(c, true);
	pl_cuda_modules_free(c, true);
	pl_cuda_contexts_free(c, true);
	pl_cuda_chunks_forget(c);
	/* libcuda stays loaded: other users of the process may hold pointers into it. */
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void cuda_abandon(struct pl_gpu *gpu)
{
	pl_cuda_words_free(pl_cuda_of(gpu), false);
	pl_cuda_modules_free(pl_cuda_of(gpu), false);
	pl_cuda_contexts_free(pl_cuda_of(gpu), false);
	pl_cuda_chunks_forget(pl_cuda_of(gpu));
	free(gpu);
}

static int cuda_query(struct pl_gpu *gpu, const void *addr, struct pl_mem *out)
{
	static const int what[] = { PL_CU_PTR_CONTEXT,	   PL_CU_PTR_MEMORY_TYPE,
				    PL_CU_PTR_IS_MANAGED,  PL_CU_PTR_DEVICE_ORDINAL,
				    PL_CU_PTR_RANGE_START, PL_CU_PTR_RANGE_SIZE,
				    PL_CU_PTR_POOL,	   PL_CU_PTR_SYNC_MEMOPS };
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *context = NULL, *pool = NULL;
	unsigned int type = 0, managed = 0, sync = 0;
	int ordinal = -1, err;
	pl_cu_ptr start = 0;
	size_t bytes = 0;
	bool refused = false;
	void *where[] = { &context, &type, &managed, &ordinal, &start, &bytes, &pool, &sync };

	memset(out, 0, sizeof(*out));
	out->gpu = -1;
	/* Memory CUDA never saw: either an error or success with all zero. A driver that does not
	 * answer the last question is asked without it. */
	if ((c->api.pointer_attributes(8, what, where, (pl_cu_ptr)(uintptr_t)addr) &&
	     c->api.pointer_attributes(7, what, where, (pl_cu_ptr)(uintptr_t)addr)) ||
	    !type)
		return 0;
	out->base = (uintptr_t)start;
	out->bytes = bytes;
	if (type == PL_CU_MEM_HOST && !managed) {
		out->kind = PL_MEM_PINNED;
		out->host = (char *)out->base;
		return 0;
	}
	out->kind = managed ? PL_MEM_MANAGED : PL_MEM_DEVICE;
	out->gpu = ordinal < 0 ? 0 : ordinal;
	out->joins = !context && !pool;
	/* VMM and pool memory belongs to a device, not to a context. The primary context is kept
	 * in any case: the caller may give up his reference while our queues are in it. */
	err = pl_cuda_primary(c, out->gpu, &out->owner);
	if (!err && context)
		err = pl_cuda_owner_of(c, context, &out->owner);
	if (!err && !sync)
		out->lags = !pl_cuda_sync_calls(c, out->owner, addr,
						context ? &refused
						: pool	? &c->pool_lags
							: &c->vmm_lags);
	return err;
}

static int cuda_queue_create(struct pl_gpu *gpu, void *owner, struct pl_queue **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	struct pl_queue *q = calloc(1, sizeof(*q));
	int lowest = 0, highest = 0, err;

	if (!q)
		return -ENOMEM;
	q->owner = owner;
	err = pl_cuda_enter(c, owner);
	if (err)
		goto err_free;
	/* Streams of the highest priority do not share a hardware channel with ordinary streams
	 * of the caller, which may be held waiting for this very copy. */
	c->api.ctx_priorities(&lowest, &highest);
	err = pl_cuda_check(c->api.stream_create(&q->stream, PL_CU_STREAM_NON_BLOCKING, highest));
	pl_cuda_leave(c);
	if (err)
		goto err_free;
	*out = q;
	return 0;

err_free:
	free(q);
	return err;
}

static void cuda_queue_destroy(struct pl_gpu *gpu, struct pl_queue *q)
{
	struct pl_cuda *c = pl_cuda_of(gpu);

	if (!q)
		return;
	if (!pl_cuda_enter(c, q->owner)) {
		c->api.stream_destroy(q->stream);
		pl_cuda_leave(c);
	}
	free(q);
}

/* Together, without the pause the engine makes between two. False: nothing was done, or not all. */
static bool copy_list(struct pl_cuda *c, void *stream, enum pl_dir dir, const struct pl_copy *list,
		      unsigned int nr)
{
	struct pl_cu_copy_how how = { .order = PL_CU_ORDER_STREAM };
	struct pl_cuda_range seen = { .bytes = 0 };
	pl_cu_ptr dst[MAX_LIST], src[MAX_LIST];
	size_t bytes[MAX_LIST], first = 0;

	if (!c->api.copy_list || nr < 2 || nr > MAX_LIST)
		return false;
	for (unsigned int i = 0; i < nr; i++) {
		if (!pl_cuda_alive(c, dir == PL_TO_GPU ? list[i].dst : list[i].src, list[i].bytes,
				   &seen))
			return false;
		dst[i] = (pl_cu_ptr)(uintptr_t)list[i].dst;
		src[i] = (pl_cu_ptr)(uintptr_t)list[i].src;
		bytes[i] = list[i].bytes;
	}
	return !c->api.copy_list(dst, src, bytes, nr, &how, &first, 1, stream);
}

static int cuda_copy(struct pl_gpu *gpu, struct pl_queue *q, enum pl_dir dir,
		     const struct pl_copy *list, unsigned int nr, struct pl_mark *mark)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err, err2, code = 0;

	if (q->box)
		return pl_cuda_box_copy(q->box, dir, list, nr, mark->index);
	err = pl_cuda_enter(c, q->owner);
	if (err)
		return err;
	if (pl_cuda_scatter_fits(c, dir, list, nr)) {
		err = pl_cuda_scatter(c, q->owner, q->stream, list, nr);
		if (!err)
			nr = 0;
		err = 0;
	}
	/* If the list cannot be, one by one tells which copy is the cause, and makes those before it. */
	if (copy_list(c, q->stream, dir, list, nr))
		nr = 0;
	for (unsigned int i = 0; i < nr && !err; i++) {
		if (dir == PL_TO_GPU)
			err = pl_cuda_check_address(
				c->api.copy_to((pl_cu_ptr)(uintptr_t)list[i].dst, list[i].src,
					       list[i].bytes, q->stream));
		else
			err = pl_cuda_check_address(
				c->api.copy_from(list[i].dst, (pl_cu_ptr)(uintptr_t)list[i].src,
						 list[i].bytes, q->stream));
	}
	code = last_result;
	err2 = pl_cuda_check(pl_cuda_mark_set(c, mark));
	/* Without a mark nobody could tell when the copies end. */
	if (err2)
		c->api.stream_sync(q->stream);
	if (err)
		last_result = code;
	pl_cuda_leave(c);
	return err ? err : err2;
}

static int cuda_count(struct pl_gpu *gpu)
{
	return pl_cuda_of(gpu)->nr_gpus;
}

static void read_line(const char *path, char *buf, size_t bytes)
{
	FILE *f = fopen(path, "re");

	buf[0] = '\0';
	if (!f)
		return;
	if (!fgets(buf, (int)bytes, f))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	fclose(f);
}

static int cuda_info(struct pl_gpu *gpu, int ordinal, struct peerlane_gpu_info *out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	char path[80], text[16], module[20];
	int dev, version = 0, err;
	size_t bytes = 0;

	err = pl_cuda_check(c->api.device_get(&dev, ordinal));
	if (err)
		return -ENODEV;
	c->api.device_name(out->name, sizeof(out->name), dev);
	c->api.device_pci(out->pci, sizeof(out->pci), dev);
	for (char *p = out->pci; *p; p++)
		if (*p >= 'A' && *p <= 'F')
			*p = (char)(*p - 'A' + 'a');
	c->api.device_memory(&bytes, dev);
	out->memory_bytes = bytes;
	c->api.driver_version(&version);
	read_line("/sys/module/nvidia/version", module, sizeof(module));
	pl_text(out->driver, sizeof(out->driver), "%s%sCUDA %d.%d", module, *module ? ", " : "",
		version / 1000, version % 1000 / 10);
	pl_text(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", out->pci);
	read_line(path, text, sizeof(text));
	out->numa_node = *text ? atoi(text) : -1;
	out->copy_lists = c->api.copy_list ? 1 : 0;
	return 0;
}

static int cuda_alloc(struct pl_gpu *gpu, int ordinal, size_t bytes, void **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	bool refused = false;
	pl_cu_ptr addr;
	void *owner;
	int err = pl_cuda_primary(c, ordinal, &owner);

	if (err)
		return err;
	err = pl_cuda_enter(c, owner);
	if (err)
		return err;
	err = pl_cuda_check(c->api.mem_alloc(&addr, bytes));
	pl_cuda_leave(c);
	if (err)
		return err;
	*out = (void *)(uintptr_t)addr;
	pl_cuda_sync_calls(c, owner, *out, &refused);
	return 0;
}

static int cuda_free(struct pl_gpu *gpu, void *addr)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	struct pl_mem mem;
	int err = cuda_query(gpu, addr, &mem);

	if (err)
		return err;
	if (mem.kind != PL_MEM_DEVICE || mem.base != (uintptr_t)addr)
		return -EINVAL;
	err = pl_cuda_enter(c, mem.owner);
	if (err)
		return err;
	err = pl_cuda_check(c->api.mem_free((pl_cu_ptr)(uintptr_t)addr));
	pl_cuda_leave(c);
	return err;
}

/* The stream of a GPU's synchronous copies; the context is current. */
static int sync_stream(struct pl_cuda *c, int ordinal, void **out)
{
	int err = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->devices[ordinal].stream)
		err = pl_cuda_check(c->api.stream_create(&c->devices[ordinal].stream,
							 PL_CU_STREAM_NON_BLOCKING, 0));
	*out = c->devices[ordinal].stream;
	pthread_mutex_unlock(&c->lock);
	return err;
}

/* By the kernel, which does not crash: an address nobody knows may be GPU memory that was freed. */
static int copy_host(void *dst, const void *src, size_t bytes)
{
	struct iovec to = { dst, bytes }, from = { (void *)(uintptr_t)src, bytes };
	ssize_t got = bytes ? process_vm_readv(getpid(), &to, 1, &from, 1, 0) : 0;

	if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
		memmove(dst, src, bytes);
		return 0;
	}
	return got == (ssize_t)bytes ? 0 : -EFAULT;
}

static bool cuda_orders_devices(struct pl_gpu *gpu, int ordinal)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int device, how = 0;

	return c->api.device_attribute && !c->api.device_get(&device, ordinal) &&
	       !c->api.device_attribute(&how, PL_CU_DEVICE_WRITES_ORDERING, device) &&
	       how >= PL_CU_WRITES_ORDERED_FOR_OWNER;
}

static int cuda_copy_sync(struct pl_gpu *gpu, void *dst, const void *src, size_t bytes)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	struct pl_mem d, s;
	void *owner, *stream;
	int ordinal, err;

	err = cuda_query(gpu, dst, &d);
	if (!err)
		err = cuda_query(gpu, src, &s);
	if (err)
		return err;
	if (!d.owner && !s.owner)
		return copy_host(dst, src, bytes);
	ordinal = d.owner ? d.gpu : s.gpu;
	err = pl_cuda_primary(c, ordinal, &owner);
	if (err)
		return err;
	err = pl_cuda_enter(c, owner);
	if (err)
		return err;
	err = sync_stream(c, ordinal, &stream);
	if (!err && d.lags)
		err = pl_cuda_stream_behind_default(gpu, stream, d.owner);
	if (!err && s.lags)
		err = pl_cuda_stream_behind_default(gpu, stream, s.owner);
	if (!err)
		err = pl_cuda_check_address(c->api.copy_any(
			(pl_cu_ptr)(uintptr_t)dst, (pl_cu_ptr)(uintptr_t)src, bytes, stream));
	if (!err)
		err = pl_cuda_check(c->api.stream_sync(stream));
	pl_cuda_leave(c);
	return err;
}

const struct pl_gpu_ops pl_gpu_cuda = {
	.name = "cuda",
	.dma = true,
	.open = cuda_open,
	.close = cuda_close,
	.abandon = cuda_abandon,
	.result = cuda_result,
	.result_name = cuda_result_name,
	.query = cuda_query,
	.pin_alloc = pl_cuda_pin_alloc,
	.pin_free = pl_cuda_pin_free,
	.pin_register = pl_cuda_pin_register,
	.pin_unregister = pl_cuda_pin_unregister,
	.pin_address = pl_cuda_pin_address,
	.io_register = pl_cuda_io_register,
	.io_unregister = pl_cuda_io_unregister,
	.queue_create = cuda_queue_create,
	.queue_destroy = cuda_queue_destroy,
	.mark_create = pl_cuda_mark_create,
	.mark_destroy = pl_cuda_mark_destroy,
	.prepare = pl_cuda_prepare,
	.wait_default = pl_cuda_wait_default,
	.stream_behind_default = pl_cuda_stream_behind_default,
	.orders_devices = cuda_orders_devices,
	.copy = cuda_copy,
	.mark_done = pl_cuda_mark_done,
	.stream_key = pl_cuda_stream_key,
	.stream_call = pl_cuda_stream_call,
	.stream_hold = pl_cuda_stream_hold,
	.serve_create = pl_cuda_serve_create,
	.serve_destroy = pl_cuda_serve_destroy,
	.serve_launch = pl_cuda_serve_launch,
	.serve_begin = pl_cuda_serve_begin,
	.serve_state = pl_cuda_serve_state,
	.serve_quit = pl_cuda_serve_quit,
	.count = cuda_count,
	.info = cuda_info,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.copy_sync = cuda_copy_sync,
	.stream_create = pl_cuda_stream_create,
	.stream_destroy = pl_cuda_stream_destroy,
	.stream_sync = pl_cuda_stream_sync,
	.launch = pl_cuda_launch,
};
