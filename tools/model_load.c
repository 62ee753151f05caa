/* SPDX-License-Identifier: MIT */
/* peerlane model load: how fast a model comes into memory, beside the limit of the bus. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
#include "jsonout.h"
#include "limit.h"
#include "message.h"
#include "model_use.h"
#include "progress.h"
#include "route.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct load_args {
	struct pl_model_gpu gpu;
	bool host, per_tensor, checksum, cold, cached, json;
	unsigned int repeat;
};

#define AT(member) offsetof(struct load_args, member)

static const struct pl_option options[] = {
	{ "host", PL_OPTION_FLAG, AT(host), NULL, "Load into host memory instead of a GPU's.", 0,
	  0 },
	{ "per-tensor", PL_OPTION_FLAG, AT(per_tensor), NULL,
	  "Allocate memory for each tensor instead of for each file.", 0, 0 },
	{ "checksum", PL_OPTION_FLAG, AT(checksum), NULL,
	  "Read the memory back, and compare with the checksums in the files, if there are some; "
	  "that is part of the time.",
	  0, 0 },
	{ "cold", PL_OPTION_FLAG, AT(cold), NULL,
	  "Drop the files from the page cache before each pass.", 0, 0 },
	{ "cached", PL_OPTION_FLAG, AT(cached), NULL,
	  "Read the files into the page cache before the first pass.", 0, 0 },
	{ "repeat", PL_OPTION_COUNT, AT(repeat), "N",
	  "Load so many times; the middle one is shown (default 1).", 1, 1000 },
	{ "gpu", PL_OPTION_COUNT, AT(gpu.gpu), "N", "Use GPU number N (default 0).", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, AT(gpu.backend), "auto|cuda|sim",
	  "GPU back end: CUDA, the simulator, or CUDA if it works (default).", 0, 0 },
	{ "json", PL_OPTION_FLAG, AT(json), NULL, "Print the results as JSON.", 0, 0 },
	{ 0 },
};

struct result {
	struct peerlane_model_stats stats;
	double open_s, alloc_s;
	struct pl_limit limit;
	struct json_object *passes;
};

static double seconds_since(uint64_t start)
{
	return (double)(pl_progress_now() - start) / 1e9;
}

/* Each file: into the page cache, or out of it. */
static int prepare(const struct pl_model_use *u, bool cold)
{
	static char mem[1u << 20];

	for (unsigned int i = 0; i < u->info.nr_files; i++) {
		struct peerlane_model_file f = { .size = sizeof(f) };
		PL_AUTO_FD int fd = -1;
		ssize_t n;

		peerlane_model_get_file(u->model, i, &f);
		fd = open(f.path, O_RDONLY | O_CLOEXEC);
		if (fd < 0) {
			pl_message_error("%s: %s", f.path, strerror(errno));
			return -1;
		}
		if (cold) {
			fdatasync(fd);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			continue;
		}
		do {
			n = read(fd, mem, sizeof(mem));
		} while (n > 0 && !pl_stop_requested());
	}
	return 0;
}

/* GB/s. */
static double rate(const struct peerlane_model_stats *s)
{
	return s->ns ? (double)s->bytes / (double)s->ns : 0;
}

/* By time, the fastest first. */
static int faster(const void *a, const void *b)
{
	const struct peerlane_model_stats *x = a, *y = b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static int measure(struct pl_model_use *u, const struct load_args *args, struct result *r)
{
	struct peerlane_model_stats *all = calloc(args->repeat, sizeof(*all));
	int err = all ? 0 : -ENOMEM;

	if (args->cached && !err)
		err = prepare(u, false);
	for (unsigned int i = 0; i < args->repeat && !err; i++) {
		if (args->cold)
			err = prepare(u, true);
		if (!err)
			err = pl_model_use_load(u, args->checksum ? PEERLANE_MODEL_CHECKSUM : 0,
						&all[i]);
		if (!err)
			json_object_array_add(r->passes, pl_jsonout_number(rate(&all[i])));
	}
	if (!err) {
		qsort(all, args->repeat, sizeof(*all), faster);
		r->stats = all[args->repeat / 2];
	}
	free(all);
	return err;
}

static void find_limit(const struct pl_model_use *u, const struct load_args *args, struct result *r)
{
	if (args->host)
		pl_limit_none(&r->limit, "nothing passes the bus");
	else
		pl_limit_measure(&r->limit, &u->session, PEERLANE_READ);
}

static struct pl_route_text path_of(const struct peerlane_model_stats *s)
{
	struct pl_route route;

	memcpy(route.bytes, s->path_bytes, sizeof(route.bytes));
	return pl_route_name(&route);
}

static void print_text(const struct pl_model_use *u, const struct load_args *args,
		       const struct result *r)
{
	printf("into      %s\n", args->host ? "host" : pl_session_name(&u->session).text);
	printf("tensors   %zu in %s, %s\n", u->nr, pl_human_nr(u->info.nr_files, "file").text,
	       pl_human_size(u->info.bytes).text);
	printf("headers   %.4f s\n", r->open_s);
	printf("memory    %.4f s, %s\n", r->alloc_s,
	       args->per_tensor ? "one piece for each tensor" : "one piece for each file");
	printf("load      %.4f s, %.2f GB/s, %s, path %s%s\n", (double)r->stats.ns / 1e9,
	       rate(&r->stats), pl_human_nr(r->stats.nr_requests, "request").text,
	       path_of(&r->stats).text, args->checksum ? ", with checksums" : "");
	if (r->limit.rate > 0)
		printf("limit     %.2f GB/s, %s; reached %.2f of it\n", r->limit.rate / 1e9,
		       r->limit.source, rate(&r->stats) * 1e9 / r->limit.rate);
	else
		printf("limit     %s\n", r->limit.source);
}

static void print_json(const struct pl_model_use *u, const struct load_args *args, struct result *r)
{
	PL_AUTO_JSON struct json_object *o = json_object_new_object();

	pl_jsonout_add_text(o, "backend", peerlane_backend(u->session.ctx));
	pl_jsonout_add_text(o, "memory", args->host ? "host" : "gpu");
	pl_jsonout_add_count(o, "nr_tensors", u->nr);
	pl_jsonout_add_count(o, "nr_files", u->info.nr_files);
	pl_jsonout_add_count(o, "bytes", r->stats.bytes);
	pl_jsonout_add_count(o, "requests", r->stats.nr_requests);
	pl_jsonout_add_number(o, "open_seconds", r->open_s);
	pl_jsonout_add_number(o, "alloc_seconds", r->alloc_s);
	pl_jsonout_add_number(o, "seconds", (double)r->stats.ns / 1e9);
	pl_jsonout_add_number(o, "gb_per_s", rate(&r->stats));
	json_object_object_add(o, "passes_gb_per_s", json_object_get(r->passes));
	pl_jsonout_add_text(o, "path", path_of(&r->stats).text);
	pl_jsonout_add_paths(o, r->stats.path_bytes);
	pl_limit_add_json(&r->limit, o);
	if (r->limit.rate > 0)
		pl_jsonout_add_number(o, "of_limit", rate(&r->stats) * 1e9 / r->limit.rate);
	pl_jsonout_print(o, stdout);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct load_args args = { .repeat = 1 };
	struct result r = { 0 };
	struct pl_model_use u;
	int err, status, first = pl_option_parse(self, argc, argv, &args, &status);
	uint64_t start;

	if (first < 0)
		return status;
	if (args.cold && args.cached) {
		pl_message_error("--cold and --cached exclude each other");
		return PL_EXIT_USAGE;
	}
	pl_stop_catch();
	start = pl_progress_now();
	if (pl_model_use_open(&u, &args.gpu, argv[first]))
		return 1;
	r.open_s = seconds_since(start);
	r.passes = json_object_new_array();
	err = pl_model_use_want(&u, -1);
	start = pl_progress_now();
	if (!err)
		err = pl_model_use_alloc(&u, args.host,
					 args.per_tensor ? PEERLANE_MODEL_PER_TENSOR : 0);
	r.alloc_s = seconds_since(start);
	if (!err)
		err = measure(&u, &args, &r);
	if (!err && !pl_stop_requested()) {
		find_limit(&u, &args, &r);
		if (args.json)
			print_json(&u, &args, &r);
		else
			print_text(&u, &args, &r);
	}
	json_object_put(r.passes);
	pl_model_use_close(&u);
	return pl_stop_exit(err);
}

const struct pl_command pl_command_model_load = {
	.name = "model load",
	.summary = "Load a model into GPU memory and say how fast.",
	.args = "[options] MODEL",
	.detail = "Loads all tensors, and prints the time it took to read the headers, to allocate "
		  "memory and to load, the path the data took, and beside it what copies from "
		  "pinned memory reach, measured in the same run. A simulated GPU has no such "
		  "limit.",
	.exits = "0  loaded\n"
		 "1  not loaded; the message names the tensor\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
