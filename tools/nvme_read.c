/* SPDX-License-Identifier: MIT */
/* peerlane nvme read: blocks of a namespace into a file, or shown. */
#include "commands.h"
#include "hexdump.h"
#include "message.h"
#include "nvme_sweep.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct read_args {
	struct pl_drive_want want;
	uint64_t block, count;
	const char *output;
};

#define AT(member) offsetof(struct read_args, member)

static const struct pl_option options[] = {
	PL_DRIVE_OPTIONS(struct read_args),
	{ "block", PL_OPTION_SIZE, AT(block), "N", "First block (default 0).", 0, 0 },
	{ "count", PL_OPTION_SIZE, AT(count), "N", "How many blocks (default 1).", 1, 0 },
	{ "output", PL_OPTION_TEXT, AT(output), "FILE",
	  "Write the data there, - for standard output; else they are shown in hexadecimal.", 0,
	  0 },
	{ 0 },
};

struct sink {
	const char *path;
	FILE *file; /* NULL: show them */
	struct pl_hexdump dump;
	uint64_t base; /* of the first byte shown */
};

static int see(void *arg, char *data, uint64_t at, size_t bytes)
{
	struct sink *sink = arg;

	if (!sink->file) {
		pl_hexdump_print(&sink->dump, stdout, data, bytes, sink->base + at);
		return 0;
	}
	if (fwrite(data, 1, bytes, sink->file) == bytes)
		return 0;
	pl_message_error("%s: %s", sink->path, strerror(errno));
	return -EIO;
}

static int open_sink(struct sink *sink, const char *path)
{
	sink->path = path;
	if (!path)
		return 0;
	sink->file = strcmp(path, "-") != 0 ? fopen(path, "we") : stdout;
	if (!sink->file) {
		pl_message_error("%s: %s", path, strerror(errno));
		return -errno;
	}
	return 0;
}

static int close_sink(struct sink *sink)
{
	if (!sink->file || sink->file == stdout)
		return 0;
	if (!fclose(sink->file))
		return 0;
	pl_message_error("%s: %s", sink->path, strerror(errno));
	return -EIO;
}

static int read_blocks(struct pl_drive *d, const struct read_args *a)
{
	uint32_t block_bytes = d->ns_info.block_bytes;
	struct sink sink = { .base = a->block * block_bytes };
	struct pl_sweep sweep = {
		.drive = d,
		.opcode = PL_NVME_READ,
		.what = "read",
		.block = a->block,
		.nr_blocks = a->count,
		.see = see,
		.arg = &sink,
	};
	int err, close_err;

	if (!pl_drive_has(d, a->block, a->count))
		return -ERANGE;
	err = open_sink(&sink, a->output);
	if (err)
		return err;
	err = pl_sweep_run(&sweep);
	if (!err && !a->output)
		pl_hexdump_end(stdout, (a->block + a->count) * block_bytes);
	close_err = close_sink(&sink);
	if (err && a->output && strcmp(a->output, "-") != 0)
		pl_message_error("%s: holds the first %llu bytes only", a->output,
				 (unsigned long long)sweep.done_bytes);
	return err ? err : close_err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct read_args args = { .want.nsid = 1, .count = 1 };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);
	struct pl_drive drive;

	if (first < 0)
		return status;
	pl_stop_catch();
	if (pl_drive_open_ns(&drive, argv[first], &args.want))
		return 1;
	err = read_blocks(&drive, &args);
	pl_drive_close(&drive);
	return pl_stop_exit(err);
}

const struct pl_command pl_command_nvme_read = {
	.name = "nvme read",
	.summary = "Read blocks into a file, or show them.",
	.args = "[options] ADDRESS",
	.detail = "Reads blocks of a namespace. They go to a file, or are shown in hexadecimal, "
		  "where a line like the one before is not repeated.",
	.exits = "0  read\n"
		 "1  an error; the output holds what came before it\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
