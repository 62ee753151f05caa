// SPDX-License-Identifier: MIT
/* Options of a context: each bad one is refused by name, the environment fills what is zero. */
#include "sim/sim_fixture.h"

#include <pthread.h>

static struct peerlane *const untouched = (struct peerlane *)-1;

/* Opening is refused with -EINVAL, the text has @word, and the result is not written. */
static void refused(const struct peerlane_options *opt, const char *word)
{
	struct peerlane *ctx = untouched;

	assert_int_equal(peerlane_open(&ctx, opt), -EINVAL);
	assert_ptr_equal(ctx, untouched);
	sim_assert_error(-EINVAL, word);
}

static struct peerlane_options sim_options(void)
{
	return (struct peerlane_options){ .size = sizeof(struct peerlane_options),
					  .backend = "sim" };
}

static void bad_struct(void **state)
{
	struct peerlane_options opt = sim_options();

	(void)state;
	assert_int_equal(peerlane_open(NULL, &opt), -EINVAL);
	sim_assert_error(-EINVAL, "result pointer");
	opt.size = 0;
	refused(&opt, "size is 0");
	opt.size = sizeof(opt) - 1;
	refused(&opt, "size");
	opt.size = sizeof(opt) + 8;
	refused(&opt, "size");
}

static void bad_flags_and_backend(void **state)
{
	struct peerlane_options opt = sim_options();

	(void)state;
	opt.flags = 0x10000;
	refused(&opt, "flags 0x10000");
	opt.flags = 0x80000000u | PEERLANE_NO_DIRECT;
	refused(&opt, "0x80000000");
	opt = sim_options();
	opt.backend = "vulkan";
	refused(&opt, "vulkan");
	opt.backend = "SIM";
	refused(&opt, "SIM");
}

static void bad_numbers(void **state)
{
	struct peerlane_options opt = sim_options();

	(void)state;
	opt.pool_bytes = MIB - 1;
	refused(&opt, "pool_bytes");
	opt.pool_bytes = SIZE_MAX;
	refused(&opt, "pool_bytes");
	opt = sim_options();
	opt.slot_bytes = 64 * KIB - 1;
	refused(&opt, "slot_bytes");
	opt.slot_bytes = 32 * MIB;
	refused(&opt, "slot_bytes");
	opt.slot_bytes = 96 * KIB;
	refused(&opt, "power of two");
	opt.pool_bytes = MIB;
	opt.slot_bytes = MIB;
	refused(&opt, "slot_bytes");
	opt = sim_options();
	opt.nr_threads = 257;
	refused(&opt, "nr_threads");
	opt = sim_options();
	opt.queue_depth = 4097;
	refused(&opt, "queue_depth");
	opt = sim_options();
	opt.timeout_ms = 86400001;
	refused(&opt, "timeout_ms");
}

/* With the one variable @env set, opening is refused and the text names the variable. */
static void env_refused(const char *env)
{
	struct peerlane_options opt = sim_options();
	char name[64];

	sim_env(env);
	snprintf(name, sizeof(name), "PEERLANE_%.*s", (int)strcspn(env, "="), env);
	refused(&opt, name);
	sim_env("");
}

static void bad_environment(void **state)
{
	static const char *const bad[] = {
		"POOL_BYTES=abc",      "POOL_BYTES=-1",	     "POOL_BYTES=0",
		"POOL_BYTES=1MB",      "SLOT_BYTES=64KiB",   "SLOT_BYTES=99999999999999999999",
		"THREADS=-2",	       "THREADS=0",	     "THREADS=two",
		"QUEUE_DEPTH=1.5",     "QUEUE_DEPTH=1x",     "TIMEOUT_MS=never",
		"FLAGS=no-such-thing", "FLAGS=no-direct,x",  "POOL_BYTES=18446744073709551615K",
		"SIM_GPUS=0",	       "SIM_GPUS=9",	     "SIM_FAIL=copy",
		"SIM_FAIL=paper:0:1",  "SIM_ASYNC=10000001", "SIM_BAR=2",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		env_refused(bad[i]);
}

/* A number of the environment that is out of range is told from one that is no number. */
static void environment_out_of_range(void **state)
{
	struct peerlane_options opt = sim_options();

	(void)state;
	sim_env("POOL_BYTES=512K");
	refused(&opt, "pool_bytes");
	sim_env("SLOT_BYTES=100000");
	refused(&opt, "power of two");
	sim_env("THREADS=4K");
	refused(&opt, "nr_threads");
	sim_env("");
}

static void environment_fills(void **state)
{
	struct peerlane_options opt = sim_options();
	struct peerlane *ctx;

	(void)state;
	sim_env("POOL_BYTES=4M SLOT_BYTES=64K THREADS=3 QUEUE_DEPTH=8 TIMEOUT_MS=1000 "
		"FLAGS=no-io-uring,no-in-place,no-direct,no-mapped,save-cpu,no-kernels,no-ahead,"
		"no-mapped-write");
	ctx = sim_open_with(&opt);
	assert_int_equal(sim_stats(ctx).pool_limit, 4 * MIB);
	peerlane_close(ctx);
	/* What the options say counts. */
	opt.pool_bytes = 8 * MIB;
	ctx = sim_open_with(&opt);
	assert_int_equal(sim_stats(ctx).pool_limit, 8 * MIB);
	peerlane_close(ctx);
	sim_env("FLAGS=,no-direct,, POOL_BYTES=");
	opt.pool_bytes = 0;
	ctx = sim_open_with(&opt);
	assert_int_equal(sim_stats(ctx).pool_limit, 128 * MIB);
	peerlane_close(ctx);
	sim_env("");
}

static void backend_by_environment(void **state)
{
	struct peerlane_options opt = { .size = sizeof(opt) };
	struct peerlane *ctx = NULL;

	(void)state;
	sim_env("BACKEND=sim");
	assert_int_equal(peerlane_open(&ctx, NULL), 0);
	assert_string_equal(peerlane_backend(ctx), "sim");
	peerlane_close(ctx);
	opt.backend = "";
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_string_equal(peerlane_backend(ctx), "sim");
	peerlane_close(ctx);
	sim_env("BACKEND=abacus");
	refused(NULL, "abacus");
	/* The option goes first. */
	ctx = sim_open(0);
	peerlane_close(ctx);
	sim_env("");
}

/* Without libcuda "auto" is the simulator, and "cuda" says what is missing. */
static void backend_auto(void **state)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda" };
	struct peerlane *ctx = untouched;
	struct peerlane_error_info info = { .size = sizeof(info) };

	(void)state;
	sim_env("LIBCUDA=/nonexistent/libcuda.so.1");
	assert_int_equal(peerlane_open(&ctx, &opt), -ENODEV);
	assert_ptr_equal(ctx, untouched);
	assert_int_equal(peerlane_error(&info), 0);
	assert_int_equal(info.err, -ENODEV);
	assert_true(strlen(info.text) > 10);
	opt.backend = "auto";
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_string_equal(peerlane_backend(ctx), "sim");
	peerlane_close(ctx);
	sim_env("");
}

/* When "auto" ends at the simulator and that is set up wrongly, the text is about the latter. */
static void backend_auto_bad_sim(void **state)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "auto" };

	(void)state;
	sim_env("LIBCUDA=/nonexistent/libcuda.so.1 SIM_GPUS=99");
	refused(&opt, "PEERLANE_SIM_GPUS");
	sim_env("");
}

struct logged {
	int nr[4];
	char last[256];
	bool newline;
};

static void on_log(void *arg, int level, const char *text)
{
	struct logged *l = arg;

	if (level >= 0 && level <= 3)
		__atomic_fetch_add(&l->nr[level], 1, __ATOMIC_RELAXED);
	l->newline |= strchr(text, '\n') != NULL;
	snprintf(l->last, sizeof(l->last), "%s", text);
}

static void log_levels(void **state)
{
	struct logged l = { .newline = false };
	struct peerlane_options opt = { .log = on_log, .log_arg = &l, .log_level = 2 };
	struct peerlane_file *file;
	struct peerlane *ctx;
	char *gpu;

	(void)state;
	sim_make_file("log", 3 * MIB, 1);
	ctx = sim_open_with(&opt);
	assert_int_equal(l.nr[2], 1);
	assert_non_null(strstr(l.last, "sim"));
	peerlane_close(ctx);

	/* By default warnings only: one when pinned memory is refused. */
	memset(&l, 0, sizeof(l));
	opt.log_level = 0;
	sim_env("SIM_PINNED=0");
	ctx = sim_open_with(&opt);
	file = sim_file(ctx, sim_path("log"), O_RDONLY);
	gpu = sim_alloc(ctx, 3 * MIB);
	assert_int_equal(peerlane_read(file, gpu, 3 * MIB, 0), 3 * MIB);
	sim_assert_gpu(ctx, gpu, 3 * MIB, 0, 1);
	assert_int_equal(l.nr[2] + l.nr[3], 0);
	assert_true(l.nr[1] >= 1);
	assert_non_null(strstr(l.last, "pinned"));
	assert_false(l.newline);
	sim_close(ctx, NULL, gpu);
	sim_env("");
}

/* The smallest and the largest values of every number work. */
static void extremes(void **state)
{
	struct peerlane_options opt = { .pool_bytes = MIB,
					.slot_bytes = 64 * KIB,
					.nr_threads = 1,
					.queue_depth = 1,
					.timeout_ms = 86400000 };
	struct peerlane_file *file;
	struct peerlane *ctx;
	char *gpu;

	(void)state;
	sim_make_file("extremes", 5 * MIB + 3, 2);
	for (int i = 0; i < 2; i++) {
		sim_chill(sim_path("extremes"));
		ctx = sim_open_with(&opt);
		file = sim_file(ctx, sim_path("extremes"), O_RDONLY);
		gpu = sim_alloc(ctx, 5 * MIB + 3);
		assert_int_equal(peerlane_read(file, gpu, 5 * MIB + 3, 0), 5 * MIB + 3);
		sim_assert_gpu(ctx, gpu, 5 * MIB + 3, 0, 2);
		sim_close(ctx, NULL, gpu);
		opt.pool_bytes = 256 * MIB;
		opt.slot_bytes = 16 * MIB;
		opt.nr_threads = 256;
		opt.queue_depth = 4096;
	}
}

static void close_nothing(void **state)
{
	(void)state;
	peerlane_close(NULL);
	assert_non_null(peerlane_backend(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(bad_struct),
		sim_test(bad_flags_and_backend),
		sim_test(bad_numbers),
		sim_test(bad_environment),
		sim_test(environment_out_of_range),
		sim_test(environment_fills),
		sim_test(backend_by_environment),
		sim_test(backend_auto),
		sim_test(backend_auto_bad_sim),
		sim_test(log_levels),
		sim_test(extremes),
		sim_test(close_nothing),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
