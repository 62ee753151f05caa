// SPDX-License-Identifier: MIT
/* Statistics: every number adds up exactly. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define FILE_BYTES (4 * MIB + 100)

static struct peerlane *ctx;
static struct peerlane_file *file;
static char *gpu;

static void open_all(const char *env, unsigned int flags)
{
	sim_env(env);
	ctx = sim_open(flags);
	file = sim_file(ctx, sim_make_file("stats", FILE_BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, 8 * MIB);
}

static void close_all(void)
{
	sim_close(ctx, file, gpu);
}

static uint64_t sum(const uint64_t *v, unsigned int nr)
{
	uint64_t s = 0;

	while (nr--)
		s += v[nr];
	return s;
}

static unsigned int class_of(uint64_t v)
{
	unsigned int i = 0;

	while (v >>= 1)
		i++;
	return i;
}

/* What one direction should have counted. */
struct tally {
	uint64_t ok, failed, bytes;
	uint64_t sizes[PEERLANE_HIST];
};

static void tally(struct tally *t, size_t asked, ssize_t result)
{
	t->ok += result >= 0;
	t->failed += result < 0;
	t->bytes += result > 0 ? (uint64_t)result : 0;
	t->sizes[class_of(asked)]++;
}

static void check(const struct peerlane_op_stats *st, const struct tally *t)
{
	assert_int_equal(st->ok, t->ok);
	assert_int_equal(st->failed, t->failed);
	assert_int_equal(st->bytes, t->bytes);
	assert_int_equal(sum(st->path_bytes, PEERLANE_PATH_NR), t->bytes);
	for (unsigned int i = 0; i < PEERLANE_HIST; i++)
		assert_int_equal(st->size_hist[i], t->sizes[i]);
	assert_int_equal(sum(st->lat_hist, PEERLANE_HIST), t->ok + t->failed);
	if (t->ok + t->failed)
		assert_true(st->ns_sum > 0);
}

static const struct {
	size_t bytes;
	off_t offset;
} requests[] = {
	{ 0, 0 },
	{ 1, 0 },
	{ 2, 5 },
	{ 3, 7 },
	{ 4095, 1 },
	{ 4096, 4096 },
	{ 65535, 0 },
	{ 65536, 3 },
	{ 65537, 100 },
	{ MIB, 0 },
	{ 3 * MIB + 5, 12345 },
	{ 4 * MIB, 100 },
	{ 100, FILE_BYTES },
	{ MIB, FILE_BYTES - 5 },
	{ 4 * MIB + 4096, 0 },
	{ 512 * KIB, MIB },
};

/* Reads and writes, good and short; the file is rewritten with what it has. */
static void traffic(const char *env, unsigned int flags, int cold)
{
	struct tally r = { 0 }, w = { 0 };
	struct peerlane_stats st;

	open_all(env, flags);
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		size_t n = requests[i].bytes;

		if (cold)
			sim_chill(sim_path("stats"));
		tally(&r, n, peerlane_read(file, gpu, n, requests[i].offset));
		if (requests[i].offset + (off_t)n <= (off_t)FILE_BYTES)
			tally(&w, n, peerlane_write(file, gpu, n, requests[i].offset, 0));
	}
	st = sim_stats(ctx);
	check(&st.read, &r);
	check(&st.write, &w);
	assert_int_equal(st.in_flight, 0);
	assert_int_equal(st.cancelled, 0);
	assert_in_range(st.pool_peak, st.pool_bytes, st.pool_limit);
	close_all();
}

static void adds_up(void **state)
{
	(void)state;
	traffic("", 0, 0);
	traffic("", 0, 1);
	traffic("SIM_ASYNC=100", 0, 0);
	traffic("SIM_BAR=1", 0, 0);
	traffic("", PEERLANE_NO_DIRECT, 1);
	traffic("THREADS=8 POOL_BYTES=1M", PEERLANE_NO_IO_URING, 1);
}

/* Which path the bytes went is told apart. */
static void paths(void **state)
{
	struct peerlane_stats st;
	char *host = malloc(MIB);

	(void)state;
	open_all("", PEERLANE_NO_DIRECT);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	assert_int_equal(peerlane_read(file, host, MIB, 0), MIB);
	assert_int_equal(peerlane_write(file, gpu, 1000, 0, 0), 1000);
	assert_int_equal(peerlane_write(file, host, 500, 0, 0), 500);
	st = sim_stats(ctx);
	assert_int_equal(st.read.path_bytes[PEERLANE_PATH_COPY], MIB);
	assert_int_equal(st.read.path_bytes[PEERLANE_PATH_MAPPED], MIB);
	assert_int_equal(st.write.path_bytes[PEERLANE_PATH_COPY], 1000);
	assert_int_equal(st.write.path_bytes[PEERLANE_PATH_MAPPED], 500);
	assert_int_equal(st.read.path_bytes[PEERLANE_PATH_P2P], 0);
	free(host);
	close_all();
}

/* Errors count as failed; nothing in flight is left over. */
static void failures(void **state)
{
	struct tally r = { 0 }, w = { 0 };
	struct peerlane_stats st;

	(void)state;
	open_all("", 0);
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 1000), 0);
	tally(&r, MIB, peerlane_read(file, gpu, MIB, 0));
	tally(&r, 100, peerlane_read(file, gpu, 100, 0));
	tally(&w, MIB, peerlane_write(file, gpu, MIB, 0, 0));
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 0), 0);
	tally(&r, 9 * MIB, peerlane_read(file, gpu, 9 * MIB, 0));
	tally(&r, 4096, peerlane_read(file, (void *)4096, 4096, 0));
	assert_int_equal(r.failed, 4);
	assert_int_equal(w.failed, 1);
	tally(&r, MIB, peerlane_read(file, gpu, MIB, 0));
	st = sim_stats(ctx);
	check(&st.read, &r);
	check(&st.write, &w);
	assert_int_equal(st.in_flight, 0);
	close_all();
}

/* "requests that returned an error": also those refused at the door, as long as there is a
 * context to count them. */
static void refusals_count(void **state)
{
	struct peerlane_stats st;

	(void)state;
	open_all("", 0);
	assert_int_equal(peerlane_read(file, gpu, 1, -1), -EINVAL);
	assert_int_equal(peerlane_read(file, gpu, 1, INT64_MAX), -EOVERFLOW);
	assert_int_equal(peerlane_read(file, gpu, 9 * MIB, 0), -EFAULT);
	st = sim_stats(ctx);
	assert_int_equal(st.read.failed, 3);
	close_all();
}

static void batches(void **state)
{
	struct tally r = { 0 }, w = { 0 };
	struct peerlane_event events[16];
	struct peerlane_batch *batch;
	struct peerlane_io io[16];
	struct peerlane_stats st;

	(void)state;
	open_all("", 0);
	assert_int_equal(peerlane_batch_create(ctx, 16, &batch), 0);
	assert_int_equal(sim_stats(ctx).batches, 1);
	for (uintptr_t i = 0; i < 16; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + i * 256 * KIB,
					      .bytes = i * 4000,
					      .offset = (off_t)(i * 256 * KIB + 100),
					      .op = i % 4 == 3 ? PEERLANE_WRITE : PEERLANE_READ,
					      .cookie = (void *)i };
	io[12].offset = (off_t)FILE_BYTES - 7;
	assert_int_equal(peerlane_batch_submit(batch, io, 16), 0);
	assert_int_equal(peerlane_batch_wait(batch, 16, events, 16, NULL), 16);
	for (int k = 0; k < 16; k++) {
		uintptr_t i = (uintptr_t)events[k].cookie;

		tally(i % 4 == 3 ? &w : &r, io[i].bytes, events[k].result);
	}
	st = sim_stats(ctx);
	check(&st.read, &r);
	check(&st.write, &w);
	assert_int_equal(st.in_flight, 0);
	peerlane_batch_destroy(batch);
	assert_int_equal(sim_stats(ctx).batches, 0);
	close_all();
}

static void vectors_and_streams(void **state)
{
	struct iovec iov[3] = { { NULL, 0 } };
	struct tally r = { 0 }, w = { 0 };
	size_t bytes = 70000;
	off_t offset = 9;
	ssize_t result = 0;
	struct peerlane_stats st;

	(void)state;
	open_all("", 0);
	iov[0] = (struct iovec){ gpu, 1000 };
	iov[1] = (struct iovec){ gpu + MIB, 100000 };
	/* One request each, however many pieces. */
	tally(&r, 101000, peerlane_readv(file, iov, 3, 5));
	tally(&w, 101000, peerlane_writev(file, iov, 3, 5, PEERLANE_DURABLE));
	assert_int_equal(peerlane_read_async(file, gpu, &bytes, &offset, &result, NULL, 0), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, NULL), 0);
	tally(&r, 70000, result);
	st = sim_stats(ctx);
	check(&st.read, &r);
	check(&st.write, &w);
	close_all();
}

static void objects(void **state)
{
	struct peerlane_file *files[10];
	struct peerlane_batch *b[10];

	(void)state;
	open_all("", 0);
	for (int i = 0; i < 10; i++) {
		files[i] = sim_file(ctx, sim_path("stats"), O_RDONLY);
		assert_int_equal(peerlane_buffer_register(ctx, gpu + i, 10, 0), 0);
		assert_int_equal(peerlane_batch_create(ctx, 1, &b[i]), 0);
	}
	assert_int_equal(sim_stats(ctx).files, 11);
	assert_int_equal(sim_stats(ctx).buffers, 10);
	assert_int_equal(sim_stats(ctx).batches, 10);
	for (int i = 0; i < 10; i++) {
		peerlane_batch_destroy(b[i]);
		assert_int_equal(peerlane_file_close(files[i]), 0);
		assert_int_equal(peerlane_file_close(files[i]), -EBADF);
		assert_int_equal(peerlane_buffer_release(ctx, gpu + i), 0);
	}
	assert_int_equal(sim_stats(ctx).files, 1);
	assert_int_equal(sim_stats(ctx).buffers, 0);
	assert_int_equal(sim_stats(ctx).batches, 0);
	close_all();
}

static void *reader(void *arg)
{
	uintptr_t bad = 0;

	for (int i = 0; i < 100; i++)
		bad |= peerlane_read(file, (char *)arg, 70000, i) != 70000;
	return (void *)bad;
}

/* Counters of many threads lose nothing. */
static void threads(void **state)
{
	pthread_t t[8];
	struct peerlane_stats st;
	void *bad;

	(void)state;
	open_all("", 0);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, reader, gpu + i * MIB), 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
	st = sim_stats(ctx);
	assert_int_equal(st.read.ok, 800);
	assert_int_equal(st.read.bytes, 800ul * 70000);
	assert_int_equal(sum(st.read.path_bytes, PEERLANE_PATH_NR), 800ul * 70000);
	assert_int_equal(st.read.size_hist[16], 800);
	assert_int_equal(st.in_flight, 0);
	close_all();
}

/* Pinned memory stays within its bound after copies were given up as well. */
static void pool_bound(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB, .timeout_ms = 30 };
	struct peerlane_stats st;

	(void)state;
	sim_env("");
	ctx = sim_open_with(&opt);
	file = sim_file(ctx, sim_make_file("stats", FILE_BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, 8 * MIB);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(peerlane_sim_inject(ctx, "hang", 0, 1000), 0);
		assert_int_equal(peerlane_read(file, gpu, MIB, 0), -ETIMEDOUT);
		assert_int_equal(peerlane_sim_inject(ctx, "hang", 0, 0), 0);
	}
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	sim_assert_gpu(ctx, gpu, MIB, 0, 1);
	st = sim_stats(ctx);
	assert_in_range(st.pool_bytes, 1, st.pool_limit);
	assert_in_range(st.pool_peak, 1, st.pool_limit);
	close_all();
}

static void bad_struct(void **state)
{
	struct peerlane_stats st = { .size = 8 };

	(void)state;
	open_all("", 0);
	assert_int_equal(peerlane_stats_get(ctx, &st), -EINVAL);
	assert_int_equal(st.size, 8);
	assert_int_equal(peerlane_stats_get(ctx, NULL), -EINVAL);
	assert_int_equal(peerlane_stats_get(NULL, &st), -EINVAL);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(adds_up),
		sim_test(paths),
		sim_test(failures),
		sim_test(batches),
		sim_test(vectors_and_streams),
		sim_test(objects),
		sim_test(threads),
		sim_test(bad_struct),
		sim_test(refusals_count),
		sim_test(pool_bound),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
