// SPDX-License-Identifier: MIT
/* The CUDA back end: streams of the caller, and kernels. */
#include "gpu_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct pl_cuda_module {
	struct pl_cuda_module *next;
	void *owner;
	char *ptx;
	char *name;
	void *module;
	void *function;
};

int pl_cuda_enter_stream(struct pl_cuda *c, void *stream, void **owner)
{
	void *ctx = NULL;
	int err;

	if (c->api.stream_ctx(stream, &ctx) || !ctx) {
		err = pl_cuda_primary_raw(c, 0, &ctx);
		if (err)
			return err;
	}
	if (owner) {
		err = pl_cuda_owner_of(c, ctx, owner);
		if (err)
			return err;
	}
	return pl_cuda_enter_raw(c, ctx);
}

int pl_cuda_stream_key(struct pl_gpu *gpu, void *stream, uintptr_t key[2])
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *owner;
	int err = pl_cuda_enter_stream(c, stream, &owner);

	if (err)
		return err;
	pl_cuda_leave(c);
	key[0] = stream == PL_CUDA_LEGACY_STREAM ? 0 : (uintptr_t)stream;
	key[1] = (uintptr_t)owner;
	if (stream == PL_CUDA_PER_THREAD_STREAM)
		key[0] |= (uintptr_t)gettid() << 8;
	return 0;
}

int pl_cuda_stream_call(struct pl_gpu *gpu, void *stream, pl_stream_fn fn, void *arg)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err = pl_cuda_enter_stream(c, stream, NULL);

	if (err)
		return err;
	err = pl_cuda_check(c->api.stream_call(stream, fn, arg));
	pl_cuda_leave(c);
	return err;
}

struct hold {
	uint32_t *flag;
	uint32_t value;
};

/* Runs in CUDA's callback thread where the driver cannot wait for a memory word itself. */
static void hold_in_callback(void *arg)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	struct hold *h = arg;

	while ((int32_t)(__atomic_load_n(h->flag, __ATOMIC_ACQUIRE) - h->value) < 0)
		nanosleep(&nap, NULL);
	free(h);
}

static int hold_by_callback(struct pl_cuda *c, void *stream, uint32_t *flag, uint32_t value)
{
	struct hold *h = malloc(sizeof(*h));
	int err;

	if (!h)
		return -ENOMEM;
	h->flag = flag;
	h->value = value;
	err = pl_cuda_check(c->api.stream_call(stream, hold_in_callback, h));
	if (err)
		free(h);
	return err;
}

int pl_cuda_stream_hold(struct pl_gpu *gpu, void *stream, uint32_t *flag, uint32_t value)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err = pl_cuda_enter_stream(c, stream, NULL);
	pl_cu_ptr addr;

	if (err)
		return err;
	__atomic_store_n(&c->held, true, __ATOMIC_RELAXED);
	err = pl_cuda_check(c->api.host_device_pointer(&addr, flag, 0));
	if (!err && c->api.stream_wait_value) {
		int result = c->api.stream_wait_value(stream, addr, value, PL_CU_WAIT_GEQ);

		err = result == PL_CU_NOT_SUPPORTED ? hold_by_callback(c, stream, flag, value)
						    : pl_cuda_check(result);
	} else if (!err) {
		err = hold_by_callback(c, stream, flag, value);
	}
	pl_cuda_leave(c);
	return err;
}

int pl_cuda_stream_create(struct pl_gpu *gpu, int ordinal, void **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *owner;
	int err = pl_cuda_primary(c, ordinal, &owner);

	if (err)
		return err;
	err = pl_cuda_enter(c, owner);
	if (err)
		return err;
	err = pl_cuda_check(c->api.stream_create(out, PL_CU_STREAM_NON_BLOCKING, 0));
	pl_cuda_leave(c);
	return err;
}

void pl_cuda_stream_destroy(struct pl_gpu *gpu, void *stream)
{
	struct pl_cuda *c = pl_cuda_of(gpu);

	if (!stream || pl_cuda_enter_stream(c, stream, NULL))
		return;
	c->api.stream_sync(stream);
	c->api.stream_destroy(stream);
	pl_cuda_leave(c);
}

int pl_cuda_stream_sync(struct pl_gpu *gpu, void *stream)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err = pl_cuda_enter_stream(c, stream, NULL);

	if (err)
		return err;
	err = pl_cuda_check(c->api.stream_sync(stream));
	pl_cuda_leave(c);
	return err;
}

static void module_free(struct pl_cuda_module *m)
{
	free(m->ptx);
	free(m->name);
	free(m);
}

/* Loads @kernel; the context is current and c->lock held. */
static int module_load(struct pl_cuda *c, void *owner, const struct peerlane_kernel *kernel,
		       struct pl_cuda_module **out)
{
	struct pl_cuda_module *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	/* Copies: the caller's text need not outlive the launch. */
	m->ptx = strdup(kernel->ptx);
	m->name = strdup(kernel->name);
	err = -ENOMEM;
	if (!m->ptx || !m->name)
		goto err_free;
	err = pl_cuda_check(c->api.module_load(&m->module, kernel->ptx));
	if (err)
		goto err_free;
	err = pl_cuda_check(c->api.module_function(&m->function, m->module, kernel->name));
	if (err)
		goto err_unload;
	m->owner = owner;
	m->next = c->modules;
	c->modules = m;
	*out = m;
	return 0;

err_unload:
	c->api.module_unload(m->module);
err_free:
	module_free(m);
	return err;
}

int pl_cuda_function(struct pl_cuda *c, void *owner, const struct peerlane_kernel *kernel,
		     bool may_load, void **out)
{
	struct pl_cuda_module *m;
	int err;

	pthread_mutex_lock(&c->lock);
	for (m = c->modules; m; m = m->next)
		if (m->owner == owner && !strcmp(m->name, kernel->name) &&
		    !strcmp(m->ptx, kernel->ptx))
			break;
	err = m ? 0 : may_load ? module_load(c, owner, kernel, &m) : -EAGAIN;
	if (!err)
		*out = m->function;
	pthread_mutex_unlock(&c->lock);
	return err;
}

void pl_cuda_modules_free(struct pl_cuda *c, bool unload)
{
	while (c->modules) {
		struct pl_cuda_module *m = c->modules;

		c->modules = m->next;
		if (unload && !pl_cuda_enter(c, m->owner)) {
			c->api.module_unload(m->module);
			pl_cuda_leave(c);
		}
		module_free(m);
	}
}

int pl_cuda_launch(struct pl_gpu *gpu, void *stream, const struct peerlane_kernel *kernel,
		   unsigned int nr_blocks, unsigned int nr_threads, void **args,
		   const size_t *arg_bytes, unsigned int nr_args)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *owner, *function;
	int err;

	(void)arg_bytes;
	if (!kernel->ptx || nr_args > 16)
		return -EINVAL;
	err = pl_cuda_enter_stream(c, stream, &owner);
	if (err)
		return err;
	err = pl_cuda_function(c, owner, kernel, true, &function);
	if (!err)
		err = pl_cuda_check(c->api.launch(function, nr_blocks, 1, 1, nr_threads, 1, 1, 0,
						  stream, args, NULL));
	pl_cuda_leave(c);
	return err;
}
