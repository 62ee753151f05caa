/* SPDX-License-Identifier: MIT */
/* peerlane model ls: the tensors of a model. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "model_use.h"

#include <limits.h>
#include <string.h>

struct ls_args {
	bool json, metadata;
};

static const struct pl_option options[] = {
	{ "metadata", PL_OPTION_FLAG, offsetof(struct ls_args, metadata), NULL,
	  "Also list the metadata of each file.", 0, 0 },
	{ "json", PL_OPTION_FLAG, offsetof(struct ls_args, json), NULL, "Print it as JSON.", 0, 0 },
	{ 0 },
};

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static struct peerlane_model_file file_of(const struct pl_model_use *u, unsigned int file)
{
	struct peerlane_model_file f = { .size = sizeof(f) };

	peerlane_model_get_file(u->model, file, &f);
	return f;
}

static void print_tensors(const struct pl_model_use *u)
{
	int width = 4, shape_width = 5;

	for (size_t i = 0; i < u->info.nr_tensors; i++) {
		struct peerlane_tensor t = pl_model_use_tensor(u, i);
		int n = (int)strnlen(t.name, 60), s = (int)strlen(pl_model_use_shape(&t).text);

		width = n > width ? n : width;
		shape_width = s > shape_width ? s : shape_width;
	}
	printf("%-*s  %-11s  %-*s  %10s%s\n", width, "NAME", "TYPE", shape_width, "SHAPE", "SIZE",
	       u->info.nr_files > 1 ? "  FILE" : "");
	for (size_t i = 0; i < u->info.nr_tensors; i++) {
		struct peerlane_tensor t = pl_model_use_tensor(u, i);
		PL_AUTO_FREE char *name = pl_model_use_name(t.name);

		printf("%-*s  %-11s  %-*s  %10s", width, name ? name : "",
		       peerlane_dtype_name(t.dtype), shape_width, pl_model_use_shape(&t).text,
		       pl_human_size(t.bytes).text);
		if (u->info.nr_files > 1)
			printf("  %s", base(file_of(u, t.file).path));
		putchar('\n');
	}
}

static void print_metadata(const struct pl_model_use *u)
{
	const char *key, *value;

	for (unsigned int i = 0; i < u->info.nr_files; i++) {
		struct peerlane_model_file f = file_of(u, i);

		printf("\nMetadata of %s\n", base(f.path));
		for (size_t k = 0; k < f.nr_metadata; k++) {
			PL_AUTO_FREE char *name = NULL, *text = NULL;

			if (peerlane_model_metadata(u->model, i, k, &key, &value))
				continue;
			name = pl_model_use_name(key);
			text = pl_model_use_name(value);
			printf("  %s: %s\n", name ? name : "", text ? text : "");
		}
	}
}

static struct json_object *tensor_json(const struct pl_model_use *u, size_t i)
{
	struct peerlane_tensor t = pl_model_use_tensor(u, i);
	struct json_object *o = json_object_new_object(), *shape = json_object_new_array();

	for (unsigned int d = 0; d < t.nr_dims; d++)
		json_object_array_add(shape, json_object_new_uint64(t.shape[d]));
	pl_jsonout_add_text(o, "name", t.name);
	pl_jsonout_add_text(o, "dtype", peerlane_dtype_name(t.dtype));
	json_object_object_add(o, "shape", shape);
	pl_jsonout_add_count(o, "bytes", t.bytes);
	pl_jsonout_add_count(o, "file_index", t.file);
	pl_jsonout_add_count(o, "offset", t.offset);
	return o;
}

static struct json_object *file_json(const struct pl_model_use *u, unsigned int i)
{
	struct peerlane_model_file f = file_of(u, i);
	struct json_object *o = json_object_new_object(), *metadata = json_object_new_object();
	const char *key, *value;

	for (size_t k = 0; k < f.nr_metadata; k++)
		if (!peerlane_model_metadata(u->model, i, k, &key, &value))
			pl_jsonout_add_text(metadata, key, value);
	pl_jsonout_add_text(o, "file_name", f.path);
	pl_jsonout_add_count(o, "bytes", f.bytes);
	pl_jsonout_add_count(o, "data_offset", f.data_offset);
	json_object_object_add(o, "metadata", metadata);
	return o;
}

static struct json_object *model_json(const struct pl_model_use *u, const char *path)
{
	struct json_object *o = json_object_new_object();
	struct json_object *files = json_object_new_array(), *tensors = json_object_new_array();

	for (unsigned int i = 0; i < u->info.nr_files; i++)
		json_object_array_add(files, file_json(u, i));
	for (size_t i = 0; i < u->info.nr_tensors; i++)
		json_object_array_add(tensors, tensor_json(u, i));
	pl_jsonout_add_text(o, "file_name", path);
	pl_jsonout_add_count(o, "bytes", u->info.bytes);
	json_object_object_add(o, "files", files);
	json_object_object_add(o, "tensors", tensors);
	return o;
}

static void print_model(const struct pl_model_use *u, bool metadata)
{
	print_tensors(u);
	printf("%s, %s, in %s\n", pl_human_nr(u->info.nr_tensors, "tensor").text,
	       pl_human_size(u->info.bytes).text, pl_human_nr(u->info.nr_files, "file").text);
	if (metadata)
		print_metadata(u);
}

/* Models that cannot be read are named, and the others listed. Returns how many could not. */
static int list(const struct ls_args *args, char **paths, int nr, struct json_object *models)
{
	/* Nothing goes to a GPU. */
	const struct pl_model_gpu gpu = { .backend = "sim" };
	struct pl_model_use u;
	int failed = 0;

	for (int i = 0; i < nr; i++) {
		/* What is printed and what is said stay in order. */
		fflush(stdout);
		if (pl_model_use_open(&u, &gpu, paths[i])) {
			failed++;
			continue;
		}
		if (args->json) {
			json_object_array_add(models, model_json(&u, paths[i]));
		} else {
			if (nr > 1)
				printf("%s%s:\n", i ? "\n" : "", paths[i]);
			print_model(&u, args->metadata);
		}
		pl_model_use_close(&u);
	}
	return failed;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	PL_AUTO_JSON struct json_object *root = NULL;
	struct json_object *models;
	struct ls_args args = { 0 };
	int failed, status, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	root = json_object_new_object();
	models = json_object_new_array();
	json_object_object_add(root, "models", models);
	failed = list(&args, argv + first, argc - first, models);
	if (args.json && failed < argc - first)
		pl_jsonout_print(root, stdout);
	return failed > 0;
}

const struct pl_command pl_command_model_ls = {
	.name = "model ls",
	.summary = "List the tensors of models.",
	.args = "[options] MODEL...",
	.detail = "Checks the headers of all files and lists the tensors with their types, shapes "
		  "and sizes, in the order of the data.",
	.exits = "0  printed\n"
		 "1  a model cannot be read or is malformed; the message names the tensor\n"
		 "2  the options are wrong",
	.options = options,
	.min_args = 1,
	.max_args = UINT_MAX,
	.run = run,
};
