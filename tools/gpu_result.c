/* SPDX-License-Identifier: MIT */
/* What peerlane bench gpu measured: facts, then a row for each number of threads, told once. */
#include "gpu_result.h"

#include "human.h"

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

static struct json_object *json_row(const struct pl_gpu_result *r, const struct pl_gpu_row *row)
{
	struct json_object *o = json_object_new_object();
	const double iops = pl_gpu_row_iops(row), limit = pl_gpu_result_limit(r);

	pl_jsonout_add_count(o, "threads", row->threads);
	pl_jsonout_add_count(o, "queues", row->queues);
	pl_jsonout_add_count(o, "ports_per_queue", row->ports);
	pl_jsonout_add_count(o, "slots_per_port", row->slots);
	pl_jsonout_add_count(o, "ios", row->ios);
	pl_jsonout_add_number(o, "seconds", row->seconds);
	pl_jsonout_add_number(o, "iops", iops);
	if (r->io_bytes)
		pl_jsonout_add_number(o, "gb_per_s", iops * (double)r->io_bytes / 1e9);
	if (row->limit > 0)
		pl_jsonout_add_number(o, "limit_iops", row->limit);
	if (limit > 0 && r->on_gpu)
		pl_jsonout_add_number(o, "of_limit", iops / limit);
	if (row->copied > 0)
		pl_jsonout_add_number(o, "copied_iops", row->copied);
	if (row->spread > 0)
		pl_jsonout_add_number(o, "spread_limit_iops", row->spread);
	return o;
}

static void text_row(const struct pl_gpu_result *r, const struct pl_gpu_row *row, FILE *out)
{
	const double iops = pl_gpu_row_iops(row), limit = pl_gpu_result_limit(r);

	fprintf(out, "%9u%8u%8u%14.0f", row->threads, row->queues, row->ports * row->slots, iops);
	if (r->io_bytes && iops * (double)r->io_bytes < 0.0005e9)
		fprintf(out, "%10s", "<0.001");
	else if (r->io_bytes)
		fprintf(out, "%10.3f", iops * (double)r->io_bytes / 1e9);
	else
		fprintf(out, "%10s", "-");
	if (row->limit > 0)
		fprintf(out, "%16.0f", row->limit);
	else
		fprintf(out, "%16s", "-");
	if (limit > 0 && r->on_gpu)
		fprintf(out, "%10.3f", iops / limit);
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
		fprintf(out, " %s\n", pl_human_count(iops).text);
	}
}

static void tell_limit(const struct pl_gpu_result *r, struct pl_report *report)
{
	struct json_object *limit = json_object_new_object();

	if (pl_gpu_result_limit(r) > 0)
		pl_jsonout_add_number(limit, "iops", pl_gpu_result_limit(r));
	pl_jsonout_add_text(limit, "source", r->limit);
	pl_report_value(report, "limit", limit, "compared with", "%s", r->limit);
}

/* How few threads are nearly as fast as the peak; that the peak is needed says the peak itself. */
static void tell_enough(const struct pl_gpu_result *r, const struct pl_gpu_row *peak,
			struct pl_report *report)
{
	const unsigned int threads = pl_gpu_result_threads(r, 0.9);
	double iops = 0;

	for (unsigned int i = 0; i < r->nr_rows; i++)
		if (r->rows[i].threads == threads)
			iops = pl_gpu_row_iops(&r->rows[i]);
	pl_report_value(report, "threads_for_90_percent", json_object_new_int64(threads),
			threads < peak->threads ? "enough" : NULL, "%s: %.2f of the peak",
			pl_human_nr(threads, "thread").text, iops / pl_gpu_row_iops(peak));
}

void pl_gpu_result_report(const struct pl_gpu_result *r, struct pl_report *report)
{
	const struct pl_gpu_row *peak = pl_gpu_result_peak(r);
	struct json_object *rows = json_object_new_array();
	const double limit = pl_gpu_result_limit(r);
	const char *unit = r->unit ? r->unit : "IOPS";

	pl_report_text(report, "unit", NULL, "%s", unit);
	if (r->limit)
		tell_limit(r, report);
	fprintf(report->text, "\n%9s%8s%8s%14s%10s%16s%s%s%s\n", "threads", "queues", "slots", unit,
		"GB/s", r->limit_name ? r->limit_name : "",
		limit > 0 && r->on_gpu ? "   of best" : "",
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
	pl_report_value(report, "peak_iops", pl_jsonout_number(pl_gpu_row_iops(peak)), "peak",
			"%s %s with %s", pl_human_count(pl_gpu_row_iops(peak)).text, unit,
			pl_human_nr(peak->threads, "thread").text);
	if (limit > 0 && r->on_gpu)
		pl_report_value(report, "of_limit",
				pl_jsonout_number(pl_gpu_row_iops(peak) / limit), "of the limit",
				"%.3f", pl_gpu_row_iops(peak) / limit);
	if (r->nr_rows > 1)
		tell_enough(r, peak, report);
}
