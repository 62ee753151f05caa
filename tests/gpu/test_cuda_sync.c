// SPDX-License-Identifier: MIT
/*
 * CUDA calls that are documented as synchronous and return before the GPU has done them, followed by
 * I/O on the same memory: every interface sees what the call did.
 */
#include "gpu/sync_fixture.h"

#include <errno.h>
#include <time.h>

#define PATIENCE_S 20

/* ------------------------------------------------------------------ the proof */

static bool file_holds(unsigned char value)
{
	if (pread(fd, scratch, PIECE, 0) != (ssize_t)PIECE)
		return false;
	for (size_t i = 0; i < PIECE; i++)
		if (scratch[i] != value)
			return false;
	return true;
}

/* Tries one call before one way to write; @fresh takes new memory for every try. */
static void try_write(char *addr, unsigned int call, unsigned int way, const char *what, bool fresh)
{
	unsigned int stale = 0;

	for (unsigned int i = 0; i < nr_tries(); i++) {
		char *mem = fresh ? take_device() : addr;
		unsigned char value = (unsigned char)(i % 250 + 1);

		assert_int_equal(calls[call].call((uintptr_t)mem + SMALL, value), 0);
		assert_int_equal(ways[way].write(mem + SMALL), PIECE);
		stale += !file_holds(value);
		if (fresh)
			give_back(mem);
	}
	if (stale)
		fail_msg("%s, %s, %s: %u of %u writes were stale", what, calls[call].name,
			 ways[way].name, stale, nr_tries());
}

static void try_all(char *addr, const char *what)
{
	for (unsigned int c = 0; c < NR_CALLS; c++)
		for (unsigned int w = 0; w < NR_WAYS; w++)
			try_write(addr, c, w, what, false);
}

static void try_memory(char *addr, const char *what)
{
	char name[80];

	snprintf(name, sizeof(name), "%s memory, not registered", what);
	try_all(addr, name);
	assert_int_equal(peerlane_buffer_register(used, addr, SPACE, 0), 0);
	snprintf(name, sizeof(name), "%s memory, registered", what);
	try_all(addr, name);
	assert_int_equal(peerlane_buffer_release(used, addr), 0);
}

static void test_device(void **state)
{
	char *mem = take_device();

	(void)state;
	try_memory(mem, "device");
	give_back(mem);
}

/* What was queued before the library saw the memory is waited for as well. */
static void test_first_use(void **state)
{
	(void)state;
	for (unsigned int c = 0; c < NR_CALLS; c++)
		for (unsigned int w = 0; w < NR_WAYS; w++)
			try_write(NULL, c, w, "first use", true);
}

static void test_managed(void **state)
{
	char *mem = take_managed();

	(void)state;
	try_memory(mem, "managed");
	give_back(mem);
}

/* These two refuse SYNC_MEMOPS. */
static void test_pool(void **state)
{
	char *mem = take_pool();

	(void)state;
	try_memory(mem, "pool");
	give_back(mem);
}

static void test_vmm(void **state)
{
	char *mem = take_vmm();

	(void)state;
	try_memory(mem, "mapped");
	give_back_vmm(mem);
}

/* Late, a fill would wipe out what was read. */
static void check_read(char *mem, const char *what)
{
	unsigned int lost = 0;

	memset(scratch, 0xee, PIECE);
	assert_int_equal(pwrite(fd, scratch, PIECE, 0), PIECE);
	for (unsigned int i = 0; i < nr_tries(); i++) {
		assert_int_equal(set_64k((uintptr_t)mem, (unsigned char)(i % 200)), 0);
		assert_int_equal(peerlane_read(target, mem, PIECE, 0), PIECE);
		assert_int_equal(cu.cuCtxSynchronize(), 0);
		assert_int_equal(cu.cuMemcpyDtoH_v2(host, (uintptr_t)mem, PIECE), 0);
		lost += memcmp(host, scratch, PIECE) != 0;
	}
	if (lost)
		fail_msg("%s: %u of %u reads were overwritten", what, lost, nr_tries());
}

static void test_read(void **state)
{
	char *mem = take_device(), *pooled = take_pool();

	(void)state;
	check_read(mem, "device memory");
	check_read(pooled, "memory of a pool");
	give_back(mem);
	give_back(pooled);
}

static void check_copy(char *mem)
{
	for (unsigned int i = 0; i < nr_tries(); i++) {
		unsigned char value = (unsigned char)(i % 250 + 1);

		assert_int_equal(set_64k((uintptr_t)mem, value), 0);
		assert_int_equal(peerlane_gpu_copy(used, host, mem, PIECE), 0);
		assert_int_equal(host[0], value);
		assert_int_equal(host[PIECE - 1], value);
	}
}

static void test_gpu_copy(void **state)
{
	char *mem = take_device(), *pooled = take_pool();
	void *own;

	(void)state;
	check_copy(mem);
	check_copy(pooled);
	give_back(mem);
	give_back(pooled);
	assert_int_equal(peerlane_gpu_alloc(used, 0, SPACE, &own), 0);
	check_copy(own);
	assert_int_equal(peerlane_gpu_free(used, own), 0);
}

/* ------------------------------------------------------------------ the default stream */

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

static void pass_2ms(void *arg)
{
	const struct timespec nap = { .tv_nsec = 2000000 };

	(void)arg;
	nanosleep(&nap, NULL);
}

/* A context with @flags that waits @timeout_ms, in place of the usual one. */
static void switch_to(unsigned int flags, unsigned int timeout_ms)
{
	const struct peerlane_options opt = {
		.size = sizeof(opt), .backend = "cuda", .flags = flags, .timeout_ms = timeout_ms
	};

	assert_int_equal(peerlane_open(&used, &opt), 0);
	assert_int_equal(peerlane_file_from_fd(used, fd, &target), 0);
}

static void switch_back(void)
{
	assert_int_equal(peerlane_file_close(target), 0);
	peerlane_close(used);
	used = ctx;
	target = file;
}

/* The default stream waits at the gate until it is opened. */
static void close_gate(struct gate *gate)
{
	*gate = (struct gate){ 0, 0 };
	assert_int_equal(cu.cuLaunchHostFunc(CU_STREAM_LEGACY, wait_at_gate, gate), 0);
}

static void open_gate(struct gate *gate)
{
	__atomic_store_n(&gate->open, 1, __ATOMIC_RELEASE);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	assert_int_equal(gate->missed, 0);
}

static void check_kernels(char *mem)
{
	for (unsigned int w = 0; w < 3; w++)
		for (unsigned int i = 0; i < nr_tries(); i++) {
			unsigned char value = (unsigned char)(i % 250 + 1);

			assert_int_equal(cu.cuLaunchHostFunc(CU_STREAM_LEGACY, pass_2ms, NULL), 0);
			assert_int_equal(
				cu.cuMemsetD8Async((uintptr_t)mem, value, PIECE, CU_STREAM_LEGACY),
				0);
			assert_int_equal(ways[w].write(mem), PIECE);
			if (!file_holds(value))
				fail_msg("%s: stale", ways[w].name);
		}
}

/* With the flag also what is queued asynchronously, as kernels are. */
static void test_wait_default(void **state)
{
	char *mem = take_device();
	struct gate gate;

	(void)state;
	switch_to(PEERLANE_WAIT_DEFAULT, 0);
	check_kernels(mem);
	assert_int_equal(peerlane_buffer_register(used, mem, SPACE, 0), 0);
	check_kernels(mem);
	assert_int_equal(peerlane_buffer_release(used, mem), 0);
	switch_back();
	switch_to(PEERLANE_WAIT_DEFAULT, 100);
	assert_int_equal(by_stream(mem), PIECE);
	close_gate(&gate);
	for (unsigned int w = 0; w < 3; w++)
		assert_true(ways[w].write(mem) < 0);
	assert_int_equal(by_write(mem), -ETIMEDOUT);
	assert_int_equal(by_stream(mem), PIECE);
	open_gate(&gate);
	switch_back();
	give_back(mem);
}

/* Without it, I/O does not wait for kernels: they may be waiting for the I/O. */
static void test_beside_default(void **state)
{
	char *mem = take_device();
	struct gate gate;

	(void)state;
	for (int registered = 0; registered < 2; registered++) {
		if (registered)
			assert_int_equal(peerlane_buffer_register(used, mem, SPACE, 0), 0);
		assert_int_equal(by_write(mem), PIECE);
		assert_int_equal(by_stream(mem), PIECE);
		close_gate(&gate);
		for (unsigned int w = 0; w < NR_WAYS; w++)
			assert_int_equal(ways[w].write(mem), PIECE);
		open_gate(&gate);
	}
	assert_int_equal(peerlane_buffer_release(used, mem), 0);
	give_back(mem);
}

/* Memory that refuses waits for the default stream, unless the program knows better. */
static void test_no_wait(void **state)
{
	char *mem = take_pool();
	struct gate gate;

	(void)state;
	switch_to(PEERLANE_NO_WAIT_DEFAULT, 0);
	assert_int_equal(by_stream(mem), PIECE);
	close_gate(&gate);
	for (unsigned int w = 0; w < NR_WAYS; w++)
		assert_int_equal(ways[w].write(mem), PIECE);
	open_gate(&gate);
	switch_back();
	give_back(mem);
}

/* I/O in the order of the default stream does not wait for itself. */
static void check_on_default(void)
{
	char *mem = take_pool();
	size_t bytes = PIECE;
	off_t offset = 0;
	ssize_t result[3] = { -1, -1, -1 };

	for (int i = 0; i < 3; i++) {
		assert_int_equal(set_64k((uintptr_t)mem, (unsigned char)(i + 1)), 0);
		assert_int_equal(peerlane_write_async(target, mem, &bytes, &offset, &result[i],
						      i == 1 ? CU_STREAM_PER_THREAD : NULL, 0),
				 0);
		/* The fake libcuda does not make the default stream wait for that of the thread. */
		if (i == 1)
			assert_int_equal(cu.cuCtxSynchronize(), 0);
	}
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(result[i], PIECE);
	assert_true(file_holds(3));
	give_back(mem);
}

static void test_on_default(void **state)
{
	(void)state;
	check_on_default();
	switch_to(PEERLANE_NO_KERNELS, PATIENCE_S * 1000);
	check_on_default();
	switch_back();
	switch_to(PEERLANE_NO_KERNELS | PEERLANE_WAIT_DEFAULT, PATIENCE_S * 1000);
	check_on_default();
	switch_back();
}

/* Asking the default stream would end the capture of a blocking one. */
static void test_capture(void **state)
{
	char *mem = take_pool(), *fresh = take_device();
	void *blocking, *graph;

	(void)state;
	assert_int_equal(by_write(mem), PIECE);
	assert_int_equal(cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), 0);
	assert_int_equal(cu.cuStreamBeginCapture_v2(blocking, 0), 0);
	assert_int_equal(by_write(mem), PIECE);
	assert_int_equal(by_write(fresh), PIECE);
	assert_int_equal(cu.cuStreamEndCapture(blocking, &graph), 0);
	assert_int_equal(cu.cuStreamDestroy_v2(blocking), 0);
	give_back(mem);
	give_back(fresh);
}

/* ------------------------------------------------------------------ start and end */

static int begin(void **state)
{
	int err = setup(state);

	used = ctx;
	target = file;
	enter(primary);
	other = (uintptr_t)take_device();
	assert_int_equal(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	return err;
}

static int end(void **state)
{
	assert_int_equal(cu.cuStreamDestroy_v2(stream), 0);
	give_back((char *)(uintptr_t)other);
	leave();
	return teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_first_use),
		cmocka_unit_test(test_managed),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_vmm),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_gpu_copy),
		cmocka_unit_test(test_wait_default),
		cmocka_unit_test(test_beside_default),
		cmocka_unit_test(test_no_wait),
		cmocka_unit_test(test_on_default),
		cmocka_unit_test(test_capture),
	};
	const char *why = start_cuda();

	return why ? skip_all(why) : cmocka_run_group_tests(tests, begin, end);
}
