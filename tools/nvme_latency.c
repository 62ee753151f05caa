/* SPDX-License-Identifier: MIT */
/* peerlane nvme latency: how long one command at a time takes, with a picture. */
#include "cleanup.h"
#include "commands.h"
#include "histogram.h"
#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "nvme_load.h"
#include "stop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct latency_args {
	struct pl_drive_load_want want;
	uint64_t size, count;
	const char *plot;
};

#define AT(member) offsetof(struct latency_args, member)

static const struct pl_option options[] = {
	{ "size", PL_OPTION_SIZE, AT(size), "SIZE", "Bytes of one command (default 4K).", 512,
	  1u << 30 },
	{ "count", PL_OPTION_SIZE, AT(count), "N", "How many commands (default 10000).", 1, 1e15 },
	{ "seconds", PL_OPTION_DECIMAL, AT(want.seconds), "SECONDS",
	  "End after this time even if commands are left.", 0.001, 1e6 },
	{ "plot", PL_OPTION_TEXT, AT(plot), "FILE.svg", "Also draw the picture there.", 0, 0 },
	PL_DRIVE_LOAD_OPTIONS(struct latency_args),
	{ 0 },
};

static const struct {
	double share;
	const char *name, *key;
} points[] = {
	{ 0.5, "50%", "p50_us" },	   { 0.9, "90%", "p90_us" },
	{ 0.99, "99%", "p99_us" },	   { 0.999, "99.9%", "p99_9_us" },
	{ 0.9999, "99.99%", "p99_99_us" },
};

#define NR_POINTS (sizeof(points) / sizeof(points[0]))

/* A time of the buckets, kept between the exact ends. */
static double point_us(const struct pl_drive_result *r, double share)
{
	double ns = pl_latency_ns(&r->latency, share);

	if (ns < (double)r->least_ns)
		ns = (double)r->least_ns;
	if (ns > (double)r->most_ns)
		ns = (double)r->most_ns;
	return ns / 1e3;
}

static void print_json(const struct latency_args *a, const struct pl_drive_bench *b,
		       const struct pl_drive_result *r, const struct pl_histogram *h)
{
	PL_AUTO_JSON struct json_object *root = json_object_new_object();
	struct json_object *list = json_object_new_array();

	pl_jsonout_add_text(root, "address", b->drive.address);
	pl_jsonout_add_text(root, "serial", b->drive.info.serial);
	pl_jsonout_add_text(root, "op", a->want.op);
	pl_jsonout_add_text(root, "memory", a->want.memory);
	pl_jsonout_add_count(root, "io_bytes", a->size);
	pl_jsonout_add_count(root, "ios", r->ios);
	pl_jsonout_add_flag(root, "interrupted", pl_stop_requested());
	pl_jsonout_add_number(root, "seconds", r->seconds);
	pl_jsonout_add_number(root, "min_us", (double)r->least_ns / 1e3);
	for (size_t i = 0; i < NR_POINTS; i++)
		pl_jsonout_add_number(root, points[i].key, point_us(r, points[i].share));
	pl_jsonout_add_number(root, "max_us", (double)r->most_ns / 1e3);
	for (unsigned int i = 0; i < h->nr_rows; i++) {
		struct json_object *row = json_object_new_object();

		pl_jsonout_add_number(row, "from_us", h->rows[i].from_us);
		pl_jsonout_add_number(row, "to_us",
				      h->rows[i].to_us > 0 ? h->rows[i].to_us
							   : (double)r->most_ns / 1e3);
		pl_jsonout_add_count(row, "count", h->rows[i].count);
		json_object_array_add(list, row);
	}
	json_object_object_add(root, "histogram", list);
	pl_jsonout_print(root, stdout);
}

static void print_text(const struct latency_args *a, const struct pl_drive_bench *b,
		       const struct pl_drive_result *r, const struct pl_histogram *h)
{
	printf("%s (%s), %s of %s, one at a time, %s memory\n%s in %.2f s\n\n", b->drive.address,
	       b->drive.info.serial, a->want.op, pl_human_size(a->size).text, a->want.memory,
	       pl_human_nr(r->ios, "command").text, r->seconds);
	printf("%8s %10.2f us\n", "least", (double)r->least_ns / 1e3);
	for (size_t i = 0; i < NR_POINTS; i++)
		printf("%8s %10.2f us\n", points[i].name, point_us(r, points[i].share));
	printf("%8s %10.2f us\n\n", "most", (double)r->most_ns / 1e3);
	pl_histogram_print(h, stdout);
}

static int show(const struct latency_args *a, const struct pl_drive_bench *b,
		const struct pl_drive_result *r)
{
	struct pl_histogram h;
	char title[192];
	int err = 0;

	pl_histogram_make(&h, &r->latency);
	if (a->want.json)
		print_json(a, b, r, &h);
	else
		print_text(a, b, r, &h);
	if (a->plot) {
		snprintf(title, sizeof(title), "NVMe latency: %s of %s, %s memory, %s", a->want.op,
			 pl_human_size(a->size).text, a->want.memory,
			 pl_human_nr(r->ios, "command").text);
		err = pl_histogram_plot(&h, title, a->plot);
		if (err)
			pl_message_error("%s: %s", a->plot, strerror(-err));
	}
	return err;
}

static int measure(const struct latency_args *a, struct pl_drive_bench *b)
{
	struct pl_drive_result result;
	int err;

	if (!pl_drive_bench_fits(b, a->size))
		return -EINVAL;
	b->load.io_bytes = (size_t)a->size;
	b->load.depth = b->load.nr_queues = 1;
	b->load.nr_ios = a->count;
	err = pl_drive_load_run(&b->load, &result);
	return err ? err : show(a, b, &result);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct latency_args args = {
		.want = { .drive = { .nsid = 1 }, .op = "randread", .memory = "host" },
		.size = 4096,
		.count = 10000,
	};
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);
	struct pl_drive_bench bench;

	if (first < 0)
		return status;
	pl_stop_catch();
	if (pl_drive_bench_open(&bench, argv[first], &args.want))
		return 1;
	err = measure(&args, &bench);
	pl_drive_bench_close(&bench);
	return pl_stop_exit(err);
}

const struct pl_command pl_command_nvme_latency = {
	.name = "nvme latency",
	.summary = "Measure how long single commands take.",
	.args = "[options] ADDRESS",
	.detail = "Sends one command after the other and shows how long they took, from the "
		  "submission to the completion as this program sees it: percentiles, and a "
		  "histogram. Times are exact to about 6 percent, the least and the most wholly.",
	.exits = "0  measured\n"
		 "1  an error, or the serial number is missing or another\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM); what was measured is printed",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
