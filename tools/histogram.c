/* SPDX-License-Identifier: MIT */
/* A picture of how often which times were seen. */
#include "histogram.h"

#include <errno.h>
#include <string.h>

#define BAR_WIDTH 40
#define TAIL 0.001 /* share of the entries that may be beyond the rows */

/* First and last bucket of the rows; false without entries. */
static int find_range(const struct pl_latency *l, uint64_t total, unsigned int *low,
		      unsigned int *high)
{
	uint64_t passed = 0;
	unsigned int i = 0;

	while (i < PL_LATENCY_BUCKETS && !l->count[i])
		i++;
	*low = *high = i;
	for (; i < PL_LATENCY_BUCKETS; i++) {
		passed += l->count[i];
		if (l->count[i])
			*high = i;
		if ((double)passed >= (1 - TAIL) * (double)total)
			break;
	}
	return total > 0;
}

void pl_histogram_make(struct pl_histogram *h, const struct pl_latency *l)
{
	unsigned int low, high, step, i;

	memset(h, 0, sizeof(*h));
	for (i = 0; i < PL_LATENCY_BUCKETS; i++)
		h->total += l->count[i];
	if (!find_range(l, h->total, &low, &high))
		return;
	step = (high - low) / PL_HISTOGRAM_ROWS + 1;
	for (i = low; i <= high; i += step) {
		unsigned int end = i + step <= high + 1 ? i + step : high + 1;

		h->rows[h->nr_rows].from_us = pl_latency_floor_ns(i) / 1e3;
		h->rows[h->nr_rows].to_us = pl_latency_floor_ns(end) / 1e3;
		for (unsigned int j = i; j < end; j++)
			h->rows[h->nr_rows].count += l->count[j];
		h->nr_rows++;
	}
	h->rows[h->nr_rows].from_us = pl_latency_floor_ns(high + 1) / 1e3;
	for (i = high + 1; i < PL_LATENCY_BUCKETS; i++)
		h->rows[h->nr_rows].count += l->count[i];
	if (h->rows[h->nr_rows].count)
		h->nr_rows++;
	for (i = 0; i < h->nr_rows; i++)
		if (h->rows[i].count > h->most)
			h->most = h->rows[i].count;
}

void pl_histogram_print(const struct pl_histogram *h, FILE *out)
{
	for (unsigned int i = 0; i < h->nr_rows; i++) {
		uint64_t count = h->rows[i].count;
		int width = (int)((count * BAR_WIDTH + h->most - 1) / h->most);

		if (h->rows[i].to_us > 0)
			fprintf(out, "%10.2f to %8.2f us |", h->rows[i].from_us, h->rows[i].to_us);
		else
			fprintf(out, "%10.2f us and more    |", h->rows[i].from_us);
		for (int j = 0; j < BAR_WIDTH; j++)
			fputc(j < width ? '#' : ' ', out);
		fprintf(out, "| %llu\n", (unsigned long long)count);
	}
}

#define LEFT 170
#define TOP 50
#define ROW 18
#define PLOT_WIDTH 480

static void draw(const struct pl_histogram *h, const char *title, FILE *out)
{
	int height = TOP + (int)h->nr_rows * ROW + 20;

	fprintf(out,
		"<?xml version='1.0' encoding='UTF-8'?>\n"
		"<svg xmlns='http://www.w3.org/2000/svg' width='800' height='%d' viewBox='0 0 800 "
		"%d' font-family='sans-serif' font-size='12' fill='#222222'>\n"
		"<rect width='800' height='%d' fill='white'/>\n"
		"<text x='20' y='26' font-size='16'>%s</text>\n",
		height, height, height, title);
	for (unsigned int i = 0; i < h->nr_rows; i++) {
		int y = TOP + (int)i * ROW;
		double width = (double)h->rows[i].count / (double)h->most * PLOT_WIDTH;
		char label[64];

		if (h->rows[i].to_us > 0)
			snprintf(label, sizeof(label), "%.2f to %.2f us", h->rows[i].from_us,
				 h->rows[i].to_us);
		else
			snprintf(label, sizeof(label), "%.2f us and more", h->rows[i].from_us);
		fprintf(out,
			"<text x='%d' y='%d' text-anchor='end'>%s</text>\n"
			"<rect x='%d' y='%d' width='%.1f' height='%d' fill='#0072b2'/>\n"
			"<text x='%.1f' y='%d' fill='#666666'>%llu</text>\n",
			LEFT - 8, y + 12, label, LEFT, y, width, ROW - 4, LEFT + width + 6, y + 12,
			(unsigned long long)h->rows[i].count);
	}
	fputs("</svg>\n", out);
}

int pl_histogram_plot(const struct pl_histogram *h, const char *title, const char *path)
{
	FILE *out = fopen(path, "we");
	int err;

	if (!out)
		return -errno;
	draw(h, title, out);
	err = ferror(out) ? -EIO : 0;
	if (fclose(out))
		err = -errno;
	return err;
}
