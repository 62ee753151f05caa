// SPDX-License-Identifier: MIT
/* Files that functions of the program read and write. */
#include "sim/sim_fixture.h"

#define BYTES (3 * MIB + 17)

struct store {
	char *mem;
	size_t bytes;
	ssize_t most; /* in one call */
	int err;      /* what calls past the middle give */
	unsigned int reads, writes, syncs, releases;
};

static struct peerlane *ctx;
static struct store store;

static ssize_t limit(size_t bytes, off_t offset)
{
	if ((size_t)offset >= store.bytes)
		return 0;
	if (bytes > store.bytes - (size_t)offset)
		bytes = store.bytes - (size_t)offset;
	return store.most && (ssize_t)bytes > store.most ? store.most : (ssize_t)bytes;
}

static ssize_t from_store(void *arg, void *mem, size_t bytes, off_t offset)
{
	ssize_t n = limit(bytes, offset);

	assert_ptr_equal(arg, &store);
	__atomic_fetch_add(&store.reads, 1, __ATOMIC_RELAXED);
	if (store.err && (size_t)offset >= store.bytes / 2)
		return store.err;
	memcpy(mem, store.mem + offset, (size_t)n);
	return n;
}

static ssize_t to_store(void *arg, const void *mem, size_t bytes, off_t offset)
{
	ssize_t n = limit(bytes, offset);

	assert_ptr_equal(arg, &store);
	__atomic_fetch_add(&store.writes, 1, __ATOMIC_RELAXED);
	if (!n)
		return -ENOSPC;
	memcpy(store.mem + offset, mem, (size_t)n);
	return n;
}

static int sync_store(void *arg)
{
	((struct store *)arg)->syncs++;
	return store.err;
}

static void release_store(void *arg)
{
	((struct store *)arg)->releases++;
}

static const struct peerlane_file_ops table = {
	.size = sizeof(table),
	.read = from_store,
	.write = to_store,
	.sync = sync_store,
	.release = release_store,
};

static int setup(void **state)
{
	sim_test_setup(state);
	ctx = sim_open(0);
	memset(&store, 0, sizeof(store));
	store.bytes = BYTES;
	store.mem = malloc(BYTES);
	sim_pattern(store.mem, BYTES, 0, 7);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	peerlane_close(ctx);
	free(store.mem);
	return 0;
}

static struct peerlane_file *file_of(const struct peerlane_file_ops *ops)
{
	struct peerlane_file *file;

	assert_int_equal(peerlane_file_from_ops(ctx, ops, &store, &file), 0);
	return file;
}

static void round_trip(void **state)
{
	struct peerlane_file *file = file_of(&table);
	char *gpu = sim_alloc(ctx, BYTES);

	(void)state;
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 7);
	sim_gpu_pattern(ctx, gpu, BYTES, 0, 9);
	assert_int_equal(peerlane_write(file, gpu, BYTES - 5, 0, PEERLANE_DURABLE), BYTES - 5);
	assert_int_equal(sim_differs(store.mem, BYTES - 5, 0, 9), BYTES - 5);
	assert_true(store.syncs);
	assert_true(store.reads && store.writes);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(store.releases, 1);
	assert_int_equal(peerlane_read(file, gpu, 1, 0), -EBADF);
	peerlane_gpu_free(ctx, gpu);
}

/* Short counts in between are gone on with; the end and errors are where they are. */
static void short_end_error(void **state)
{
	struct peerlane_file *file = file_of(&table);
	char *gpu = sim_alloc(ctx, BYTES + 4096);

	(void)state;
	store.most = 1000;
	assert_int_equal(peerlane_read(file, gpu, BYTES + 4096, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 7);
	assert_int_equal(peerlane_read(file, gpu, 10, BYTES), 0);
	assert_int_equal(peerlane_read(file, gpu, 10, BYTES - 4), 4);
	assert_int_equal(peerlane_write(file, gpu, 10, BYTES - 4, 0), 4);
	store.err = -ESTALE;
	assert_int_equal(peerlane_read(file, gpu, 10, BYTES - 20), -ESTALE);
	assert_in_range(peerlane_read(file, gpu, BYTES, 0), BYTES / 2, BYTES / 2 + 1000);
	assert_int_equal(peerlane_file_sync(file), -ESTALE);
	peerlane_gpu_free(ctx, gpu);
}

static void batch_and_stream(void **state)
{
	struct peerlane_file *file = file_of(&table);
	char *gpu = sim_alloc(ctx, BYTES);
	struct peerlane_io io[8];
	struct peerlane_event events[8];
	struct peerlane_batch *batch;
	size_t bytes = 5000;
	off_t offset = 12345;
	ssize_t result = -1;
	void *stream;

	(void)state;
	for (int i = 0; i < 8; i++)
		io[i] = (struct peerlane_io){
			.file = file, .addr = gpu + i * 10000, .bytes = 10000, .offset = i * 10000
		};
	assert_int_equal(peerlane_batch_create(ctx, 8, &batch), 0);
	assert_int_equal(peerlane_batch_submit(batch, io, 8), 0);
	assert_int_equal(peerlane_batch_wait(batch, 8, events, 8, NULL), 8);
	sim_assert_gpu(ctx, gpu, 80000, 0, 7);
	peerlane_batch_destroy(batch);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	assert_int_equal(peerlane_read_async(file, gpu, &bytes, &offset, &result, stream, 0), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(result, 5000);
	sim_assert_gpu(ctx, gpu, 5000, 12345, 7);
	peerlane_gpu_stream_destroy(ctx, stream);
	peerlane_gpu_free(ctx, gpu);
}

static void refused(void **state)
{
	struct peerlane_file_ops ops = table;
	struct peerlane_file *file;
	char *gpu = sim_alloc(ctx, 4096);

	(void)state;
	assert_int_equal(peerlane_file_from_ops(ctx, NULL, NULL, &file), -EINVAL);
	assert_int_equal(peerlane_file_from_ops(ctx, &table, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_file_from_ops(NULL, &table, NULL, &file), -EINVAL);
	ops.size--;
	assert_int_equal(peerlane_file_from_ops(ctx, &ops, NULL, &file), -EINVAL);
	ops = table;
	ops.read = NULL;
	ops.release = NULL;
	file = file_of(&ops);
	assert_int_equal(peerlane_read(file, gpu, 10, 0), -EBADF);
	assert_int_equal(peerlane_write(file, gpu, 10, 0, 0), 10);
	ops.write = NULL;
	assert_int_equal(peerlane_file_from_ops(ctx, &ops, NULL, &file), -EINVAL);
	peerlane_gpu_free(ctx, gpu);
}

static void explained(void **state)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_file *file = file_of(&table);
	char *gpu = sim_alloc(ctx, 4096);

	(void)state;
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, 4096, 0, &ex), 0);
	assert_int_equal(ex.chosen, PEERLANE_PATH_COPY);
	assert_string_equal(ex.fs, "callbacks");
	assert_int_equal(ex.dio_align, 0);
	assert_non_null(strstr(ex.verdicts[PEERLANE_PATH_COPY].reason, "functions"));
	peerlane_gpu_free(ctx, gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(short_end_error, setup, teardown),
		cmocka_unit_test_setup_teardown(batch_and_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(explained, setup, teardown),
	};

	sim_alarm(120);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
