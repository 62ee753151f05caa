/* SPDX-License-Identifier: MIT */
/* Registered buffers, and the question every request asks: what memory is this? */
#ifndef PL_BUFFER_H
#define PL_BUFFER_H

#include "gpu.h"

#include <pthread.h>

struct peerlane;
struct pl_p2p_pin;
struct pl_p2p_route;
struct pl_nvme_ref;

struct pl_buffer {
	uintptr_t addr;
	size_t bytes;
	struct pl_mem mem;
	unsigned int users;	  /* requests in flight on it; atomic */
	struct pl_p2p_pin *pin;	  /* for the path p2p, whose lock guards it; NULL: none so far */
	struct pl_nvme_ref *nvme; /* maps for NVMe controllers, see nvme_reach.h */
};

struct pl_buffers {
	pthread_rwlock_t lock;	 /* guards the array, not the users counts */
	struct pl_buffer **list; /* sorted by address; of two with one base there is never a pair */
	unsigned int nr;	 /* also read without the lock, to skip an empty table */
	unsigned int room;
	size_t longest; /* of all ever registered: bounds the backward search */
};

int pl_buffers_init(struct pl_buffers *b);
void pl_buffers_fini(struct pl_buffers *b);

/*
 * What [addr, addr + bytes) is. @buf receives the registered buffer it lies in, with a reference
 * (pl_buffer_put()), or NULL. -EINVAL NULL address; -EOVERFLOW; -ERANGE; -EFAULT; -EREMOTEIO.
 */
int pl_buffer_resolve(struct peerlane *ctx, const void *addr, size_t bytes, struct pl_mem *mem,
		      struct pl_buffer **buf);
void pl_buffer_put(struct pl_buffer *buf);
/* Before I/O on @mem: waits for the default streams where the program's synchronous calls on it lag,
 * or where the context's flags ask for it. -ETIMEDOUT; -EREMOTEIO. */
int pl_buffer_wait(struct peerlane *ctx, const struct pl_mem *mem);
/* The same for I/O in the order of @stream, which is made to wait; only where calls lag. */
void pl_buffer_wait_in(struct peerlane *ctx, const struct pl_mem *mem, void *stream);

/* How drives may reach memory, see p2p.h; all NULL: they may not. */
struct pl_p2p_way {
	struct pl_p2p_pin *pin;
	struct pl_p2p_route *route;
};

/* Memory of a request whose length may be known later only. */
struct pl_span {
	char *addr;
	struct pl_mem mem;
	struct pl_buffer *buf; /* with a reference, or NULL */
	struct pl_p2p_way way; /* lasts as long as that reference */
	size_t room;	       /* bytes from @addr on */
	int err;	       /* why there are none; 0 */
	int past;	       /* errno of a longer request */
};

/*
 * What memory begins at @addr and how far it goes; not further than @most, where that is known.
 * What is wrong with it is in @out. pl_span_put() undoes it.
 */
void pl_span_get(struct peerlane *ctx, void *addr, size_t most, struct pl_span *out);
void pl_span_put(struct pl_span *span);
/* Whether the first @bytes of it can be used, as pl_buffer_resolve() would say. No driver call. */
int pl_span_check(const struct pl_span *span, size_t bytes);
/* Whether the memory under a registered buffer is still the same. -EFAULT if it was freed. */
int pl_buffer_recheck(struct peerlane *ctx, const struct pl_buffer *buf);

#endif
