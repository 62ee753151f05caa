/* SPDX-License-Identifier: MIT */
/* peerlane model load: how fast a model comes into memory, beside the limit of the bus. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
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
	double open_s, alloc_s, limit;
	char limit_source[160];
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
			json_object_array_add(r->passes,
					      json_object_new_double((double)all[i].ns / 1e9));
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
	int err;

	if (args->host) {
		snprintf(r->limit_source, sizeof(r->limit_source), "none: nothing passes the bus");
		return;
	}
	err = peerlane_gpu_copy_limit(u->session.ctx, u->session.gpu, PEERLANE_READ, &r->limit);
	if (err) {
		r->limit = 0;
		snprintf(r->limit_source, sizeof(r->limit_source), "%.150s",
			 pl_session_reason(err).text);
	} else {
		snprintf(r->limit_source, sizeof(r->limit_source), "%s, measured now",
			 strcmp(peerlane_backend(u->session.ctx), "cuda") != 0
				 ? "memory copy of the simulator"
				 : "pinned copy host to GPU");
	}
}

static struct pl_route_text path_of(const struct peerlane_model_stats *s)
{
	struct pl_route route;

	memcpy(route.bytes, s->path_bytes, sizeof(route.bytes));
	return pl_route_name(&route);
}

static double rate(const struct peerlane_model_stats *s)
{
	return s->ns ? (double)s->bytes / (double)s->ns : 0;
}

static void print_text(const struct pl_model_use *u, const struct load_args *args,
		       const struct result *r)
{
	printf("into      %s\n", args->host ? "host" : pl_session_name(&u->session).text);
	printf("tensors   %zu in %u file%s, %s\n", u->nr, u->info.nr_files,
	       u->info.nr_files == 1 ? "" : "s", pl_human_size(u->info.bytes).text);
	printf("headers   %.4f s\n", r->open_s);
	printf("memory    %.4f s, %s\n", r->alloc_s,
	       args->per_tensor ? "one piece for each tensor" : "one piece for each file");
	printf("load      %.4f s, %.2f GB/s, %llu request%s, path %s%s\n",
	       (double)r->stats.ns / 1e9, rate(&r->stats), (unsigned long long)r->stats.nr_requests,
	       r->stats.nr_requests == 1 ? "" : "s", path_of(&r->stats).text,
	       args->checksum ? ", with checksums" : "");
	if (r->limit > 0)
		printf("limit     %.2f GB/s (%s); reached %.2f of it\n", r->limit / 1e9,
		       r->limit_source, rate(&r->stats) * 1e9 / r->limit);
	else
		printf("limit     %s\n", r->limit_source);
}

static void print_json(const struct pl_model_use *u, const struct load_args *args, struct result *r)
{
	PL_AUTO_JSON struct json_object *o = json_object_new_object();
	struct json_object *paths = json_object_new_object();

#define ADD(key, value) json_object_object_add(o, key, value)
	ADD("backend", json_object_new_string(peerlane_backend(u->session.ctx)));
	ADD("memory", json_object_new_string(args->host ? "host" : "gpu"));
	ADD("tensors", json_object_new_uint64(u->nr));
	ADD("files", json_object_new_uint64(u->info.nr_files));
	ADD("bytes", json_object_new_uint64(r->stats.bytes));
	ADD("requests", json_object_new_uint64(r->stats.nr_requests));
	ADD("open_seconds", json_object_new_double(r->open_s));
	ADD("alloc_seconds", json_object_new_double(r->alloc_s));
	ADD("seconds", json_object_new_double((double)r->stats.ns / 1e9));
	ADD("passes", json_object_get(r->passes));
	ADD("gbps", json_object_new_double(rate(&r->stats)));
	ADD("path", json_object_new_string(path_of(&r->stats).text));
	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		json_object_object_add(paths, peerlane_path_name((enum peerlane_path)i),
				       json_object_new_uint64(r->stats.path_bytes[i]));
	ADD("path_bytes", paths);
	ADD("limit_gbps", r->limit > 0 ? json_object_new_double(r->limit / 1e9) : NULL);
	ADD("limit_source", json_object_new_string(r->limit_source));
#undef ADD
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct load_args args = { .repeat = 1 };
	struct result r = { .limit = 0 };
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
		  "pinned memory reach, measured in the same run.",
	.exits = "0  loaded\n"
		 "1  not loaded; the message names the tensor\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
