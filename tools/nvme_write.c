/* SPDX-License-Identifier: MIT */
/* peerlane nvme write: a file or a pattern onto blocks of a namespace. */
#include "commands.h"
#include "human.h"
#include "message.h"
#include "nvme_content.h"
#include "nvme_sweep.h"
#include "stop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct write_args {
	struct pl_drive_want want;
	struct pl_content_want content;
};

static const struct pl_option options[] = {
	PL_DRIVE_OPTION_SERIAL(struct write_args),
	PL_DRIVE_OPTIONS(struct write_args),
	PL_CONTENT_OPTIONS(struct write_args),
	{ 0 },
};

static int see(void *arg, char *data, uint64_t at, size_t bytes)
{
	return pl_content_make(arg, data, at, bytes);
}

/* Makes what was written durable. */
static int flush(const struct pl_drive *d)
{
	struct peerlane_nvme_io io = { .opcode = PL_NVME_FLUSH, .ns = d->ns };
	struct peerlane_nvme_completion cpl = { 0 };
	struct peerlane_nvme_queue *queue;
	int err = peerlane_nvme_queue_create(d->nvme, NULL, &queue);

	if (!err) {
		err = peerlane_nvme_run(queue, &io, &cpl);
		peerlane_nvme_queue_destroy(queue);
	}
	if (err)
		pl_message_error("%s: flush: %s", d->address, strerror(-err));
	return err;
}

static int write_blocks(struct pl_drive *d, const struct pl_content_want *want)
{
	struct pl_content content;
	struct pl_sweep sweep = {
		.drive = d,
		.opcode = PL_NVME_WRITE,
		.what = "write",
		.see = see,
		.arg = &content,
	};
	int err = pl_content_open(&content, want, d);

	if (err)
		return err;
	sweep.block = content.block;
	sweep.nr_blocks = content.nr_blocks;
	err = pl_sweep_run(&sweep);
	if (!err)
		err = flush(d);
	if (err)
		pl_message_error("blocks %llu to %llu may be changed in part",
				 (unsigned long long)content.block,
				 (unsigned long long)(content.block + content.nr_blocks - 1));
	else
		printf("wrote %s from %llu on, %s, and flushed\n",
		       pl_human_nr(content.nr_blocks, "block").text,
		       (unsigned long long)content.block, pl_human_size(sweep.done_bytes).text);
	pl_content_close(&content);
	return err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct write_args args = { .want = { .nsid = 1, .write = true } };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);
	struct pl_drive drive;

	if (first < 0)
		return status;
	if (pl_content_check(&args.content))
		return PL_EXIT_USAGE;
	pl_stop_catch();
	if (pl_drive_open_ns(&drive, argv[first], &args.want))
		return 1;
	err = write_blocks(&drive, &args.content);
	pl_drive_close(&drive);
	return pl_stop_exit(err);
}

const struct pl_command pl_command_nvme_write = {
	.name = "nvme write",
	.summary = "Write a file or a pattern onto blocks.",
	.args = "--yes-destroy-data SERIAL [options] ADDRESS",
	.detail = "Overwrites blocks of a namespace with the bytes of a file, or with a pattern "
		  "that 'nvme verify' knows, and flushes them. The serial number of the controller "
		  "must be given: without it nothing is written, and the number is told.",
	.exits = "0  written\n"
		 "1  an error, or the serial number is missing or another\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM); a part was written",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
