// SPDX-License-Identifier: MIT
/* Loads all tensors of a safetensors file, or of a sharded model, into GPU memory: load_model PATH */
#include <peerlane/model.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	fprintf(stderr, "%s: %s\n", what, info.text);
	return 1;
}

static int load(struct peerlane_model *model)
{
	struct peerlane_model_info info = { .size = sizeof(info) };
	struct peerlane_model_stats stats = { .size = sizeof(stats) };
	struct peerlane_model_memory *memory = NULL;
	struct peerlane_model_part *parts;
	int status = 0;

	peerlane_model_get_info(model, &info);
	parts = calloc(info.nr_tensors + 1, sizeof(*parts));
	if (!parts)
		return 1;
	for (size_t i = 0; i < info.nr_tensors; i++)
		parts[i].tensor = i;
	/* GPU 0; -1 would be host memory. From here on parts[i].addr is where tensor i is. */
	if (peerlane_model_memory_alloc(model, parts, info.nr_tensors, 0, 0, &memory) ||
	    peerlane_model_load(model, parts, info.nr_tensors, NULL, &stats))
		status = fail("load");
	else
		printf("%zu tensors, %llu bytes in %llu reads, %.2f GB/s\n", info.nr_tensors,
		       (unsigned long long)stats.bytes, (unsigned long long)stats.nr_requests,
		       (double)stats.bytes / (double)stats.ns);
	peerlane_model_memory_free(memory);
	free(parts);
	return status;
}

int main(int argc, char **argv)
{
	struct peerlane_model *model = NULL;
	struct peerlane *ctx = NULL;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: load_model PATH\n");
		return 2;
	}
	if (peerlane_open(&ctx, NULL))
		return fail("peerlane_open");
	if (peerlane_model_open(ctx, argv[1], &model))
		status = fail(argv[1]);
	else
		status = load(model);
	peerlane_model_close(model);
	peerlane_close(ctx);
	return status;
}
