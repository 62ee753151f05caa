/* SPDX-License-Identifier: MIT */
/* peerlane stat: counters of the contexts that live now. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "progress.h"
#include "statpage.h"
#include "stop.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

struct stat_args {
	bool json, all;
	double watch;
	unsigned int count;
};

static const struct pl_option options[] = {
	{ "json", PL_OPTION_FLAG, offsetof(struct stat_args, json), NULL,
	  "Print all counters as JSON; with --watch one object a line.", 0, 0 },
	{ "all", PL_OPTION_FLAG, offsetof(struct stat_args, all), NULL,
	  "Also print how requests are spread over sizes and times.", 0, 0 },
	{ "watch", PL_OPTION_DECIMAL, offsetof(struct stat_args, watch), "SECONDS",
	  "Print again every SECONDS, with the rate since the last time, until interrupted.", 0.01,
	  86400 },
	{ "count", PL_OPTION_COUNT, offsetof(struct stat_args, count), "N",
	  "With --watch, stop after N times.", 1, 0 },
	{ 0 },
};

/* Contexts as they were at one time. */
struct sample {
	uint64_t at_ns;
	int nr;
	struct pl_statpage *pages;
};

static const struct pl_stats_page *earlier(const struct sample *old, const struct pl_statpage *now)
{
	for (int i = 0; i < old->nr; i++)
		if (old->pages[i].inode == now->inode && old->pages[i].pid == now->pid)
			return &old->pages[i].page;
	return NULL;
}

/* Bytes a second since the last sample; -1 if there is none, or a counter that went back. */
static double rate(const struct peerlane_op_stats *now, const struct peerlane_op_stats *old,
		   double seconds)
{
	if (!old || seconds <= 0 || now->bytes < old->bytes)
		return -1;
	return (double)(now->bytes - old->bytes) / seconds;
}

/* "in-place 90% copy 10%" */
static void path_split(const struct peerlane_op_stats *op, char *buf, size_t size)
{
	double sum = 0; /* cannot wrap around */
	size_t len = 0;

	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		sum += (double)op->path_bytes[i];
	snprintf(buf, size, "-");
	for (int i = 0; i < PEERLANE_PATH_NR && len < size; i++)
		if (op->path_bytes[i])
			len += (size_t)snprintf(buf + len, size - len, "%s%s %.0f%%",
						len ? " " : "",
						peerlane_path_name((enum peerlane_path)i),
						100.0 * (double)op->path_bytes[i] / sum);
}

static void print_histogram(const char *name, const uint64_t *hist, bool is_time)
{
	uint64_t most = 0;

	for (int i = 0; i < PEERLANE_HIST; i++)
		most = hist[i] > most ? hist[i] : most;
	if (!most)
		return;
	printf("    %s\n", name);
	for (int i = 0; i < PEERLANE_HIST; i++) {
		char from[48];
		int bar = (int)(40.0 * (double)hist[i] / (double)most + 0.5);

		if (!hist[i])
			continue;
		if (is_time)
			snprintf(from, sizeof(from), "%s", pl_human_time((double)(1ull << i)).text);
		else
			snprintf(from, sizeof(from), "%s", pl_human_size(i ? 1ull << i : 0).text);
		printf("      from %-12s %12llu %.*s\n", from, (unsigned long long)hist[i], bar,
		       "########################################");
	}
}

static void print_op(const struct pl_statpage *p, const char *name,
		     const struct peerlane_op_stats *op, double bytes_per_s)
{
	char split[128], speed[24] = "-";

	path_split(op, split, sizeof(split));
	if (bytes_per_s >= 0)
		snprintf(speed, sizeof(speed), "%.2f", bytes_per_s / 1e9);
	printf("%8d %-16.16s %-5.5s %-5s %10llu %6llu %10s %8s  %s\n", (int)p->pid, p->page.program,
	       p->page.backend, name, (unsigned long long)op->ok, (unsigned long long)op->failed,
	       pl_human_size(op->bytes).text, speed, split);
}

static void print_context(const struct pl_statpage *p, const struct pl_stats_page *old,
			  double seconds, bool all)
{
	const struct peerlane_stats *s = &p->page.stats;

	print_op(p, "read", &s->read, rate(&s->read, old ? &old->stats.read : NULL, seconds));
	print_op(p, "write", &s->write, rate(&s->write, old ? &old->stats.write : NULL, seconds));
	printf("%8s pool %s of %s (peak %s, %s, %llu refused), %llu in flight, %s, %s, %s\n", "",
	       pl_human_size(s->pool_bytes).text, pl_human_size(s->pool_limit).text,
	       pl_human_size(s->pool_peak).text, pl_human_nr(s->pool_waits, "wait").text,
	       (unsigned long long)s->pool_failures, (unsigned long long)s->in_flight,
	       pl_human_nr(s->files, "file").text, pl_human_nr(s->buffers, "buffer").text,
	       pl_human_nr(s->threads, "thread").text);
	if (!all)
		return;
	print_histogram("read sizes", s->read.size_hist, false);
	print_histogram("read times", s->read.lat_hist, true);
	print_histogram("write sizes", s->write.size_hist, false);
	print_histogram("write times", s->write.lat_hist, true);
}

static void print_text(const struct sample *now, const struct sample *old, bool all)
{
	double seconds = (double)(now->at_ns - old->at_ns) / 1e9;

	if (!now->nr) {
		puts("no process has a peerlane context open (or none that you may look at)");
		return;
	}
	printf("%8s %-16s %-5s %-5s %10s %6s %10s %8s  %s\n", "pid", "program", "gpu", "op", "done",
	       "failed", "bytes", "GB/s", "path");
	for (int i = 0; i < now->nr; i++)
		print_context(&now->pages[i], earlier(old, &now->pages[i]), seconds, all);
}

static struct json_object *json_histogram(const uint64_t *hist)
{
	struct json_object *list = json_object_new_array();

	for (int i = 0; i < PEERLANE_HIST; i++)
		json_object_array_add(list, json_object_new_uint64(hist[i]));
	return list;
}

static struct json_object *json_op(const struct peerlane_op_stats *op, double bytes_per_s, bool all)
{
	struct json_object *o = json_object_new_object();

	pl_jsonout_add_count(o, "ok", op->ok);
	pl_jsonout_add_count(o, "failed", op->failed);
	pl_jsonout_add_count(o, "bytes", op->bytes);
	pl_jsonout_add_count(o, "ns_sum", op->ns_sum);
	pl_jsonout_add_paths(o, op->path_bytes);
	if (bytes_per_s >= 0)
		pl_jsonout_add_number(o, "gb_per_s", bytes_per_s / 1e9);
	if (all) {
		json_object_object_add(o, "size_hist", json_histogram(op->size_hist));
		json_object_object_add(o, "lat_hist", json_histogram(op->lat_hist));
	}
	return o;
}

static struct json_object *json_context(const struct pl_statpage *p,
					const struct pl_stats_page *old, double seconds, bool all)
{
	const struct peerlane_stats *s = &p->page.stats;
	struct json_object *o = json_object_new_object();
	const struct {
		const char *key;
		uint64_t value;
	} rows[] = {
		{ "pool_limit", s->pool_limit },
		{ "pool_bytes", s->pool_bytes },
		{ "pool_peak", s->pool_peak },
		{ "pool_waits", s->pool_waits },
		{ "pool_failures", s->pool_failures },
		{ "nr_files", s->files },
		{ "buffers", s->buffers },
		{ "batches", s->batches },
		{ "in_flight", s->in_flight },
		{ "threads", s->threads },
		{ "in_place_failures", s->in_place_failures },
		{ "cancelled", s->cancelled },
		{ "ahead_bytes", s->ahead_bytes },
		{ "mapped_write_bytes", s->mapped_write_bytes },
	};

	json_object_object_add(o, "pid", json_object_new_int(p->pid));
	pl_jsonout_add_text(o, "program", p->page.program);
	pl_jsonout_add_text(o, "backend", p->page.backend);
	json_object_object_add(
		o, "read",
		json_op(&s->read, rate(&s->read, old ? &old->stats.read : NULL, seconds), all));
	json_object_object_add(
		o, "write",
		json_op(&s->write, rate(&s->write, old ? &old->stats.write : NULL, seconds), all));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		pl_jsonout_add_count(o, rows[i].key, rows[i].value);
	return o;
}

static void print_json(const struct sample *now, const struct sample *old, bool all, bool line)
{
	PL_AUTO_JSON struct json_object *root = json_object_new_object();
	struct json_object *list = json_object_new_array();
	double seconds = (double)(now->at_ns - old->at_ns) / 1e9;

	for (int i = 0; i < now->nr; i++)
		json_object_array_add(
			list,
			json_context(&now->pages[i], earlier(old, &now->pages[i]), seconds, all));
	json_object_object_add(root, "contexts", list);
	if (line)
		pl_jsonout_print_line(root, stdout);
	else
		pl_jsonout_print(root, stdout);
}

static int take(struct sample *s, pid_t pid)
{
	int nr = pl_statpage_find(pid, &s->pages);

	s->at_ns = pl_progress_now();
	s->nr = nr < 0 ? 0 : nr;
	if (nr < 0)
		s->pages = NULL;
	if (nr == -ESRCH)
		pl_message_error("process %d does not exist", (int)pid);
	else if (nr == -EACCES || nr == -EPERM)
		pl_message_error("process %d is another user's", (int)pid);
	else if (nr < 0)
		pl_message_error("%s", strerror(-nr));
	else if (!nr && pid)
		pl_message_error("process %d has no peerlane context open", (int)pid);
	return nr < 0 || (!nr && pid) ? -1 : 0;
}

static void pause_for(double seconds)
{
	struct timespec ts = { .tv_sec = (time_t)seconds };

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

static int watch(const struct stat_args *args, pid_t pid)
{
	struct sample old = { 0 }, now = { 0 };
	int status = 0;

	for (unsigned int i = 0; !pl_stop_requested(); i++) {
		status = take(&now, pid) ? 1 : 0;
		if (status)
			break;
		if (args->json)
			print_json(&now, &old, args->all, args->watch > 0);
		else
			print_text(&now, &old, args->all);
		fflush(stdout);
		free(old.pages);
		old = now;
		now.pages = NULL;
		if (args->watch <= 0 || (args->count && i + 1 >= args->count))
			break;
		pause_for(args->watch);
		if (!args->json && !pl_stop_requested())
			putchar('\n');
	}
	free(old.pages);
	free(now.pages);
	return status;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct stat_args args = { 0 };
	long pid = 0;
	int status, first;
	char *end;

	first = pl_option_parse(self, argc, argv, &args, &status);
	if (first < 0)
		return status;
	if (first < argc) {
		pid = strtol(argv[first], &end, 10);
		if (*end || pid <= 0 || pid > 0x7fffffff) {
			pl_message_error("'%s' is not a process number", argv[first]);
			return PL_EXIT_USAGE;
		}
	}
	if (args.count && args.watch <= 0) {
		pl_message_error("--count is for --watch");
		return PL_EXIT_USAGE;
	}
	pl_stop_catch();
	return watch(&args, (pid_t)pid);
}

const struct pl_command pl_command_stat = {
	.name = "stat",
	.summary = "Show what programs that use the library are doing now.",
	.args = "[options] [PID]",
	.detail = "Finds every context that is open in a process you may look at, or in process "
		  "PID, and prints its counters: requests, bytes, paths taken, pinned memory.",
	.exits = "0  printed, also when there was nothing to print\n"
		 "1  process PID has no context or cannot be looked at\n"
		 "2  the options are wrong",
	.options = options,
	.max_args = 1,
	.run = run,
};
