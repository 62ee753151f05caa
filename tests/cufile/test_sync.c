// SPDX-License-Identifier: MIT
/* cuMemcpyHtoD() and cuMemsetD8(), which return before the GPU is done, and then a cuFile call. */
#include "cf_test.h"

#define PIECE (64 * KIB)
#define SPACE (1 * MIB)

static struct {
	int (*alloc)(uint64_t *addr, size_t bytes);
	int (*alloc_pool)(uint64_t *addr, size_t bytes, void *stream);
	int (*free)(uint64_t addr);
	int (*copy)(uint64_t dst, const void *src, size_t bytes);
	int (*set)(uint64_t dst, unsigned char value, size_t bytes);
	int (*set_async)(uint64_t dst, unsigned char value, size_t bytes, void *stream);
	int (*call)(void *stream, void (*fn)(void *), void *arg);
	int (*sync)(void);
} cu;

static CUfileHandle_t fh;
static char plain[PIECE];

/* On a GPU it takes many tries to see a race; the fake driver always shows it. */
static unsigned int nr_tries(void)
{
	return getenv("PEERLANE_LIBCUDA") ? 4 : 200;
}

static int setup(void **state)
{
	cf_setup(state);
	fh = cf_open("sync", PIECE, 1, O_RDWR | O_DIRECT);
	return 0;
}

static int teardown(void **state)
{
	cf.cuFileHandleDeregister(fh);
	return cf_teardown(state);
}

static char *take(void)
{
	uint64_t addr;

	assert_int_equal(cu.alloc(&addr, SPACE), 0);
	return (char *)(uintptr_t)addr;
}

static void give_back(char *mem)
{
	assert_int_equal(cu.free((uintptr_t)mem), 0);
}

/* ------------------------------------------------------------------ calls before, and writes */

static void copy(char *mem, unsigned int seed)
{
	cf_pattern(plain, PIECE, 0, seed);
	assert_int_equal(cu.copy((uintptr_t)mem, plain, PIECE), 0);
}

/* One value. */
static void set(char *mem, unsigned int seed)
{
	assert_int_equal(cu.set((uintptr_t)mem, (unsigned char)seed, PIECE), 0);
}

static void by_write(char *mem)
{
	assert_int_equal(cf.cuFileWrite(fh, mem, PIECE, 0, 0), PIECE);
}

static void by_batch(char *mem)
{
	CUfileIOParams_t io = { .mode = CUFILE_BATCH,
				.u.batch = { .devPtr_base = mem, .size = PIECE },
				.fh = fh,
				.opcode = CUFILE_WRITE };
	CUfileBatchHandle_t batch;
	CUfileIOEvents_t event;
	unsigned int nr = 1;

	assert_ok(cf.cuFileBatchIOSetUp(&batch, 1));
	assert_ok(cf.cuFileBatchIOSubmit(batch, 1, &io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
	assert_int_equal(event.ret, PIECE);
	cf.cuFileBatchIODestroy(batch);
}

static void by_stream(char *mem)
{
	off_t file_offset = 0, offset = 0;
	size_t bytes = PIECE;
	ssize_t done = -1;
	void *stream;

	assert_int_equal(peerlane_gpu_stream_create(cf_gpu(), 0, &stream), 0);
	assert_ok(cf.cuFileWriteAsync(fh, mem, &bytes, &file_offset, &offset, &done, stream));
	assert_int_equal(peerlane_gpu_stream_sync(cf_gpu(), stream), 0);
	assert_int_equal(done, PIECE);
	peerlane_gpu_stream_destroy(cf_gpu(), stream);
}

static const struct {
	const char *name;
	void (*write)(char *mem);
} ways[] = {
	{ "cuFileWrite", by_write },
	{ "cuFileBatchIOSubmit", by_batch },
	{ "cuFileWriteAsync", by_stream },
};

#define NR_WAYS (sizeof(ways) / sizeof(ways[0]))

static bool file_is(bool filled, unsigned int seed)
{
	int fd = open(cf_file("sync"), O_RDONLY | O_CLOEXEC);
	char *got = malloc(PIECE);
	bool same = pread(fd, got, PIECE, 0) == (ssize_t)PIECE;

	if (filled)
		memset(plain, (int)seed, PIECE);
	else
		cf_pattern(plain, PIECE, 0, seed);
	same = same && !memcmp(got, plain, PIECE);
	close(fd);
	free(got);
	return same;
}

/* @mem NULL: new memory for each try. */
static void try_all(char *mem, const char *what)
{
	for (unsigned int w = 0; w < NR_WAYS; w++) {
		unsigned int stale = 0;

		for (unsigned int i = 0; i < 2 * nr_tries(); i++) {
			char *at = mem ? mem : take();

			if (i & 1)
				set(at, i % 200 + 1);
			else
				copy(at, i);
			ways[w].write(at);
			stale += !file_is(i & 1, i & 1 ? i % 200 + 1 : i);
			if (!mem)
				give_back(at);
		}
		if (stale)
			fail_msg("%s, %s: %u of %u writes were stale", what, ways[w].name, stale,
				 2 * nr_tries());
	}
}

/* ------------------------------------------------------------------ tests */

static void not_registered(void **state)
{
	char *mem = take();

	(void)state;
	try_all(mem, "not registered");
	give_back(mem);
	try_all(NULL, "first use");
}

static void registered(void **state)
{
	char *mem = take();

	(void)state;
	assert_ok(cf.cuFileBufRegister(mem, SPACE, 0));
	try_all(mem, "registered");
	assert_ok(cf.cuFileBufDeregister(mem));
	give_back(mem);
}

static void pool(void **state)
{
	uint64_t addr;
	char *mem;

	(void)state;
	assert_int_equal(cu.alloc_pool(&addr, SPACE, NULL), 0);
	assert_int_equal(cu.sync(), 0);
	mem = (char *)(uintptr_t)addr;
	try_all(mem, "pool, not registered");
	assert_ok(cf.cuFileBufRegister(mem, SPACE, 0));
	try_all(mem, "pool, registered");
	assert_ok(cf.cuFileBufDeregister(mem));
	give_back(mem);
}

/* Late, the fill would wipe out what was read. */
static void read_after_set(void **state)
{
	char *mem = take();

	(void)state;
	for (unsigned int i = 0; i < nr_tries(); i++) {
		set(mem, i);
		assert_int_equal(cf.cuFileRead(fh, mem, PIECE, 0, 0), PIECE);
		assert_int_equal(cu.sync(), 0);
		assert_int_equal(cf_differs(mem, PIECE, 0, 1), PIECE);
	}
	give_back(mem);
}

static void pass_2ms(void *arg)
{
	(void)arg;
	usleep(2000);
}

/* What a program queues without waiting, such as kernels, is waited for on request. */
static void kernels(void **state)
{
	char *mem = take();

	(void)state;
	cf.cuFileHandleDeregister(fh);
	cf_setup(state);
	setenv("PEERLANE_FLAGS", "wait-default", 1);
	fh = cf_open("sync", PIECE, 1, O_RDWR | O_DIRECT);
	for (unsigned int i = 0; i < nr_tries(); i++) {
		assert_int_equal(cu.call(NULL, pass_2ms, NULL), 0);
		assert_int_equal(cu.set_async((uintptr_t)mem, (unsigned char)(i + 1), PIECE, NULL),
				 0);
		by_write(mem);
		assert_true(file_is(true, (i + 1) & 0xff));
	}
	unsetenv("PEERLANE_FLAGS");
	give_back(mem);
}

static void find(void *to, const char *name)
{
	void *sym = cf_cuda(name);

	if (!sym) {
		printf("no CUDA: %s\n", name);
		exit(77);
	}
	memcpy(to, &sym, sizeof(sym));
}

#define sync_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		sync_test(not_registered), sync_test(registered), sync_test(pool),
		sync_test(read_after_set), sync_test(kernels),
	};
	int failed;

	cf_alarm(150);
	cf_load();
	cf_gpu();
	find(&cu.alloc, "cuMemAlloc_v2");
	find(&cu.alloc_pool, "cuMemAllocAsync");
	find(&cu.free, "cuMemFree_v2");
	find(&cu.copy, "cuMemcpyHtoD_v2");
	find(&cu.set, "cuMemsetD8_v2");
	find(&cu.set_async, "cuMemsetD8Async");
	find(&cu.call, "cuLaunchHostFunc");
	find(&cu.sync, "cuCtxSynchronize");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
