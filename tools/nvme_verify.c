/* SPDX-License-Identifier: MIT */
/* peerlane nvme verify: whether blocks of a namespace hold a file or a pattern. */
#include "commands.h"
#include "human.h"
#include "message.h"
#include "nvme_content.h"
#include "nvme_sweep.h"
#include "stop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verify_args {
	struct pl_drive_want want;
	struct pl_content_want content;
};

static const struct pl_option options[] = {
	PL_DRIVE_OPTIONS(struct verify_args),
	PL_CONTENT_OPTIONS(struct verify_args),
	{ 0 },
};

struct check {
	struct pl_content content;
	char *want; /* as many bytes as a piece has */
	size_t room;
	uint64_t wrong_blocks, first_wrong; /* the latter in bytes */
};

static int see(void *arg, char *data, uint64_t at, size_t bytes)
{
	struct check *c = arg;
	uint32_t block = c->content.block_bytes;
	char *more;
	int err;

	if (bytes > c->room) {
		more = realloc(c->want, bytes);
		if (!more) {
			pl_message_error("out of memory");
			return -ENOMEM;
		}
		c->want = more;
		c->room = bytes;
	}
	err = pl_content_make(&c->content, c->want, at, bytes);
	if (err || !memcmp(data, c->want, bytes))
		return err;
	for (size_t i = 0; i < bytes; i += block) {
		size_t j = 0;

		if (!memcmp(data + i, c->want + i, block))
			continue;
		while (data[i + j] == c->want[i + j])
			j++;
		if (!c->wrong_blocks++)
			c->first_wrong = at + i + j;
	}
	return 0;
}

static void tell(const struct check *c, const struct pl_sweep *sweep)
{
	uint64_t block = c->content.block_bytes, at = c->first_wrong % block;

	if (c->wrong_blocks)
		pl_message_error("%llu of %llu blocks differ, the first at byte %llu of block %llu",
				 (unsigned long long)c->wrong_blocks,
				 (unsigned long long)sweep->nr_blocks, (unsigned long long)at,
				 (unsigned long long)sweep->block + c->first_wrong / block);
	else
		printf("%s from %llu on, %s: all right\n",
		       pl_human_nr(sweep->nr_blocks, "block").text,
		       (unsigned long long)sweep->block, pl_human_size(sweep->done_bytes).text);
}

static int verify(struct pl_drive *d, const struct pl_content_want *want)
{
	struct check c = { 0 };
	struct pl_sweep sweep = {
		.drive = d,
		.opcode = PL_NVME_READ,
		.what = "verify",
		.see = see,
		.arg = &c,
	};
	int err = pl_content_open(&c.content, want, d);

	if (err)
		return err;
	sweep.block = c.content.block;
	sweep.nr_blocks = c.content.nr_blocks;
	err = pl_sweep_run(&sweep);
	if (!err)
		tell(&c, &sweep);
	free(c.want);
	pl_content_close(&c.content);
	return err ? err : c.wrong_blocks ? -EBADMSG : 0;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct verify_args args = { .want.nsid = 1 };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);
	struct pl_drive drive;

	if (first < 0)
		return status;
	if (pl_content_check(&args.content))
		return PL_EXIT_USAGE;
	pl_stop_catch();
	if (pl_drive_open_ns(&drive, argv[first], &args.want))
		return 1;
	err = verify(&drive, &args.content);
	pl_drive_close(&drive);
	return pl_stop_exit(err);
}

const struct pl_command pl_command_nvme_verify = {
	.name = "nvme verify",
	.summary = "Compare blocks with a file or a pattern.",
	.args = "[options] ADDRESS",
	.detail = "Reads blocks of a namespace and compares them with the bytes of a file, or with "
		  "the pattern that 'nvme write' wrote. Nothing is written.",
	.exits = "0  all is as it should be\n"
		 "1  blocks differ, or an error\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
