// SPDX-License-Identifier: MIT
/* Every kind of memory a CUDA program can have, as source and destination of file I/O. */
#include "gpu/cuda_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#define WRITE_FROM 7u /* places in the allocation */
#define READ_INTO 1031u
#define POSITION 12345 /* in the file */
#define NR_SMALL 64u   /* small pieces in one batch */
#define SMALL_BYTES ((size_t)1003)
#define PATIENCE_S 20

struct memory {
	const char *name; /* as peerlane_explain() calls it */
	char *addr;
	void *ctx; /* in which the test reaches it; NULL: by the CPU */
	size_t granule;
	uint64_t handles[2];
};

/* ------------------------------------------------------------------ allocating */

static void alloc_device(struct memory *m, void *context)
{
	uint64_t addr;

	enter(context);
	assert_int_equal(cu.cuMemAlloc_v2(&addr, ROOM), 0);
	leave();
	*m = (struct memory){ .name = "device", .addr = (char *)(uintptr_t)addr, .ctx = context };
}

static void free_device(struct memory *m)
{
	enter(m->ctx);
	assert_int_equal(cu.cuMemFree_v2((uintptr_t)m->addr), 0);
	leave();
}

/* Two pieces of physical memory, one after the other in the address space. */
static void alloc_vmm(struct memory *m)
{
	struct cu_alloc_prop prop = { .type = 1, .location = { 1, 0 } };
	struct cu_access access = { .location = { 1, 0 }, .flags = 3 };
	size_t half;
	uint64_t addr;

	*m = (struct memory){ .name = "device", .ctx = primary };
	enter(primary);
	assert_int_equal(cu.cuMemGetAllocationGranularity(&m->granule, &prop, 0), 0);
	half = (ROOM / 2 + m->granule - 1) / m->granule * m->granule;
	m->granule = half;
	assert_int_equal(cu.cuMemAddressReserve(&addr, 2 * half, 0, 0, 0), 0);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(cu.cuMemCreate(&m->handles[i], half, &prop, 0), 0);
		assert_int_equal(cu.cuMemMap(addr + i * half, half, 0, m->handles[i], 0), 0);
	}
	assert_int_equal(cu.cuMemSetAccess(addr, 2 * half, &access, 1), 0);
	leave();
	m->addr = (char *)(uintptr_t)addr;
}

static void free_vmm(struct memory *m)
{
	uint64_t addr = (uintptr_t)m->addr;

	enter(primary);
	assert_int_equal(cu.cuMemUnmap(addr, 2 * m->granule), 0);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(cu.cuMemRelease(m->handles[i]), 0);
	assert_int_equal(cu.cuMemAddressFree(addr, 2 * m->granule), 0);
	leave();
}

/* ------------------------------------------------------------------ reaching it */

/* Copies into and out of the memory, without Peerlane; NULL or what went wrong. */
static const char *put(const struct memory *m, size_t at, const void *src, size_t bytes)
{
	int result;

	if (!m->ctx) {
		memcpy(m->addr + at, src, bytes);
		return NULL;
	}
	result = cu.cuCtxPushCurrent_v2(m->ctx);
	if (!result)
		result = cu.cuMemcpyHtoD_v2((uintptr_t)m->addr + at, src, bytes);
	if (!result)
		result = cu.cuCtxSynchronize();
	return result || cu.cuCtxPopCurrent_v2(NULL) ? "cannot fill the memory" : NULL;
}

static const char *get(const struct memory *m, size_t at, void *dst, size_t bytes)
{
	int result;

	if (!m->ctx) {
		memcpy(dst, m->addr + at, bytes);
		return NULL;
	}
	result = cu.cuCtxPushCurrent_v2(m->ctx);
	if (!result)
		result = cu.cuMemcpyDtoH_v2(dst, (uintptr_t)m->addr + at, bytes);
	return result || cu.cuCtxPopCurrent_v2(NULL) ? "cannot look at the memory" : NULL;
}

static bool all(const unsigned char *p, size_t bytes, unsigned char value)
{
	while (bytes && *p == value) {
		p++;
		bytes--;
	}
	return !bytes;
}

/* ------------------------------------------------------------------ there and back */

static const char *write_out(const struct memory *m)
{
	const char *why = put(m, WRITE_FROM, pattern, BYTES);
	void *before, *after;

	if (why)
		return why;
	cu.cuCtxGetCurrent(&before);
	if (peerlane_write(file, m->addr + WRITE_FROM, BYTES, POSITION, 0) != (ssize_t)BYTES)
		return "the write failed";
	cu.cuCtxGetCurrent(&after);
	if (before != after)
		return "the write changed the current context";
	if (pread(fd, scratch, BYTES, POSITION) != (ssize_t)BYTES ||
	    memcmp(scratch, pattern, BYTES) != 0)
		return "the file does not hold what was written";
	return NULL;
}

static const char *read_back(const struct memory *m)
{
	const char *why;
	void *before, *after;

	memset(scratch, 0xa5, ROOM);
	why = put(m, 0, scratch, ROOM);
	if (why)
		return why;
	cu.cuCtxGetCurrent(&before);
	if (peerlane_read(file, m->addr + READ_INTO, BYTES, POSITION) != (ssize_t)BYTES)
		return "the read failed";
	cu.cuCtxGetCurrent(&after);
	if (before != after)
		return "the read changed the current context";
	memset(scratch, 0, ROOM);
	why = get(m, 0, scratch, ROOM);
	if (why)
		return why;
	if (memcmp(scratch + READ_INTO, pattern, BYTES) != 0)
		return "the memory does not hold what was read";
	if (!all(scratch, READ_INTO, 0xa5) ||
	    !all(scratch + READ_INTO + BYTES, ROOM - READ_INTO - BYTES, 0xa5))
		return "the read touched memory beside its range";
	return NULL;
}

static void *there_and_back(void *arg)
{
	const char *why = NULL;

	if (ftruncate(fd, 0))
		why = "cannot empty the file";
	if (!why)
		why = write_out(arg);
	return (void *)(uintptr_t)(why ? why : read_back(arg));
}

static void say(const struct memory *m, const char *how, const char *why)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	if (!why)
		return;
	peerlane_error(&info);
	fail_msg("%s memory, %s: %s (%s)", m->name, how, why, info.text);
}

/* With each context current that a program may have, in a thread that has none, and registered. */
static void check_memory(struct memory *m)
{
	struct peerlane_explanation how = { .size = sizeof(how) };
	void *why = NULL;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, there_and_back, m), 0);
	assert_int_equal(pthread_join(thread, &why), 0);
	say(m, "no context", why);
	enter(primary);
	say(m, "primary context", there_and_back(m));
	enter(second);
	say(m, "second context", there_and_back(m));
	leave();
	leave();
	assert_int_equal(peerlane_buffer_register(ctx, m->addr, ROOM, 0), 0);
	say(m, "registered", there_and_back(m));
	assert_int_equal(peerlane_buffer_release(ctx, m->addr), 0);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, m->addr, BYTES, 0, &how), 0);
	assert_string_equal(how.memory, m->name);
	assert_int_equal(how.gpu >= 0, !strcmp(m->name, "device") || !strcmp(m->name, "managed"));
}

static void test_device(void **state)
{
	struct memory m;

	(void)state;
	alloc_device(&m, primary);
	check_memory(&m);
	free_device(&m);
}

static void test_second_context(void **state)
{
	struct memory m;

	(void)state;
	alloc_device(&m, second);
	check_memory(&m);
	free_device(&m);
}

static void test_second_gpu(void **state)
{
	struct memory m;
	void *other;

	(void)state;
	if (nr_gpus < 2)
		skip();
	/* The second time the context is another one with the same handle. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cu.cuDevicePrimaryCtxRetain(&other, 1), 0);
		alloc_device(&m, other);
		check_memory(&m);
		free_device(&m);
		assert_int_equal(cu.cuDevicePrimaryCtxRelease_v2(1), 0);
	}
}

/* What the library keeps for a context must not be used for the next one at its address. */
static void test_contexts_come_and_go(void **state)
{
	struct memory m;
	void *context;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cu.cuCtxCreate_v2(&context, 0, 0), 0);
		assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
		alloc_device(&m, context);
		say(&m, "passing context", there_and_back(&m));
		free_device(&m);
		assert_int_equal(cu.cuCtxDestroy_v2(context), 0);
	}
}

static void test_vmm(void **state)
{
	struct memory m;

	(void)state;
	alloc_vmm(&m);
	check_memory(&m);
	assert_int_equal(peerlane_read(file, m.addr + 2 * m.granule - 10, 11, 0), -EFAULT);
	free_vmm(&m);
}

static void test_pool(void **state)
{
	struct memory m = { .name = "device", .ctx = primary };
	uint64_t addr;

	(void)state;
	enter(primary);
	assert_int_equal(cu.cuMemAllocAsync(&addr, ROOM, NULL), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	leave();
	m.addr = (char *)(uintptr_t)addr;
	check_memory(&m);
	enter(primary);
	assert_int_equal(cu.cuMemFreeAsync(addr, NULL), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	leave();
}

static void test_managed(void **state)
{
	struct memory m = { .name = "managed" };
	uint64_t addr;

	(void)state;
	enter(primary);
	assert_int_equal(cu.cuMemAllocManaged(&addr, ROOM, CU_MEM_ATTACH_GLOBAL), 0);
	leave();
	m.addr = (char *)(uintptr_t)addr;
	check_memory(&m);
	enter(primary);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	leave();
}

static void test_pinned(void **state)
{
	struct memory m = { .name = "pinned" };
	void *addr;

	(void)state;
	enter(primary);
	assert_int_equal(cu.cuMemHostAlloc(&addr, ROOM, 0), 0);
	leave();
	m.addr = addr;
	check_memory(&m);
	enter(primary);
	assert_int_equal(cu.cuMemFreeHost(addr), 0);
	leave();
}

static void test_registered_host(void **state)
{
	struct memory m = { .name = "pinned" };

	(void)state;
	m.addr = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(m.addr, MAP_FAILED);
	enter(second);
	assert_int_equal(cu.cuMemHostRegister_v2(m.addr, ROOM, 0), 0);
	leave();
	check_memory(&m);
	enter(second);
	assert_int_equal(cu.cuMemHostUnregister(m.addr), 0);
	leave();
	munmap(m.addr, ROOM);
}

static void test_plain(void **state)
{
	struct memory m = { .name = "host", .addr = malloc(ROOM) };

	(void)state;
	assert_non_null(m.addr);
	check_memory(&m);
	free(m.addr);
}

/* ------------------------------------------------------------------ small pieces */

/* Reads many small pieces of the file at once, to @addr and on; returns how many came. */
static unsigned int read_small(char *addr)
{
	struct peerlane_event events[NR_SMALL];
	struct peerlane_io list[NR_SMALL];
	struct peerlane_batch *batch;
	unsigned int good = 0;

	memset(list, 0, sizeof(list));
	for (unsigned int i = 0; i < NR_SMALL; i++) {
		list[i].file = file;
		list[i].addr = addr + i * SMALL_BYTES;
		list[i].bytes = SMALL_BYTES;
		list[i].offset = (off_t)(i * SMALL_BYTES);
	}
	assert_int_equal(peerlane_batch_create(ctx, NR_SMALL, &batch), 0);
	if (!peerlane_batch_submit(batch, list, NR_SMALL)) {
		assert_int_equal(peerlane_batch_wait(batch, NR_SMALL, events, NR_SMALL, NULL),
				 NR_SMALL);
		for (unsigned int i = 0; i < NR_SMALL; i++)
			good += events[i].result == (ssize_t)SMALL_BYTES;
	}
	peerlane_batch_destroy(batch);
	return good;
}

static void check_small(const struct memory *m)
{
	memset(scratch, 0, NR_SMALL * SMALL_BYTES);
	assert_null(put(m, WRITE_FROM, scratch, NR_SMALL * SMALL_BYTES));
	assert_int_equal(read_small(m->addr + WRITE_FROM), NR_SMALL);
	assert_null(get(m, WRITE_FROM, scratch, NR_SMALL * SMALL_BYTES));
	assert_memory_equal(scratch, pattern, NR_SMALL * SMALL_BYTES);
}

static void test_small_pieces(void **state)
{
	struct memory m;

	(void)state;
	assert_int_equal(pwrite(fd, pattern, BYTES, 0), BYTES);
	alloc_device(&m, primary);
	check_small(&m);
	free_device(&m);
	alloc_vmm(&m);
	check_small(&m);
	free_vmm(&m);
}

struct gate {
	int open, missed;
};

static void wait_at_gate(void *arg)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	struct gate *g = arg;

	for (int i = 0; i < PATIENCE_S * 1000; i++) {
		if (__atomic_load_n(&g->open, __ATOMIC_ACQUIRE))
			return;
		nanosleep(&nap, NULL);
	}
	g->missed = 1;
}

/* I/O in a context never used before must not wait for other work there: that work may be waiting
 * for the I/O. */
static void test_beside_busy_stream(void **state)
{
	struct gate gate = { 0, 0 };
	void *context, *stream;
	struct memory m;

	(void)state;
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, pattern, BYTES, 0), BYTES);
	assert_int_equal(cu.cuCtxCreate_v2(&context, 0, 0), 0);
	assert_int_equal(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu.cuCtxPopCurrent_v2(NULL), 0);
	alloc_device(&m, context);
	enter(context);
	assert_int_equal(cu.cuLaunchHostFunc(stream, wait_at_gate, &gate), 0);
	assert_int_equal(read_small(m.addr), NR_SMALL);
	assert_int_equal(peerlane_read(file, m.addr, BYTES, 0), BYTES);
	__atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
	assert_int_equal(cu.cuStreamSynchronize(stream), 0);
	assert_int_equal(gate.missed, 0);
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	leave();
	free_device(&m);
	assert_int_equal(cu.cuCtxDestroy_v2(context), 0);
}

/* ------------------------------------------------------------------ bad addresses */

static void test_past_the_end(void **state)
{
	struct memory a, b;

	(void)state;
	alloc_device(&a, primary);
	alloc_device(&b, primary);
	assert_int_equal(ftruncate(fd, (off_t)BYTES), 0);
	/* Where the two touch, the end of the lower one is still an end. */
	assert_int_equal(peerlane_read(file, a.addr + ROOM - 10, 11, 0), -EFAULT);
	assert_int_equal(peerlane_read(file, b.addr + ROOM - 10, 11, 0), -EFAULT);
	assert_int_equal(peerlane_write(file, a.addr + ROOM - 10, 11, 0, 0), -EFAULT);
	assert_int_equal(peerlane_buffer_register(ctx, a.addr, ROOM + 1, 0), -EFAULT);
	assert_int_equal(peerlane_read(file, a.addr + ROOM - 10, 10, 0), 10);
	free_device(&a);
	free_device(&b);
}

static void test_freed(void **state)
{
	struct memory m;

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)BYTES), 0);
	alloc_device(&m, primary);
	free_device(&m);
	assert_true(peerlane_read(file, m.addr, BYTES, 0) < 0);
	assert_true(peerlane_write(file, m.addr, BYTES, 0, 0) < 0);
	assert_true(peerlane_read(file, m.addr, 100, 0) < 0);
	assert_true(peerlane_gpu_copy(ctx, m.addr, pattern, 100) < 0);
	alloc_device(&m, primary);
	assert_int_equal(peerlane_buffer_register(ctx, m.addr, ROOM, 0), 0);
	free_device(&m);
	assert_true(peerlane_read(file, m.addr, BYTES, 0) < 0);
	assert_true(peerlane_write(file, m.addr, BYTES, 0, 0) < 0);
	assert_int_equal(read_small(m.addr), 0);
	assert_int_equal(peerlane_buffer_release(ctx, m.addr), 0);
	/* And nothing is broken afterwards. */
	alloc_device(&m, primary);
	check_memory(&m);
	free_device(&m);
}

/* ------------------------------------------------------------------ start and end */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_second_context),
		cmocka_unit_test(test_second_gpu),
		cmocka_unit_test(test_contexts_come_and_go),
		cmocka_unit_test(test_vmm),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_managed),
		cmocka_unit_test(test_pinned),
		cmocka_unit_test(test_registered_host),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_small_pieces),
		cmocka_unit_test(test_beside_busy_stream),
		cmocka_unit_test(test_past_the_end),
		cmocka_unit_test(test_freed),
	};
	const char *why = start_cuda();

	return why ? skip_all(why) : cmocka_run_group_tests(tests, setup, teardown);
}
