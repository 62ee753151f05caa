/* SPDX-License-Identifier: MIT */
/* peerlane model ls: the tensors of a model. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
#include "message.h"
#include "model_use.h"

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
	json_object_object_add(o, "name", json_object_new_string(t.name));
	json_object_object_add(o, "dtype", json_object_new_string(peerlane_dtype_name(t.dtype)));
	json_object_object_add(o, "shape", shape);
	json_object_object_add(o, "bytes", json_object_new_uint64(t.bytes));
	json_object_object_add(o, "file", json_object_new_uint64(t.file));
	json_object_object_add(o, "offset", json_object_new_uint64(t.offset));
	return o;
}

static struct json_object *file_json(const struct pl_model_use *u, unsigned int i)
{
	struct peerlane_model_file f = file_of(u, i);
	struct json_object *o = json_object_new_object(), *metadata = json_object_new_object();
	const char *key, *value;

	for (size_t k = 0; k < f.nr_metadata; k++)
		if (!peerlane_model_metadata(u->model, i, k, &key, &value))
			json_object_object_add(metadata, key, json_object_new_string(value));
	json_object_object_add(o, "path", json_object_new_string(f.path));
	json_object_object_add(o, "bytes", json_object_new_uint64(f.bytes));
	json_object_object_add(o, "data_offset", json_object_new_uint64(f.data_offset));
	json_object_object_add(o, "metadata", metadata);
	return o;
}

static void print_json(const struct pl_model_use *u)
{
	PL_AUTO_JSON struct json_object *root = json_object_new_object();
	struct json_object *files = json_object_new_array(), *tensors = json_object_new_array();

	for (unsigned int i = 0; i < u->info.nr_files; i++)
		json_object_array_add(files, file_json(u, i));
	for (size_t i = 0; i < u->info.nr_tensors; i++)
		json_object_array_add(tensors, tensor_json(u, i));
	json_object_object_add(root, "bytes", json_object_new_uint64(u->info.bytes));
	json_object_object_add(root, "files", files);
	json_object_object_add(root, "tensors", tensors);
	puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
							  JSON_C_TO_STRING_NOSLASHESCAPE));
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	/* Nothing goes to a GPU. */
	const struct pl_model_gpu gpu = { .backend = "sim" };
	struct ls_args args = { 0 };
	struct pl_model_use u;
	int status, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	if (pl_model_use_open(&u, &gpu, argv[first]))
		return 1;
	if (args.json) {
		print_json(&u);
	} else {
		print_tensors(&u);
		printf("%zu tensors, %s, in %u file%s\n", u.info.nr_tensors,
		       pl_human_size(u.info.bytes).text, u.info.nr_files,
		       u.info.nr_files == 1 ? "" : "s");
		if (args.metadata)
			print_metadata(&u);
	}
	pl_model_use_close(&u);
	return 0;
}

const struct pl_command pl_command_model_ls = {
	.name = "model ls",
	.summary = "List the tensors of a model.",
	.args = "[options] MODEL",
	.detail = "Checks the headers of all files and lists the tensors with their types, shapes "
		  "and sizes, in the order of the data.",
	.exits = "0  printed\n"
		 "1  the model cannot be read or is malformed; the message names the tensor\n"
		 "2  the options are wrong",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
