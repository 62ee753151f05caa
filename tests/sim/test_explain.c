// SPDX-License-Identifier: MIT
/* peerlane_explain(): each path with its reason, and what it says is what then happens. */
#include "sim/sim_fixture.h"

#define BYTES (2 * MIB)

static struct peerlane *ctx;
static struct peerlane_file *file;
static char *gpu;

static void open_all(const char *env, unsigned int flags, int file_flags)
{
	sim_env(env);
	ctx = sim_open(flags);
	file = sim_file(ctx, sim_make_file("explain", BYTES + 5, 1), O_RDWR | file_flags);
	gpu = sim_alloc(ctx, BYTES);
}

static void close_all(void)
{
	sim_close(ctx, file, gpu);
}

/* Asks, and looks at what must hold in every answer. */
static struct peerlane_explanation ask(enum peerlane_op op, void *mem, size_t bytes, off_t offset)
{
	struct peerlane_explanation e = { .size = sizeof(e) };
	struct peerlane_stats before = sim_stats(ctx), after;

	assert_int_equal(peerlane_explain(file, op, mem, bytes, offset, &e), 0);
	assert_int_equal(e.size, sizeof(e));
	assert_int_equal(e.nr_verdicts, PEERLANE_PATH_NR);
	for (unsigned int i = 0; i < e.nr_verdicts; i++) {
		assert_int_equal(e.verdicts[i].path, i);
		if (!e.verdicts[i].reason[0])
			fail_msg("no reason for %s", peerlane_path_name(i));
		/* Of all that can be used the best is taken. */
		if (i < e.chosen)
			assert_int_equal(e.verdicts[i].usable, 0);
	}
	assert_int_equal(e.verdicts[e.chosen].usable, 1);
	after = sim_stats(ctx);
	assert_memory_equal(&before, &after, sizeof(before));
	return e;
}

/* What was said is what a request of that kind then does, for most of its bytes. */
static void as_said(enum peerlane_op op, void *mem, size_t bytes, off_t offset)
{
	struct peerlane_explanation e = ask(op, mem, bytes, offset);
	struct peerlane_stats a = sim_stats(ctx), b;
	uint64_t moved;

	if (op == PEERLANE_READ)
		assert_int_equal(peerlane_read(file, mem, bytes, offset), bytes);
	else
		assert_int_equal(peerlane_write(file, mem, bytes, offset, 0), bytes);
	b = sim_stats(ctx);
	moved = op == PEERLANE_READ ? b.read.path_bytes[e.chosen] - a.read.path_bytes[e.chosen]
				    : b.write.path_bytes[e.chosen] - a.write.path_bytes[e.chosen];
	if (moved < bytes / 2)
		fail_msg("%s of %zu at %lld: said %s, but only %llu went there",
			 op == PEERLANE_READ ? "read" : "write", bytes, (long long)offset,
			 peerlane_path_name(e.chosen), (unsigned long long)moved);
}

static void says(enum peerlane_op op, void *mem, size_t bytes, enum peerlane_path path,
		 enum peerlane_path about, const char *word)
{
	struct peerlane_explanation e = ask(op, mem, bytes, 0);

	assert_int_equal(e.chosen, path);
	if (!strstr(e.verdicts[about].reason, word))
		fail_msg("%s: \"%s\" without \"%s\"", peerlane_path_name(about),
			 e.verdicts[about].reason, word);
}

static void facts(void **state)
{
	struct peerlane_explanation e;
	char host[4096];

	(void)state;
	open_all("", 0, 0);
	e = ask(PEERLANE_READ, gpu, BYTES, 0);
	assert_string_equal(e.memory, "device");
	assert_int_equal(e.gpu, 0);
	assert_int_equal(e.file_bytes, BYTES + 5);
	assert_int_equal(e.cached_bytes, BYTES);
	assert_true(e.fs[0] != '\0');
	if (!strcmp(e.io_engine, "threads"))
		assert_true(e.io_reason[0] != '\0');
	else
		assert_string_equal(e.io_engine, "io_uring");
	e = ask(PEERLANE_READ, host, sizeof(host), 0);
	assert_string_equal(e.memory, "host");
	assert_int_equal(e.gpu, -1);
	assert_int_equal(e.chosen, PEERLANE_PATH_MAPPED);
	/* Beyond the end there is nothing to count. */
	e = ask(PEERLANE_READ, gpu, BYTES, BYTES);
	assert_int_equal(e.cached_bytes, 5);
	close_all();
	open_all("", PEERLANE_NO_IO_URING, 0);
	e = ask(PEERLANE_READ, gpu, BYTES, 0);
	assert_string_equal(e.io_engine, "threads");
	assert_non_null(strstr(e.io_reason, "options"));
	close_all();
}

static void reasons(void **state)
{
	char host[4096];

	(void)state;
	open_all("", 0, 0);
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_P2P, "simulated");
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_MAPPED, "not mapped");
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_IN_PLACE, "under 64 MiB");
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_COPY, "page cache");
	says(PEERLANE_READ, gpu, 4096, PEERLANE_PATH_COPY, PEERLANE_PATH_COPY, "64 KiB");
	says(PEERLANE_READ, gpu, 4096, PEERLANE_PATH_COPY, PEERLANE_PATH_DIRECT, "64 KiB");
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_DIRECT, "page cache");
	/* Nobody gets another GPU by an option. */
	assert_string_equal(ask(PEERLANE_READ, gpu, BYTES, 0).verdicts[0].fix, "");
	assert_string_equal(ask(PEERLANE_READ, gpu, BYTES, 0).verdicts[1].fix, "");
	says(PEERLANE_WRITE, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_IN_PLACE, "reads");
	says(PEERLANE_WRITE, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_COPY, "page cache");
	says(PEERLANE_READ, host, 4096, PEERLANE_PATH_MAPPED, PEERLANE_PATH_P2P, "not GPU");
	says(PEERLANE_READ, host, 4096, PEERLANE_PATH_MAPPED, PEERLANE_PATH_COPY, "not needed");
	close_all();
	open_all("SIM_BAR=1", 0, 0);
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_MAPPED, PEERLANE_PATH_MAPPED, "address");
	close_all();
	open_all("SIM_BAR=1", PEERLANE_NO_MAPPED, 0);
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_MAPPED, "options");
	assert_non_null(strstr(ask(PEERLANE_READ, gpu, BYTES, 0).verdicts[1].fix, "no-mapped"));
	close_all();
	open_all("", PEERLANE_NO_DIRECT, 0);
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_COPY, PEERLANE_PATH_DIRECT, "options");
	close_all();
}

static void cold_and_direct(void **state)
{
	struct peerlane_explanation e;

	(void)state;
	open_all("", 0, 0);
	sim_chill(sim_path("explain"));
	e = ask(PEERLANE_READ, gpu, BYTES, 0);
	if (e.cached_bytes || !e.dio_align) {
		close_all();
		skip();
	}
	assert_int_equal(e.chosen, PEERLANE_PATH_DIRECT);
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_DIRECT, PEERLANE_PATH_IN_PLACE, "wholly");
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_DIRECT, PEERLANE_PATH_COPY, "not in the");
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_DIRECT, PEERLANE_PATH_DIRECT, "device");
	/* Moves no data: it is as cold as before. */
	assert_int_equal(ask(PEERLANE_READ, gpu, BYTES, 0).cached_bytes, 0);
	as_said(PEERLANE_READ, gpu, BYTES, 0);
	close_all();
	open_all("", 0, O_DIRECT);
	says(PEERLANE_READ, gpu, BYTES, PEERLANE_PATH_DIRECT, PEERLANE_PATH_COPY, "O_DIRECT");
	says(PEERLANE_WRITE, gpu, BYTES, PEERLANE_PATH_DIRECT, PEERLANE_PATH_DIRECT, "O_DIRECT");
	as_said(PEERLANE_WRITE, gpu, BYTES, 0);
	as_said(PEERLANE_READ, gpu, BYTES, 0);
	as_said(PEERLANE_READ, gpu, 4096, 0);
	as_said(PEERLANE_READ, gpu + 1, 100, 3);
	as_said(PEERLANE_WRITE, gpu, BYTES - 100, 3);
	as_said(PEERLANE_WRITE, gpu, 4096, 4096);
	/* Too small to have an aligned middle. */
	as_said(PEERLANE_WRITE, gpu, 100, 3);
	close_all();
}

static void what_happens(void **state)
{
	char *host = aligned_alloc(4096, BYTES);

	(void)state;
	open_all("", 0, 0);
	as_said(PEERLANE_READ, gpu, BYTES, 0);
	as_said(PEERLANE_READ, gpu, 1000, 7);
	as_said(PEERLANE_READ, host, BYTES, 0);
	as_said(PEERLANE_WRITE, gpu, BYTES, 0);
	as_said(PEERLANE_WRITE, host, 1000, 5);
	close_all();
	open_all("SIM_BAR=1", 0, 0);
	as_said(PEERLANE_READ, gpu, BYTES, 0);
	as_said(PEERLANE_WRITE, gpu, BYTES, 0);
	close_all();
	open_all("", PEERLANE_NO_DIRECT, O_DIRECT);
	as_said(PEERLANE_READ, gpu, BYTES, 0);
	as_said(PEERLANE_WRITE, gpu, BYTES, 0);
	close_all();
	free(host);
}

static void in_place(void **state)
{
	const size_t bytes = 70 * MIB;
	struct peerlane_explanation e;
	char *large;

	(void)state;
	open_all("SIM_IN_PLACE=1", PEERLANE_SAVE_CPU, 0);
	assert_int_equal(peerlane_file_close(file), 0);
	file = sim_file(ctx, sim_make_file("large", bytes, 2), O_RDWR);
	large = sim_alloc(ctx, bytes);
	e = ask(PEERLANE_READ, large, bytes, 0);
	assert_int_equal(e.chosen, PEERLANE_PATH_IN_PLACE);
	as_said(PEERLANE_READ, large, bytes, 0);
	sim_assert_gpu(ctx, large, bytes, 0, 2);
	assert_int_equal(peerlane_gpu_free(ctx, large), 0);
	assert_int_equal(unlink(sim_path("large")), 0);
	close_all();
}

static void refusals(void **state)
{
	struct peerlane_explanation e = { .size = sizeof(e) };
	struct peerlane_file *wronly;

	(void)state;
	open_all("", 0, 0);
	wronly = sim_file(ctx, sim_path("explain"), O_WRONLY);
	assert_int_equal(peerlane_explain(NULL, PEERLANE_READ, gpu, 1, 0, &e), -EINVAL);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, 1, 0, NULL), -EINVAL);
	assert_int_equal(peerlane_explain(file, (enum peerlane_op)2, gpu, 1, 0, &e), -EINVAL);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, NULL, 1, 0, &e), -EINVAL);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, 1, -1, &e), -EINVAL);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, BYTES + 1, 0, &e), -EFAULT);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, SIZE_MAX, 0, &e), -EOVERFLOW);
	assert_int_equal(peerlane_explain(wronly, PEERLANE_READ, gpu, 1, 0, &e), -EBADF);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 10, 0), 0);
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, 11, 0, &e), -ERANGE);
	e.size = 1;
	assert_int_equal(peerlane_explain(file, PEERLANE_READ, gpu, 1, 0, &e), -EINVAL);
	assert_int_equal(e.size, 1);
	assert_int_equal(peerlane_file_close(wronly), 0);
	close_all();
}

static void edges(void **state)
{
	struct peerlane_explanation e;

	(void)state;
	open_all("", 0, 0);
	ask(PEERLANE_READ, gpu, 0, 0);
	ask(PEERLANE_READ, gpu, BYTES, INT64_MAX - (off_t)BYTES);
	ask(PEERLANE_WRITE, gpu, 0, 0);
	e = ask(PEERLANE_WRITE, gpu, BYTES, (off_t)(100 * MIB));
	assert_int_equal(e.chosen, PEERLANE_PATH_COPY);
	close_all();
}

static void names(void **state)
{
	static const char *const want[] = { "p2p", "mapped", "in-place", "copy", "direct" };

	(void)state;
	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		assert_string_equal(peerlane_path_name((enum peerlane_path)i), want[i]);
	assert_string_equal(peerlane_path_name(PEERLANE_PATH_NR), "unknown");
	assert_string_equal(peerlane_path_name((enum peerlane_path) - 1), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(facts),	sim_test(reasons),  sim_test(cold_and_direct),
		sim_test(what_happens), sim_test(in_place), sim_test(refusals),
		sim_test(edges),	sim_test(names),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
