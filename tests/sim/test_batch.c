// SPDX-License-Identifier: MIT
/* Batches: refusals, room, waiting, and every request's event exactly once. */
#include "sim/sim_fixture.h"

#include <limits.h>
#include <pthread.h>

#define FILE_BYTES (8 * MIB)

static struct peerlane *ctx;
static struct peerlane_file *file;
static struct peerlane_batch *batch;
static char *gpu;

static void open_all(const char *env, unsigned int capacity)
{
	sim_env(env);
	ctx = sim_open(0);
	file = sim_file(ctx, sim_make_file("batch", FILE_BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, FILE_BYTES);
	assert_int_equal(peerlane_batch_create(ctx, capacity, &batch), 0);
}

static void close_all(void)
{
	struct peerlane_stats st;

	peerlane_batch_destroy(batch);
	st = sim_stats(ctx);
	assert_int_equal(st.in_flight, 0);
	assert_int_equal(st.batches, 0);
	sim_close(ctx, file, gpu);
}

static struct peerlane_io io_at(size_t at, size_t bytes, uintptr_t cookie)
{
	return (struct peerlane_io){ .file = file,
				     .addr = gpu + at,
				     .bytes = bytes,
				     .offset = (off_t)at,
				     .cookie = (void *)cookie };
}

static void bad_batches(void **state)
{
	struct peerlane_batch *b = (struct peerlane_batch *)-1;
	struct peerlane_event event;
	struct peerlane_io io;
	const struct timespec bad[] = { { -1, 0 }, { 0, -1 }, { 0, 1000000000 } };

	(void)state;
	open_all("", 4);
	io = io_at(0, 1, 0);
	assert_int_equal(peerlane_batch_create(NULL, 1, &b), -EINVAL);
	assert_int_equal(peerlane_batch_create(ctx, 0, &b), -EINVAL);
	assert_int_equal(peerlane_batch_create(ctx, 65537, &b), -EINVAL);
	assert_int_equal(peerlane_batch_create(ctx, 1, NULL), -EINVAL);
	assert_ptr_equal(b, (struct peerlane_batch *)-1);
	assert_int_equal(peerlane_batch_submit(NULL, &io, 1), -EINVAL);
	assert_int_equal(peerlane_batch_submit(batch, NULL, 1), -EINVAL);
	assert_int_equal(peerlane_batch_submit(batch, NULL, 0), 0);
	assert_int_equal(peerlane_batch_wait(NULL, 0, &event, 1, NULL), -EINVAL);
	assert_int_equal(peerlane_batch_wait(batch, 0, NULL, 1, NULL), -EINVAL);
	assert_int_equal(peerlane_batch_wait(batch, 2, &event, 1, NULL), -EINVAL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(peerlane_batch_wait(batch, 0, &event, 1, &bad[i]), -EINVAL);
	assert_int_equal(peerlane_batch_wait(batch, 0, NULL, 0, NULL), 0);
	assert_int_equal(peerlane_batch_cancel(NULL), -EINVAL);
	assert_int_equal(peerlane_batch_cancel(batch), 0);
	peerlane_batch_destroy(NULL);
	assert_int_equal(peerlane_batch_create(ctx, 65536, &b), 0);
	peerlane_batch_destroy(b);
	close_all();
}

/* One malformed request in the middle: the error names it and none is started. */
static void bad_request(void **state)
{
	struct peerlane_file *wronly, *closed;
	struct peerlane_event events[4];
	struct {
		struct peerlane_io io;
		int err;
	} bad[11];
	unsigned int n = 0;

	(void)state;
	open_all("", 4);
	wronly = sim_file(ctx, sim_path("batch"), O_WRONLY);
	closed = sim_file(ctx, sim_path("batch"), O_RDWR);
	assert_int_equal(peerlane_file_close(closed), 0);
#define BAD(code, field, value)                                                                    \
	do {                                                                                       \
		bad[n].io = io_at(0, 100, 0);                                                      \
		bad[n].io.field = (value);                                                         \
		bad[n++].err = (code);                                                             \
	} while (0)
	BAD(-EINVAL, file, NULL);
	BAD(-EINVAL, addr, NULL);
	BAD(-EINVAL, op, (enum peerlane_op)2);
	BAD(-EINVAL, op, (enum peerlane_op) - 1);
	BAD(-EINVAL, flags, 2);
	BAD(-EINVAL, offset, -1);
	BAD(-EOVERFLOW, offset, INT64_MAX);
	BAD(-EOVERFLOW, bytes, SIZE_MAX);
	BAD(-EFAULT, bytes, FILE_BYTES + 1);
	BAD(-EBADF, file, wronly);
	BAD(-EBADF, file, closed);
	for (unsigned int i = 0; i < n; i++) {
		struct peerlane_io io[4] = { io_at(0, 4096, 1), io_at(4096, 4096, 2), bad[i].io,
					     io_at(8192, 4096, 3) };
		struct peerlane_stats before = sim_stats(ctx), after;

		io[0].op = PEERLANE_WRITE;
		assert_int_equal(peerlane_batch_submit(batch, io, 4), bad[i].err);
		sim_assert_error(bad[i].err, "request 2");
		assert_int_equal(peerlane_batch_wait(batch, 0, events, 4, NULL), 0);
		after = sim_stats(ctx);
		assert_int_equal(after.in_flight, 0);
		assert_int_equal(after.read.ok + after.write.ok, before.read.ok + before.write.ok);
	}
	/* No reference was kept, all the room is there. */
	assert_int_equal(peerlane_file_close(wronly), 0);
	{
		struct peerlane_io io[4] = { io_at(0, 4096, 0), io_at(4096, 4096, 0),
					     io_at(8192, 4096, 0), io_at(12288, 4096, 0) };

		assert_int_equal(peerlane_batch_submit(batch, io, 4), 0);
		assert_int_equal(peerlane_batch_wait(batch, 4, events, 4, NULL), 4);
	}
	sim_assert_file(sim_path("batch"), 0, FILE_BYTES, 1);
	close_all();
}

static void room(void **state)
{
	struct peerlane_event events[4];
	struct peerlane_io io[5];

	(void)state;
	open_all("SIM_ASYNC=1000", 4);
	for (size_t i = 0; i < 5; i++)
		io[i] = io_at(i * 100000, 100000, i);
	/* More than it ever holds. */
	assert_int_equal(peerlane_batch_submit(batch, io, 5), -EINVAL);
	assert_int_equal(peerlane_batch_submit(batch, io, UINT_MAX), -EINVAL);
	assert_int_equal(peerlane_batch_submit(batch, io, 3), 0);
	assert_int_equal(peerlane_batch_submit(batch, io, 2), -EAGAIN);
	assert_int_equal(peerlane_batch_submit(batch, io + 3, 1), 0);
	assert_int_equal(peerlane_batch_submit(batch, io, 1), -EAGAIN);
	sim_assert_error(-EAGAIN, "4");
	/* Finished but not collected still takes room. */
	while (sim_stats(ctx).in_flight)
		sim_nap_ms(1);
	assert_int_equal(peerlane_batch_submit(batch, io, 1), -EAGAIN);
	assert_int_equal(peerlane_batch_wait(batch, 1, events, 1, NULL), 1);
	assert_int_equal(peerlane_batch_submit(batch, io, 2), -EAGAIN);
	assert_int_equal(peerlane_batch_submit(batch, io, 1), 0);
	assert_int_equal(peerlane_batch_wait(batch, 4, events, 4, NULL), 4);
	/* Fewer in flight than asked for: it does not wait. */
	assert_int_equal(peerlane_batch_wait(batch, 4, events, 4, NULL), 0);
	close_all();
}

static void waiting(void **state)
{
	const struct timespec none = { 0 }, short_time = { .tv_nsec = 20000000 },
			      long_time = { .tv_sec = 30 };
	struct peerlane_event events[8];
	struct peerlane_io io[2];
	uint64_t start;

	(void)state;
	open_all("SIM_ASYNC=300000", 8);
	io[0] = io_at(0, MIB, 1);
	io[1] = io_at(MIB, MIB, 2);
	assert_int_equal(peerlane_batch_submit(batch, io, 2), 0);
	start = sim_now_ms();
	assert_int_equal(peerlane_batch_wait(batch, 0, events, 8, NULL), 0);
	assert_int_equal(peerlane_batch_wait(batch, 1, events, 8, &none), 0);
	assert_int_equal(peerlane_batch_wait(batch, 2, events, 8, &short_time), 0);
	if (!sim_slow())
		assert_in_range(sim_now_ms() - start, 19, 250);
	assert_int_equal(peerlane_batch_wait(batch, 2, events, 8, &long_time), 2);
	assert_in_range(sim_now_ms() - start, 250, 20000);
	assert_int_equal(events[0].result, MIB);
	assert_int_equal(events[1].result, MIB);
	/* max_nr leaves the rest for the next call. */
	assert_int_equal(peerlane_batch_submit(batch, io, 2), 0);
	assert_int_equal(peerlane_batch_wait(batch, 1, events, 1, NULL), 1);
	assert_int_equal(peerlane_batch_wait(batch, 1, events + 1, 1, NULL), 1);
	assert_ptr_not_equal(events[0].cookie, events[1].cookie);
	sim_assert_gpu(ctx, gpu, 2 * MIB, 0, 1);
	close_all();
}

/* A time-out as long as can be is not one that is over. */
static void longest_timeout(void **state)
{
	const struct timespec times[] = { { .tv_sec = INT64_MAX, .tv_nsec = 999999999 },
					  { .tv_sec = INT64_MAX },
					  { .tv_sec = INT64_MAX / 2 } };
	struct peerlane_event event;
	struct peerlane_io io;

	(void)state;
	open_all("SIM_ASYNC=20000", 8);
	for (int i = 0; i < 3; i++) {
		io = io_at(0, MIB, 1);
		assert_int_equal(peerlane_batch_submit(batch, &io, 1), 0);
		assert_int_equal(peerlane_batch_wait(batch, 1, &event, 1, &times[i]), 1);
		assert_int_equal(event.result, MIB);
	}
	close_all();
}

/* A small request overtakes a large one submitted before it. */
static void any_order(void **state)
{
	struct peerlane_event events[2];
	struct peerlane_io io[2];
	int overtaken = 0;

	(void)state;
	open_all("SIM_ASYNC=2000 POOL_BYTES=1M THREADS=4", 4);
	for (int i = 0; i < 10; i++) {
		io[0] = io_at(0, 7 * MIB, 0);
		io[1] = io_at(7 * MIB, 4096, 1);
		assert_int_equal(peerlane_batch_submit(batch, &io[0], 1), 0);
		assert_int_equal(peerlane_batch_submit(batch, &io[1], 1), 0);
		assert_int_equal(peerlane_batch_wait(batch, 2, events, 2, NULL), 2);
		assert_int_equal((uintptr_t)events[0].cookie + (uintptr_t)events[1].cookie, 1);
		overtaken += events[0].cookie == (void *)1;
	}
	assert_true(overtaken > 0);
	sim_assert_gpu(ctx, gpu, 7 * MIB + 4096, 0, 1);
	close_all();
}

static void empty_requests(void **state)
{
	struct peerlane_event events[8];
	struct peerlane_io io[8];
	uintptr_t seen = 0;

	(void)state;
	open_all("", 8);
	for (uintptr_t i = 0; i < 8; i++) {
		io[i] = io_at(0, 0, i);
		io[i].op = i % 2 ? PEERLANE_WRITE : PEERLANE_READ;
	}
	io[6] = io_at(0, 100, 6);
	/* Nothing there to read: past the end, small and large. */
	io[4].offset = (off_t)FILE_BYTES;
	io[4].bytes = MIB;
	io[2].offset = (off_t)FILE_BYTES + 5;
	io[2].bytes = 10;
	assert_int_equal(peerlane_batch_submit(batch, io, 8), 0);
	assert_int_equal(peerlane_batch_wait(batch, 8, events, 8, NULL), 8);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(events[i].result, events[i].cookie == (void *)6 ? 100 : 0);
		seen |= 1u << (uintptr_t)events[i].cookie;
	}
	assert_int_equal(seen, 0xff);
	assert_int_equal(sim_file_size(sim_path("batch")), FILE_BYTES);
	close_all();
}

/* 1024 pages, each event once, also with few slots. */
static void many_small(const char *env, int file_flags)
{
	struct peerlane_event *events = calloc(1024, sizeof(*events));
	struct peerlane_io *io = calloc(1024, sizeof(*io));
	struct peerlane_file *other;
	unsigned char seen[1024];
	int got = 0, n;

	open_all(env, 1024);
	other = sim_file(ctx, sim_path("batch"), O_RDWR | file_flags);
	for (int round = 0; round < 4; round++) {
		memset(seen, 0, sizeof(seen));
		sim_gpu_set(ctx, gpu, 0, FILE_BYTES);
		if (round % 2)
			sim_chill(sim_path("batch"));
		for (uintptr_t i = 0; i < 1024; i++) {
			io[i] = io_at(i * 7919 % 1024 * 4096 + (round > 1 ? 123 : 0), 4096, i);
			io[i].file = other;
		}
		assert_int_equal(peerlane_batch_submit(batch, io, 1024), 0);
		for (got = 0; got < 1024; got += n) {
			n = peerlane_batch_wait(batch, 1, events, 100, NULL);
			assert_in_range(n, 1, 100);
			for (int i = 0; i < n; i++) {
				assert_int_equal(events[i].result, 4096);
				assert_int_equal(seen[(uintptr_t)events[i].cookie]++, 0);
			}
		}
		sim_assert_gpu(ctx, gpu + (round > 1 ? 123 : 0), 4 * MIB, round > 1 ? 123 : 0, 1);
	}
	assert_int_equal(peerlane_file_close(other), 0);
	free(io);
	free(events);
	close_all();
}

static void many_small_modes(void **state)
{
	(void)state;
	many_small("", 0);
	many_small("SIM_ASYNC=200", 0);
	many_small("POOL_BYTES=1M", 0);
	many_small("SIM_BAR=1", 0);
	many_small("THREADS=8", O_DIRECT);
	many_small("FLAGS=no-io-uring", O_DIRECT);
}

/* How many threads are in the function below at once. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t came;
	unsigned int inside, most;
} party = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER };

/* Nobody goes on until there were two, or a second has passed. */
static ssize_t read_together(void *arg, void *mem, size_t bytes, off_t offset)
{
	struct timespec until;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	pthread_mutex_lock(&party.lock);
	if (++party.inside > party.most)
		party.most = party.inside;
	pthread_cond_broadcast(&party.came);
	while (party.most < 2 && !pthread_cond_timedwait(&party.came, &party.lock, &until))
		;
	party.inside--;
	pthread_mutex_unlock(&party.lock);
	sim_pattern(mem, bytes, offset, 1);
	return (ssize_t)bytes;
}

/* The only worker has begun when the thread comes to wait: it takes part all the same. */
static void waiter_helps(void **state)
{
	const struct peerlane_file_ops ops = { .size = sizeof(ops), .read = read_together };
	struct peerlane_event events[64];
	struct peerlane_file *own;
	struct peerlane_io io[64];

	(void)state;
	open_all("THREADS=1", 64);
	assert_int_equal(peerlane_file_from_ops(ctx, &ops, NULL, &own), 0);
	for (unsigned int i = 0; i < 64; i++) {
		io[i] = io_at(i * 4096, 4096, i);
		io[i].file = own;
	}
	assert_int_equal(peerlane_batch_submit(batch, io, 64), 0);
	pthread_mutex_lock(&party.lock);
	while (!party.most)
		pthread_cond_wait(&party.came, &party.lock);
	pthread_mutex_unlock(&party.lock);
	assert_int_equal(peerlane_batch_wait(batch, 64, events, 64, NULL), 64);
	assert_int_equal(party.most, 2);
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(events[i].result, 4096);
	sim_assert_gpu(ctx, gpu, 64 * 4096, 0, 1);
	assert_int_equal(peerlane_file_close(own), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(bad_batches),	  sim_test(bad_request),      sim_test(room),
		sim_test(waiting),	  sim_test(longest_timeout),  sim_test(any_order),
		sim_test(empty_requests), sim_test(many_small_modes), sim_test(waiter_helps),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
