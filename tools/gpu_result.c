/* SPDX-License-Identifier: MIT */
/* What peerlane bench gpu measured: facts, then a row for each number of threads, told once. */
#include "gpu_result.h"

#define BAR_WIDTH 50

double pl_gpu_row_iops(const struct pl_gpu_row *row)
{
	return row->seconds > 0 ? (double)row->ios / row->seconds : 0;
}

const struct pl_gpu_row *pl_gpu_result_peak(const struct pl_gpu_result *r)
{
	const struct pl_gpu_row *peak = NULL;

	for (unsigned int i = 0; i < r->nr_rows; i++)
		if (!peak || pl_gpu_row_iops(&r->rows[i]) > pl_gpu_row_iops(peak))
			peak = &r->rows[i];
	return peak;
}

double pl_gpu_result_limit(const struct pl_gpu_result *r)
{
	double best = 0;

	for (unsigned int i = 0; i < r->nr_rows; i++)
		best = r->rows[i].limit > best ? r->rows[i].limit : best;
	return best;
}

unsigned int pl_gpu_result_threads(const struct pl_gpu_result *r, double share)
{
	const struct pl_gpu_row *peak = pl_gpu_result_peak(r);
	unsigned int fewest = 0;

	for (unsigned int i = 0; i < r->nr_rows; i++)
		if (pl_gpu_row_iops(&r->rows[i]) >= share * pl_gpu_row_iops(peak) &&
		    (!fewest || r->rows[i].threads < fewest))
			fewest = r->rows[i].threads;
	return fewest;
}

struct json_object *pl_gpu_number(double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.6g", value);
	return json_object_new_double_s(value, text);
}

static void add_integer(struct json_object *to, const char *key, uint64_t value)
{
	json_object_object_add(to, key, json_object_new_int64((int64_t)value));
}

static struct json_object *json_row(const struct pl_gpu_result *r, const struct pl_gpu_row *row)
{
	struct json_object *o = json_object_new_object();
	const double iops = pl_gpu_row_iops(row), limit = pl_gpu_result_limit(r);

	add_integer(o, "threads", row->threads);
	add_integer(o, "queues", row->queues);
	add_integer(o, "ports_per_queue", row->ports);
	add_integer(o, "slots_per_port", row->slots);
	add_integer(o, "ios", row->ios);
	json_object_object_add(o, "seconds", pl_gpu_number(row->seconds));
	json_object_object_add(o, "iops", pl_gpu_number(iops));
	if (r->io_bytes)
		json_object_object_add(o, "gb_per_s",
				       pl_gpu_number(iops * (double)r->io_bytes / 1e9));
	if (row->limit > 0)
		json_object_object_add(o, "limit_iops", pl_gpu_number(row->limit));
	if (limit > 0)
		json_object_object_add(o, "of_limit", pl_gpu_number(iops / limit));
	if (row->copied > 0)
		json_object_object_add(o, "copied_iops", pl_gpu_number(row->copied));
	if (row->spread > 0)
		json_object_object_add(o, "spread_limit_iops", pl_gpu_number(row->spread));
	return o;
}

static void text_row(const struct pl_gpu_result *r, const struct pl_gpu_row *row, FILE *out)
{
	const double iops = pl_gpu_row_iops(row), limit = pl_gpu_result_limit(r);

	fprintf(out, "%9u%8u%8u%14.0f", row->threads, row->queues, row->ports * row->slots, iops);
	if (r->io_bytes)
		fprintf(out, "%10.3f", iops * (double)r->io_bytes / 1e9);
	else
		fprintf(out, "%10s", "-");
	if (row->limit > 0)
		fprintf(out, "%16.0f", row->limit);
	else
		fprintf(out, "%16s", "-");
	if (limit > 0)
		fprintf(out, "%10.3f", iops / limit);
	else
		fprintf(out, "%10s", "-");
	if (row->copied > 0)
		fprintf(out, "%16.0f", row->copied);
	if (row->spread > 0)
		fprintf(out, "%16.0f", row->spread);
	fputc('\n', out);
}

/* Bars: I/O a second by threads. */
static void picture(const struct pl_gpu_result *r, FILE *out)
{
	const double most = pl_gpu_row_iops(pl_gpu_result_peak(r));

	fprintf(out, "\n%s by threads of the kernel\n", r->unit ? r->unit : "IOPS");
	for (unsigned int i = 0; i < r->nr_rows && most > 0; i++) {
		const double iops = pl_gpu_row_iops(&r->rows[i]);
		const int width = (int)(iops / most * BAR_WIDTH + 0.5);

		fprintf(out, "%9u |", r->rows[i].threads);
		for (int x = 0; x < width; x++)
			fputc('#', out);
		fprintf(out, " %.3g M\n", iops / 1e6);
	}
}

void pl_gpu_result_report(const struct pl_gpu_result *r, struct pl_report *report)
{
	const struct pl_gpu_row *peak = pl_gpu_result_peak(r);
	struct json_object *rows = json_object_new_array();
	const double limit = pl_gpu_result_limit(r);
	const char *unit = r->unit ? r->unit : "IOPS";

	pl_report_text(report, "unit", NULL, "%s", unit);
	if (r->limit)
		pl_report_text(report, "limit", "compared with", "%s", r->limit);
	fprintf(report->text, "\n%9s%8s%8s%14s%10s%16s%10s%s%s\n", "threads", "queues", "slots",
		unit, "GB/s", r->limit_name ? r->limit_name : "", "of best",
		peak && peak->copied > 0 ? "    copied first" : "",
		peak && peak->spread > 0 ? "    many buffers" : "");
	for (unsigned int i = 0; i < r->nr_rows; i++) {
		json_object_array_add(rows, json_row(r, &r->rows[i]));
		text_row(r, &r->rows[i], report->text);
	}
	json_object_object_add(report->section, "rows", rows);
	if (!peak)
		return;
	if (r->nr_rows > 1)
		picture(r, report->text);
	fputc('\n', report->text);
	pl_report_value(report, "peak_iops", pl_gpu_number(pl_gpu_row_iops(peak)), "peak",
			"%.4g M %s with %u threads", pl_gpu_row_iops(peak) / 1e6, unit,
			peak->threads);
	if (limit > 0)
		pl_report_value(report, "of_limit", pl_gpu_number(pl_gpu_row_iops(peak) / limit),
				"of the limit", "%.3f", pl_gpu_row_iops(peak) / limit);
	if (r->nr_rows > 1)
		pl_report_value(report, "threads_for_0.9",
				json_object_new_int64(pl_gpu_result_threads(r, 0.9)), "threads",
				"%u give 0.9 of the peak", pl_gpu_result_threads(r, 0.9));
}
