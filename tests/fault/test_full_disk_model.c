// SPDX-License-Identifier: MIT
/*
 * A disk that is too full for a checkpoint, on file systems that can say so beforehand and on one that cannot: the old
 * checkpoint stays as it was, and nothing else is left. Needs root for the mounts.
 */
#include "fault.h"

#include <peerlane/model.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BYTES (64 * MIB)

static unsigned int count_files(const char *where)
{
	DIR *d = opendir(where);
	const struct dirent *e;
	unsigned int n = 0;

	CHECK(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' || strstr(e->d_name, ".tmp-");
	closedir(d);
	return n;
}

/* The tensor t of the checkpoint is the pattern. */
static void check_old(struct peerlane *ctx, const char *path, const uint64_t *bytes)
{
	struct peerlane_model *m;
	struct peerlane_model_part part = { .tensor = 0 };
	char *mem = malloc(*bytes);

	CHECK(mem);
	CHECK_EQ(peerlane_model_open(ctx, path, &m), 0);
	part.addr = mem;
	CHECK_EQ(peerlane_model_load(m, &part, 1, NULL, NULL), 0);
	CHECK_EQ(part.bytes, *bytes);
	CHECK_EQ(fault_differs(mem, *bytes, 0, 3), *bytes);
	peerlane_model_close(m);
	free(mem);
}

static void on(const char *type, const char *mkfs_options)
{
	const char *where = fault_mount(type, 48, mkfs_options, "");
	const uint64_t small = 3 * MIB + 5, large = BYTES, piece = MIB;
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_model_source t = { .name = "t",
					   .dtype = PEERLANE_U8,
					   .nr_dims = 1,
					   .shape = &small },
				     many[64];
	char *gpu = fault_gpu(ctx, BYTES), path[256], names[64][8];
	unsigned int files;

	snprintf(path, sizeof(path), "%s/checkpoint", where);
	fault_pattern(fault_see(gpu), BYTES, 0, 3);
	t.addr = gpu;
	CHECK_EQ(peerlane_model_save(ctx, path, &t, 1, NULL, NULL), 0);
	check_old(ctx, path, &small);
	files = count_files(where);

	CASE("%s %s, one tensor", type, mkfs_options);
	t.shape = &large;
	CHECK_EQ(peerlane_model_save(ctx, path, &t, 1, NULL, NULL), -ENOSPC);
	check_old(ctx, path, &small);
	CHECK_EQ(count_files(where), files);

	CASE("%s %s, many tensors", type, mkfs_options);
	for (unsigned int i = 0; i < 64; i++) {
		snprintf(names[i], sizeof(names[i]), "%u", i);
		many[i] = t;
		many[i].name = names[i];
		many[i].shape = &piece;
		many[i].addr = gpu + i * piece;
	}
	CHECK_EQ(peerlane_model_save(ctx, path, many, 64, NULL, NULL), -ENOSPC);
	check_old(ctx, path, &small);
	CHECK_EQ(count_files(where), files);

	/* And there is room for one that fits. */
	CASE("%s %s, after that", type, mkfs_options);
	t.shape = &small;
	CHECK_EQ(peerlane_model_save(ctx, path, &t, 1, NULL, NULL), 0);
	check_old(ctx, path, &small);
	CHECK_EQ(count_files(where), files);
	fault_check_idle(ctx);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

int main(void)
{
	fault_begin(60);
	on("tmpfs", "");
	on("ext4", "-q -F -m 0");
	/* Blocks by lists, as in ext3, cannot be reserved. */
	on("ext4", "-q -F -m 0 -O ^extent,^64bit,^has_journal");
	return 0;
}
