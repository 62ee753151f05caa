// SPDX-License-Identifier: MIT
/* The CUDA back end over the fake libcuda: opening, memory, queues, and their errors. */
#include "fake/cuda_fixture.h"

#include <pthread.h>

#define NR_THREADS 8
#define NR_SMALL 32u

/* ------------------------------------------------------------------ opening */

static void expect_no_open(const char *word)
{
	struct pl_gpu *none = NULL;
	char why[160] = "";

	assert_int_equal(pl_gpu_cuda.open(&none, why, sizeof(why)), -ENODEV);
	assert_null(none);
	if (!strstr(why, word))
		fail_msg("\"%s\" does not say \"%s\"", why, word);
}

static void test_no_library(void **state)
{
	(void)state;
	setenv("PEERLANE_LIBCUDA", "/nonexistent", 1);
	expect_no_open("/nonexistent");
	assert_clean();
}

static void test_library_lacks_symbols(void **state)
{
	(void)state;
	setenv("PEERLANE_LIBCUDA", "libm.so.6", 1);
	expect_no_open("cuInit");
	assert_clean();
}

static void test_no_gpu(void **state)
{
	(void)state;
	setenv("PEERLANE_LIBCUDA", fake_path, 1);
	setenv("FAKE_CUDA_GPUS", "0", 1);
	expect_no_open("CUDA_ERROR_NO_DEVICE (100)");
	unsetenv("FAKE_CUDA_GPUS");
	inject("cuInit:0:999");
	expect_no_open("999");
	inject("cuDeviceGetCount:0:3");
	expect_no_open("CUDA_ERROR_NOT_INITIALIZED (3)");
	inject(NULL);
	assert_clean();
}

static void test_open_twice(void **state)
{
	struct pl_gpu *second = NULL;
	char why[160];
	void *a, *b;

	(void)state;
	assert_int_equal(pl_gpu_cuda.open(&second, why, sizeof(why)), 0);
	a = alloc(0, 100);
	assert_int_equal(second->ops->alloc(second, 0, 100, &b), 0);
	assert_int_equal(second->ops->free(second, a), 0);
	second->ops->close(second);
	assert_int_equal(ops->free(gpu, b), 0);
}

static void test_devices(void **state)
{
	struct peerlane_gpu_info info;

	(void)state;
	assert_int_equal(ops->count(gpu), 2);
	for (int i = 0; i < 2; i++) {
		memset(&info, 0, sizeof(info));
		assert_int_equal(ops->info(gpu, i, &info), 0);
		assert_string_equal(info.name, i ? "Fake GPU 1" : "Fake GPU 0");
		assert_string_equal(info.pci, i ? "ffff:f1:00.0" : "ffff:f0:00.0");
		assert_non_null(strstr(info.driver, "CUDA 13.0"));
		assert_true(info.memory_bytes == 8ull << 30);
		assert_int_equal(info.numa_node, -1);
		assert_int_equal(info.copy_lists, 1);
	}
	assert_int_equal(ops->info(gpu, 2, &info), -ENODEV);
	assert_int_equal(ops->info(gpu, -1, &info), -ENODEV);
	assert_string_equal(ops->result_name(gpu, 700), "CUDA_ERROR_ILLEGAL_ADDRESS");
	assert_non_null(ops->result_name(gpu, 12345));
}

/* ------------------------------------------------------------------ memory */

static void test_query_device(void **state)
{
	struct pl_mem mem;

	(void)state;
	for (int i = 0; i < 2; i++) {
		char *addr = alloc(i, 100000);

		assert_int_equal(ops->query(gpu, addr + 99999, &mem), 0);
		assert_int_equal(mem.kind, PL_MEM_DEVICE);
		assert_int_equal(mem.gpu, i);
		assert_true(mem.base == (uintptr_t)addr);
		assert_true(mem.bytes == 100000);
		assert_null(mem.host);
		assert_non_null(mem.owner);
		assert_int_equal(ops->query(gpu, addr + 100000, &mem), 0);
		assert_int_equal(mem.kind, PL_MEM_HOST);
		assert_int_equal(ops->free(gpu, addr), 0);
	}
}

static void test_query_host(void **state)
{
	struct pl_mem mem;
	void *pinned;
	int plain = 0;

	(void)state;
	assert_int_equal(ops->query(gpu, &plain, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_HOST);
	assert_int_equal(mem.gpu, -1);
	assert_null(mem.owner);
	assert_int_equal(ops->query(gpu, NULL, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_HOST);
	assert_int_equal(ops->pin_alloc(gpu, 3 * PAGE, &pinned), 0);
	assert_true((uintptr_t)pinned % PAGE == 0);
	assert_int_equal(ops->query(gpu, (char *)pinned + PAGE, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_PINNED);
	assert_int_equal(mem.gpu, -1);
	assert_null(mem.owner);
	assert_ptr_equal(mem.host, pinned);
	assert_true(mem.base == (uintptr_t)pinned && mem.bytes == 3 * PAGE);
	ops->pin_free(gpu, pinned, 3 * PAGE);
	ops->pin_free(gpu, NULL, 0);
	assert_int_equal(ops->query(gpu, pinned, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_HOST);
}

/* SYNC_MEMOPS is refused once, or by a driver that does not know it: nothing else suffers. */
static void test_query_refused(void **state)
{
	struct pl_mem mem;
	uint64_t addr;
	void *ctx;

	(void)state;
	assert_int_equal(cu.cuCtxCreate_v2(&ctx, 0, 0), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, 5000), 0);
	inject("cuPointerSetAttribute:0:801:1");
	assert_int_equal(ops->query(gpu, (void *)(uintptr_t)addr, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_DEVICE);
	assert_true(mem.lags);
	inject("cuPointerGetAttributes:0:1:1");
	assert_int_equal(ops->query(gpu, (void *)(uintptr_t)addr, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_DEVICE);
	assert_true(mem.bytes == 5000);
	assert_false(mem.lags);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(ctx), 0);
}

/* Memory of a context the program made, of a pool, and managed memory. */
static void test_query_other_owners(void **state)
{
	uint64_t own, pool, managed;
	struct pl_mem mem;
	void *ctx, *owner;

	(void)state;
	assert_int_equal(cu.cuCtxCreate_v2(&ctx, 0, 1), 0);
	assert_int_equal(cu.cuMemAlloc_v2(&own, 5000), 0);
	assert_int_equal(cu.cuMemAllocAsync(&pool, 5000, NULL), 0);
	assert_int_equal(cu.cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL), 0);
	assert_int_equal(cu.cuCtxSetCurrent(NULL), 0);

	assert_int_equal(ops->query(gpu, (void *)(uintptr_t)own, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_DEVICE);
	assert_int_equal(mem.gpu, 1);
	assert_false(mem.lags);
	owner = mem.owner;
	assert_non_null(owner);
	assert_int_equal(ops->query(gpu, (void *)(uintptr_t)pool, &mem), 0);
	assert_true(mem.lags);
	assert_int_equal(mem.kind, PL_MEM_DEVICE);
	assert_int_equal(mem.gpu, 1);
	assert_non_null(mem.owner);
	assert_ptr_not_equal(mem.owner, owner);
	assert_int_equal(ops->query(gpu, (void *)(uintptr_t)managed, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_MANAGED);
	assert_false(mem.lags);
	assert_ptr_equal(mem.owner, owner);
	assert_true(mem.bytes == 5000);

	assert_int_equal(cu.cuCtxSetCurrent(ctx), 0);
	assert_int_equal(cu.cuMemFree_v2(own), 0);
	assert_int_equal(cu.cuMemFree_v2(pool), 0);
	assert_int_equal(cu.cuMemFree_v2(managed), 0);
	assert_int_equal(cu.cuCtxDestroy_v2(ctx), 0);
}

static void test_alloc_errors(void **state)
{
	char *addr = NULL, *untouched = (char *)&addr;
	void *out = untouched;

	(void)state;
	assert_int_equal(ops->alloc(gpu, 2, 10, &out), -ENODEV);
	assert_int_equal(ops->alloc(gpu, -1, 10, &out), -ENODEV);
	assert_int_equal(ops->alloc(gpu, 0, (size_t)1 << 50, &out), -ENOMEM);
	assert_int_equal(ops->result(), CU_OUT_OF_MEMORY);
	inject("cuMemAlloc:0:999:1");
	assert_int_equal(ops->alloc(gpu, 0, 10, &out), -EREMOTEIO);
	assert_int_equal(ops->result(), 999);
	inject("cuMemHostAlloc:0:2:1");
	assert_int_equal(ops->pin_alloc(gpu, 10, &out), -ENOMEM);
	assert_int_equal(ops->result(), CU_OUT_OF_MEMORY);
	inject("cuDevicePrimaryCtxRetain:0:2:1");
	assert_int_equal(ops->alloc(gpu, 1, 10, &out), -ENOMEM);
	assert_ptr_equal(out, untouched);

	addr = alloc(0, 1000);
	assert_int_equal(ops->free(gpu, addr + 1), -EINVAL);
	assert_int_equal(ops->free(gpu, &out), -EINVAL);
	assert_int_equal(ops->free(gpu, addr), 0);
	assert_int_equal(ops->free(gpu, addr), -EINVAL);
}

static void test_copy_sync(void **state)
{
	unsigned char a[5000], b[5000];
	char *one = alloc(0, 5000), *two = alloc(1, 5000);

	(void)state;
	fill(a, sizeof(a), 3);
	assert_int_equal(ops->copy_sync(gpu, one, a, 5000), 0);
	assert_int_equal(ops->copy_sync(gpu, two + 1, one, 4999), 0);
	assert_int_equal(ops->copy_sync(gpu, b, two + 1, 4999), 0);
	assert_memory_equal(a, b, 4999);
	memset(b, 0, sizeof(b));
	assert_int_equal(ops->copy_sync(gpu, b, a, 5000), 0);
	assert_memory_equal(a, b, 5000);
	assert_int_equal(ops->copy_sync(gpu, one, a, 0), 0);
	assert_int_equal(ops->copy_sync(gpu, one + 1, a, 5000), -EFAULT);
	assert_int_equal(ops->result(), CU_INVALID_VALUE);
	assert_int_equal(ops->free(gpu, one), 0);
	assert_int_equal(ops->copy_sync(gpu, one, two, 10), -EFAULT);
	/* Valgrind sees a mistake in what is one on purpose. */
	if (!getenv("PEERLANE_UNDER_VALGRIND")) {
		assert_int_equal(ops->copy_sync(gpu, one, a, 10), -EFAULT);
		assert_int_equal(ops->copy_sync(gpu, a, one, 10), -EFAULT);
	}
	assert_int_equal(ops->free(gpu, two), 0);
}

/* ------------------------------------------------------------------ queues */

static void test_queue(void **state)
{
	const size_t bytes = 100000;
	struct lane l;

	(void)state;
	for (int i = 0; i < 2; i++) {
		unsigned char want[100000];

		lane_open(&l, i, bytes);
		assert_int_equal(ops->mark_done(gpu, l.mark), 1);
		fill(want, bytes, (unsigned int)i);
		memcpy(l.pinned, want, bytes);
		struct pl_copy to[] = {
			{ l.dev, l.pinned, 60001 },
			{ (char *)l.dev + 60001, (char *)l.pinned + 60001, bytes - 60001 },
		};
		struct pl_copy from = { l.pinned, l.dev, bytes };

		assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, to, 2, l.mark), 0);
		assert_int_equal(wait_mark(l.mark), 1);
		memset(l.pinned, 0, bytes);
		assert_int_equal(ops->copy(gpu, l.queue, PL_FROM_GPU, &from, 1, l.mark), 0);
		assert_int_equal(wait_mark(l.mark), 1);
		assert_memory_equal(l.pinned, want, bytes);
		lane_close(&l, bytes);
	}
	ops->mark_destroy(gpu, NULL);
	ops->queue_destroy(gpu, NULL);
}

static void test_copy_to_freed(void **state)
{
	struct lane l;

	(void)state;
	lane_open(&l, 0, PAGE);
	struct pl_copy to = { l.dev, l.pinned, PAGE };
	struct pl_copy from = { l.pinned, l.dev, PAGE };
	struct pl_copy past = { (char *)l.dev + 1, l.pinned, PAGE };

	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &past, 1, l.mark), -EFAULT);
	assert_int_equal(ops->result(), CU_INVALID_VALUE);
	assert_int_equal(ops->free(gpu, l.dev), 0);
	l.dev = NULL;
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark), -EFAULT);
	assert_int_equal(ops->result(), CU_INVALID_VALUE);
	/* The mark is set all the same, so that what was queued can be waited for. */
	assert_int_equal(wait_mark(l.mark), 1);
	assert_int_equal(ops->copy(gpu, l.queue, PL_FROM_GPU, &from, 1, l.mark), -EFAULT);
	assert_int_equal(wait_mark(l.mark), 1);
	lane_close(&l, PAGE);
}

/* Many small pieces at once, which the back end may move in another way than large ones. */
static void small_copies(struct lane *l, enum pl_dir dir, int want)
{
	struct pl_copy list[NR_SMALL];
	int err;

	for (unsigned int i = 0; i < NR_SMALL; i++) {
		char *dev = (char *)l->dev + i * 101, *host = (char *)l->pinned + i * 101;

		list[i] = dir == PL_TO_GPU ? (struct pl_copy){ dev, host, 100 }
					   : (struct pl_copy){ host, dev, 100 };
	}
	err = ops->copy(gpu, l->queue, dir, list, NR_SMALL, l->mark);
	if (!err)
		err = wait_mark(l->mark);
	assert_int_equal(err == 1 ? 0 : err, want);
}

static void test_small_copies(void **state)
{
	unsigned char want[PAGE];
	struct lane l;
	char *dev;

	(void)state;
	lane_open(&l, 1, PAGE);
	fill(want, PAGE, 5);
	memcpy(l.pinned, want, PAGE);
	small_copies(&l, PL_TO_GPU, 0);
	memset(l.pinned, 0, PAGE);
	small_copies(&l, PL_FROM_GPU, 0);
	for (unsigned int i = 0; i < NR_SMALL; i++)
		assert_memory_equal((char *)l.pinned + i * 101, want + i * 101, 100);
	/* Memory freed under us is an error of this copy, not the end of the context. */
	dev = l.dev;
	assert_int_equal(ops->free(gpu, dev), 0);
	small_copies(&l, PL_TO_GPU, -EFAULT);
	assert_int_equal(ops->result(), CU_INVALID_VALUE);
	l.dev = alloc(1, PAGE);
	small_copies(&l, PL_TO_GPU, 0);
	lane_close(&l, PAGE);
}

static void test_queue_errors(void **state)
{
	struct pl_mark *mark = NULL;
	struct pl_queue *queue = NULL;
	struct lane l;
	int err;

	(void)state;
	lane_open(&l, 0, PAGE);
	struct pl_copy to = { l.dev, l.pinned, PAGE };

	inject("cuStreamCreateWithPriority:0:2:1");
	assert_int_equal(ops->queue_create(gpu, owner_of(l.dev), &queue), -ENOMEM);
	assert_null(queue);
	inject("cuEventCreate:0:2:1");
	assert_int_equal(ops->mark_create(gpu, l.queue, &mark), -ENOMEM);
	assert_null(mark);
	inject("cuMemcpyHtoDAsync:1:719:1");
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark), 0);
	assert_int_equal(wait_mark(l.mark), 1);
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark), -EREMOTEIO);
	assert_int_equal(ops->result(), 719);
	inject("cuStreamWriteValue32:0:719:1");
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark), -EREMOTEIO);
	assert_int_equal(wait_mark(l.mark), 1);
	/* Where streams cannot write, an event takes the word's place. */
	inject("cuStreamWriteValue32:0:801:1");
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark), 0);
	assert_int_equal(wait_mark(l.mark), 1);
	inject("cuEventRecord:0:719:1");
	assert_int_equal(ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark), -EREMOTEIO);
	inject("cuEventQuery:0:600:3");
	assert_int_equal(ops->mark_done(gpu, l.mark), 0);
	assert_int_equal(wait_mark(l.mark), 1);
	/* Work that fails after it was queued poisons the context, sooner or later. */
	inject("execute:0:700:1");
	err = ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark);
	assert_int_equal(err ? err : wait_mark(l.mark), -EREMOTEIO);
	assert_int_equal(ops->result(), CU_ILLEGAL_ADDRESS);
	lane_close(&l, PAGE);
}

/* Behind a copy that fails no word is written: the driver tells. */
static void test_copy_fails(void **state)
{
	struct lane l;
	int err;

	(void)state;
	lane_open(&l, 0, PAGE);
	struct pl_copy to = { l.dev, l.pinned, PAGE };

	inject("execute:0:700:1");
	err = ops->copy(gpu, l.queue, PL_TO_GPU, &to, 1, l.mark);
	assert_int_equal(err ? err : wait_mark(l.mark), -EREMOTEIO);
	assert_int_equal(ops->result(), CU_ILLEGAL_ADDRESS);
	lane_close(&l, PAGE);
}

static void *copy_many(void *arg)
{
	struct lane *l = arg;
	unsigned char *p = l->pinned;
	struct pl_copy to = { l->dev, p, PAGE }, from = { p, l->dev, PAGE };

	for (unsigned int i = 0; i < 100; i++) {
		memset(p, (int)i, PAGE);
		if (ops->copy(gpu, l->queue, PL_TO_GPU, &to, 1, l->mark) || wait_mark(l->mark) != 1)
			return arg;
		memset(p, 0xff, PAGE);
		if (ops->copy(gpu, l->queue, PL_FROM_GPU, &from, 1, l->mark) ||
		    wait_mark(l->mark) != 1)
			return arg;
		if (p[0] != (unsigned char)i || p[PAGE - 1] != (unsigned char)i)
			return arg;
	}
	return NULL;
}

static void test_queues_of_threads(void **state)
{
	pthread_t threads[NR_THREADS];
	struct lane lanes[NR_THREADS];
	void *failed;

	(void)state;
	for (int i = 0; i < NR_THREADS; i++) {
		lane_open(&lanes[i], i % 2, PAGE);
		assert_int_equal(pthread_create(&threads[i], NULL, copy_many, &lanes[i]), 0);
	}
	for (int i = 0; i < NR_THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
		lane_close(&lanes[i], PAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_library),
		cmocka_unit_test(test_library_lacks_symbols),
		cmocka_unit_test(test_no_gpu),
		TEST(open_twice),
		TEST(devices),
		TEST(query_device),
		TEST(query_host),
		TEST(query_refused),
		TEST(query_other_owners),
		TEST(alloc_errors),
		TEST(copy_sync),
		TEST(queue),
		TEST(copy_to_freed),
		TEST(small_copies),
		TEST(queue_errors),
		TEST(copy_fails),
		TEST(queues_of_threads),
	};

	return RUN_TESTS(tests);
}
