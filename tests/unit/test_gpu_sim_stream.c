/* SPDX-License-Identifier: MIT */
/* The work of the simulated GPU: queues, injected faults, streams, and many threads at once. */
#include "gpu_sim_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

/* ------------------------------------------------------------------ queues */

static void check_copies(const char *env)
{
	struct rig r = rig_up(env, 1024 * KIB);
	char *host = malloc(r.bytes), *back = malloc(r.bytes);
	struct pl_copy list[3] = {
		{ r.dev, r.pinned, 1000 },
		{ r.dev + 1000, host, 0 },
		{ r.dev + 1000, r.pinned + 1000, r.bytes - 1000 },
	};
	struct pl_copy rev = { back, r.dev, r.bytes };

	assert_int_equal(ops->mark_done(r.gpu, r.mark), 1);
	for (size_t i = 0; i < r.bytes; i++)
		r.pinned[i] = (char)(i * 7 + i / 4096);
	memset(host, 3, r.bytes);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, list, 3, r.mark), 0);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_FROM_GPU, &rev, 1, r.mark), 0);
	assert_int_equal(wait_mark(&r), 1);
	assert_memory_equal(back, r.pinned, r.bytes);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, NULL, 0, r.mark), 0);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, list, 3, NULL), 0);
	free(host);
	free(back);
	rig_down(&r);
}

static void check_bad_copies(const char *env)
{
	struct rig r = rig_up(env, 64 * KIB);
	char host[100] = "";
	struct pl_copy bad[] = {
		{ host, r.pinned, 100 },	     /* no GPU memory at all */
		{ r.dev, r.dev, 100 },		     /* both sides GPU */
		{ r.dev + r.bytes - 99, host, 100 }, /* past the end */
		{ r.dev - 1, host, 100 },	     /* before the start */
		{ r.dev, r.pinned + 1, r.bytes },    /* past the end of pinned memory */
		{ NULL, host, 100 },
		{ r.dev, host, SIZE_MAX },
	};
	struct pl_copy rev = { r.dev, host, 100 };
	struct pl_copy list[2] = { { r.dev, "first", 6 }, { host, host, 1 } };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, &bad[i], 1, r.mark), -EFAULT);
		assert_int_equal(ops->result(), 1);
		assert_int_equal(wait_mark(&r), 1);
	}
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_FROM_GPU, &rev, 1, r.mark), -EFAULT);
	assert_int_equal(wait_mark(&r), 1);
	/* What came before the bad one is done when the mark is passed. */
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, list, 2, r.mark), -EFAULT);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy_sync(r.gpu, host, r.dev, 6), 0);
	assert_string_equal(host, "first");
	rig_down(&r);
}

static void test_copy(void **state)
{
	struct pl_gpu *gpu = open_sim("");
	struct pl_queue *q = NULL;

	(void)state;
	assert_int_equal(ops->queue_create(gpu, NULL, &q), -EINVAL);
	ops->queue_destroy(gpu, NULL);
	ops->mark_destroy(gpu, NULL);
	ops->close(gpu);
	check_copies("");
	check_copies("ASYNC=1");
	check_copies("ASYNC=2000");
}

static void test_copy_refuses(void **state)
{
	(void)state;
	check_bad_copies("");
	check_bad_copies("ASYNC=1");
}

/* A queue copies to and from memory of its own GPU context only. */
static void check_owner(const char *env)
{
	struct rig r = rig_up(env, 4 * KIB);
	struct pl_copy back, both[2];
	void *other = NULL;
	char got[4];

	assert_int_equal(ops->alloc(r.gpu, 1, 4 * KIB, &other), 0);
	assert_ptr_not_equal(owner_of(r.gpu, other), owner_of(r.gpu, r.dev));
	back = (struct pl_copy){ r.pinned, other, 4 };
	both[0] = (struct pl_copy){ r.dev, r.pinned, 4 };
	both[1] = (struct pl_copy){ other, r.pinned, 4 };
	memcpy(r.pinned, "abc", 4);
	assert_int_equal(to_gpu(&r, other, r.pinned, 4), -EFAULT);
	assert_int_equal(ops->result(), 1);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_FROM_GPU, &back, 1, r.mark), -EFAULT);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, both, 2, r.mark), -EFAULT);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy_sync(r.gpu, got, r.dev, 4), 0);
	assert_string_equal(got, "abc");
	assert_int_equal(ops->free(r.gpu, other), 0);
	rig_down(&r);
}

static void test_copy_other_gpu(void **state)
{
	(void)state;
	check_owner("GPUS=2");
	check_owner("GPUS=2,ASYNC=1");
}

/* What a program with that fault does: a race, on purpose. */
__attribute__((no_sanitize("thread"), noinline)) static void overwrite(volatile char *p,
								       const char *text)
{
	do
		*p++ = *text;
	while (*text++);
}

static void test_async_shows_early_reuse(void **state)
{
	struct rig r = rig_up("ASYNC=100000", 4 * KIB);
	char got[4];

	(void)state;
	memcpy(r.pinned, "old", 4);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 4), 0);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 4), -EBUSY);
	overwrite(r.pinned, "new");
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->copy_sync(r.gpu, got, r.dev, 4), 0);
	assert_string_equal(got, "new");
	rig_down(&r);
}

static void test_async_late_failures(void **state)
{
	struct rig r = rig_up("ASYNC=50000", 4 * KIB);
	char *dev = alloc(r.gpu, 100), *pinned = pin(r.gpu, 100);
	struct pl_copy c = { r.dev, r.pinned, 100 };
	struct pl_mark *mark;

	(void)state;
	assert_int_equal(to_gpu(&r, dev, r.pinned, 100), 0);
	assert_int_equal(ops->free(r.gpu, dev), 0);
	assert_int_equal(wait_mark(&r), -EFAULT);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), -EFAULT);
	assert_int_equal(ops->result(), 1);
	assert_int_equal(to_gpu(&r, r.dev, pinned, 100), 0);
	ops->pin_free(r.gpu, pinned, 100);
	assert_int_equal(wait_mark(&r), -EFAULT);
	/* A mark is good again after a failure, and may go before its copies. */
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(ops->mark_create(r.gpu, r.queue, &mark), 0);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, &c, 1, mark), 0);
	ops->mark_destroy(r.gpu, mark);
	rig_down(&r);
}

static void test_queue_destroy_waits(void **state)
{
	struct rig r = rig_up("ASYNC=50000", 4 * KIB);
	char got[8] = "";

	(void)state;
	assert_int_equal(to_gpu(&r, r.dev, "waited", 7), 0);
	ops->queue_destroy(r.gpu, r.queue);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), 1);
	assert_int_equal(ops->copy_sync(r.gpu, got, r.dev, 7), 0);
	assert_string_equal(got, "waited");
	r.queue = NULL;
	rig_down(&r);
}

static void test_close_cleans_up(void **state)
{
	struct rig r = rig_up("ASYNC=1000", 4 * KIB);
	struct pl_gpu *gpu = open_sim("");
	uintptr_t key[2];

	(void)state;
	assert_int_equal(ops->stream_key(r.gpu, NULL, key), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	ops->close(r.gpu);
	ops->pin_free(gpu, r.pinned, r.bytes);
	assert_int_equal(ops->free(gpu, r.dev), 0);
	ops->close(gpu);
}

/* ------------------------------------------------------------------ injected faults */

static void check_hang(const char *env)
{
	struct rig r = rig_up(env, 4 * KIB);
	struct pl_copy c = { r.dev, r.pinned, 100 };
	struct pl_mark *next;

	assert_int_equal(ops->mark_create(r.gpu, r.queue, &next), 0);
	assert_int_equal(ops->inject(r.gpu, "hang", 1, 1), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	assert_int_equal(wait_mark(&r), 1);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	/* The queue keeps its order: what comes behind hangs too. */
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, &c, 1, next), 0);
	usleep(20000);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), 0);
	assert_int_equal(ops->mark_done(r.gpu, next), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), -EBUSY);
	assert_int_equal(ops->inject(r.gpu, "hang", 0, 0), 0);
	assert_int_equal(wait_mark(&r), 1);
	for (int i = 0; i < 50000 && !ops->mark_done(r.gpu, next); i++)
		usleep(100);
	assert_int_equal(ops->mark_done(r.gpu, next), 1);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	assert_int_equal(wait_mark(&r), 1);
	/* A queue that hangs can be destroyed. */
	assert_int_equal(ops->inject(r.gpu, "hang", 0, 1), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	assert_int_equal(ops->copy(r.gpu, r.queue, PL_TO_GPU, &c, 1, next), 0);
	ops->mark_destroy(r.gpu, next);
	rig_down(&r);
}

static void test_hang(void **state)
{
	(void)state;
	check_hang("");
	check_hang("ASYNC=1");
}

static void test_inject_copy(void **state)
{
	struct rig r = rig_up("FAIL=copy:1:2", 4 * KIB);

	(void)state;
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), -EREMOTEIO);
		assert_int_equal(ops->result(), 719);
		assert_int_equal(ops->mark_done(r.gpu, r.mark), 1);
	}
	assert_string_equal(ops->result_name(r.gpu, 719), "launch failed");
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), 0);
	assert_int_equal(ops->inject(r.gpu, "copy", 0, 9), 0);
	assert_int_equal(ops->inject(r.gpu, "copy", 5, 0), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), 0);
	assert_int_equal(ops->inject(r.gpu, "typo", 0, 1), -EINVAL);
	assert_int_equal(ops->inject(r.gpu, NULL, 0, 1), -EINVAL);
	rig_down(&r);

	r = rig_up("ASYNC=1", 4 * KIB);
	assert_int_equal(ops->inject(r.gpu, "copy", 0, 1), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), 0);
	assert_int_equal(wait_mark(&r), -EREMOTEIO);
	assert_int_equal(ops->result(), 719);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), 0);
	assert_int_equal(wait_mark(&r), 1);
	rig_down(&r);
}

static void noop_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	(void)args;
}

static void test_inject_others(void **state)
{
	struct peerlane_kernel k = { .host = noop_kernel };
	struct rig r = rig_up("IN_PLACE=1,FAIL=launch:0:1+register:0:1", 4 * KIB);
	char word[8];
	void *p = NULL;

	(void)state;
	assert_int_equal(ops->inject(r.gpu, "alloc", 0, 1), 0);
	assert_int_equal(ops->alloc(r.gpu, 0, 1, &p), -ENOMEM);
	assert_int_equal(ops->alloc(r.gpu, 0, 1, &p), 0);
	assert_int_equal(ops->free(r.gpu, p), 0);
	assert_int_equal(ops->inject(r.gpu, "pin", 0, 1), 0);
	assert_int_equal(ops->pin_alloc(r.gpu, 1, &p), -ENOMEM);
	assert_int_equal(ops->pin_alloc(r.gpu, 1, &p), 0);
	ops->pin_free(r.gpu, p, 1);
	assert_int_equal(ops->pin_register(r.gpu, 0, word, 8), -EREMOTEIO);
	assert_int_equal(ops->result(), 304);
	assert_int_equal(ops->pin_register(r.gpu, 0, word, 8), 0);
	ops->pin_unregister(r.gpu, 0, word);
	assert_int_equal(ops->launch(r.gpu, NULL, &k, 1, 1, NULL, NULL, 0), -EREMOTEIO);
	assert_int_equal(ops->result(), 719);
	assert_int_equal(ops->launch(r.gpu, NULL, &k, 1, 1, NULL, NULL, 0), 0);
	assert_int_equal(ops->inject(r.gpu, "event", 1, 1), 0);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 1), 0);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), 1);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), -EREMOTEIO);
	assert_int_equal(ops->mark_done(r.gpu, r.mark), 1);
	rig_down(&r);
}

/* ------------------------------------------------------------------ streams */

struct order {
	int next;
	int seen[8];
};

struct step {
	struct order *order;
	int id;
};

static void record(void *arg)
{
	struct step *s = arg;

	usleep(1000);
	s->order->seen[s->order->next++] = s->id;
}

/* args: GPU address of counters, number to add, the order. */
static void add_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	uint32_t *v = peerlane_sim_host(*(void **)args[0]);

	v[block] += *(uint32_t *)args[1] * nr_blocks;
}

static void test_stream_order(void **state)
{
	struct rig r = rig_up("", 4 * KIB);
	struct order order = { .next = 0 };
	struct step steps[3] = { { &order, 1 }, { &order, 2 }, { &order, 3 } };
	uint32_t *flag = (uint32_t *)(void *)r.pinned;
	void *stream = NULL, *second = NULL;
	uintptr_t key[2], key2[2];

	(void)state;
	assert_int_equal(ops->stream_create(r.gpu, 1, &stream), -ENODEV);
	assert_int_equal(ops->stream_create(r.gpu, 0, &stream), 0);
	assert_int_equal(ops->stream_create(r.gpu, 0, &second), 0);
	assert_int_equal(ops->stream_key(r.gpu, stream, key), 0);
	assert_int_equal(key[0], (uintptr_t)stream);
	assert_int_equal(key[1], 0);
	assert_int_equal(ops->stream_key(r.gpu, NULL, key), 0);
	assert_int_equal(ops->stream_key(r.gpu, NULL, key2), 0);
	assert_memory_equal(key, key2, sizeof(key));
	assert_int_not_equal(key[0], (uintptr_t)stream);

	*flag = UINT32_MAX - 1; /* the comparison goes round */
	assert_int_equal(ops->stream_call(r.gpu, stream, record, &steps[0]), 0);
	assert_int_equal(ops->stream_hold(r.gpu, stream, flag, 1), 0);
	assert_int_equal(ops->stream_call(r.gpu, stream, record, &steps[1]), 0);
	/* One stream does not hold another. */
	assert_int_equal(ops->stream_sync(r.gpu, second), 0);
	usleep(20000);
	__atomic_store_n(flag, 0, __ATOMIC_RELEASE);
	usleep(20000);
	assert_int_equal(ops->stream_call(r.gpu, stream, record, &steps[2]), 0);
	__atomic_store_n(flag, 2, __ATOMIC_RELEASE);
	assert_int_equal(ops->stream_sync(r.gpu, stream), 0);
	assert_int_equal(order.next, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(order.seen[i], i + 1);
	ops->stream_destroy(r.gpu, second);
	ops->stream_destroy(r.gpu, second);
	assert_int_equal(ops->stream_sync(r.gpu, second), -EINVAL);
	assert_int_equal(ops->result(), 400);
	assert_int_equal(ops->stream_call(r.gpu, stream, NULL, NULL), -EINVAL);
	assert_int_equal(ops->stream_call(r.gpu, &r, record, NULL), -EINVAL);
	assert_int_equal(ops->stream_hold(r.gpu, stream, NULL, 0), -EFAULT);
	assert_int_equal(ops->stream_hold(r.gpu, stream, (uint32_t *)(void *)&order, 0), -EFAULT);
	assert_int_equal(ops->stream_hold(r.gpu, &r, flag, 0), -EINVAL);
	ops->stream_destroy(r.gpu, stream);
	ops->stream_destroy(r.gpu, NULL);
	rig_down(&r);
}

static void test_launch(void **state)
{
	struct peerlane_kernel k = { .name = "add", .host = add_kernel }, none = { .name = "x" };
	struct rig r = rig_up("", 4 * KIB);
	uint32_t add = 5, got[4] = { 0 }, zero[4] = { 0 };
	void *dev = r.dev, *stream = NULL;
	void *args[17] = { &dev, &add };
	size_t sizes[17] = { sizeof(dev), sizeof(add) }, huge[1] = { 5000 };
	struct pl_gpu *other = open_sim("");

	(void)state;
	assert_int_equal(ops->stream_create(r.gpu, 0, &stream), 0);
	assert_int_equal(ops->launch(r.gpu, stream, &none, 1, 1, args, sizes, 2), -EINVAL);
	assert_int_equal(ops->launch(r.gpu, stream, NULL, 1, 1, args, sizes, 2), -EINVAL);
	assert_int_equal(ops->launch(r.gpu, stream, &k, 1, 1, args, sizes, 17), -EINVAL);
	assert_int_equal(ops->launch(r.gpu, stream, &k, 0, 1, args, sizes, 2), -EINVAL);
	assert_int_equal(ops->launch(r.gpu, stream, &k, 1, 1, NULL, sizes, 2), -EINVAL);
	assert_int_equal(ops->launch(r.gpu, stream, &k, 1, 1, args, huge, 1), -EINVAL);
	assert_int_equal(ops->launch(r.gpu, &r, &k, 1, 1, args, sizes, 2), -EINVAL);

	assert_int_equal(ops->copy_sync(r.gpu, r.dev, zero, sizeof(zero)), 0);
	assert_int_equal(ops->launch(r.gpu, stream, &k, 4, 32, args, sizes, 2), 0);
	add = 1; /* arguments were taken at the launch */
	dev = NULL;
	assert_int_equal(ops->stream_sync(r.gpu, stream), 0);
	assert_int_equal(ops->copy_sync(r.gpu, got, r.dev, sizeof(got)), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(got[i], 20);
	/* Streams are the driver's: another instance may use them; destroying finishes the work. */
	dev = r.dev;
	assert_int_equal(ops->launch(other, stream, &k, 2, 32, args, sizes, 2), 0);
	ops->stream_destroy(other, stream);
	assert_int_equal(ops->copy_sync(r.gpu, got, r.dev, sizeof(got)), 0);
	assert_int_equal(got[0], 22);
	assert_int_equal(got[2], 20);
	ops->close(other);
	rig_down(&r);
}

static void test_default_stream(void **state)
{
	struct peerlane_kernel k = { .host = add_kernel };
	struct rig r = rig_up("", 4 * KIB);
	struct order order = { .next = 0 };
	struct step step = { &order, 1 };
	uint32_t add = 7, got = 0;
	void *dev = r.dev, *args[2] = { &dev, &add };
	size_t sizes[2] = { sizeof(dev), sizeof(add) };

	(void)state;
	assert_int_equal(ops->stream_sync(r.gpu, NULL), 0);
	assert_int_equal(ops->stream_call(r.gpu, NULL, record, &step), 0);
	assert_int_equal(ops->launch(r.gpu, NULL, &k, 1, 1, args, sizes, 2), 0);
	/* A synchronous copy comes behind the default stream. */
	assert_int_equal(ops->copy_sync(r.gpu, &got, r.dev, 4), 0);
	assert_int_equal(got, 7);
	assert_int_equal(order.next, 1);
	assert_int_equal(ops->copy_sync(r.gpu, &got, r.dev, r.bytes + 1), -EFAULT);
	assert_int_equal(ops->result(), 1);
	assert_int_equal(ops->stream_sync(r.gpu, NULL), 0);
	rig_down(&r);
}

/* A hold nobody ends delays the end of a stream, but not for ever. */
static void test_stream_destroy_gives_up(void **state)
{
	struct peerlane_kernel k = { .host = add_kernel };
	struct rig r = rig_up("", 4 * KIB);
	struct order order = { .next = 0 };
	struct step step = { &order, 1 };
	uint32_t add = 7, got = 0;
	void *dev = r.dev, *args[2] = { &dev, &add }, *stream = NULL;
	size_t sizes[2] = { sizeof(dev), sizeof(add) };

	(void)state;
	memset(r.pinned, 0, 4);
	assert_int_equal(ops->stream_create(r.gpu, 0, &stream), 0);
	assert_int_equal(ops->stream_hold(r.gpu, stream, (uint32_t *)(void *)r.pinned, 1), 0);
	assert_int_equal(ops->launch(r.gpu, stream, &k, 1, 1, args, sizes, 2), 0);
	assert_int_equal(ops->stream_call(r.gpu, stream, record, &step), 0);
	ops->stream_destroy(r.gpu, stream);
	assert_int_equal(order.next, 1);
	assert_int_equal(ops->copy_sync(r.gpu, &got, r.dev, 4), 0);
	assert_int_equal(got, 0);
	rig_down(&r);
}

/* ------------------------------------------------------------------ threads */

static char *_Atomic shared;
static atomic_uint slice; /* of pinned memory, one a thread */

/* Allocates, copies and frees its own, and copies from what another thread frees. */
static void *stress(void *arg)
{
	struct rig *r = arg;
	char *mine = r->pinned + atomic_fetch_add(&slice, 1) % 4 * 4096;
	char buf[3000], back[3000];

	for (int i = 0; i < 300; i++) {
		char *dev = alloc(r->gpu, 100000), *old;
		struct pl_copy c = { mine, NULL, sizeof(back) };
		int err;

		memset(buf, i, sizeof(buf));
		if (ops->copy_sync(r->gpu, dev + i, buf, sizeof(buf)) ||
		    ops->copy_sync(r->gpu, back, dev + i, sizeof(back)) ||
		    memcmp(buf, back, sizeof(buf)) != 0)
			return arg;
		old = atomic_exchange(&shared, dev);
		if (old && ops->free(r->gpu, old))
			return arg;
		c.src = atomic_load(&shared);
		err = ops->copy(r->gpu, r->queue, PL_FROM_GPU, &c, 1, NULL);
		if (err && err != -EFAULT)
			return arg;
		ops->pin_free(r->gpu, pin(r->gpu, 5000), 5000);
	}
	return NULL;
}

static void check_threads(const char *env)
{
	struct rig r = rig_up(env, 64 * KIB);
	pthread_t threads[4];
	void *failed;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stress, &r), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(ops->free(r.gpu, atomic_exchange(&shared, NULL)), 0);
	rig_down(&r);
}

static void test_threads(void **state)
{
	(void)state;
	check_threads("");
	check_threads("ASYNC=1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_copy_refuses),
		cmocka_unit_test(test_copy_other_gpu),
		cmocka_unit_test(test_async_shows_early_reuse),
		cmocka_unit_test(test_async_late_failures),
		cmocka_unit_test(test_queue_destroy_waits),
		cmocka_unit_test(test_close_cleans_up),
		cmocka_unit_test(test_hang),
		cmocka_unit_test(test_inject_copy),
		cmocka_unit_test(test_inject_others),
		cmocka_unit_test(test_stream_order),
		cmocka_unit_test(test_launch),
		cmocka_unit_test(test_default_stream),
		cmocka_unit_test(test_stream_destroy_gives_up),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
