// SPDX-License-Identifier: MIT
/* Many streams at once, streams that come and go, and one stream for several threads. */
#include "sim/sim_fixture.h"

#include <pthread.h>

#define NR_STREAMS 32
#define DEPTH 8
#define EACH (100 * KIB + 1)

/* Each stream copies its part of the file, piece after piece, through one piece of memory: only
 * the order on the stream keeps them apart. */
static void many_streams(const char *env)
{
	struct peerlane_file *in, *out;
	struct peerlane *ctx;
	void *streams[NR_STREAMS];
	char *gpu;
	ssize_t results[NR_STREAMS][DEPTH][2];
	size_t bytes = EACH;
	off_t offsets[NR_STREAMS][DEPTH];

	sim_env(env);
	ctx = sim_open(0);
	in = sim_file(ctx, sim_make_file("in", NR_STREAMS * DEPTH * EACH, 1), O_RDONLY);
	out = sim_file(ctx, sim_make_file("out", 0, 0), O_RDWR);
	gpu = sim_alloc(ctx, NR_STREAMS * EACH);
	for (int s = 0; s < NR_STREAMS; s++)
		assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &streams[s]), 0);
	for (int d = 0; d < DEPTH; d++) {
		for (int s = 0; s < NR_STREAMS; s++) {
			char *at = gpu + (size_t)s * EACH;

			offsets[s][d] = (off_t)((size_t)(s * DEPTH + d) * EACH);
			assert_int_equal(peerlane_read_async(in, at, &bytes, &offsets[s][d],
							     &results[s][d][0], streams[s], 0),
					 0);
			assert_int_equal(peerlane_write_async(out, at, &bytes, &offsets[s][d],
							      &results[s][d][1], streams[s],
							      PEERLANE_FIXED),
					 0);
		}
	}
	for (int s = 0; s < NR_STREAMS; s++) {
		assert_int_equal(peerlane_gpu_stream_sync(ctx, streams[s]), 0);
		for (int d = 0; d < DEPTH; d++) {
			assert_int_equal(results[s][d][0], EACH);
			assert_int_equal(results[s][d][1], EACH);
		}
		peerlane_gpu_stream_destroy(ctx, streams[s]);
	}
	sim_assert_file(sim_path("out"), 0, NR_STREAMS * DEPTH * EACH, 1);
	sim_close(ctx, NULL, gpu);
}

static void many(void **state)
{
	(void)state;
	sim_alarm(50);
	many_streams("");
	many_streams("SIM_ASYNC=100 POOL_BYTES=1M");
	many_streams("THREADS=8");
	alarm(0);
}

/* Streams come and go, more of them than a page of flags holds. */
static void come_and_go(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *in = sim_file(ctx, sim_make_file("in", 4096, 1), O_RDONLY);
	char *gpu = sim_alloc(ctx, 4096);
	size_t bytes = 4096;
	off_t offset = 0;

	(void)state;
	for (int round = 0; round < 3; round++) {
		void *streams[150];
		ssize_t results[150] = { 0 };

		for (int i = 0; i < 150; i++) {
			assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &streams[i]), 0);
			assert_int_equal(peerlane_read_async(in, gpu, &bytes, &offset, &results[i],
							     streams[i], 0),
					 0);
		}
		for (int i = 0; i < 150; i++) {
			/* Destroying finishes the work. */
			peerlane_gpu_stream_destroy(ctx, streams[i]);
			assert_int_equal(results[i], 4096);
		}
	}
	sim_close(ctx, NULL, gpu);
}

/* Two threads queue on one stream: both are done, one after the other. */
struct pair {
	struct peerlane_file *in;
	char *gpu;
	void *stream;
	ssize_t results[100];
	bool bad;
};

static void *queue_100(void *arg)
{
	static const size_t bytes = 10000;
	static const off_t offset = 5;
	struct pair *p = arg;

	for (int i = 0; i < 100; i++)
		p->bad |= peerlane_read_async(p->in, p->gpu, &bytes, &offset, &p->results[i],
					      p->stream, 0) != 0;
	return NULL;
}

static void one_stream_two_threads(void **state)
{
	struct peerlane *ctx = sim_open(0);
	struct peerlane_file *in = sim_file(ctx, sim_make_file("in", MIB, 1), O_RDONLY);
	struct pair pairs[2] = { { .bad = false }, { .bad = false } };
	pthread_t threads[2];
	void *stream;

	(void)state;
	sim_alarm(20);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	for (int i = 0; i < 2; i++) {
		pairs[i].in = in;
		pairs[i].stream = stream;
		pairs[i].gpu = sim_alloc(ctx, 10000);
		assert_int_equal(pthread_create(&threads[i], NULL, queue_100, &pairs[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	for (int i = 0; i < 2; i++) {
		assert_false(pairs[i].bad);
		for (int k = 0; k < 100; k++)
			assert_int_equal(pairs[i].results[k], 10000);
		sim_assert_gpu(ctx, pairs[i].gpu, 10000, 5, 1);
		assert_int_equal(peerlane_gpu_free(ctx, pairs[i].gpu), 0);
	}
	peerlane_gpu_stream_destroy(ctx, stream);
	peerlane_close(ctx);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(many),
		sim_test(come_and_go),
		sim_test(one_stream_two_threads),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
