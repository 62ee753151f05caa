/* SPDX-License-Identifier: MIT */
/* One open safetensors file: its header, and what it was like when that was read. */
#ifndef PL_MODEL_SHARD_H
#define PL_MODEL_SHARD_H

#include "header.h"

#include <time.h>

struct pl_shard {
	char *path;
	int fd;
	struct peerlane_file *file;
	uint64_t bytes;
	struct timespec changed;
	uint64_t data_offset;
	struct pl_header header;
};

/* Opens @name in the folder @dir_fd (or AT_FDCWD); @path is how it is called. */
int pl_shard_open(struct peerlane *ctx, int dir_fd, const char *name, const char *path,
		  struct pl_shard *out);
void pl_shard_close(struct pl_shard *s);

/* -ESTALE if the file is not as it was. */
int pl_shard_unchanged(const struct pl_shard *s);

/* All of the file @fd, for free(); it must be regular and no longer than @max. Then a NUL. */
int pl_text_read(int fd, const char *path, size_t max, char **out, size_t *bytes);

#endif
