/* SPDX-License-Identifier: MIT */
/* What a bench measured: one row for each call size and number of threads. */
#include "series.h"

#include "cleanup.h"
#include "human.h"
#include "jsonout.h"

#include <string.h>

double pl_series_rate(const struct pl_load_result *r)
{
	return r->seconds > 0 ? (double)r->bytes / r->seconds : 0;
}

struct pl_series_row *pl_series_add(struct pl_series *s, unsigned int nr_passes)
{
	struct pl_series_row *rows = realloc(s->rows, (s->nr_rows + 1) * sizeof(*rows));
	struct pl_series_row *row;

	if (!rows)
		return NULL;
	s->rows = rows;
	row = &rows[s->nr_rows];
	memset(row, 0, sizeof(*row));
	row->rates = calloc(nr_passes, sizeof(*row->rates));
	if (!row->rates)
		return NULL;
	s->nr_rows++;
	return row;
}

void pl_series_fini(struct pl_series *s)
{
	for (unsigned int i = 0; i < s->nr_rows; i++)
		free(s->rows[i].rates);
	free(s->rows);
	s->rows = NULL;
	s->nr_rows = 0;
}

const char *pl_series_plain(const struct pl_series *s)
{
	return strstr(s->op, "write") ? "pwrite from host memory" : "pread into host memory";
}

void pl_series_print_head(const struct pl_series *s)
{
	printf("file   %s, %s, %s, %s%s\n", s->path, pl_human_size(s->file_bytes).text,
	       s->fs[0] ? s->fs : "unknown file system", s->cache, s->direct ? ", O_DIRECT" : "");
	printf("gpu    %s\n", s->gpu);
	if (s->limit.rate > 0)
		printf("limit  %.2f GB/s, %s\n", s->limit.rate / 1e9, s->limit.source);
	else
		printf("limit  %s\n", s->limit.source);
	if (s->plain)
		printf("plain  %s, without the GPU: as many threads, the same calls\n",
		       pl_series_plain(s));
	printf("\n%-9s %6s %7s %5s %8s %10s %9s %9s %8s  %-10s", "op", "size", "threads", "batch",
	       "GB/s", "IOPS", "p50 us", "p99 us", "CPU s/GB", "path");
	if (s->limit.rate > 0)
		printf(" %8s", "of limit");
	if (s->plain)
		printf(" %10s %8s", "plain GB/s", "of plain");
	putchar('\n');
}

static double cpu_per_gb(const struct pl_load_result *r)
{
	return r->bytes ? r->cpu_seconds / ((double)r->bytes / 1e9) : 0;
}

void pl_series_print_row(const struct pl_series *s, const struct pl_series_row *row)
{
	const struct pl_load_result *r = &row->median;
	double rate = pl_series_rate(r), plain = pl_series_rate(&row->plain);

	printf("%-9s %6s %7u %5u %8.2f %10.0f %9.1f %9.1f %8.3f  %-10s", s->op,
	       pl_human_short(row->call_bytes).text, row->nr_threads, s->batch, rate / 1e9,
	       r->seconds > 0 ? (double)r->calls / r->seconds : 0,
	       pl_latency_ns(&r->latency, 0.5) / 1e3, pl_latency_ns(&r->latency, 0.99) / 1e3,
	       cpu_per_gb(r), pl_route_name(&r->route).text);
	if (s->limit.rate > 0)
		printf(" %8.3f", rate / s->limit.rate);
	if (s->plain && plain > 0)
		printf(" %10.2f %8.3f", plain / 1e9, rate / plain);
	else if (s->plain)
		printf(" %10s %8s", "-", "-");
	printf("%s%s\n", row->verified ? "  verified" : "",
	       row->interrupted ? "  interrupted" : "");
	fflush(stdout);
}

static void add_result(struct json_object *o, const struct pl_load_result *r)
{
	pl_jsonout_add_number(o, "gb_per_s", pl_series_rate(r) / 1e9);
	pl_jsonout_add_number(o, "iops", r->seconds > 0 ? (double)r->calls / r->seconds : 0);
	pl_jsonout_add_number(o, "p50_us", pl_latency_ns(&r->latency, 0.5) / 1e3);
	pl_jsonout_add_number(o, "p99_us", pl_latency_ns(&r->latency, 0.99) / 1e3);
	pl_jsonout_add_number(o, "cpu_s_per_gb", cpu_per_gb(r));
	pl_jsonout_add_number(o, "seconds", r->seconds);
	pl_jsonout_add_count(o, "bytes", r->bytes);
	pl_jsonout_add_count(o, "ios", r->calls);
}

static struct json_object *json_row(const struct pl_series *s, const struct pl_series_row *row)
{
	struct json_object *o = json_object_new_object();
	struct json_object *passes = json_object_new_array();
	struct json_object *plain;

	pl_jsonout_add_text(o, "op", s->op);
	pl_jsonout_add_count(o, "io_bytes", row->call_bytes);
	pl_jsonout_add_count(o, "threads", row->nr_threads);
	pl_jsonout_add_count(o, "batch", s->batch);
	add_result(o, &row->median);
	pl_jsonout_add_text(o, "path", pl_route_name(&row->median.route).text);
	pl_jsonout_add_paths(o, row->median.route.bytes);
	if (s->limit.rate > 0)
		pl_jsonout_add_number(o, "of_limit", pl_series_rate(&row->median) / s->limit.rate);
	for (unsigned int i = 0; i < row->nr_passes; i++)
		json_object_array_add(passes, pl_jsonout_number(row->rates[i] / 1e9));
	json_object_object_add(o, "passes_gb_per_s", passes);
	if (row->plain.seconds > 0) {
		plain = json_object_new_object();
		add_result(plain, &row->plain);
		json_object_object_add(o, "plain", plain);
		pl_jsonout_add_number(o, "of_plain",
				      pl_series_rate(&row->median) / pl_series_rate(&row->plain));
	}
	pl_jsonout_add_flag(o, "verified", row->verified);
	pl_jsonout_add_flag(o, "interrupted", row->interrupted);
	return o;
}

void pl_series_print_json(const struct pl_series *s, bool interrupted)
{
	PL_AUTO_JSON struct json_object *root = json_object_new_object();
	struct json_object *rows = json_object_new_array();

	pl_jsonout_add_text(root, "backend", s->backend);
	pl_jsonout_add_text(root, "gpu", s->gpu);
	pl_jsonout_add_text(root, "file_name", s->path);
	pl_jsonout_add_text(root, "fs", s->fs);
	pl_jsonout_add_text(root, "cache", s->cache);
	pl_jsonout_add_flag(root, "direct", s->direct);
	pl_jsonout_add_count(root, "file_bytes", s->file_bytes);
	pl_jsonout_add_count(root, "pass_bytes", s->pass_bytes);
	pl_limit_add_json(&s->limit, root);
	pl_jsonout_add_flag(root, "interrupted", interrupted);
	for (unsigned int i = 0; i < s->nr_rows; i++)
		json_object_array_add(rows, json_row(s, &s->rows[i]));
	json_object_object_add(root, "rows", rows);
	pl_jsonout_print(root, stdout);
}
