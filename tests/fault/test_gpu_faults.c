// SPDX-License-Identifier: MIT
/*
 * The GPU fails in the middle of a transfer, or refuses memory: the count is what is in place, the
 * next call tells the driver's code, and afterwards everything works again.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BYTES (64 * MIB)

static const char *path;
static struct peerlane *ctx;
static struct peerlane_file *file;
static char *gpu;

static void inject(const char *what, unsigned int after, unsigned int count)
{
	CHECK_EQ(peerlane_sim_inject(ctx, what, after, count), 0);
}

static void begin(const char *async, unsigned int flags)
{
	setenv("PEERLANE_SIM_ASYNC", async, 1);
	ctx = fault_open(flags, 0);
	file = fault_file(ctx, path, O_RDWR);
	gpu = fault_gpu(ctx, BYTES);
}

static void end(void)
{
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_file_close(file), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

static void check_works(uint64_t seed)
{
	memset(fault_see(gpu), 0, BYTES);
	CHECK_EQ(peerlane_read(file, gpu, BYTES, 0), BYTES);
	CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, seed), BYTES);
}

static void read_fails(const char *what, unsigned int after, enum fault_how how)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	ssize_t n;

	memset(fault_see(gpu), 0x5a, BYTES);
	inject(what, after, 1000000);
	n = fault_io(how, ctx, file, PEERLANE_READ, gpu, BYTES, 0);
	CHECK(n == -EREMOTEIO || (n >= 0 && n < (ssize_t)BYTES));
	CHECK_EQ(fault_differs(fault_see(gpu), n > 0 ? (size_t)n : 0, 0, 1), n > 0 ? n : 0);
	inject(what, 0, 1000000);
	CHECK_EQ(peerlane_read(file, gpu, BYTES, 0), -EREMOTEIO);
	CHECK_EQ(peerlane_error(&info), 0);
	CHECK_EQ(info.err, -EREMOTEIO);
	CHECK_EQ(info.cuda, 719);
	CHECK(strstr(info.text, "launch failed"));
	inject(what, 0, 0);
	check_works(1);
}

static void write_fails(const char *what, unsigned int after, enum fault_how how)
{
	int fd = open(path, O_RDONLY);
	char *mem = malloc(BYTES);
	ssize_t n;

	CHECK(fd >= 0 && mem);
	fault_pattern(fault_see(gpu), BYTES, 0, 2);
	inject(what, after, 1000000);
	n = fault_io(how, ctx, file, PEERLANE_WRITE, gpu, BYTES, 0);
	CHECK(n == -EREMOTEIO || (n >= 0 && n < (ssize_t)BYTES));
	if (n > 0) {
		CHECK_EQ(pread(fd, mem, (size_t)n, 0), n);
		CHECK_EQ(fault_differs(mem, (size_t)n, 0, 2), n);
	}
	inject(what, 0, 1000000);
	CHECK_EQ(peerlane_write(file, gpu, BYTES, 0, 0), -EREMOTEIO);
	inject(what, 0, 0);
	fault_pattern(fault_see(gpu), BYTES, 0, 1);
	CHECK_EQ(peerlane_write(file, gpu, BYTES, 0, 0), BYTES);
	CHECK_EQ(pread(fd, mem, BYTES, 0), BYTES);
	CHECK_EQ(fault_differs(mem, BYTES, 0, 1), BYTES);
	free(mem);
	close(fd);
}

/* The event carries the driver's code too. */
static void batch_code(void)
{
	struct peerlane_io io = { .file = file, .addr = gpu, .bytes = BYTES };
	struct peerlane_event e;
	struct peerlane_batch *b;

	CASE("code in the event");
	inject("copy", 0, 1000000);
	CHECK_EQ(peerlane_batch_create(ctx, 1, &b), 0);
	CHECK_EQ(peerlane_batch_submit(b, &io, 1), 0);
	CHECK_EQ(peerlane_batch_wait(b, 1, &e, 1, NULL), 1);
	CHECK_EQ(e.result, -EREMOTEIO);
	CHECK_EQ(e.cuda, 719);
	peerlane_batch_destroy(b);
	inject("copy", 0, 0);
}

static void copies(void)
{
	static const unsigned int after[] = { 0, 1, 5 };

	for (int async = 0; async < 2; async++) {
		begin(async ? "20" : "0", 0);
		for (int i = 0; i < 3; i++) {
			enum fault_how how = (enum fault_how)((i + async) % FAULT_NR_HOW);

			CASE("copy fails after %u, %s, async %d", after[i], fault_how_name[how],
			     async);
			read_fails("copy", after[i], how);
			write_fails("copy", after[i], how);
			fault_check_idle(ctx);
		}
		CASE("event fails, async %d", async);
		read_fails("event", 0, FAULT_SYNC);
		read_fails("event", 2, FAULT_BATCH);
		write_fails("event", 1, FAULT_STREAM);
		batch_code();
		check_works(1);
		end();
	}
	setenv("PEERLANE_SIM_ASYNC", "0", 1);
}

static void memory(void)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct peerlane_stats st = { .size = sizeof(st) };
	void *p = (void *)(uintptr_t)1;

	begin("0", 0);
	CASE("alloc");
	inject("alloc", 0, 1);
	CHECK_EQ(peerlane_gpu_alloc(ctx, 0, 4096, &p), -ENOMEM);
	CHECK_EQ(peerlane_error(&info), 0);
	CHECK_EQ(info.cuda, 2);
	CHECK(p == (void *)(uintptr_t)1);
	CHECK_EQ(peerlane_gpu_alloc(ctx, 0, 4096, &p), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, p), 0);
	CASE("pin");
	inject("pin", 0, 1000000);
	check_works(1);
	CHECK_EQ(fault_io(FAULT_BATCH, ctx, file, PEERLANE_READ, gpu, 5000, 3), 5000);
	CHECK_EQ(fault_differs(fault_see(gpu), 5000, 3, 1), 5000);
	CHECK_EQ(peerlane_stats_get(ctx, &st), 0);
	CHECK(st.pool_failures > 0);
	CHECK_EQ(st.pool_bytes, 0);
	inject("pin", 0, 0);
	check_works(1);
	end();
	/* A limit instead of a fault: the first lanes are pinned, the rest is not. */
	CASE("pinned memory runs out");
	setenv("PEERLANE_SIM_PINNED", "1M", 1);
	begin("0", 0);
	check_works(1);
	end();
	unsetenv("PEERLANE_SIM_PINNED");
}

static void in_place(void)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_stats st = { .size = sizeof(st) };

	CASE("register");
	fault_make_cached(path);
	setenv("PEERLANE_SIM_IN_PLACE", "1", 1);
	begin("0", PEERLANE_SAVE_CPU);
	check_works(1);
	CHECK_EQ(peerlane_stats_get(ctx, &st), 0);
	CHECK_EQ(st.read.path_bytes[PEERLANE_PATH_IN_PLACE], BYTES);
	inject("register", 1, 1000000);
	check_works(1);
	CHECK_EQ(peerlane_stats_get(ctx, &st), 0);
	CHECK_EQ(st.in_place_failures, 1);
	CHECK_EQ(peerlane_explain(file, PEERLANE_READ, gpu, BYTES, 0, &ex), 0);
	CHECK(!ex.verdicts[PEERLANE_PATH_IN_PLACE].usable);
	CHECK(strstr(ex.verdicts[PEERLANE_PATH_IN_PLACE].reason, "refused"));
	inject("register", 0, 0);
	end();
	/* A copy that fails there is tried the other way, which fails too while the fault lasts. */
	for (unsigned int i = 0; i < 4; i++) {
		unsigned int after = i / 2;
		ssize_t n;

		CASE("copy %u fails in place, async %u", after, i % 2);
		begin(i % 2 ? "2000" : "0", PEERLANE_SAVE_CPU);
		memset(fault_see(gpu), 0x5a, BYTES);
		inject("copy", after, 1);
		n = peerlane_read(file, gpu, BYTES, 0);
		CHECK_EQ(n, BYTES);
		CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
		inject("copy", after, 1000000);
		n = peerlane_read(file, gpu, BYTES, 0);
		CHECK(n == (after ? (ssize_t)(after * 32 * MIB) : -EREMOTEIO));
		inject("copy", 0, 0);
		end();
	}
	unsetenv("PEERLANE_SIM_IN_PLACE");
}

int main(void)
{
	fault_begin(40);
	path = fault_path("file");
	fault_make_file(path, BYTES, 1);
	copies();
	memory();
	in_place();
	return 0;
}
