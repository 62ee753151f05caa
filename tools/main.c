/* SPDX-License-Identifier: MIT */
/* The peerlane tool: one program, several sub-commands. */
#include "commands.h"
#include "message.h"

#include <errno.h>
#include <peerlane/peerlane.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct pl_command *const commands[] = {
	&pl_command_check, &pl_command_bench, &pl_command_cp,	 &pl_command_stat,
	&pl_command_model, &pl_command_nvme,  &pl_command_prove,
};

#define NR_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct pl_command *find(const char *name)
{
	for (size_t i = 0; i < NR_COMMANDS; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

/* The sub-command of a command that has some. */
static const struct pl_command *find_sub(const struct pl_command *cmd, const char *name)
{
	for (const struct pl_command *const *sub = cmd->subs; sub && *sub; sub++)
		if (!strcmp(strrchr((*sub)->name, ' ') + 1, name))
			return *sub;
	return NULL;
}

static void help(FILE *out)
{
	fputs("usage: peerlane COMMAND [options]\n\n"
	      "Moves data between files and GPU memory, and says how and how fast.\n\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < NR_COMMANDS; i++)
		fprintf(out, "  %-10s%s\n", commands[i]->name, commands[i]->summary);
	fputs("  help      Print this text, or that of 'help COMMAND'.\n\n"
	      "Options:\n"
	      "  --help    Print this text.\n"
	      "  --version Print the version.\n",
	      out);
}

/* "model" once that command has been found: whose help has the names that are known. */
static const char *known_by = "";

static int unknown(const char *kind, const char *name)
{
	pl_message_error("unknown %s '%s'", kind, name);
	fprintf(stderr, "Try 'peerlane %s%s--help'.\n", known_by, *known_by ? " " : "");
	return PL_EXIT_USAGE;
}

static int help_command(int argc, char **argv)
{
	const struct pl_command *cmd;

	if (argc < 2) {
		help(stdout);
		return 0;
	}
	cmd = find(argv[1]);
	if (!cmd)
		return unknown("command", argv[1]);
	for (int i = 2; cmd->subs && i < argc; i++) {
		cmd = find_sub(cmd, argv[i]);
		if (!cmd)
			return unknown("command", argv[i]);
	}
	pl_option_help(cmd);
	return 0;
}

static int run(const struct pl_command *cmd, int argc, char **argv)
{
	const struct pl_command *sub = cmd->subs && argc >= 2 ? find_sub(cmd, argv[1]) : NULL;

	pl_message_name(cmd->name);
	known_by = cmd->name;
	if (sub)
		return run(sub, argc - 1, argv + 1);
	if (cmd->run)
		return cmd->run(cmd, argc, argv);
	if (argc < 2) {
		pl_message_error("a command is missing");
		fprintf(stderr, "Try 'peerlane %s --help'.\n", cmd->name);
		return PL_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		pl_option_help(cmd);
		return 0;
	}
	if (find_sub(cmd, "file") && !access(argv[1], F_OK)) {
		pl_message_error("'%s' is no command; 'peerlane %s file %s' reads that file",
				 argv[1], cmd->name, argv[1]);
		return PL_EXIT_USAGE;
	}
	return unknown("command", argv[1]);
}

static int dispatch(int argc, char **argv)
{
	const struct pl_command *cmd;

	if (argc < 2) {
		help(stderr);
		return PL_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("peerlane %d.%d.%d\n", PEERLANE_VERSION_MAJOR, PEERLANE_VERSION_MINOR,
		       PEERLANE_VERSION_PATCH);
		return 0;
	}
	if (!strcmp(argv[1], "help"))
		return help_command(argc - 1, argv + 1);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help_command(1, argv);
	if (argv[1][0] == '-')
		return unknown("option", argv[1]);
	cmd = find(argv[1]);
	if (!cmd)
		return unknown("command", argv[1]);
	return run(cmd, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int status = dispatch(argc, argv);

	/* Output that could not be written is a failure, as on a full disk. */
	if (fflush(stdout) || ferror(stdout)) {
		pl_message_error("standard output: %s", strerror(errno));
		return status ? status : PL_EXIT_USAGE;
	}
	return status;
}
