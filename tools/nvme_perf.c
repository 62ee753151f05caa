/* SPDX-License-Identifier: MIT */
/* peerlane nvme perf: commands and bytes a second of a drive. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "nvme_load.h"
#include "stop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct perf_args {
	struct pl_drive_load_want want;
	struct pl_option_list sizes, depths, queues;
	uint64_t count;
};

#define AT(member) offsetof(struct perf_args, member)

static const struct pl_option options[] = {
	{ "size", PL_OPTION_SIZES, AT(sizes), "SIZE,...",
	  "Bytes of one I/O; several are measured one after the other (default 4K).", 512,
	  1u << 30 },
	{ "depth", PL_OPTION_COUNTS, AT(depths), "N,...",
	  "I/O that each queue pair keeps under way; several are measured (default 32).", 1,
	  65535 },
	{ "queues", PL_OPTION_COUNTS, AT(queues), "N,...",
	  "Queue pairs, each driven by a thread; several are measured (default 1).", 1, 1024 },
	{ "seconds", PL_OPTION_DECIMAL, AT(want.seconds), "SECONDS",
	  "How long each row takes (default 5).", 0.001, 1e6 },
	{ "count", PL_OPTION_SIZE, AT(count), "N",
	  "End a row after so many I/O even if time is left.", 1, 1e15 },
	PL_DRIVE_LOAD_OPTIONS(struct perf_args),
	{ 0 },
};

struct perf {
	const struct perf_args *args;
	struct pl_drive_bench bench;
	struct json_object *rows; /* NULL: rows are printed */
};

static void print_head(const struct perf *p)
{
	printf("%s (%s), namespace %u, %s memory\n%-10s%6s%7s%8s%12s%10s%10s%10s%10s\n",
	       p->bench.drive.address, p->bench.drive.info.serial, p->bench.drive.ns_info.nsid,
	       p->args->want.memory, "op", "size", "depth", "queues", "IOPS", "GB/s", "p50 us",
	       "p99 us", "max us");
}

static void print_row(const struct pl_drive_load *l, const struct pl_drive_result *r)
{
	printf("%-10s%6s%7u%8u%12.0f%10.3f%10.1f%10.1f%10.1f\n", l->what,
	       pl_human_short(l->io_bytes).text, l->depth, l->nr_queues,
	       (double)r->ios / r->seconds, (double)r->bytes / r->seconds / 1e9,
	       pl_latency_ns(&r->latency, 0.5) / 1e3, pl_latency_ns(&r->latency, 0.99) / 1e3,
	       (double)r->most_ns / 1e3);
	fflush(stdout);
}

static void add_row(struct json_object *rows, const struct pl_drive_load *l,
		    const struct pl_drive_result *r)
{
	struct json_object *row = json_object_new_object();

	pl_jsonout_add_text(row, "op", l->what);
	pl_jsonout_add_count(row, "io_bytes", l->io_bytes);
	pl_jsonout_add_count(row, "depth", l->depth);
	pl_jsonout_add_count(row, "queues", l->nr_queues);
	pl_jsonout_add_count(row, "ios", r->ios);
	pl_jsonout_add_count(row, "bytes", r->bytes);
	pl_jsonout_add_number(row, "seconds", r->seconds);
	pl_jsonout_add_number(row, "iops", (double)r->ios / r->seconds);
	pl_jsonout_add_number(row, "gb_per_s", (double)r->bytes / r->seconds / 1e9);
	pl_jsonout_add_number(row, "p50_us", pl_latency_ns(&r->latency, 0.5) / 1e3);
	pl_jsonout_add_number(row, "p99_us", pl_latency_ns(&r->latency, 0.99) / 1e3);
	pl_jsonout_add_number(row, "max_us", (double)r->most_ns / 1e3);
	json_object_array_add(rows, row);
}

static int measure_row(struct perf *p, uint64_t size, uint64_t depth, uint64_t queues)
{
	struct pl_drive_load *load = &p->bench.load;
	struct pl_drive_result result;
	int err;

	load->io_bytes = (size_t)size;
	load->depth = (unsigned int)depth;
	load->nr_queues = (unsigned int)queues;
	load->nr_ios = p->args->count;
	err = pl_drive_load_run(load, &result);
	if (err || !result.ios)
		return err;
	if (p->rows)
		add_row(p->rows, load, &result);
	else
		print_row(load, &result);
	return 0;
}

/* What the drive cannot do is said before anything is measured. */
static int check(const struct perf *p)
{
	for (unsigned int i = 0; i < p->args->sizes.nr; i++)
		if (!pl_drive_bench_fits(&p->bench, p->args->sizes.values[i]))
			return -EINVAL;
	for (unsigned int i = 0; i < p->args->queues.nr; i++)
		if (p->args->queues.values[i] > p->bench.drive.info.nr_queues) {
			pl_message_error("--queues: %s grants %u queue pairs",
					 p->bench.drive.address, p->bench.drive.info.nr_queues);
			return -EINVAL;
		}
	return 0;
}

static int measure(struct perf *p)
{
	const struct perf_args *a = p->args;
	int err = check(p);

	if (!err && !p->rows)
		print_head(p);
	for (unsigned int q = 0; q < a->queues.nr; q++)
		for (unsigned int d = 0; d < a->depths.nr; d++)
			for (unsigned int s = 0; s < a->sizes.nr; s++) {
				if (err || pl_stop_requested())
					return err;
				err = measure_row(p, a->sizes.values[s], a->depths.values[d],
						  a->queues.values[q]);
			}
	return err;
}

static int run_perf(struct perf *p)
{
	PL_AUTO_JSON struct json_object *root = json_object_new_object();
	const struct pl_drive *d = &p->bench.drive;
	int err;

	if (p->args->want.json) {
		p->rows = json_object_new_array();
		json_object_object_add(root, "rows", p->rows);
	}
	err = measure(p);
	if (!p->rows)
		return err;
	pl_jsonout_add_text(root, "address", d->address);
	pl_jsonout_add_text(root, "serial", d->info.serial);
	pl_jsonout_add_count(root, "nsid", d->ns_info.nsid);
	pl_jsonout_add_text(root, "memory", p->args->want.memory);
	pl_jsonout_add_flag(root, "interrupted", pl_stop_requested());
	pl_jsonout_print(root, stdout);
	return err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct perf_args args = {
		.want = { .drive = { .nsid = 1 },
			  .op = "randread",
			  .memory = "host",
			  .seconds = 5 },
		.sizes = { 1, { 4096 } },
		.depths = { 1, { 32 } },
		.queues = { 1, { 1 } },
	};
	struct perf p = { .args = &args };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	if (pl_drive_bench_open(&p.bench, argv[first], &args.want))
		return 1;
	err = run_perf(&p);
	pl_drive_bench_close(&p.bench);
	return pl_stop_exit(err);
}

const struct pl_command pl_command_nvme_perf = {
	.name = "nvme perf",
	.summary = "Measure commands and bytes a second.",
	.args = "[options] ADDRESS",
	.detail = "Keeps queue pairs full and counts what comes through: a row for each number of "
		  "queues, depth and size. GB/s are of 1000000000 bytes. On sim: the software "
		  "controller runs on the same processors, and what is measured is both.",
	.exits = "0  measured\n"
		 "1  an error, or the serial number is missing or another\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM); what was measured is printed",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
