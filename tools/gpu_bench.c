/* SPDX-License-Identifier: MIT */
/* What the commands of peerlane bench gpu share: options, the shape of a row, passes and the report. */
#include "gpu_bench.h"

#include "human.h"
#include "message.h"
#include "stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_QUEUES 128u
#define DEFAULT_DEPTH 1024u
#define FIT_LEAST 16u /* I/O of each lane: fewer would measure the launch */

static const struct pl_option_list gpu_threads = { 7,
						   { 512, 1024, 2048, 4096, 8192, 16384, 32768 } };

static void set_defaults(struct pl_gpu_bench *b, uint64_t gpu_count, uint64_t cpu_count)
{
	struct pl_gpu_args *a = &b->args;
	const bool on_gpu = pl_gpu_run_on_gpu(&b->run);

	if (!a->threads.nr)
		a->threads = on_gpu ? gpu_threads : (struct pl_option_list){ 2, { 4, 8 } };
	a->queues = a->queues ? a->queues : DEFAULT_QUEUES;
	a->depth = a->depth ? a->depth : DEFAULT_DEPTH;
	a->proxies = a->proxies ? a->proxies : on_gpu ? 4 : 1;
	a->repeat = a->repeat ? a->repeat : 3;
	b->most_count = a->count ? 0 : on_gpu ? gpu_count : cpu_count;
	b->start_ns = pld_clock_ns();
}

static int check(const struct pl_gpu_bench *b)
{
	const unsigned int width = b->run.width;

	if (b->args.depth & (b->args.depth - 1)) {
		pl_message_error("--depth: %u is not a power of two", b->args.depth);
		return -EINVAL;
	}
	for (unsigned int i = 0; i < b->args.threads.nr; i++)
		if (b->args.threads.values[i] % width) {
			pl_message_error("--threads: %llu is not a multiple of %u, a warp",
					 (unsigned long long)b->args.threads.values[i], width);
			return -EINVAL;
		}
	return 0;
}

int pl_gpu_bench_open(struct pl_gpu_bench *b, const struct pl_gpu_args *args, const char *what,
		      uint64_t gpu_count, uint64_t cpu_count)
{
	int err;

	memset(b, 0, sizeof(*b));
	b->args = *args;
	b->result.what = what;
	err = pl_gpu_run_open(&b->run, args->backend, args->gpu);
	if (err)
		return err;
	set_defaults(b, gpu_count, cpu_count);
	err = check(b);
	if (!err)
		err = pl_report_init(&b->report);
	if (err)
		return err;
	b->result.on_gpu = pl_gpu_run_on_gpu(&b->run);
	pl_report_text(&b->report, "what", NULL, "%s", what);
	pl_report_text(&b->report, "backend", NULL, "%s", peerlane_backend(b->run.session.ctx));
	pl_report_text(&b->report, "kernels_ran", "kernels", "%s", b->run.where);
	pl_report_value(&b->report, "on_gpu", json_object_new_boolean(pl_gpu_run_on_gpu(&b->run)),
			NULL, "-");
	return 0;
}

int pl_gpu_bench_close(struct pl_gpu_bench *b, int err)
{
	const bool wrong_options = err == -EINVAL && !b->report.root;

	if (b->report.root && !err) {
		pl_gpu_result_report(&b->result, &b->report);
		if (b->args.json)
			pl_report_print_json(&b->report, stdout);
		else
			pl_report_print_text(&b->report, stdout);
	}
	if (b->report.root)
		pl_report_fini(&b->report);
	pl_gpu_run_close(&b->run);
	return wrong_options ? PL_EXIT_USAGE : pl_stop_exit(err);
}

static void begin_row(struct pl_gpu_bench *b, const struct pl_gpu_row *row)
{
	const uint64_t count = (uint64_t)row->threads * PL_GPU_COUNT_A_THREAD;

	if (b->most_count)
		b->args.count = count < b->most_count ? count : b->most_count;
	b->result.nr_rows++;
	if (b->args.progress)
		fprintf(stderr, "%s: row %u of %u, %s, begins after %.1f s\n", b->result.what,
			b->result.nr_rows, b->args.threads.nr,
			pl_human_nr(row->threads, "thread").text,
			(double)(pld_clock_ns() - b->start_ns) / 1e9);
}

struct pl_gpu_row *pl_gpu_bench_row(struct pl_gpu_bench *b, unsigned int threads)
{
	struct pl_gpu_row *row = &b->result.rows[b->result.nr_rows];
	const unsigned int warps = threads / b->run.width;

	*row = (struct pl_gpu_row){ .threads = threads };
	row->queues = b->args.queues < warps ? b->args.queues : warps;
	row->ports = (warps + row->queues - 1) / row->queues;
	row->slots = (b->args.depth - 1) / row->ports;
	row->slots = row->slots < 2 * b->run.width ? row->slots : 2 * b->run.width;
	if (!row->slots) {
		pl_message_error("--threads %u: queues of %u entries have no slot for each of %u "
				 "warps",
				 threads, b->args.depth, row->ports);
		return NULL;
	}
	begin_row(b, row);
	return row;
}

unsigned int pl_gpu_bench_warps(const struct pl_gpu_bench *b, const struct pl_gpu_row *row)
{
	return row->threads / b->run.width;
}

uint64_t pl_gpu_bench_per_lane(const struct pl_gpu_bench *b, const struct pl_gpu_row *row)
{
	return (b->args.count + row->threads - 1) / row->threads;
}

struct peerlane_device_options pl_gpu_bench_options(const struct pl_gpu_bench *b,
						    const struct pl_gpu_row *row, size_t io_bytes)
{
	return (struct peerlane_device_options){
		.size = sizeof(struct peerlane_device_options),
		.ctx = b->run.session.ctx,
		.gpu = b->run.session.gpu,
		.nr_queues = row->queues,
		.depth = b->args.depth,
		.ports_per_queue = row->ports,
		.slots_per_port = row->slots,
		.max_transfer_bytes = io_bytes,
		.nr_threads = b->args.proxies < row->queues ? b->args.proxies : row->queues,
		.block_bytes = 512,
	};
}

void pl_gpu_bench_describe(struct pl_gpu_bench *b, const struct peerlane_device *dev)
{
	struct peerlane_device_info info = { .size = sizeof(info) };
	char text[1024];
	char *line, *rest = text;

	if (b->result.nr_rows > 1 || peerlane_device_get_info(dev, &info))
		return;
	b->result.emulated = info.emulated;
	peerlane_device_describe(dev, text, sizeof(text));
	pl_report_text(&b->report, "server", NULL, "%s", text);
	pl_report_value(&b->report, "emulated", json_object_new_boolean(info.emulated), "storage",
			"%s", info.emulated ? "EMULATED: no real device" : "real");
	pl_report_value(&b->report, "proxies", json_object_new_int64(info.nr_threads), NULL, "-");
	while ((line = strsep(&rest, "\n")))
		if (*line)
			pl_report_note(&b->report, "%s", line);
}

int pl_gpu_bench_complain(const char *what, int err)
{
	pl_message_error("%s: %s", what, pl_session_reason(err).text);
	return err;
}

int pl_gpu_bench_shut(struct peerlane_device *dev, int err)
{
	struct peerlane_device_info info = { .size = sizeof(info) };
	uint64_t bad = 0;

	if (!err)
		err = peerlane_device_get_info(dev, &info);
	for (unsigned int i = 0; !err && i < info.nr_queues; i++) {
		struct peerlane_device_stats s = { .size = sizeof(s) };

		err = peerlane_device_get_stats(dev, i, &s);
		bad += err ? 0 : s.bad_completions + s.bad_doorbells;
	}
	peerlane_device_close(dev);
	if (err || !bad)
		return err;
	pl_message_error("%llu completions or doorbells made no sense", (unsigned long long)bad);
	return -EPROTO;
}

int pl_gpu_bench_pass(struct pl_gpu_bench *b, const struct pl_gpu_kernel *kernel,
		      unsigned int nr_warps, void *args, uint64_t expected, double *seconds)
{
	struct plk_counts n;
	int err = pl_gpu_run_kernel(&b->run, kernel, nr_warps, args, &n, seconds);

	if (err)
		return err;
	if (n.wrong) {
		pl_message_error(
			"%s: wrong data in %llu of %llu I/O, one of them from block %llu on",
			kernel->name, (unsigned long long)n.wrong, (unsigned long long)n.done,
			(unsigned long long)n.a_wrong_block);
		return -EBADMSG;
	}
	if (n.failed || n.late || n.done != expected) {
		pl_message_error("%s: of %llu I/O %llu succeeded, %llu failed (one with status "
				 "0x%llx), %llu were given up",
				 kernel->name, (unsigned long long)expected,
				 (unsigned long long)n.done, (unsigned long long)n.failed,
				 (unsigned long long)n.a_status, (unsigned long long)n.late);
		return -EIO;
	}
	return 0;
}

int pl_gpu_bench_fit(struct pl_gpu_bench *b, const struct pl_gpu_kernel *kernel,
		     unsigned int nr_warps, void *args, uint64_t *each, uint64_t nr)
{
	const uint64_t most = *each, least = most < FIT_LEAST ? most : FIT_LEAST;
	double seconds = 0, fits;
	int err = 0;

	if (b->args.seconds <= 0)
		return 0;
	/* Longer and longer, so that what a launch costs does not count for much. */
	for (*each = least;; *each = *each < most / 4 ? *each * 4 : most) {
		err = pl_gpu_bench_pass(b, kernel, nr_warps, args, *each * nr, &seconds);
		if (pl_stop_requested())
			err = -ECANCELED;
		if (err || *each == most || seconds >= b->args.seconds / 4)
			break;
	}
	fits = seconds > 0 ? (double)*each * b->args.seconds / seconds : (double)most;
	*each = fits >= (double)most ? most : fits > (double)least ? (uint64_t)fits : least;
	return err;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double pl_gpu_bench_middle(double *seconds, unsigned int nr)
{
	qsort(seconds, nr, sizeof(*seconds), by_size);
	return seconds[nr / 2];
}

int pl_gpu_bench_passes(struct pl_gpu_bench *b, const struct pl_gpu_kernel *kernel,
			unsigned int nr_warps, void *args, uint64_t expected, double *seconds)
{
	double times[100];
	int err = pl_gpu_bench_pass(b, kernel, nr_warps, args, expected, &times[0]);

	for (unsigned int i = 0; !err && i < b->args.repeat; i++) {
		err = pl_gpu_bench_pass(b, kernel, nr_warps, args, expected, &times[i]);
		if (pl_stop_requested())
			err = -ECANCELED;
	}
	if (!err)
		*seconds = pl_gpu_bench_middle(times, b->args.repeat);
	return err;
}
