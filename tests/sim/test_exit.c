// SPDX-License-Identifier: MIT
/* A process that ends with a context open and work in flight ends, whichever way it goes. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define BYTES (8 * MIB)

static const char *way;

/* Everything that can be under way: reads, a batch, a stream behind a kernel. */
struct work {
	struct peerlane *ctx;
	struct peerlane_file *file;
	struct peerlane_batch *batch;
	struct peerlane_io io[8];
	void *gpu, *gpu2, *gpu3, *stream;
	size_t bytes;
	off_t offset;
	ssize_t result;
};

static struct work w;

static void *reader(void *arg)
{
	(void)arg;
	for (;;)
		if (peerlane_read(w.file, w.gpu2, BYTES, 0) < 0)
			return NULL;
}

static void nap_kernel(unsigned int block, unsigned int nr_blocks, void **args)
{
	(void)block;
	(void)nr_blocks;
	(void)args;
	sim_nap_ms(2000);
}

static int start(void)
{
	const struct peerlane_kernel nap = { .name = "nap", .ptx = "", .host = nap_kernel };
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "sim" };
	pthread_t thread;
	int err = 0;

	w.bytes = BYTES;
	err |= peerlane_open(&w.ctx, &opt);
	err |= peerlane_file_open(w.ctx, sim_path("exit"), O_RDWR, 0, &w.file);
	err |= peerlane_gpu_alloc(w.ctx, 0, BYTES, &w.gpu);
	err |= peerlane_gpu_alloc(w.ctx, 0, BYTES, &w.gpu2);
	err |= peerlane_gpu_alloc(w.ctx, 0, BYTES, &w.gpu3);
	err |= peerlane_buffer_register(w.ctx, w.gpu, BYTES, 0);
	err |= peerlane_batch_create(w.ctx, 8, &w.batch);
	for (size_t i = 0; i < 8; i++)
		w.io[i] = (struct peerlane_io){ .file = w.file,
						.addr = (char *)w.gpu + i * MIB,
						.bytes = MIB,
						.offset = (off_t)(i * MIB),
						.op = i % 2 ? PEERLANE_WRITE : PEERLANE_READ };
	err |= peerlane_batch_submit(w.batch, w.io, 8);
	err |= peerlane_gpu_stream_create(w.ctx, 0, &w.stream);
	err |= peerlane_gpu_launch(w.ctx, w.stream, &nap, 1, 1, NULL, NULL, 0);
	err |= peerlane_read_async(w.file, w.gpu3, &w.bytes, &w.offset, &w.result, w.stream, 0);
	err |= pthread_create(&thread, NULL, reader, NULL);
	pthread_detach(thread);
	return err;
}

static void *exiting(void *arg)
{
	sim_nap_ms(50);
	if (arg)
		_exit(7);
	exit(7);
}

static void *returning(void *arg)
{
	(void)arg;
	peerlane_read(w.file, w.gpu, BYTES, 0);
	return NULL;
}

/* What the child does. */
static int child(void)
{
	pthread_t thread;

	if (start())
		return 1;
	sim_nap_ms(5);
	if (!strcmp(way, "exit"))
		exit(7);
	if (!strcmp(way, "_exit"))
		_exit(7);
	if (!strcmp(way, "quick_exit"))
		quick_exit(7);
	if (!strcmp(way, "other thread")) {
		pthread_create(&thread, NULL, exiting, NULL);
		pause();
	}
	if (!strcmp(way, "pthread_exit")) {
		/* The rest of the program goes on without its first thread, and ends without a
		 * search for leaks: what only that thread's stack pointed to would be one. */
		pthread_create(&thread, NULL, exiting, &w);
		pthread_exit(NULL);
	}
	if (!strcmp(way, "signal")) {
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
	}
	return 7;
}

static void ends(const char *env, const char *how)
{
	uint64_t limit = sim_now_ms() + (sim_slow() ? 60000 : 8000);
	pid_t pid, got = 0;
	int status = 0;

	sim_env(env);
	way = how;
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		exit(child());
	while (!got && sim_now_ms() < limit) {
		got = waitpid(pid, &status, WNOHANG);
		sim_nap_ms(2);
	}
	if (!got) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		fail_msg("%s with \"%s\": the process hangs", how, env);
	}
	if (!strcmp(how, "signal")) {
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGTERM);
	} else if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
		fail_msg("%s with \"%s\": status %#x", how, env, status);
	}
	/* Nothing it left behind is wrong: it read, and wrote what it had read or zeros. */
	assert_int_equal(sim_file_size(sim_path("exit")), BYTES);
}

static void all_ways(void **state)
{
	static const char *const ways[] = { "return",	    "exit",	    "_exit", "quick_exit",
					    "other thread", "pthread_exit", "signal" };
	static const char *const envs[] = { "", "SIM_ASYNC=5000", "SIM_BAR=1", "POOL_BYTES=1M" };

	(void)state;
	sim_make_file("exit", BYTES, 1);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		for (size_t k = 0; k < sizeof(envs) / sizeof(envs[0]); k++)
			ends(envs[k], ways[i]);
}

/* Threads come, use the context and go; it stays usable and keeps nothing of them. */
static void threads_end(void **state)
{
	unsigned int threads, maps;

	(void)state;
	sim_make_file("exit", BYTES, 1);
	memset(&w, 0, sizeof(w));
	w.ctx = sim_open(0);
	w.file = sim_file(w.ctx, sim_path("exit"), O_RDONLY);
	w.gpu = sim_alloc(w.ctx, BYTES);
	assert_int_equal(peerlane_read(w.file, w.gpu, BYTES, 0), BYTES);
	threads = sim_count_threads();
	maps = sim_count_maps();
	for (int i = 0; i < 100; i++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, returning, NULL), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	assert_int_equal(peerlane_read(w.file, w.gpu, BYTES, 0), BYTES);
	sim_assert_gpu(w.ctx, w.gpu, BYTES, 0, 1);
	assert_int_equal(sim_count_threads(), threads);
	if (!sim_sanitized())
		assert_in_range(sim_count_maps(), 0, maps + 12);
	assert_int_equal(sim_stats(w.ctx).read.ok, 102);
	assert_int_equal(peerlane_gpu_free(w.ctx, w.gpu), 0);
	peerlane_close(w.ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(all_ways),
		sim_test(threads_end),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
