// SPDX-License-Identifier: MIT
/* A byte of a model that cannot be read: the error names the tensor it belongs to, up to its first and last byte. */
#include "fault.h"
#include "shim.h"

#include <peerlane/model.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES 200000ul /* of each tensor */

/* Loads tensor @i while byte @bad of the file cannot be read. */
static void one(struct peerlane *ctx, const char *path, size_t i, int64_t bad, const char *name)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct peerlane_model_part part = { .tensor = i };
	struct peerlane_model *m;
	char *mem = malloc(BYTES), words[64];

	CASE("byte %lld, of tensor %s", (long long)bad, name);
	CHECK(mem);
	CHECK_EQ(peerlane_model_open(ctx, path, &m), 0);
	part.addr = mem;
	shim.read_error_at = bad;
	CHECK_EQ(peerlane_model_load(m, &part, 1, NULL, NULL), -EIO);
	CHECK_EQ(peerlane_error(&info), 0);
	shim.read_error_at = -1;
	snprintf(words, sizeof(words), "tensor \"%s\"", name);
	CHECK(strstr(info.text, words));
	CHECK_EQ(peerlane_model_load(m, &part, 1, NULL, NULL), 0);
	peerlane_model_close(m);
	free(mem);
}

int main(void)
{
	const uint64_t bytes = BYTES;
	struct peerlane_model_source sources[2] = {
		{ .name = "first", .dtype = PEERLANE_U8, .nr_dims = 1, .shape = &bytes },
		{ .name = "second", .dtype = PEERLANE_U8, .nr_dims = 1, .shape = &bytes },
	};
	const char *path;
	struct peerlane *ctx;
	struct stat st;
	char *mem;
	off_t data;

	fault_begin(30);
	path = fault_path("model");
	ctx = fault_open(PEERLANE_NO_IO_URING | PEERLANE_NO_DIRECT, 0);
	mem = malloc(BYTES);
	CHECK(mem);
	fault_pattern(mem, BYTES, 0, 1);
	sources[0].addr = sources[1].addr = mem;
	CHECK_EQ(peerlane_model_save(ctx, path, sources, 2, NULL, NULL), 0);
	CHECK(!stat(path, &st));
	/* The tensors end where the file does. */
	data = st.st_size - 2 * (off_t)BYTES;
	shim_file(path);
	one(ctx, path, 0, data, "first");
	one(ctx, path, 0, data + (off_t)BYTES - 1, "first");
	one(ctx, path, 1, data + (off_t)BYTES, "second");
	one(ctx, path, 1, st.st_size - 1, "second");
	shim_clear();
	free(mem);
	peerlane_close(ctx);
	return 0;
}
