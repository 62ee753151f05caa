/* SPDX-License-Identifier: MIT */
/* A picture of what a bench measured. */
#include "plot.h"

#include "human.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 900
#define HEIGHT 500
#define LEFT 70
#define RIGHT 190 /* room for the legend */
#define TOP 50
#define BOTTOM 60
#define PLOT_WIDTH (WIDTH - LEFT - RIGHT)
#define PLOT_HEIGHT (HEIGHT - TOP - BOTTOM)

/* Told apart also by people who see few colours. */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
				       "#e69f00", "#56b4e9", "#7a5195", "#000000" };

struct plot {
	FILE *out;
	const struct pl_series *s;
	double min_x, max_x; /* powers of two */
	double max_y;	     /* GB/s */
	int legend_y;
};

static double x_of(const struct plot *p, uint64_t bytes)
{
	return LEFT + (log2((double)bytes) - p->min_x) / (p->max_x - p->min_x) * PLOT_WIDTH;
}

static double y_of(const struct plot *p, double gb_per_s)
{
	return TOP + PLOT_HEIGHT - gb_per_s / p->max_y * PLOT_HEIGHT;
}

static void put_text(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		default:
			/* XML has no control characters, and a name need not be UTF-8. */
			fputc(*text < ' ' || *text > '~' ? '?' : *text, out);
		}
}

static void find_range(struct plot *p)
{
	double top = p->s->limit.rate / 1e9;

	p->min_x = INFINITY;
	p->max_x = -INFINITY;
	for (unsigned int i = 0; i < p->s->nr_rows; i++) {
		const struct pl_series_row *row = &p->s->rows[i];

		p->min_x = fmin(p->min_x, log2((double)row->call_bytes));
		p->max_x = fmax(p->max_x, log2((double)row->call_bytes));
		top = fmax(top,
			   fmax(pl_series_rate(&row->median), pl_series_rate(&row->plain)) / 1e9);
	}
	/* Half a step of room at both ends; a single size stands in the middle. */
	p->min_x -= 0.5;
	p->max_x += 0.5;
	p->max_y = top > 0 ? top * 1.08 : 1;
}

/* Steps of 1, 2 or 5 times a power of ten, about six of them. */
static double tick_step(double top)
{
	double raw = top / 6, power = pow(10, floor(log10(raw)));
	double lead = raw / power;

	return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void draw_axes(const struct plot *p)
{
	double step = tick_step(p->max_y);

	for (int i = 0; i * step <= p->max_y; i++) {
		double y = y_of(p, i * step);

		fprintf(p->out,
			"<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#dddddd'/>\n"
			"<text x='%d' y='%.1f' text-anchor='end'>%.4g</text>\n",
			LEFT, y, LEFT + PLOT_WIDTH, y, LEFT - 8, y + 4, i * step);
	}
	for (unsigned int i = 0; i < p->s->nr_rows; i++) {
		uint64_t bytes = p->s->rows[i].call_bytes;
		bool first = true;

		for (unsigned int j = 0; j < i; j++)
			first = first && p->s->rows[j].call_bytes != bytes;
		if (first)
			fprintf(p->out,
				"<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#666666'/>\n"
				"<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
				x_of(p, bytes), TOP + PLOT_HEIGHT, x_of(p, bytes),
				TOP + PLOT_HEIGHT + 6, x_of(p, bytes), TOP + PLOT_HEIGHT + 22,
				pl_human_short(bytes).text);
	}
	fprintf(p->out,
		"<path d='M%d %d V%d H%d' fill='none' stroke='#666666'/>\n"
		"<text x='%d' y='%d' text-anchor='middle'>bytes of one call</text>\n"
		"<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>GB/s</text>\n",
		LEFT, TOP, TOP + PLOT_HEIGHT, LEFT + PLOT_WIDTH, LEFT + PLOT_WIDTH / 2, HEIGHT - 14,
		TOP + PLOT_HEIGHT / 2);
}

static void draw_legend(struct plot *p, const char *colour, const char *dash, const char *text)
{
	int x = LEFT + PLOT_WIDTH + 16;

	fprintf(p->out,
		"<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='%s' stroke-width='2'%s/>\n"
		"<text x='%d' y='%d'>%s</text>\n",
		x, p->legend_y, x + 26, p->legend_y, colour, dash, x + 34, p->legend_y + 4, text);
	p->legend_y += 22;
}

static void draw_limit(struct plot *p)
{
	static const char dash[] = " stroke-dasharray='8 5'";
	char text[48];
	double y;

	if (p->s->limit.rate <= 0)
		return;
	y = y_of(p, p->s->limit.rate / 1e9);
	fprintf(p->out,
		"<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#c00000' stroke-width='2'%s/>\n",
		LEFT, y, LEFT + PLOT_WIDTH, y, dash);
	snprintf(text, sizeof(text), "limit %.4g GB/s", p->s->limit.rate / 1e9);
	draw_legend(p, "#c00000", dash, text);
}

/* The row of that many threads with the smallest calls above a size, or NULL. */
static const struct pl_series_row *next_row(const struct plot *p, unsigned int nr_threads,
					    bool plain, uint64_t above)
{
	const struct pl_series_row *next = NULL;

	for (unsigned int i = 0; i < p->s->nr_rows; i++) {
		const struct pl_series_row *row = &p->s->rows[i];

		if (row->nr_threads == nr_threads && row->call_bytes > above &&
		    (!next || row->call_bytes < next->call_bytes) &&
		    (!plain || row->plain.seconds > 0))
			next = row;
	}
	return next;
}

static double y_of_row(const struct plot *p, const struct pl_series_row *row, bool plain)
{
	return y_of(p, pl_series_rate(plain ? &row->plain : &row->median) / 1e9);
}

/* One number of threads, by growing size whatever order it was measured in. */
static void draw_line(struct plot *p, unsigned int nr_threads, bool plain, const char *colour)
{
	const char *dash = plain ? " stroke-dasharray='3 4'" : "";
	const struct pl_series_row *row = next_row(p, nr_threads, plain, 0);
	char text[48];

	if (!row)
		return;
	fprintf(p->out, "<path fill='none' stroke='%s' stroke-width='2'%s d='", colour, dash);
	for (char c = 'M'; row; c = 'L', row = next_row(p, nr_threads, plain, row->call_bytes))
		fprintf(p->out, "%c%.1f %.1f", c, x_of(p, row->call_bytes),
			y_of_row(p, row, plain));
	fputs("'/>\n", p->out);
	for (row = next_row(p, nr_threads, plain, 0); row;
	     row = next_row(p, nr_threads, plain, row->call_bytes))
		fprintf(p->out, "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'/>\n",
			x_of(p, row->call_bytes), y_of_row(p, row, plain), colour);
	snprintf(text, sizeof(text), "%u thread%s%s", nr_threads, nr_threads == 1 ? "" : "s",
		 plain ? ", plain" : "");
	draw_legend(p, colour, dash, text);
}

static void draw_lines(struct plot *p)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < p->s->nr_rows; i++) {
		unsigned int nr_threads = p->s->rows[i].nr_threads;
		bool first = true;

		for (unsigned int j = 0; j < i; j++)
			first = first && p->s->rows[j].nr_threads != nr_threads;
		if (!first)
			continue;
		draw_line(p, nr_threads, false, colours[nr % 8]);
		draw_line(p, nr_threads, true, colours[nr % 8]);
		nr++;
	}
}

static void draw(struct plot *p)
{
	fprintf(p->out,
		"<?xml version='1.0' encoding='UTF-8'?>\n"
		"<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
		"viewBox='0 0 %d %d' font-family='sans-serif' font-size='13' fill='#222222'>\n"
		"<rect width='%d' height='%d' fill='white'/>\n"
		"<text x='%d' y='22' font-size='16'>",
		WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
	fprintf(p->out, "Peerlane %s, %s", p->s->op, p->s->cache);
	if (p->s->batch)
		fprintf(p->out, ", batch of %u", p->s->batch);
	fprintf(p->out, "</text>\n<text x='%d' y='40' fill='#666666'>", LEFT);
	put_text(p->out, p->s->gpu);
	fputs(p->s->fs[0] ? ", " : "", p->out);
	put_text(p->out, p->s->fs);
	if (p->s->plain)
		fprintf(p->out, "; plain: %s, without the GPU", pl_series_plain(p->s));
	fputs("</text>\n", p->out);
	draw_axes(p);
	draw_limit(p);
	draw_lines(p);
	fputs("</svg>\n", p->out);
}

int pl_plot_write(const struct pl_series *s, const char *path)
{
	struct plot p = { .s = s, .legend_y = TOP + 10 };
	int err;

	p.out = fopen(path, "we");
	if (!p.out)
		return -errno;
	find_range(&p);
	draw(&p);
	err = ferror(p.out) ? -EIO : 0;
	if (fclose(p.out))
		err = -errno;
	return err;
}
