// SPDX-License-Identifier: MIT
/* Choice of the GPU back end, and the public calls of gpu.h. */
#include "gpu.h"

#include "context.h"

#include <errno.h>
#include <string.h>

int pl_gpu_open(struct pl_gpu **out, const char *name, char *why, size_t why_bytes)
{
	bool any = !name || !*name || !strcmp(name, "auto");
	char sim_why[160];
	int err;

	if (any || !strcmp(name, "cuda")) {
		err = pl_gpu_cuda.open(out, why, why_bytes);
		if (!err || !any || err == -ENOMEM)
			return err;
		/* @why keeps the reason CUDA was passed over, unless this fails too. */
		err = pl_sim_share_open(out, sim_why, sizeof(sim_why));
		if (err)
			pl_text(why, why_bytes, "%s", sim_why);
		return err;
	}
	if (!strcmp(name, "sim"))
		return pl_sim_share_open(out, why, why_bytes);
	/* Never by itself: it is there for tests. */
	if (!strcmp(name, "simgpu"))
		return pl_gpu_simgpu.open(out, why, why_bytes);
	pl_text(why, why_bytes, "unknown back end \"%s\"; known are auto, cuda, sim and simgpu",
		name);
	return -EINVAL;
}

/* Words for a failed driver call. */
static int told(struct peerlane *ctx, int err, const char *what)
{
	int cuda = ctx->gpu->ops->result();

	if (err == -EREMOTEIO || err == -ENOMEM)
		return pl_fail_gpu(err, cuda, "%s: %s", what,
				   ctx->gpu->ops->result_name(ctx->gpu, cuda));
	return pl_fail(err, "%s: %s", what, peerlane_strerror(err));
}

int peerlane_gpu_count(struct peerlane *ctx)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	return err ? err : ctx->gpu->ops->count(ctx->gpu);
}

static int check_gpu(struct peerlane *ctx, int gpu)
{
	int nr = peerlane_gpu_count(ctx);

	if (nr < 0)
		return nr;
	if (gpu < 0 || gpu >= nr)
		return pl_fail(-ENODEV, "no GPU %d; the %s back end has %d", gpu,
			       ctx->gpu->ops->name, nr);
	return 0;
}

int peerlane_gpu_get_info(struct peerlane *ctx, int gpu, struct peerlane_gpu_info *out)
{
	PL_KEEP_ERRNO;
	struct peerlane_gpu_info info;
	int err = check_gpu(ctx, gpu);

	if (err)
		return err;
	if (!out || out->size != sizeof(*out))
		return pl_fail(-EINVAL, "the info struct is NULL or of an unknown size");
	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	info.numa_node = -1;
	err = ctx->gpu->ops->info(ctx->gpu, gpu, &info);
	if (err)
		return told(ctx, err, "GPU information");
	*out = info;
	return 0;
}

int peerlane_gpu_alloc(struct peerlane *ctx, int gpu, size_t bytes, void **out)
{
	PL_KEEP_ERRNO;
	int err = check_gpu(ctx, gpu);

	if (err)
		return err;
	if (!bytes || !out)
		return pl_fail(-EINVAL, bytes ? "the result pointer is NULL" : "zero bytes");
	err = ctx->gpu->ops->alloc(ctx->gpu, gpu, bytes, out);
	return err ? told(ctx, err, "GPU memory") : 0;
}

int peerlane_gpu_free(struct peerlane *ctx, void *addr)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	if (err || !addr)
		return err;
	err = ctx->gpu->ops->free(ctx->gpu, addr);
	if (err == -EFAULT)
		err = -EINVAL;
	return err ? told(ctx, err, "freeing GPU memory") : 0;
}

int peerlane_gpu_copy(struct peerlane *ctx, void *dst, const void *src, size_t bytes)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!dst || !src)
		return pl_fail(-EINVAL, "the %s is NULL", dst ? "source" : "destination");
	err = bytes ? ctx->gpu->ops->copy_sync(ctx->gpu, dst, src, bytes) : 0;
	return err ? told(ctx, err, "GPU copy") : 0;
}

/* Queues a list of copies and waits for it. */
static int copy_round(struct peerlane *ctx, struct pl_queue *q, struct pl_mark *mark,
		      enum pl_dir dir, const struct pl_copy *list, unsigned int nr)
{
	const struct pl_gpu_ops *ops = ctx->gpu->ops;
	const uint64_t deadline = pl_now_ns() + ctx->opt.timeout_ms * 1000000ull;
	int done = 0, err = ops->copy(ctx->gpu, q, dir, list, nr, mark);

	while (!err && !(done = ops->mark_done(ctx->gpu, mark)))
		if (pl_now_ns() > deadline)
			return -ETIMEDOUT;
	return err ? err : done < 0 ? done : 0;
}

/* Repeats the same copies over one queue for 100 ms. */
static int time_copies(struct peerlane *ctx, struct pl_queue *q, struct pl_mark *mark,
		       enum pl_dir dir, void *gpu, void *host, size_t bytes, double *rate)
{
	struct pl_copy list[4];
	uint64_t began, now;
	size_t moved = 0;
	int err;

	for (int i = 0; i < 4; i++)
		list[i] = (struct pl_copy){ .dst = dir == PL_TO_GPU ? gpu : host,
					    .src = dir == PL_TO_GPU ? host : gpu,
					    .bytes = bytes };
	/* Not timed: the first copy also pays for the first touch of simulated GPU memory. */
	err = copy_round(ctx, q, mark, dir, list, 4);
	began = now = pl_now_ns();
	while (!err && now - began < 100000000) {
		err = copy_round(ctx, q, mark, dir, list, 4);
		moved += 4 * bytes;
		now = pl_now_ns();
	}
	*rate = err ? 0 : (double)moved * 1e9 / (double)(now - began);
	return err;
}

int peerlane_gpu_copy_limit(struct peerlane *ctx, int gpu, enum peerlane_op dir,
			    double *bytes_per_s)
{
	PL_KEEP_ERRNO;
	const size_t bytes = 32ul << 20;
	const struct pl_gpu_ops *ops;
	struct pl_queue *q = NULL;
	struct pl_mark *mark = NULL;
	struct pl_mem mem;
	void *dev, *host;
	int err = check_gpu(ctx, gpu);

	if (err)
		return err;
	if (!bytes_per_s)
		return pl_fail(-EINVAL, "the result pointer is NULL");
	ops = ctx->gpu->ops;
	err = ops->alloc(ctx->gpu, gpu, bytes, &dev);
	if (err)
		return told(ctx, err, "GPU memory");
	err = ops->pin_alloc(ctx->gpu, bytes, &host);
	if (err)
		goto err_free;
	memset(host, 1, bytes);
	err = ops->query(ctx->gpu, dev, &mem);
	if (!err)
		err = ops->queue_create(ctx->gpu, mem.owner, &q);
	if (!err)
		err = ops->mark_create(ctx->gpu, q, &mark);
	if (!err)
		err = time_copies(ctx, q, mark, dir == PEERLANE_READ ? PL_TO_GPU : PL_FROM_GPU, dev,
				  host, bytes, bytes_per_s);
	ops->mark_destroy(ctx->gpu, mark);
	ops->queue_destroy(ctx->gpu, q);
	/* After a time-out a copy may still run: the memory stays. */
	if (err == -ETIMEDOUT)
		return pl_fail(err, "the copy did not end in time");
	ops->pin_free(ctx->gpu, host, bytes);
err_free:
	ops->free(ctx->gpu, dev);
	return err ? told(ctx, err, "measuring the copy limit") : 0;
}

int peerlane_gpu_stream_create(struct peerlane *ctx, int gpu, void **out)
{
	PL_KEEP_ERRNO;
	int err = check_gpu(ctx, gpu);

	if (err)
		return err;
	if (!out)
		return pl_fail(-EINVAL, "the result pointer is NULL");
	err = ctx->gpu->ops->stream_create(ctx->gpu, gpu, out);
	return err ? told(ctx, err, "stream") : 0;
}

void peerlane_gpu_stream_destroy(struct peerlane *ctx, void *stream)
{
	PL_KEEP_ERRNO;
	if (!pl_context_check(ctx) && stream)
		ctx->gpu->ops->stream_destroy(ctx->gpu, stream);
}

int peerlane_gpu_stream_sync(struct peerlane *ctx, void *stream)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	err = ctx->gpu->ops->stream_sync(ctx->gpu, stream);
	return err ? told(ctx, err, "waiting for the stream") : 0;
}

int peerlane_gpu_launch(struct peerlane *ctx, void *stream, const struct peerlane_kernel *kernel,
			unsigned int nr_blocks, unsigned int nr_threads, void **args,
			const size_t *arg_bytes, unsigned int nr_args)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!kernel || !nr_blocks || !nr_threads || (nr_args && (!args || !arg_bytes)) ||
	    nr_args > 16)
		return pl_fail(-EINVAL,
			       "a launch needs a kernel, blocks, threads and its arguments");
	err = ctx->gpu->ops->launch(ctx->gpu, stream, kernel, nr_blocks, nr_threads, args,
				    arg_bytes, nr_args);
	return err ? told(ctx, err, "kernel launch") : 0;
}

int peerlane_sim_inject(struct peerlane *ctx, const char *what, unsigned int after,
			unsigned int count)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!ctx->gpu->ops->inject)
		return pl_fail(-ENODEV, "only the simulated GPU can be made to fail");
	if (!what)
		return pl_fail(-EINVAL, "the kind of failure is NULL");
	err = ctx->gpu->ops->inject(ctx->gpu, what, after, count);
	return err ? pl_fail(err, "unknown kind of failure \"%s\"", what) : 0;
}
