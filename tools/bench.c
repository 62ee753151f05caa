/* SPDX-License-Identifier: MIT */
/* peerlane bench: how fast data moves between a file and the GPU, beside the limit. */
#include "commands.h"
#include "load.h"
#include "message.h"
#include "plot.h"
#include "resident.h"
#include "series.h"
#include "stop.h"
#include "target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_args {
	const char *op, *backend, *plot;
	struct pl_option_list sizes, threads;
	uint64_t bytes, pool_bytes;
	unsigned int batch, repeat, gpu;
	double seconds, limit;
	bool cold, cached, direct, durable, verify, create, force, json, peer;
};

#define AT(member) offsetof(struct bench_args, member)

static const struct pl_option options[] = {
	{ "op", PL_OPTION_CHOICE, AT(op), "read|write|randread|randwrite",
	  "What to measure (default read).", 0, 0 },
	{ "size", PL_OPTION_SIZES, AT(sizes), "SIZE,...",
	  "Bytes of one call; several are measured one after the other (default 1M).", 1, 0x1p40 },
	{ "threads", PL_OPTION_COUNTS, AT(threads), "N,...",
	  "Threads that make calls; several numbers are measured in turn (default 1).", 1, 1024 },
	{ "batch", PL_OPTION_COUNT, AT(batch), "N",
	  "Each thread submits N requests at once and waits for all; 0 makes single calls "
	  "(default).",
	  0, 65536 },
	{ "bytes", PL_OPTION_SIZE, AT(bytes), "SIZE",
	  "Bytes of one pass, and of a file that is made (default: as large as FILE, or 1G).", 1,
	  0x1p60 },
	{ "seconds", PL_OPTION_DECIMAL, AT(seconds), "SECONDS",
	  "End a pass after this time even if bytes are left.", 0.001, 1e6 },
	{ "repeat", PL_OPTION_COUNT, AT(repeat), "N",
	  "Passes for each row, of which the middle one is shown (default 3).", 1, 1000 },
	{ "cold", PL_OPTION_FLAG, AT(cold), NULL, "Drop FILE from the page cache before each pass.",
	  0, 0 },
	{ "cached", PL_OPTION_FLAG, AT(cached), NULL,
	  "Read FILE into the page cache before the first pass.", 0, 0 },
	{ "direct", PL_OPTION_FLAG, AT(direct), NULL, "Open FILE with O_DIRECT.", 0, 0 },
	{ "durable", PL_OPTION_FLAG, AT(durable), NULL,
	  "Each write returns when its data is on stable storage.", 0, 0 },
	{ "verify", PL_OPTION_FLAG, AT(verify), NULL,
	  "After the passes of a row, do one more that is not timed and compare every byte.", 0,
	  0 },
	{ "create", PL_OPTION_FLAG, AT(create), NULL,
	  "First make FILE, filled with words that depend on their place.", 0, 0 },
	{ "force", PL_OPTION_FLAG, AT(force), NULL, "Overwrite FILE even if bench did not make it.",
	  0, 0 },
	{ "peer", PL_OPTION_FLAG, AT(peer), NULL,
	  "Also measure plain pread or pwrite with host memory, without the GPU: as many threads "
	  "and "
	  "the same calls.",
	  0, 0 },
	{ "limit", PL_OPTION_DECIMAL, AT(limit), "GBPS",
	  "Compare with this many GB/s instead of a measured limit.", 0.001, 1e6 },
	{ "gpu", PL_OPTION_COUNT, AT(gpu), "N", "Use GPU number N (default 0).", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, AT(backend), "auto|cuda|sim",
	  "GPU back end: CUDA, the simulator, or CUDA if it works (default).", 0, 0 },
	{ "pool", PL_OPTION_SIZE, AT(pool_bytes), "SIZE",
	  "Most pinned host memory the library may use (default 128M).", 0, 0x1p40 },
	{ "json", PL_OPTION_FLAG, AT(json), NULL, "Print the results as JSON.", 0, 0 },
	{ "plot", PL_OPTION_TEXT, AT(plot), "FILE.svg",
	  "Draw GB/s against call size: a line for each number of threads, the limit where there "
	  "is "
	  "one, and with --peer plain calls.",
	  0, 0 },
	{ 0 },
};

/* A bench under way. */
struct bench {
	const struct bench_args *args;
	struct pl_session session;
	struct pl_pattern pattern;
	struct pl_target target;
	struct peerlane_file *file;
	struct pl_load load;
	struct pl_series series;
	bool write;
};

static void find_limit(struct bench *b)
{
	if (b->args->limit > 0)
		pl_limit_given(&b->series.limit, b->args->limit);
	else
		pl_limit_measure(&b->series.limit, &b->session,
				 b->write ? PEERLANE_WRITE : PEERLANE_READ);
}

static void find_fs(struct bench *b)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	char memory[8];

	if (!peerlane_explain(b->file, PEERLANE_READ, memory, 1, 0, &ex))
		snprintf(b->series.fs, sizeof(b->series.fs), "%s", ex.fs);
}

static int prepare_cache(struct bench *b)
{
	int err = 0;

	if (b->args->cold) {
		pl_target_drop(&b->target);
		if (pl_resident_bytes(b->target.fd, b->target.bytes) >
		    (int64_t)(b->target.bytes / 20))
			pl_message_warning("%s stays in the page cache: this is not cold",
					   b->target.path);
	}
	if (b->args->cached)
		err = pl_target_warm(&b->target);
	if (err)
		pl_message_error("%s: %s", b->target.path, strerror(-err));
	return err;
}

/* What a pass must not find: data waiting to be written, or what should not be cached. */
static void prepare_pass(struct bench *b)
{
	if (b->args->cold)
		pl_target_drop(&b->target);
	else if (b->write)
		fsync(b->target.fd);
}

static int by_rate(const void *a, const void *b)
{
	double x = pl_series_rate(a), y = pl_series_rate(b);

	return x < y ? -1 : x > y;
}

/* Runs the passes of one kind; the middle one is given back. */
static int run_passes(struct bench *b, struct pl_series_row *row, bool plain,
		      struct pl_load_result *middle)
{
	unsigned int repeat = b->args->repeat, nr = 0;
	struct pl_load_result *results = calloc(repeat, sizeof(*results));
	int err = results ? 0 : -ENOMEM;

	b->load.plain = plain;
	b->load.fd = b->target.plain_fd;
	while (!err && nr < repeat && !pl_stop_requested()) {
		prepare_pass(b);
		b->load.seed = nr * 0x5bd1e995ull;
		err = pl_load_run(&b->load, &results[nr]);
		if (err)
			pl_message_error("%s: %s%s", b->target.path, plain ? "plain " : "",
					 results[nr].error);
		else if (!plain)
			row->rates[row->nr_passes++] = pl_series_rate(&results[nr]);
		nr += !err;
	}
	if (pl_stop_requested() && !err)
		row->interrupted = true;
	/* A pass that was cut short counts only if there is no other. */
	if (row->interrupted && nr > 1)
		nr--;
	if (!err && nr) {
		qsort(results, nr, sizeof(*results), by_rate);
		*middle = results[nr / 2];
	}
	free(results);
	return err;
}

/* One more pass, whose data is compared. */
static int verify(struct bench *b, struct pl_series_row *row)
{
	struct pl_load load = b->load;
	struct pl_load_result result;
	uint64_t where = 0;
	int err = 0;

	load.plain = false;
	load.verify = true;
	load.seconds = 0;
	load.random = load.random && !b->write;
	load.pass_bytes = b->target.bytes;
	load.what = "verify";
	if (b->write)
		err = pl_target_clear(&b->target, &b->pattern);
	if (err)
		pl_message_error("%s: %s", b->target.path, strerror(-err));
	else
		err = pl_load_run(&load, &result);
	if (err)
		pl_message_error("%s: %s", b->target.path, result.error);
	if (err || pl_stop_requested())
		return err;
	if (b->write) {
		pl_target_drop(&b->target);
		err = pl_pattern_check(&b->pattern, b->target.fd, b->target.bytes, &where);
		if (err && err != -ECANCELED)
			pl_message_error("verify: %s: %s in the MiB at byte %llu", b->target.path,
					 err == -EBADMSG ? "wrong data" : strerror(-err),
					 (unsigned long long)where);
	}
	row->verified = !err;
	return err == -ECANCELED ? 0 : err;
}

static int measure_row(struct bench *b, uint64_t call_bytes, unsigned int nr_threads)
{
	struct pl_series_row *row = pl_series_add(&b->series, b->args->repeat);
	int err;

	if (!row) {
		pl_message_error("out of memory");
		return -ENOMEM;
	}
	row->call_bytes = call_bytes;
	row->nr_threads = nr_threads;
	b->load.call_bytes = call_bytes;
	b->load.nr_threads = nr_threads;
	b->load.what = b->args->op;
	err = run_passes(b, row, false, &row->median);
	if (!err && b->args->peer)
		err = run_passes(b, row, true, &row->plain);
	/* Whole blocks of O_DIRECT may have passed the end of the file. */
	if (b->args->peer && b->write && b->args->direct &&
	    ftruncate(b->target.fd, (off_t)b->target.bytes))
		err = err ? err : -errno;
	if (!err && b->args->verify && !pl_stop_requested())
		err = verify(b, row);
	if (err && !row->nr_passes) {
		free(row->rates);
		b->series.nr_rows--;
	} else if (!b->args->json) {
		pl_series_print_row(&b->series, row);
	}
	return err;
}

static int measure(struct bench *b)
{
	int err = prepare_cache(b);

	if (!b->args->json)
		pl_series_print_head(&b->series);
	for (unsigned int t = 0; t < b->args->threads.nr; t++)
		for (unsigned int i = 0; i < b->args->sizes.nr; i++) {
			if (err || pl_stop_requested())
				return err;
			err = measure_row(b, b->args->sizes.values[i],
					  (unsigned int)b->args->threads.values[t]);
		}
	return err;
}

static uint64_t largest(const struct pl_option_list *list)
{
	uint64_t most = 0;

	for (unsigned int i = 0; i < list->nr; i++)
		most = list->values[i] > most ? list->values[i] : most;
	return most;
}

/* Pattern, context, file: what is needed before anything can be measured. */
static int set_up(struct bench *b, const char *path)
{
	const struct bench_args *a = b->args;
	struct pl_target_want want = {
		.path = path,
		.bytes = a->bytes,
		.write = b->write,
		.create = a->create,
		.force = a->force,
		.verify = a->verify,
		.direct = a->direct,
		.durable = a->durable,
	};
	bool whole = b->write || a->verify;
	int err = pl_pattern_init(&b->pattern, whole ? (size_t)largest(&a->sizes) : 0);

	if (err) {
		pl_message_error("no memory for calls of that size");
		return err;
	}
	err = pl_session_open(&b->session, a->backend, a->gpu, a->pool_bytes);
	if (!err)
		err = pl_target_open(&b->target, &want, &b->pattern);
	if (!err && b->write)
		err = pl_pattern_upload(&b->pattern, &b->session);
	if (err)
		return err;
	err = peerlane_file_from_fd(b->session.ctx, b->target.io_fd, &b->file);
	if (err)
		pl_message_error("%s: %s", path, pl_session_reason(err).text);
	return err;
}

static void describe(struct bench *b)
{
	const struct bench_args *a = b->args;
	uint64_t bytes = a->bytes ? a->bytes : b->target.bytes;

	b->series = (struct pl_series){
		.op = a->op,
		.path = b->target.path,
		.cache = a->cold     ? "cold"
			 : a->cached ? "cached"
				     : "as found",
		.file_bytes = b->target.bytes,
		.pass_bytes = bytes,
		.batch = a->batch,
		.plain = a->peer,
		.direct = a->direct,
	};
	b->load = (struct pl_load){
		.session = &b->session,
		.file = b->file,
		.pattern = &b->pattern,
		.op = b->write ? PEERLANE_WRITE : PEERLANE_READ,
		.random = !strncmp(a->op, "rand", 4),
		.direct = a->direct,
		.durable = a->durable,
		.file_bytes = b->target.bytes,
		.pass_bytes = bytes,
		.batch = a->batch,
		.seconds = a->seconds,
	};
	snprintf(b->series.gpu, sizeof(b->series.gpu), "%s", pl_session_name(&b->session).text);
	snprintf(b->series.backend, sizeof(b->series.backend), "%s",
		 peerlane_backend(b->session.ctx));
	find_fs(b);
}

static void clean_up(struct bench *b)
{
	pl_series_fini(&b->series);
	if (b->file)
		peerlane_file_close(b->file);
	pl_pattern_fini(&b->pattern);
	pl_target_close(&b->target);
	pl_session_close(&b->session);
}

static int run_bench(struct bench *b, const char *path)
{
	int err = set_up(b, path), plot_err;

	if (err)
		return err;
	describe(b);
	find_limit(b);
	err = measure(b);
	if (b->args->json)
		pl_series_print_json(&b->series, pl_stop_requested());
	if (b->args->plot && b->series.nr_rows) {
		plot_err = pl_plot_write(&b->series, b->args->plot);
		if (plot_err)
			pl_message_error("%s: %s", b->args->plot, strerror(-plot_err));
		err = err ? err : plot_err;
	}
	return err;
}

static bool ends_with(const char *text, const char *end)
{
	size_t bytes = strlen(text), nr = strlen(end);

	return bytes >= nr && !memcmp(text + bytes - nr, end, nr);
}

static int check_args(struct bench_args *a)
{
	if (a->cold && a->cached) {
		pl_message_error("--cold and --cached exclude each other");
		return -EINVAL;
	}
	if (a->durable && !strstr(a->op, "write")) {
		pl_message_error("--durable is for writes, and --op is %s", a->op);
		return -EINVAL;
	}
	if (a->plot && !ends_with(a->plot, ".svg")) {
		pl_message_error("--plot %s: the picture is SVG; name it FILE.svg", a->plot);
		return -EINVAL;
	}
	if (!a->sizes.nr)
		a->sizes = (struct pl_option_list){ 1, { 1u << 20 } };
	if (!a->threads.nr)
		a->threads = (struct pl_option_list){ 1, { 1 } };
	return 0;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct bench_args args = { .op = "read", .repeat = 3 };
	struct bench b = { .args = &args, .target = { .fd = -1, .io_fd = -1, .plain_fd = -1 } };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	if (check_args(&args))
		return PL_EXIT_USAGE;
	b.write = strstr(args.op, "write");
	pl_stop_catch();
	err = run_bench(&b, argv[first]);
	clean_up(&b);
	return pl_stop_exit(err);
}

static const struct pl_command *const subs[] = { &pl_command_bench_gpu, NULL };

const struct pl_command pl_command_bench = {
	.name = "bench",
	.summary = "Measure reads and writes between a file and GPU memory.",
	.args = "[options] FILE | gpu WHAT",
	.detail = "Measures how fast calls move data between FILE and GPU memory, and prints it "
		  "beside the limit: what copies between pinned host memory and the GPU reach, "
		  "measured in the same run. A simulated GPU has no limit. Sizes are written 4096, "
		  "4K, 1.5G, 2MiB (units of "
		  "1024) or 10MB (of 1000); GB/s are of 1000000000 bytes. A file that bench did "
		  "not make is never overwritten without --force.",
	.exits = "0  measured, and verified if that was asked for\n"
		 "1  an error, wrong data, or a file that must not be overwritten\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM); what was measured is printed",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
	.subs = subs,
};
