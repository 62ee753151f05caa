// SPDX-License-Identifier: MIT
/* Signals during transfers: no EINTR comes out, no byte is wrong, handlers run where they should. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define BYTES (24 * MIB + 11)

static volatile sig_atomic_t nr_signals, nr_elsewhere;
static pthread_t program;

static void on_signal(int sig)
{
	(void)sig;
	nr_signals++;
	if (!pthread_equal(pthread_self(), program))
		nr_elsewhere++;
}

static void catch_signals(int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	nr_signals = nr_elsewhere = 0;
	program = pthread_self();
	assert_int_equal(sigaction(SIGALRM, &sa, NULL), 0);
	assert_int_equal(sigaction(SIGINT, &sa, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
}

static void rain(unsigned int us)
{
	struct itimerval it = { .it_interval.tv_usec = us, .it_value.tv_usec = us };

	assert_int_equal(setitimer(ITIMER_REAL, &it, NULL), 0);
}

static void transfer(const char *env, int file_flags, int sa_flags)
{
	const char *path = sim_make_file("in", BYTES, 1);
	struct peerlane_file *in, *out;
	struct peerlane *ctx;
	char *gpu;

	sim_env(env);
	ctx = sim_open(0);
	in = sim_file(ctx, path, O_RDONLY | file_flags);
	out = sim_file(ctx, sim_make_file("out", 0, 0), O_RDWR | file_flags);
	gpu = sim_alloc(ctx, BYTES);
	catch_signals(sa_flags);
	rain(sim_slow() ? 3000 : 300);
	for (int i = 0; i < 4; i++) {
		if (i % 2)
			sim_chill(path);
		assert_int_equal(peerlane_read(in, gpu, BYTES, 0), BYTES);
		assert_int_equal(peerlane_write(out, gpu, BYTES, 0, i == 3 ? PEERLANE_DURABLE : 0),
				 BYTES);
		raise(SIGINT);
	}
	rain(0);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	sim_assert_file(sim_path("out"), 0, BYTES, 1);
	assert_true(nr_signals >= 4);
	assert_int_equal(nr_elsewhere, 0);
	sim_close(ctx, NULL, gpu);
}

static void interrupting(void **state)
{
	(void)state;
	transfer("", 0, 0);
	transfer("SIM_ASYNC=300", 0, 0);
	transfer("FLAGS=no-io-uring", O_DIRECT, 0);
	transfer("", O_DIRECT, 0);
	transfer("SIM_BAR=1", 0, 0);
}

static void restarting(void **state)
{
	(void)state;
	transfer("", 0, SA_RESTART);
	transfer("", O_DIRECT, SA_RESTART);
}

/* Waiting for a batch, a stream or a file to close is not cut short either. */
static void waits(void **state)
{
	struct peerlane_event events[16];
	struct peerlane_file *file;
	struct peerlane_batch *batch;
	struct peerlane_io io[16];
	struct peerlane *ctx;
	size_t bytes = MIB;
	off_t offset = 0;
	ssize_t result = 0;
	void *stream;
	char *gpu;

	(void)state;
	sim_env("SIM_ASYNC=5000");
	ctx = sim_open(0);
	file = sim_file(ctx, sim_make_file("wait", 16 * MIB, 2), O_RDONLY);
	gpu = sim_alloc(ctx, 16 * MIB);
	assert_int_equal(peerlane_batch_create(ctx, 16, &batch), 0);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	for (size_t i = 0; i < 16; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + i * MIB,
					      .bytes = MIB,
					      .offset = (off_t)(i * MIB) };
	catch_signals(0);
	rain(sim_slow() ? 3000 : 300);
	for (int i = 0; i < 4; i++) {
		const struct timespec long_time = { .tv_sec = 60 };

		assert_int_equal(peerlane_batch_submit(batch, io, 16), 0);
		assert_int_equal(
			peerlane_batch_wait(batch, 16, events, 16, i % 2 ? &long_time : NULL), 16);
		assert_int_equal(
			peerlane_read_async(file, gpu, &bytes, &offset, &result, stream, 0), 0);
		assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
		assert_int_equal(result, MIB);
	}
	assert_int_equal(peerlane_file_close(file), 0);
	rain(0);
	sim_assert_gpu(ctx, gpu, 16 * MIB, 0, 2);
	peerlane_batch_destroy(batch);
	peerlane_gpu_stream_destroy(ctx, stream);
	sim_close(ctx, NULL, gpu);
}

/* A signal to the process while the program's own thread blocks it stays pending: no thread of
 * the library takes it. */
static void blocked(void **state)
{
	struct peerlane *ctx;
	struct peerlane_file *file;
	sigset_t set, pending;
	char *gpu;

	(void)state;
	sim_env("SIM_ASYNC=500 THREADS=4");
	ctx = sim_open(0);
	file = sim_file(ctx, sim_make_file("blocked", BYTES, 3), O_RDONLY);
	gpu = sim_alloc(ctx, BYTES);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	catch_signals(0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	assert_int_equal(kill(getpid(), SIGUSR1), 0);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	assert_int_equal(nr_signals, 0);
	assert_int_equal(sigpending(&pending), 0);
	assert_true(sigismember(&pending, SIGUSR1));
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
	assert_int_equal(nr_signals, 1);
	sim_close(ctx, NULL, gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(interrupting),
		sim_test(restarting),
		sim_test(waits),
		sim_test(blocked),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
