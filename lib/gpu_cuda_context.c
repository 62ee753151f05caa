// SPDX-License-Identifier: MIT
/*
 * The CUDA back end: contexts. An owner is a context the engine has met, told apart by CUDA's own
 * number for it: the address of a destroyed context may come back as another one.
 */
#include "gpu_cuda.h"

#include <errno.h>
#include <stdlib.h>

struct pl_cuda_owner {
	struct pl_cuda_owner *next;
	void *ctx;
	unsigned long long id;
};

int pl_cuda_enter_raw(struct pl_cuda *c, void *ctx)
{
	return pl_cuda_check(c->api.ctx_push(ctx));
}

int pl_cuda_enter(struct pl_cuda *c, void *owner)
{
	struct pl_cuda_owner *o = owner;
	unsigned long long id = 0;

	/* A context that is gone, or another one in its place. */
	if (c->api.ctx_id(o->ctx, &id) || id != o->id)
		return pl_cuda_check(PL_CU_CONTEXT_IS_DESTROYED);
	return pl_cuda_enter_raw(c, o->ctx);
}

void pl_cuda_leave(struct pl_cuda *c)
{
	void *old;

	c->api.ctx_pop(&old);
}

int pl_cuda_owner_of(struct pl_cuda *c, void *ctx, void **out)
{
	struct pl_cuda_owner *o;
	unsigned long long id;
	int err = pl_cuda_check(c->api.ctx_id(ctx, &id));

	if (err)
		return err;
	pthread_mutex_lock(&c->lock);
	for (o = c->owners; o; o = o->next)
		if (o->ctx == ctx && o->id == id)
			break;
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (o) {
			o->ctx = ctx;
			o->id = id;
			o->next = c->owners;
			c->owners = o;
		}
	}
	pthread_mutex_unlock(&c->lock);
	*out = o;
	return o ? 0 : -ENOMEM;
}

int pl_cuda_primary_raw(struct pl_cuda *c, int ordinal, void **out)
{
	int err = 0, dev;

	if (ordinal < 0 || ordinal >= c->nr_gpus)
		return -ENODEV;
	pthread_mutex_lock(&c->lock);
	if (!c->devices[ordinal].primary) {
		err = pl_cuda_check(c->api.device_get(&dev, ordinal));
		if (!err)
			err = pl_cuda_check(
				c->api.primary_retain(&c->devices[ordinal].primary, dev));
	}
	*out = c->devices[ordinal].primary;
	pthread_mutex_unlock(&c->lock);
	return err;
}

int pl_cuda_primary(struct pl_cuda *c, int ordinal, void **out)
{
	void *ctx;
	int err = pl_cuda_primary_raw(c, ordinal, &ctx);

	return err ? err : pl_cuda_owner_of(c, ctx, out);
}

int pl_cuda_current(struct pl_cuda *c, void **out)
{
	void *ctx = NULL;

	if (!c->api.ctx_current(&ctx) && ctx)
		return pl_cuda_owner_of(c, ctx, out);
	return -ENODEV;
}

int pl_cuda_pin_context(struct pl_cuda *c, int ordinal, void **out)
{
	struct pl_cuda_device *d = &c->devices[ordinal];
	void *old;
	int err = 0, dev;

	if (ordinal < 0 || ordinal >= c->nr_gpus)
		return -ENODEV;
	pthread_mutex_lock(&c->lock);
	if (!d->pins) {
		err = pl_cuda_check(c->api.device_get(&dev, ordinal));
		if (!err)
			err = pl_cuda_check(c->api.ctx_create(&d->pins, 0, dev));
		if (!err)
			c->api.ctx_pop(&old); /* creating made it current */
	}
	*out = d->pins;
	pthread_mutex_unlock(&c->lock);
	return err;
}

void pl_cuda_contexts_free(struct pl_cuda *c, bool release)
{
	int dev;

	for (int i = 0; i < c->nr_gpus && release; i++) {
		struct pl_cuda_device *d = &c->devices[i];

		if (d->pins)
			c->api.ctx_destroy(d->pins);
		if (d->stream && !pl_cuda_enter_raw(c, d->primary)) {
			c->api.stream_destroy(d->stream);
			pl_cuda_leave(c);
		}
		if (d->primary && !c->api.device_get(&dev, i))
			c->api.primary_release(dev);
	}
	while (c->owners) {
		struct pl_cuda_owner *o = c->owners;

		c->owners = o->next;
		free(o);
	}
}
