// SPDX-License-Identifier: MIT
/* fork: the child is told that the context is not its own, may close it and open another; the
 * parent goes on. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define BYTES (3 * MIB + 5)

static struct peerlane *ctx;
static struct peerlane_file *file;
static struct peerlane_batch *batch;
static void *stream;
static char *gpu;

static void open_all(const char *env)
{
	sim_env(env);
	ctx = sim_open(0);
	sim_make_file("fork", BYTES, 1);
	sim_chill(sim_path("fork"));
	file = sim_file(ctx, sim_path("fork"), O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
	/* So that threads, lanes, rings and queues are there when it forks. */
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, BYTES, 0), 0);
	assert_int_equal(peerlane_batch_create(ctx, 4, &batch), 0);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
}

static void close_all(void)
{
	sim_gpu_set(ctx, gpu, 0, BYTES);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	assert_int_equal(sim_stats(ctx).in_flight, 0);
	assert_int_equal(sim_stats(ctx).files, 1);
	assert_int_equal(sim_stats(ctx).buffers, 1);
	peerlane_batch_destroy(batch);
	peerlane_gpu_stream_destroy(ctx, stream);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* Runs @fn in a child; it gives back 0, or the line where it failed. */
static void in_child(int (*fn)(void))
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		sim_alarm(20);
		_exit(fn() & 0xff);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		fail_msg("the child died of signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		fail_msg("the child failed at line %d (modulo 256)", WEXITSTATUS(status));
}

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			return __LINE__ % 256 ? __LINE__ : 1;                                      \
		}                                                                                  \
	} while (0)

static int all_refused(void)
{
	struct peerlane_stats st = { .size = sizeof(st) };
	struct peerlane_gpu_info info = { .size = sizeof(info) };
	struct peerlane_explanation why = { .size = sizeof(why) };
	struct peerlane_event event;
	struct peerlane_file *other;
	struct peerlane_batch *more;
	char host[16];
	struct peerlane_io io = { .file = file, .addr = host, .bytes = 1 };
	struct iovec iov = { host, 1 };
	size_t bytes = 1;
	off_t offset = 0;
	ssize_t result;
	double rate;
	void *p;

	CHECK(peerlane_read(file, host, 1, 0) == -EOWNERDEAD);
	CHECK(peerlane_write(file, host, 1, 0, 0) == -EOWNERDEAD);
	CHECK(peerlane_readv(file, &iov, 1, 0) == -EOWNERDEAD);
	CHECK(peerlane_writev(file, &iov, 1, 0, 0) == -EOWNERDEAD);
	CHECK(peerlane_file_sync(file) == -EOWNERDEAD);
	CHECK(peerlane_file_close(file) == -EOWNERDEAD);
	CHECK(peerlane_file_open(ctx, "/dev/null", O_RDONLY, 0, &other) == -EOWNERDEAD);
	CHECK(peerlane_file_from_fd(ctx, 0, &other) == -EOWNERDEAD);
	CHECK(peerlane_explain(file, PEERLANE_READ, host, 1, 0, &why) == -EOWNERDEAD);
	CHECK(peerlane_buffer_register(ctx, host, 1, 0) == -EOWNERDEAD);
	CHECK(peerlane_buffer_release(ctx, gpu) == -EOWNERDEAD);
	CHECK(peerlane_batch_create(ctx, 1, &more) == -EOWNERDEAD);
	CHECK(peerlane_batch_submit(batch, &io, 1) == -EOWNERDEAD);
	CHECK(peerlane_batch_wait(batch, 0, &event, 1, NULL) == -EOWNERDEAD);
	CHECK(peerlane_batch_cancel(batch) == -EOWNERDEAD);
	CHECK(peerlane_read_async(file, host, &bytes, &offset, &result, stream, 0) == -EOWNERDEAD);
	CHECK(peerlane_write_async(file, host, &bytes, &offset, &result, NULL, 0) == -EOWNERDEAD);
	CHECK(peerlane_stats_get(ctx, &st) == -EOWNERDEAD);
	CHECK(peerlane_gpu_count(ctx) == -EOWNERDEAD);
	CHECK(peerlane_gpu_get_info(ctx, 0, &info) == -EOWNERDEAD);
	CHECK(peerlane_gpu_alloc(ctx, 0, 1, &p) == -EOWNERDEAD);
	CHECK(peerlane_gpu_free(ctx, gpu) == -EOWNERDEAD);
	CHECK(peerlane_gpu_copy(ctx, host, host + 8, 1) == -EOWNERDEAD);
	CHECK(peerlane_gpu_copy_limit(ctx, 0, PEERLANE_READ, &rate) == -EOWNERDEAD);
	CHECK(peerlane_gpu_stream_create(ctx, 0, &p) == -EOWNERDEAD);
	CHECK(peerlane_gpu_stream_sync(ctx, stream) == -EOWNERDEAD);
	CHECK(peerlane_sim_inject(ctx, "copy", 0, 1) == -EOWNERDEAD);
	peerlane_gpu_stream_destroy(ctx, stream);
	CHECK(!strcmp(peerlane_backend(ctx), "sim"));
	return 0;
}

static void child_is_told(void **state)
{
	(void)state;
	open_all("");
	in_child(all_refused);
	close_all();
	open_all("SIM_ASYNC=100");
	in_child(all_refused);
	close_all();
}

static unsigned int fds_before;

static int close_it(void)
{
	peerlane_batch_destroy(batch);
	peerlane_close(ctx);
	/* Nothing of it is left open. */
	CHECK(sim_count_fds() == fds_before);
	return 0;
}

static void child_closes(void **state)
{
	(void)state;
	fds_before = sim_count_fds();
	open_all("");
	in_child(close_it);
	close_all();
	open_all("SIM_ASYNC=100 FLAGS=no-io-uring");
	in_child(close_it);
	close_all();
}

/* I/O of the child in a context of its own. */
static int own_io(void)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	struct peerlane_file *mine = NULL;
	struct peerlane *own = NULL;
	size_t bytes = BYTES;
	off_t offset = 0;
	ssize_t result = 0;
	void *mem = NULL, *str = NULL;

	CHECK(peerlane_open(&own, &opt) == 0);
	CHECK(peerlane_file_open(own, sim_path("fork"), O_RDONLY, 0, &mine) == 0);
	CHECK(peerlane_gpu_alloc(own, 0, BYTES, &mem) == 0);
	CHECK(peerlane_read(mine, mem, BYTES, 0) == BYTES);
	CHECK(sim_gpu_differs(own, mem, BYTES, 0, 1) == BYTES);
	CHECK(peerlane_gpu_stream_create(own, 0, &str) == 0);
	CHECK(peerlane_read_async(mine, mem, &bytes, &offset, &result, str, 0) == 0);
	CHECK(peerlane_gpu_stream_sync(own, str) == 0);
	CHECK(result == BYTES);
	peerlane_gpu_stream_destroy(own, str);
	/* GPU memory of the parent is not the child's. */
	CHECK(peerlane_read(mine, gpu, 1, 0) < 0);
	CHECK(peerlane_gpu_free(own, mem) == 0);
	peerlane_close(own);
	return 0;
}

static int close_then_own(void)
{
	peerlane_close(ctx);
	return own_io();
}

static int own_then_close(void)
{
	int bad = own_io();

	if (!bad)
		peerlane_close(ctx);
	return bad;
}

static int grandchild(void)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	struct peerlane *own = NULL;
	pid_t pid;
	int status;

	CHECK(peerlane_open(&own, &opt) == 0);
	pid = fork();
	if (!pid) {
		int bad = peerlane_gpu_count(own) != -EOWNERDEAD || own_io();

		peerlane_close(own);
		_exit(bad);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
	CHECK(peerlane_gpu_count(own) == 1);
	peerlane_close(own);
	return 0;
}

static void child_opens_its_own(void **state)
{
	(void)state;
#ifdef __SANITIZE_THREAD__
	/* Its run-time does not let a child of a threaded process have threads. */
	skip();
#endif
	open_all("");
	in_child(own_io);
	in_child(close_then_own);
	in_child(own_then_close);
	in_child(grandchild);
	close_all();
	open_all("SIM_ASYNC=100");
	in_child(own_then_close);
	close_all();
}

/* --- fork while other threads are at it --- */

static bool stop;

static void *busy(void *arg)
{
	uintptr_t i = (uintptr_t)arg, bad = 0;
	void *mem = NULL;

	bad |= peerlane_gpu_alloc(ctx, 0, BYTES, &mem) != 0;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && !bad) {
		bad |= peerlane_read(file, mem, BYTES - i, (off_t)i) != (ssize_t)(BYTES - i);
		bad |= sim_gpu_differs(ctx, mem, BYTES - i, (off_t)i, 1) != BYTES - i;
	}
	bad |= peerlane_gpu_free(ctx, mem) != 0;
	return (void *)bad;
}

static void under_load(const char *env)
{
	pthread_t threads[4];
	void *bad;

	sim_alarm(50);
	open_all(env);
	stop = false;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, busy, (void *)i), 0);
	for (int i = 0; i < (sim_slow() ? 5 : 20); i++) {
		in_child(all_refused);
		if (!sim_sanitized())
			in_child(i % 2 ? own_then_close : close_then_own);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	close_all();
	alarm(0);
}

static void forked_under_load(void **state)
{
	(void)state;
	under_load("");
	under_load("SIM_ASYNC=100");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(child_is_told),
		sim_test(child_closes),
		sim_test(child_opens_its_own),
		sim_test(forked_under_load),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
