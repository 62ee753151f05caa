/* SPDX-License-Identifier: MIT */
/* One line on a terminal that says how far long work has come. */
#include "progress.h"

#include "human.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS 300000000ull /* work shorter than this shows nothing */
#define EVERY_NS 200000000ull

static bool line_shown;

uint64_t pl_progress_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool pl_progress_wanted(void)
{
	static int wanted = -1;

	if (wanted < 0)
		wanted = isatty(STDERR_FILENO);
	return wanted;
}

void pl_progress_start(struct pl_progress *p, const char *what, uint64_t total_bytes)
{
	p->what = what;
	p->total_bytes = total_bytes;
	p->start_ns = pl_progress_now();
	p->shown_ns = p->start_ns + FIRST_NS - EVERY_NS;
}

void pl_progress_show(struct pl_progress *p, uint64_t done_bytes)
{
	uint64_t now;
	double seconds, part;

	if (!pl_progress_wanted())
		return;
	now = pl_progress_now();
	if (now < p->shown_ns + EVERY_NS)
		return;
	p->shown_ns = now;
	seconds = (double)(now - p->start_ns) / 1e9;
	part = p->total_bytes ? (double)done_bytes / (double)p->total_bytes : 1;
	fprintf(stderr, "\r\033[K%s %3.0f%%  %s of %s  %.2f GB/s", p->what, part * 100,
		pl_human_size(done_bytes).text, pl_human_size(p->total_bytes).text,
		(double)done_bytes / seconds / 1e9);
	if (part > 0 && part < 1)
		fprintf(stderr, "  %.0f s left", seconds / part - seconds);
	line_shown = true;
}

void pl_progress_count(const char *what, unsigned int done, unsigned int total)
{
	static uint64_t shown_ns;
	uint64_t now;

	if (!pl_progress_wanted())
		return;
	now = pl_progress_now();
	if (now < shown_ns + EVERY_NS)
		return;
	shown_ns = now;
	fprintf(stderr, "\r\033[K%s %u of %u", what, done, total);
	line_shown = true;
}

void pl_progress_clear(void)
{
	if (!line_shown)
		return;
	fputs("\r\033[K", stderr);
	line_shown = false;
}
