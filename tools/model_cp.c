/* SPDX-License-Identifier: MIT */
/* peerlane model cp: a model through GPU memory into one new safetensors file. */
#include "cleanup.h"
#include "commands.h"
#include "folder.h"
#include "human.h"
#include "message.h"
#include "model_use.h"
#include "progress.h"
#include "route.h"
#include "stop.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

struct cp_args {
	struct pl_model_gpu gpu;
	uint64_t align;
	bool force, checksum, no_sync;
};

#define AT(member) offsetof(struct cp_args, member)

static const struct pl_option options[] = {
	{ "align", PL_OPTION_SIZE, AT(align), "SIZE",
	  "Begin the data at a multiple of SIZE, a power of two (default 4K).", 8, 1 << 20 },
	{ "checksum", PL_OPTION_FLAG, AT(checksum), NULL,
	  "Put a checksum of each tensor into the metadata.", 0, 0 },
	{ "force", PL_OPTION_FLAG, AT(force), NULL, "Replace FILE if it exists.", 0, 0 },
	{ "no-sync", PL_OPTION_FLAG, AT(no_sync), NULL,
	  "Do not wait until FILE is on stable storage.", 0, 0 },
	{ "gpu", PL_OPTION_COUNT, AT(gpu.gpu), "N", "Go through GPU number N (default 0).", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, AT(gpu.backend), "auto|cuda|sim",
	  "GPU back end: CUDA, the simulator, or CUDA if it works (default).", 0, 0 },
	{ 0 },
};

/* The metadata of all files, as pairs; a key that several have is that of the first. */
static const char **metadata_of(const struct pl_model_use *u, size_t *nr)
{
	struct peerlane_model_file f = { .size = sizeof(f) };
	const char **pairs, *key, *value;
	size_t room = 0;

	for (unsigned int i = 0; i < u->info.nr_files; i++) {
		peerlane_model_get_file(u->model, i, &f);
		room += f.nr_metadata;
	}
	*nr = 0;
	pairs = calloc(2 * room + 1, sizeof(*pairs));
	for (unsigned int i = 0; i < u->info.nr_files && pairs; i++) {
		peerlane_model_get_file(u->model, i, &f);
		for (size_t k = 0; k < f.nr_metadata; k++) {
			bool known = false;

			if (peerlane_model_metadata(u->model, i, k, &key, &value))
				continue;
			for (size_t n = 0; n < *nr && i; n++)
				known |= !strcmp(pairs[2 * n], key);
			if (known)
				continue;
			pairs[2 * *nr] = key;
			pairs[2 * *nr + 1] = value;
			++*nr;
		}
	}
	return pairs;
}

/* Some reasons begin with the path or its folder: it is not said twice. */
static void say_reason(const char *path, const char *reason)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) + 1 : strlen(path);

	if (strlen(reason) >= len && !memcmp(reason, path, len))
		pl_message_error("%s", reason);
	else
		pl_message_error("%s: %s", path, reason);
}

static int save(struct pl_model_use *u, const struct cp_args *args, const char *path,
		struct peerlane_model_stats *stats)
{
	struct peerlane_model_source *sources = calloc(u->nr + 1, sizeof(*sources));
	struct pl_progress progress;
	struct peerlane_model_save_options opt = {
		.size = sizeof(opt),
		.flags = (args->checksum ? PEERLANE_MODEL_CHECKSUM : 0) |
			 (args->no_sync ? PEERLANE_MODEL_NO_SYNC : 0),
		.align = args->align,
		.progress = pl_model_use_progress,
		.progress_arg = &progress,
	};
	const char **metadata = metadata_of(u, &opt.nr_metadata);
	int err = sources && metadata ? 0 : -ENOMEM;

	opt.metadata = metadata;
	for (size_t i = 0; i < u->nr && !err; i++) {
		struct peerlane_tensor t = pl_model_use_tensor(u, u->parts[i].tensor);

		sources[i] = (struct peerlane_model_source){ .name = t.name,
							     .dtype = t.dtype,
							     .nr_dims = t.nr_dims,
							     .shape = t.shape,
							     .addr = u->parts[i].addr };
	}
	pl_progress_start(&progress, "save", 0);
	stats->size = sizeof(*stats);
	if (!err)
		err = peerlane_model_save(u->session.ctx, path, sources, u->nr, &opt, stats);
	pl_progress_clear();
	free(sources);
	free(metadata);
	if (err && err != -ECANCELED)
		say_reason(path, pl_session_reason(err).text);
	return err;
}

static void say(const char *what, const struct peerlane_model_stats *s)
{
	struct pl_route route;

	memcpy(route.bytes, s->path_bytes, sizeof(route.bytes));
	printf("%s %.3f s, %.2f GB/s, path %s\n", what, (double)s->ns / 1e9,
	       s->ns ? (double)s->bytes / (double)s->ns : 0, pl_route_name(&route).text);
}

/* One file keeps its name. The shards of a model become one file, which gets the usual one. */
static struct pl_folder_base name_in_folder(const char *model)
{
	struct pl_folder_base base = pl_folder_base(model);
	const char *dot = strrchr(base.text, '.');
	struct stat st;

	if (stat(model, &st) || !S_ISREG(st.st_mode) || (dot && !strcmp(dot, ".json")))
		snprintf(base.text, sizeof(base.text), "model.safetensors");
	return base;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct cp_args args = { .align = 4096 };
	struct peerlane_model_stats loaded, saved;
	struct pl_model_use u;
	int err, status, first = pl_option_parse(self, argc, argv, &args, &status);
	char into[PATH_MAX];
	const char *path;

	if (first < 0)
		return status;
	path = argv[first + 1];
	if (args.align & (args.align - 1)) {
		pl_message_error("--align: %llu is not a power of two",
				 (unsigned long long)args.align);
		return PL_EXIT_USAGE;
	}
	if (pl_folder_enter(&path, name_in_folder(argv[first]).text, into, sizeof(into)))
		return 1;
	if (!args.force && !access(path, F_OK)) {
		pl_message_error("%s: exists; --force replaces it", path);
		return 1;
	}
	pl_stop_catch();
	if (pl_model_use_open(&u, &args.gpu, argv[first]))
		return 1;
	err = pl_model_use_want(&u, -1);
	if (!err)
		err = pl_model_use_alloc(&u, false, 0);
	if (!err)
		err = pl_model_use_load(&u, 0, &loaded);
	if (!err)
		err = save(&u, &args, path, &saved);
	if (!err) {
		printf("%s -> %s: %s, %s\n", argv[first], path, pl_human_nr(u.nr, "tensor").text,
		       pl_human_size(u.info.bytes).text);
		say("load", &loaded);
		say("save", &saved);
	}
	pl_model_use_close(&u);
	return err ? pl_stop_exit(err) : 0;
}

const struct pl_command pl_command_model_cp = {
	.name = "model cp",
	.summary = "Copy a model through GPU memory into one file.",
	.args = "[options] MODEL FILE",
	.detail = "Loads all tensors into GPU memory and saves them from there, in the order of "
		  "safetensors' own writer. The shards of a model become one file. If FILE is a "
		  "folder, the "
		  "copy goes into it. FILE gets its "
		  "name when all of it is written; a copy that fails or is interrupted leaves "
		  "nothing behind.",
	.exits = "0  copied\n"
		 "1  not copied; FILE is as it was\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.run = run,
};
