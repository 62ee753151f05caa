// SPDX-License-Identifier: MIT
/*
 * The CUDA back end: streams served by a kernel (serve.cu). While a stream of the caller waits for
 * I/O, the driver may keep one of its locks until the stream goes on, so the I/O must not call the
 * driver. Copies are posted in a mailbox in pinned memory and done by a kernel that runs on the
 * stream itself; its end is what lets the stream go on.
 */
#include "gpu_cuda.h"
#include "serve_ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NR_BOXES 8u /* made at a time */
#define BLOCKS 8u   /* enough loads in flight to fill the bus */
#define THREADS 512u
#define HOLD_THREADS 32u
#define MIN_CHUNK (16u * 1024)
/* How long copy() waits for room in the ring. */
#define ROOM_NAPS 50000u
#define ROOM_NAP_NS 20000

/* Memory of some mailboxes for streams of one context. */
struct pl_cuda_boxes {
	struct pl_cuda_boxes *next;
	void *owner;
	struct pl_serve_host *host;
	pl_cu_ptr gpu;
	unsigned int used; /* a bit each */
};

struct pl_cuda_box {
	struct pl_serve serve; /* first: the engine is given it */
	struct pl_cuda_boxes *from;
	unsigned int index; /* there */
	void *function;
	bool zeroed; /* the GPU part was set to zero, on the stream */
	struct pl_serve_host *host;
	pl_cu_ptr gpu;
	struct pl_queue queue;
	struct pl_mark marks[PL_SERVE_MARKS];
	/* Of the request that is served: */
	uint32_t sent; /* chunks posted */
	uint32_t target[PL_SERVE_MARKS];
	/* Where the run of a mark begins in the ring, plus one; 0: it has ended. One thread posts
	 * while another looks at marks; atomic. */
	uint32_t first[PL_SERVE_MARKS];
};

_Static_assert(sizeof(struct pl_serve_chunk) == 32, "as serve.cu reads it");
_Static_assert(sizeof(struct pl_serve_host) % PL_SERVE_LINE == 0, "lines of their own");
_Static_assert(sizeof(struct pl_serve_gpu) == PL_SERVE_LINE, "lines of their own");

static const struct peerlane_kernel kernel = { .name = "peerlane_serve", .ptx = serve_ptx };

static struct pl_cuda_box *box_of(const struct pl_serve *serve)
{
	return (struct pl_cuda_box *)(uintptr_t)serve;
}

int pl_cuda_serve_load(struct pl_cuda *c, void *owner, bool may_load, void **function)
{
	return pl_cuda_function(c, owner, &kernel, may_load, function);
}

/* Pinned memory, and memory of the current context. */
static int boxes_alloc(struct pl_cuda *c, void *owner, struct pl_cuda_boxes **out)
{
	struct pl_cuda_boxes *b = calloc(1, sizeof(*b));
	void *host;
	int err = -ENOMEM;

	if (!b)
		return err;
	err = c->gpu.ops->pin_alloc(&c->gpu, NR_BOXES * sizeof(b->host[0]), &host);
	if (err)
		goto err_free;
	err = pl_cuda_check(c->api.mem_alloc(&b->gpu, NR_BOXES * sizeof(struct pl_serve_gpu)));
	if (err)
		goto err_pinned;
	memset(host, 0, NR_BOXES * sizeof(b->host[0]));
	b->host = host;
	b->owner = owner;
	*out = b;
	return 0;

err_pinned:
	c->gpu.ops->pin_free(&c->gpu, host, NR_BOXES * sizeof(b->host[0]));
err_free:
	free(b);
	return err;
}

static void boxes_free(struct pl_cuda *c, struct pl_cuda_boxes *b)
{
	if (!pl_cuda_enter(c, b->owner)) {
		c->api.mem_free(b->gpu);
		pl_cuda_leave(c);
	}
	c->gpu.ops->pin_free(&c->gpu, b->host, NR_BOXES * sizeof(b->host[0]));
	free(b);
}

/* A place for one more, if there is one. */
static struct pl_cuda_boxes *place_take(struct pl_cuda *c, void *owner, unsigned int *index)
{
	struct pl_cuda_boxes *b;

	pthread_mutex_lock(&c->lock);
	for (b = c->boxes; b; b = b->next)
		if (b->owner == owner && b->used != (1u << NR_BOXES) - 1)
			break;
	if (b) {
		*index = (unsigned int)__builtin_ctz(~b->used);
		b->used |= 1u << *index;
	}
	pthread_mutex_unlock(&c->lock);
	return b;
}

static int place_get(struct pl_cuda *c, void *owner, struct pl_cuda_boxes **out,
		     unsigned int *index)
{
	int err;

	*out = place_take(c, owner, index);
	if (*out)
		return 0;
	err = boxes_alloc(c, owner, out);
	if (err)
		return err;
	*index = 0;
	(*out)->used = 1;
	pthread_mutex_lock(&c->lock);
	(*out)->next = c->boxes;
	c->boxes = *out;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* Gives a place back; the memory goes with the last one. */
static void place_put(struct pl_cuda *c, struct pl_cuda_boxes *b, unsigned int index)
{
	struct pl_cuda_boxes **p;
	bool last;

	pthread_mutex_lock(&c->lock);
	b->used &= ~(1u << index);
	last = !b->used;
	for (p = &c->boxes; last && *p != b; p = &(*p)->next)
		;
	if (last)
		*p = b->next;
	pthread_mutex_unlock(&c->lock);
	if (last)
		boxes_free(c, b);
}

static void box_init(struct pl_cuda_box *box, void *owner)
{
	box->host = &box->from->host[box->index];
	box->gpu = box->from->gpu + box->index * sizeof(struct pl_serve_gpu);
	/* Another stream may have had it, with numbers of its own. */
	memset(box->host, 0, sizeof(*box->host));
	box->queue.owner = owner;
	box->queue.box = box;
	box->serve.owner = owner;
	box->serve.queue = &box->queue;
	for (unsigned int i = 0; i < PL_SERVE_MARKS; i++) {
		box->marks[i].owner = owner;
		box->marks[i].box = box;
		box->marks[i].index = i;
		box->serve.marks[i] = &box->marks[i];
	}
}

int pl_cuda_serve_create(struct pl_gpu *gpu, void *stream, struct pl_serve **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	struct pl_cuda_box *box;
	void *owner;
	int err;

	if (gpu->no_kernels)
		return -EOPNOTSUPP;
	box = calloc(1, sizeof(*box));
	if (!box)
		return -ENOMEM;
	err = pl_cuda_enter_stream(c, stream, &owner);
	if (err)
		goto err_free;
	/* Loading waits for all work of the context. Streams that are served go on meanwhile;
	 * streams that are held may need the driver, which would be kept from them. */
	err = pl_cuda_serve_load(c, owner, !__atomic_load_n(&c->held, __ATOMIC_RELAXED),
				 &box->function);
	if (err) {
		err = -EOPNOTSUPP;
		goto err_leave;
	}
	err = place_get(c, owner, &box->from, &box->index);
	if (err)
		goto err_leave;
	pl_cuda_leave(c);
	box_init(box, owner);
	*out = &box->serve;
	return 0;

err_leave:
	pl_cuda_leave(c);
err_free:
	free(box);
	return err;
}

void pl_cuda_serve_destroy(struct pl_gpu *gpu, struct pl_serve *serve)
{
	if (!serve)
		return;
	place_put(pl_cuda_of(gpu), box_of(serve)->from, box_of(serve)->index);
	free(box_of(serve));
}

int pl_cuda_serve_launch(struct pl_gpu *gpu, void *stream, struct pl_serve *serve, uint32_t number,
			 size_t bytes)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	struct pl_cuda_box *box = box_of(serve);
	size_t chunks = (bytes + MIN_CHUNK - 1) / MIN_CHUNK;
	/* The first one does not copy. */
	unsigned int blocks = 1 + (chunks > BLOCKS ? BLOCKS : (unsigned int)chunks);
	pl_cu_ptr host;
	void *args[] = { &host, &box->gpu, &number };
	int err = pl_cuda_enter_stream(c, stream, NULL);

	if (err)
		return err;
	__atomic_store_n(&c->served, true, __ATOMIC_RELAXED);
	err = pl_cuda_check(c->api.host_device_pointer(&host, box->host, 0));
	if (!err && !box->zeroed)
		err = pl_cuda_check(
			c->api.set_async(box->gpu, 0, sizeof(struct pl_serve_gpu), stream));
	box->zeroed |= !err;
	if (!err)
		err = pl_cuda_check(c->api.launch(box->function, blocks, 1, 1,
						  bytes ? THREADS : HOLD_THREADS, 1, 1, 0, stream,
						  args, NULL));
	pl_cuda_leave(c);
	return err;
}

/* ------------------------------------------------------------------ without the driver */

void pl_cuda_serve_begin(struct pl_serve *serve, uint32_t number)
{
	struct pl_cuda_box *box = box_of(serve);

	box->sent = 0;
	memset(box->target, 0, sizeof(box->target));
	memset(box->first, 0, sizeof(box->first));
	for (unsigned int i = 0; i < PL_SERVE_MARKS; i++)
		__atomic_store_n(&box->host->mark[i], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&box->host->posted, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&box->host->begun, number, __ATOMIC_RELEASE);
}

enum pl_serve_state pl_cuda_serve_state(const struct pl_serve *serve, uint32_t number)
{
	const struct pl_serve_host *host = box_of(serve)->host;

	if ((int32_t)(__atomic_load_n(&host->gone, __ATOMIC_ACQUIRE) - number) >= 0)
		return PL_SERVE_GONE;
	if ((int32_t)(__atomic_load_n(&host->here, __ATOMIC_ACQUIRE) - number) >= 0)
		return PL_SERVE_HERE;
	return PL_SERVE_COMING;
}

void pl_cuda_serve_quit(struct pl_serve *serve, uint32_t number)
{
	uint32_t *quit = &box_of(serve)->host->quit;
	uint32_t old = __atomic_load_n(quit, __ATOMIC_RELAXED);

	/* Whoever sees it sees the result of the request: the kernel, and what comes after it. It
	 * only rises: a request without a kernel may end after a later one. */
	while ((int32_t)(old - number) < 0 &&
	       !__atomic_compare_exchange_n(quit, &old, number, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

/* Whether @nr chunks fit: a place is free when every run from it on has ended. A block may be late
 * in reading a chunk that it took, so one run ahead of an older one does not count. */
static bool room_for(struct pl_cuda_box *box, uint32_t nr)
{
	uint32_t used = 0;

	for (unsigned int i = 0; i < PL_SERVE_MARKS; i++) {
		uint32_t first = __atomic_load_n(&box->first[i], __ATOMIC_ACQUIRE);

		if (first && pl_cuda_box_mark_done(box, i))
			continue;
		if (first && box->sent - (first - 1) > used)
			used = box->sent - (first - 1);
	}
	return nr <= PL_SERVE_RING - used;
}

static int wait_for_room(struct pl_cuda_box *box, uint32_t nr)
{
	const struct timespec nap = { .tv_nsec = ROOM_NAP_NS };

	for (unsigned int i = 0; !room_for(box, nr); i++) {
		if (i == ROOM_NAPS || nr > PL_SERVE_RING)
			return -ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* Few bytes are cut smaller, so that all blocks have some. */
static uint32_t chunk_bytes(const struct pl_copy *list, unsigned int nr)
{
	size_t total = 0, bytes;

	for (unsigned int i = 0; i < nr; i++)
		total += list[i].bytes;
	bytes = (total / BLOCKS + MIN_CHUNK - 1) & ~(size_t)(MIN_CHUNK - 1);
	return bytes > PL_SERVE_CHUNK ? PL_SERVE_CHUNK : bytes ? (uint32_t)bytes : MIN_CHUNK;
}

int pl_cuda_box_copy(struct pl_cuda_box *box, enum pl_dir dir, const struct pl_copy *list,
		     unsigned int nr, unsigned int mark)
{
	uint32_t most = chunk_bytes(list, nr), chunks = 0, at = box->sent;
	int err;

	pl_cuda_check(PL_CU_OK); /* what result() tells is not of this call */
	for (unsigned int i = 0; i < nr; i++)
		chunks += (uint32_t)((list[i].bytes + most - 1) / most);
	/* The run before was given up: the kernel may still be at it. */
	if (__atomic_load_n(&box->first[mark], __ATOMIC_ACQUIRE) &&
	    !pl_cuda_box_mark_done(box, mark))
		return -ETIMEDOUT;
	err = wait_for_room(box, chunks);
	if (err)
		return err;
	box->target[mark] += chunks;
	__atomic_store_n(&box->first[mark], at + 1, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < nr; i++) {
		for (size_t done = 0; done < list[i].bytes; done += most) {
			struct pl_serve_chunk *c = &box->host->ring[at++ % PL_SERVE_RING];
			size_t left = list[i].bytes - done;

			c->dst = (uint64_t)(uintptr_t)list[i].dst + done;
			c->src = (uint64_t)(uintptr_t)list[i].src + done;
			c->bytes = left < most ? (uint32_t)left : most;
			c->mark = mark;
			c->target = box->target[mark];
			c->to_host = dir == PL_FROM_GPU;
		}
	}
	box->sent = at;
	/* Pairs with the fence of the kernel: whoever sees the number sees the chunks, and what
	 * was put into their slots. */
	__atomic_store_n(&box->host->posted, at, __ATOMIC_RELEASE);
	return 0;
}

int pl_cuda_box_mark_done(struct pl_cuda_box *box, unsigned int mark)
{
	if (__atomic_load_n(&box->host->mark[mark], __ATOMIC_ACQUIRE) != box->target[mark])
		return 0;
	__atomic_store_n(&box->first[mark], 0, __ATOMIC_RELEASE);
	return 1;
}
