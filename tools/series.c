/* SPDX-License-Identifier: MIT */
/* What a bench measured: one row for each call size and number of threads. */
#include "series.h"

#include "cleanup.h"
#include "human.h"

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

void pl_series_print_head(const struct pl_series *s)
{
	printf("file   %s, %s, %s, %s%s\n", s->path, pl_human_size(s->file_bytes).text,
	       s->fs[0] ? s->fs : "unknown file system", s->cache, s->direct ? ", O_DIRECT" : "");
	printf("gpu    %s\n", s->gpu);
	if (s->limit > 0)
		printf("limit  %.2f GB/s, %s\n\n", s->limit / 1e9, s->limit_source);
	else
		printf("limit  unknown: %s\n\n", s->limit_source);
	printf("%-9s %6s %7s %5s %8s %10s %9s %9s %8s  %-10s %8s", "op", "size", "threads", "batch",
	       "GB/s", "ops/s", "p50 us", "p99 us", "CPU s/GB", "path", "of limit");
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
	char limit[16] = "-";

	if (s->limit > 0)
		snprintf(limit, sizeof(limit), "%.3f", rate / s->limit);
	printf("%-9s %6s %7u %5u %8.2f %10.0f %9.1f %9.1f %8.3f  %-10s %8s", s->op,
	       pl_human_short(row->call_bytes).text, row->nr_threads, s->batch, rate / 1e9,
	       r->seconds > 0 ? (double)r->calls / r->seconds : 0,
	       pl_latency_ns(&r->latency, 0.5) / 1e3, pl_latency_ns(&r->latency, 0.99) / 1e3,
	       cpu_per_gb(r), pl_route_name(&r->route).text, limit);
	if (s->plain && plain > 0)
		printf(" %10.2f %8.3f", plain / 1e9, rate / plain);
	else if (s->plain)
		printf(" %10s %8s", "-", "-");
	printf("%s%s\n", row->verified ? "  verified" : "",
	       row->interrupted ? "  interrupted" : "");
	fflush(stdout);
}

/* Six figures are all a measurement has. */
static struct json_object *rounded(double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.6g", value);
	return json_object_new_double_s(value, text);
}

static void add_number(struct json_object *o, const char *key, double value)
{
	json_object_object_add(o, key, rounded(value));
}

static void add_integer(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_int64((int64_t)value));
}

static void add_result(struct json_object *o, const struct pl_load_result *r)
{
	add_number(o, "gb_per_s", pl_series_rate(r) / 1e9);
	add_number(o, "ops_per_s", r->seconds > 0 ? (double)r->calls / r->seconds : 0);
	add_number(o, "p50_us", pl_latency_ns(&r->latency, 0.5) / 1e3);
	add_number(o, "p99_us", pl_latency_ns(&r->latency, 0.99) / 1e3);
	add_number(o, "cpu_s_per_gb", cpu_per_gb(r));
	add_number(o, "seconds", r->seconds);
	add_integer(o, "bytes", r->bytes);
	add_integer(o, "calls", r->calls);
}

static struct json_object *json_row(const struct pl_series *s, const struct pl_series_row *row)
{
	struct json_object *o = json_object_new_object();
	struct json_object *paths = json_object_new_object();
	struct json_object *passes = json_object_new_array();
	struct json_object *plain;

	json_object_object_add(o, "op", json_object_new_string(s->op));
	add_integer(o, "call_bytes", row->call_bytes);
	add_integer(o, "threads", row->nr_threads);
	add_integer(o, "batch", s->batch);
	add_result(o, &row->median);
	json_object_object_add(o, "path",
			       json_object_new_string(pl_route_name(&row->median.route).text));
	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		add_integer(paths, peerlane_path_name((enum peerlane_path)i),
			    row->median.route.bytes[i]);
	json_object_object_add(o, "path_bytes", paths);
	if (s->limit > 0)
		add_number(o, "of_limit", pl_series_rate(&row->median) / s->limit);
	for (unsigned int i = 0; i < row->nr_passes; i++)
		json_object_array_add(passes, rounded(row->rates[i] / 1e9));
	json_object_object_add(o, "passes_gb_per_s", passes);
	if (row->plain.seconds > 0) {
		plain = json_object_new_object();
		add_result(plain, &row->plain);
		json_object_object_add(o, "plain", plain);
		add_number(o, "of_plain",
			   pl_series_rate(&row->median) / pl_series_rate(&row->plain));
	}
	json_object_object_add(o, "verified", json_object_new_boolean(row->verified));
	json_object_object_add(o, "interrupted", json_object_new_boolean(row->interrupted));
	return o;
}

void pl_series_print_json(const struct pl_series *s, bool interrupted)
{
	PL_AUTO_JSON struct json_object *root = json_object_new_object();
	struct json_object *limit = json_object_new_object();
	struct json_object *rows = json_object_new_array();

	json_object_object_add(root, "backend", json_object_new_string(s->backend));
	json_object_object_add(root, "gpu", json_object_new_string(s->gpu));
	json_object_object_add(root, "file", json_object_new_string(s->path));
	json_object_object_add(root, "fs", json_object_new_string(s->fs));
	json_object_object_add(root, "cache", json_object_new_string(s->cache));
	json_object_object_add(root, "direct", json_object_new_boolean(s->direct));
	add_integer(root, "file_bytes", s->file_bytes);
	add_integer(root, "pass_bytes", s->pass_bytes);
	if (s->limit > 0)
		add_number(limit, "gb_per_s", s->limit / 1e9);
	json_object_object_add(limit, "source", json_object_new_string(s->limit_source));
	json_object_object_add(root, "limit", limit);
	json_object_object_add(root, "interrupted", json_object_new_boolean(interrupted));
	for (unsigned int i = 0; i < s->nr_rows; i++)
		json_object_array_add(rows, json_row(s, &s->rows[i]));
	json_object_object_add(root, "rows", rows);
	puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
							  JSON_C_TO_STRING_NOSLASHESCAPE));
}
