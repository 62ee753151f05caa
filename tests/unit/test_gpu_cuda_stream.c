// SPDX-License-Identifier: MIT
/* The CUDA back end over the fake libcuda: streams, kernels, the caller's context, and forks. */
#include "fake/cuda_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

static const struct peerlane_kernel reverse = {
	.name = "reverse",
	.ptx = ".version 6.3\n.target sm_75\n.visible .entry reverse(\n",
};

/* ------------------------------------------------------------------ streams */

static void count_up(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_RELEASE);
}

static int count_of(const int *n)
{
	return __atomic_load_n(n, __ATOMIC_ACQUIRE);
}

static void wait_count(const int *n, int want)
{
	for (int i = 0; i < 50000 && count_of(n) != want; i++)
		nap();
	assert_int_equal(count_of(n), want);
}

/* A call before and one after a hold; the word goes round zero on its way. */
static void hold_in_order(int ordinal)
{
	int before = 0, after = 0;
	void *stream, *word;
	uint32_t *flag;

	assert_int_equal(ops->pin_alloc(gpu, PAGE, &word), 0);
	flag = word;
	*flag = UINT32_MAX;
	assert_int_equal(ops->stream_create(gpu, ordinal, &stream), 0);
	assert_int_equal(ops->stream_call(gpu, stream, count_up, &before), 0);
	assert_int_equal(ops->stream_hold(gpu, stream, flag, 1), 0);
	assert_int_equal(ops->stream_call(gpu, stream, count_up, &after), 0);
	wait_count(&before, 1);
	__atomic_store_n(flag, 0, __ATOMIC_RELEASE);
	for (int i = 0; i < 20; i++)
		nap();
	assert_int_equal(count_of(&after), 0);
	__atomic_store_n(flag, 2, __ATOMIC_RELEASE);
	assert_int_equal(ops->stream_sync(gpu, stream), 0);
	assert_int_equal(count_of(&after), 1);
	/* What has passed already does not hold. */
	assert_int_equal(ops->stream_hold(gpu, stream, flag, 2), 0);
	assert_int_equal(ops->stream_sync(gpu, stream), 0);
	ops->stream_destroy(gpu, stream);
	ops->pin_free(gpu, word, PAGE);
}

static void test_stream_order(void **state)
{
	(void)state;
	hold_in_order(0);
	hold_in_order(1);
}

static void test_stream_order_without_wait_value(void **state)
{
	(void)state;
	inject("cuStreamWaitValue32:0:801");
	hold_in_order(1);
}

/* Pinned pages of a file come and go while the program's streams wait for that very I/O. */
static void test_register_beside_held_stream(void **state)
{
	void *page = NULL, *stream, *word;

	(void)state;
	assert_int_equal(posix_memalign(&page, PAGE, PAGE), 0);
	assert_int_equal(ops->pin_alloc(gpu, PAGE, &word), 0);
	*(uint32_t *)word = 0;
	assert_int_equal(ops->stream_create(gpu, 0, &stream), 0);
	assert_int_equal(ops->stream_hold(gpu, stream, word, 1), 0);
	alarm(60);
	assert_int_equal(ops->pin_register(gpu, 0, page, PAGE), 0);
	ops->pin_unregister(gpu, 0, page);
	alarm(0);
	__atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
	ops->stream_destroy(gpu, stream);
	ops->pin_free(gpu, word, PAGE);
	free(page);
}

static void test_stream_errors(void **state)
{
	void *stream = NULL, *word;
	uint32_t plain = 0;
	int n = 0;

	(void)state;
	assert_int_equal(ops->stream_create(gpu, 2, &stream), -ENODEV);
	inject("cuStreamCreateWithPriority:0:2:1");
	assert_int_equal(ops->stream_create(gpu, 0, &stream), -ENOMEM);
	assert_null(stream);
	assert_int_equal(ops->pin_alloc(gpu, PAGE, &word), 0);
	*(uint32_t *)word = 0;
	assert_int_equal(ops->stream_create(gpu, 0, &stream), 0);
	inject("cuLaunchHostFunc:0:900:1");
	assert_int_equal(ops->stream_call(gpu, stream, count_up, &n), -EREMOTEIO);
	assert_int_equal(ops->result(), 900);
	inject("cuStreamWaitValue32:0:900:1");
	assert_int_equal(ops->stream_hold(gpu, stream, word, 1), -EREMOTEIO);
	assert_int_equal(ops->result(), 900);
	assert_true(ops->stream_hold(gpu, stream, &plain, 1) < 0);
	assert_int_equal(ops->stream_sync(gpu, stream), 0);
	assert_int_equal(n, 0);
	ops->stream_destroy(gpu, stream);
	ops->stream_destroy(gpu, NULL);
	ops->pin_free(gpu, word, PAGE);
}

static void test_stream_keys(void **state)
{
	uintptr_t none[2], one[2], two[2], made[2];
	void *a, *b, *stream;

	(void)state;
	assert_int_equal(ops->stream_key(gpu, NULL, none), 0);
	assert_int_equal(cu.cuCtxCreate_v2(&a, 0, 0), 0);
	assert_int_equal(cu.cuStreamCreate(&stream, 0), 0);
	assert_int_equal(ops->stream_key(gpu, NULL, one), 0);
	assert_int_equal(cu.cuCtxCreate_v2(&b, 0, 0), 0);
	assert_int_equal(ops->stream_key(gpu, NULL, two), 0);
	assert_int_equal(ops->stream_key(gpu, stream, made), 0);
	assert_memory_not_equal(none, one, sizeof(one));
	assert_memory_not_equal(one, two, sizeof(one));
	assert_memory_not_equal(one, made, sizeof(one));
	assert_int_equal(ops->stream_key(gpu, NULL, one), 0);
	assert_memory_equal(one, two, sizeof(one));
	/* The two names of the default stream. */
	assert_int_equal(ops->stream_key(gpu, CU_STREAM_LEGACY, one), 0);
	assert_memory_equal(one, two, sizeof(one));
	assert_int_equal(ops->stream_key(gpu, CU_STREAM_PER_THREAD, one), 0);
	assert_memory_not_equal(one, two, sizeof(one));
	assert_int_equal(cu.cuCtxDestroy_v2(b), 0);
	assert_int_equal(cu.cuCtxPushCurrent_v2(a), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(a), 0);
}

static void test_default_streams(void **state)
{
	void *const streams[] = { NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD };
	int n = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ops->stream_call(gpu, streams[i], count_up, &n), 0);
		assert_int_equal(ops->stream_sync(gpu, streams[i]), 0);
		assert_int_equal(count_of(&n), i + 1);
	}
}

static void test_launch(void **state)
{
	struct peerlane_kernel wrong = { .name = "reverse", .ptx = "no kernel" };
	struct peerlane_kernel missing = { .name = "turn", .ptx = reverse.ptx };
	char *dev = alloc(1, 100), text[6] = "";
	unsigned long long n = 5;
	void *args[] = { &dev, &n }, *stream;
	const size_t arg_bytes[] = { sizeof(dev), sizeof(n) };

	(void)state;
	assert_int_equal(ops->stream_create(gpu, 1, &stream), 0);
	assert_int_equal(ops->copy_sync(gpu, dev, "abcde", 5), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ops->launch(gpu, stream, &reverse, 1, 32, args, arg_bytes, 2), 0);
	n = 3;
	assert_int_equal(ops->launch(gpu, stream, &reverse, 7, 256, args, arg_bytes, 2), 0);
	assert_int_equal(ops->stream_sync(gpu, stream), 0);
	assert_int_equal(ops->copy_sync(gpu, text, dev, 5), 0);
	assert_string_equal(text, "cdeba");
	assert_int_equal(ops->launch(gpu, stream, &wrong, 1, 1, args, arg_bytes, 2), -EREMOTEIO);
	assert_int_equal(ops->result(), CU_INVALID_PTX);
	assert_int_equal(ops->launch(gpu, stream, &missing, 1, 1, args, arg_bytes, 2), -EREMOTEIO);
	assert_int_equal(ops->result(), CU_NOT_FOUND);
	assert_true(ops->launch(gpu, stream, &reverse, 1, 2048, args, arg_bytes, 2) < 0);
	assert_true(ops->launch(gpu, stream, &reverse, 0, 1, args, arg_bytes, 2) < 0);
	assert_int_equal(ops->launch(gpu, stream, &reverse, 1, 1, args, arg_bytes, 17), -EINVAL);
	ops->stream_destroy(gpu, stream);
	assert_int_equal(ops->free(gpu, dev), 0);
}

/* A kernel is known by its text and name, not by where the caller keeps them. */
static void test_launch_from_stack(void **state)
{
	char *dev = alloc(0, 4), text[5] = "", name[16], ptx[80];
	struct peerlane_kernel kernel = { .name = name, .ptx = ptx };
	unsigned long long n = 4;
	void *args[] = { &dev, &n }, *stream;
	const size_t arg_bytes[] = { sizeof(dev), sizeof(n) };

	(void)state;
	snprintf(name, sizeof(name), "%s", reverse.name);
	snprintf(ptx, sizeof(ptx), "%s", reverse.ptx);
	assert_int_equal(ops->stream_create(gpu, 0, &stream), 0);
	assert_int_equal(ops->copy_sync(gpu, dev, "abcd", 4), 0);
	assert_int_equal(ops->launch(gpu, stream, &kernel, 1, 1, args, arg_bytes, 2), 0);
	snprintf(name, sizeof(name), "%s", "turn");
	assert_int_equal(ops->launch(gpu, stream, &kernel, 1, 1, args, arg_bytes, 2), -EREMOTEIO);
	snprintf(name, sizeof(name), "%s", reverse.name);
	snprintf(ptx, sizeof(ptx), "%s", "no kernel");
	assert_int_equal(ops->launch(gpu, stream, &kernel, 1, 1, args, arg_bytes, 2), -EREMOTEIO);
	assert_int_equal(ops->stream_sync(gpu, stream), 0);
	assert_int_equal(ops->copy_sync(gpu, text, dev, 4), 0);
	assert_string_equal(text, "dcba");
	ops->stream_destroy(gpu, stream);
	assert_int_equal(ops->free(gpu, dev), 0);
}

/* ------------------------------------------------------------------ the caller's context */

#define SAME(call)                                                                                 \
	do {                                                                                       \
		call;                                                                              \
		assert_ptr_equal(current(), mine);                                                 \
	} while (0)
#define SAME_OK(call) SAME(assert_int_equal(call, 0))
#define SAME_BAD(call) SAME(assert_true((call) < 0))

static void memory_ops_keep(void *mine, int ordinal)
{
	struct pl_mem mem;
	void *dev = NULL, *pinned = NULL;
	char text[16] = "some text", *page = NULL;

	assert_int_equal(posix_memalign((void **)&page, PAGE, PAGE), 0);
	SAME_OK(ops->alloc(gpu, ordinal, PAGE, &dev));
	SAME_BAD(ops->alloc(gpu, ordinal, (size_t)1 << 50, &pinned));
	SAME_OK(ops->query(gpu, dev, &mem));
	SAME_OK(ops->query(gpu, text, &mem));
	SAME_OK(ops->pin_alloc(gpu, PAGE, &pinned));
	SAME_OK(ops->query(gpu, pinned, &mem));
	SAME_OK(ops->copy_sync(gpu, dev, text, sizeof(text)));
	SAME_OK(ops->copy_sync(gpu, pinned, dev, sizeof(text)));
	SAME_BAD(ops->copy_sync(gpu, pinned, dev, 2 * PAGE));
	SAME_OK(ops->pin_register(gpu, ordinal, page, PAGE));
	SAME_BAD(ops->pin_register(gpu, ordinal, page, PAGE));
	SAME(ops->pin_unregister(gpu, ordinal, page));
	SAME(ops->pin_free(gpu, pinned, PAGE));
	SAME_OK(ops->free(gpu, dev));
	SAME_BAD(ops->free(gpu, dev));
	free(page);
}

static void queue_ops_keep(void *mine, int ordinal)
{
	struct pl_copy to = { .bytes = PAGE }, from = { .bytes = PAGE };
	struct pl_queue *queue = NULL;
	struct pl_mark *mark = NULL;
	void *pinned = NULL, *owner;

	to.dst = alloc(ordinal, PAGE);
	owner = owner_of(to.dst);
	from.src = to.dst;
	assert_int_equal(ops->pin_alloc(gpu, PAGE, &pinned), 0);
	from.dst = pinned;
	to.src = pinned;
	SAME_OK(ops->queue_create(gpu, owner, &queue));
	SAME_OK(ops->mark_create(gpu, queue, &mark));
	SAME_OK(ops->copy(gpu, queue, PL_TO_GPU, &to, 1, mark));
	SAME(assert_int_equal(wait_mark(mark), 1));
	SAME_OK(ops->copy(gpu, queue, PL_FROM_GPU, &from, 1, mark));
	SAME(assert_int_equal(wait_mark(mark), 1));
	assert_int_equal(ops->free(gpu, to.dst), 0);
	SAME_BAD(ops->copy(gpu, queue, PL_TO_GPU, &to, 1, mark));
	SAME(ops->mark_destroy(gpu, mark));
	SAME(ops->queue_destroy(gpu, queue));
	inject("cuStreamCreateWithPriority:0:2:1");
	SAME_BAD(ops->queue_create(gpu, owner, &queue));
	ops->pin_free(gpu, pinned, PAGE);
}

static void stream_ops_keep(void *mine, int ordinal)
{
	void *dev = alloc(ordinal, PAGE), *stream = NULL, *pinned = NULL;
	unsigned long long n = 100;
	void *args[] = { &dev, &n };
	const size_t arg_bytes[] = { sizeof(dev), sizeof(n) };
	uintptr_t key[2];
	int calls = 0;

	assert_int_equal(ops->pin_alloc(gpu, PAGE, &pinned), 0);
	*(uint32_t *)pinned = 1;
	SAME_OK(ops->stream_create(gpu, ordinal, &stream));
	SAME_OK(ops->stream_key(gpu, stream, key));
	SAME_OK(ops->stream_key(gpu, NULL, key));
	SAME_OK(ops->stream_call(gpu, stream, count_up, &calls));
	SAME_OK(ops->stream_call(gpu, NULL, count_up, &calls));
	SAME_OK(ops->stream_hold(gpu, stream, pinned, 1));
	SAME_BAD(ops->stream_hold(gpu, stream, (uint32_t *)key, 1));
	SAME_OK(ops->launch(gpu, stream, &reverse, 1, 32, args, arg_bytes, 2));
	SAME_BAD(ops->launch(gpu, stream, &reverse, 0, 32, args, arg_bytes, 2));
	SAME_OK(ops->stream_sync(gpu, stream));
	SAME_OK(ops->stream_sync(gpu, NULL));
	SAME(ops->stream_destroy(gpu, stream));
	assert_int_equal(count_of(&calls), 2);
	ops->pin_free(gpu, pinned, PAGE);
	assert_int_equal(ops->free(gpu, dev), 0);
}

static void all_ops_keep(void *mine)
{
	struct peerlane_gpu_info info;

	for (int i = 0; i < 2; i++) {
		memory_ops_keep(mine, i);
		queue_ops_keep(mine, i);
		stream_ops_keep(mine, i);
		memset(&info, 0, sizeof(info));
		SAME_OK(ops->info(gpu, i, &info));
	}
	SAME(ops->count(gpu));
}

static void test_current_context_kept(void **state)
{
	void *a, *b, *primary;

	(void)state;
	assert_null(current());
	all_ops_keep(NULL);
	assert_int_equal(cu.cuCtxCreate_v2(&a, 0, 0), 0);
	all_ops_keep(a);
	assert_int_equal(cu.cuCtxCreate_v2(&b, 0, 1), 0);
	all_ops_keep(b);
	assert_int_equal(cu.cuDevicePrimaryCtxRetain(&primary, 1), 0);
	assert_int_equal(cu.cuCtxSetCurrent(primary), 0);
	all_ops_keep(primary);
	assert_int_equal(cu.cuDevicePrimaryCtxRelease_v2(1), 0);
	assert_int_equal(cu.cuCtxSetCurrent(NULL), 0);
	assert_ptr_equal(current(), a);
	assert_int_equal(cu.cuCtxDestroy_v2(b), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(a), 0);
	assert_null(current());
}

/* What is left of a context that the program destroyed does no harm. */
static void test_context_destroyed(void **state)
{
	char text[512];
	struct pl_queue *queue;
	struct pl_mark *mark;
	struct pl_mem mem;
	uint64_t addr;
	void *ctx;

	(void)state;
	assert_int_equal(cu.cuCtxCreate_v2(&ctx, 0, 0), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, 100), 0);
	assert_int_equal(ops->query(gpu, (void *)(uintptr_t)addr, &mem), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	assert_int_equal(ops->queue_create(gpu, mem.owner, &queue), 0);
	assert_int_equal(ops->mark_create(gpu, queue, &mark), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(ctx), 0);
	/* Nothing was queued, so nothing has to end. */
	assert_true(ops->mark_done(gpu, mark) != 0);
	ops->mark_destroy(gpu, mark);
	ops->queue_destroy(gpu, queue);
	assert_true(leaks(text, sizeof(text)) > 0);
	violations(text, sizeof(text));
}

static void test_fork(void **state)
{
	char text[256];
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(ops->free(gpu, alloc(0, 100)), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		ops->abandon(gpu);
		_exit(violations(text, sizeof(text)) != 0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ------------------------------------------------------------------ the fake itself */

static void call_back(void *arg)
{
	uint64_t addr;

	*(int *)arg = cu.cuMemAlloc_v2(&addr, 10);
}

static void test_fake_is_strict(void **state)
{
	int result = 0;
	char text[256];
	uint64_t addr;
	void *ctx;

	(void)state;
	assert_int_equal(cu.cuMemAlloc_v2(&addr, 10), CU_INVALID_CONTEXT);
	assert_int_equal(cu.cuCtxPopCurrent_v2(&ctx), CU_INVALID_CONTEXT);
	assert_int_equal(violations(text, sizeof(text)), 1);
	assert_int_equal(cu.cuCtxCreate_v2(&ctx, 0, 0), 0);
	assert_int_equal(cu.cuLaunchHostFunc(NULL, call_back, &result), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	assert_int_equal(result, CU_NOT_PERMITTED);
	assert_int_equal(violations(text, sizeof(text)), 1);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, 10), 0);
	assert_int_equal(cu.cuMemcpyHtoD_v2(addr, text, 11), CU_INVALID_VALUE);
	assert_int_equal(cu.cuCtxPushCurrent_v2(ctx), 0);
	assert_int_equal(leaks(text, sizeof(text)), 3);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	assert_int_equal(cu.cuMemFree_v2(addr), CU_INVALID_VALUE);
	assert_int_equal(cu.cuCtxDestroy_v2(ctx), 0);
	assert_int_equal(inject("nonsense"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(stream_order),
		TEST(stream_order_without_wait_value),
		TEST(register_beside_held_stream),
		TEST(stream_errors),
		TEST(stream_keys),
		TEST(default_streams),
		TEST(launch),
		TEST(launch_from_stack),
		TEST(current_context_kept),
		TEST(context_destroyed),
		TEST(fork),
		TEST(fake_is_strict),
	};

	return RUN_TESTS(tests);
}
