/* SPDX-License-Identifier: MIT */
/* What is to be on a drive: the bytes of a file, or a pattern. */
#include "nvme_content.h"

#include "error.h"
#include "message.h"
#include "pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int pl_content_check(const struct pl_content_want *want)
{
	char *end;

	if (!want->input == !want->pattern) {
		pl_message_error("give either --input or --pattern");
		return -EINVAL;
	}
	if (!want->pattern)
		return 0;
	errno = 0;
	if (strtoul(want->pattern, &end, 10) > UINT32_MAX || errno || *end ||
	    want->pattern[0] < '0' || want->pattern[0] > '9') {
		pl_message_error("--pattern: '%s' is not a number of 32 bits", want->pattern);
		return -EINVAL;
	}
	return 0;
}

static int open_file(struct pl_content *c)
{
	struct stat sb = { 0 };
	int err = 0;

	c->file = fopen(c->path, "re");
	if (!c->file || fstat(fileno(c->file), &sb))
		err = -errno;
	else if (!S_ISREG(sb.st_mode))
		err = -ESPIPE;
	else if (!sb.st_size)
		err = -ENODATA;
	if (err) {
		pl_message_error("%s: %s", c->path,
				 err == -ESPIPE	   ? "not a regular file"
				 : err == -ENODATA ? "is empty"
						   : pl_error_open(c->path, -err));
		return err;
	}
	c->file_bytes = (uint64_t)sb.st_size;
	return 0;
}

int pl_content_open(struct pl_content *c, const struct pl_content_want *want,
		    const struct pl_drive *d)
{
	uint64_t all = d->ns_info.nr_blocks;
	int err = 0;

	*c = (struct pl_content){
		.path = want->input,
		.seed = want->pattern ? (unsigned int)strtoul(want->pattern, NULL, 10) : 0,
		.block = want->block,
		.nr_blocks = want->count,
		.block_bytes = d->ns_info.block_bytes,
	};
	if (c->path)
		err = open_file(c);
	if (!err && !c->nr_blocks && c->path)
		c->nr_blocks = (c->file_bytes - 1) / c->block_bytes + 1;
	else if (!err && !c->nr_blocks)
		c->nr_blocks = c->block < all ? all - c->block : 1;
	if (!err && c->path && (c->nr_blocks - 1) * c->block_bytes >= c->file_bytes) {
		pl_message_error("%s: its %llu bytes do not reach into the last of %llu blocks",
				 c->path, (unsigned long long)c->file_bytes,
				 (unsigned long long)c->nr_blocks);
		err = -ENODATA;
	}
	if (!err && !pl_drive_has(d, c->block, c->nr_blocks))
		err = -ERANGE;
	if (err)
		pl_content_close(c);
	return err;
}

void pl_content_close(struct pl_content *c)
{
	if (c->file)
		fclose(c->file);
	c->file = NULL;
}

int pl_content_make(struct pl_content *c, char *data, uint64_t at, size_t bytes)
{
	uint64_t word = (c->block * c->block_bytes + at) / 8;
	size_t want = bytes;

	if (!c->path) {
		for (size_t i = 0; i < bytes / 8; i++)
			((uint64_t *)(void *)data)[i] =
				pl_pattern_hash(((uint64_t)c->seed << 40) ^ (word + i));
		return 0;
	}
	if (c->file_bytes - at < want)
		want = (size_t)(c->file_bytes - at);
	if (fread(data, 1, want, c->file) != want) {
		pl_message_error("%s: %s", c->path,
				 ferror(c->file) ? strerror(errno)
						 : "it became shorter while it was read");
		return -EIO;
	}
	memset(data + want, 0, bytes - want);
	return 0;
}
