/* SPDX-License-Identifier: MIT */
/* Options of a sub-command: one table serves parsing, --help and completion. */
#ifndef PL_OPTION_H
#define PL_OPTION_H

#include <stddef.h>
#include <stdint.h>

enum pl_option_kind {
	PL_OPTION_FLAG,	   /* bool: set */
	PL_OPTION_UNFLAG,  /* bool: cleared */
	PL_OPTION_TEXT,	   /* const char * */
	PL_OPTION_CHOICE,  /* const char *: one of the words of .arg, parted by | */
	PL_OPTION_COUNT,   /* unsigned int */
	PL_OPTION_COUNTS,  /* struct pl_option_list */
	PL_OPTION_SIZE,	   /* uint64_t */
	PL_OPTION_SIZES,   /* struct pl_option_list */
	PL_OPTION_DECIMAL, /* double */
};

#define PL_OPTION_LIST_MAX 32

struct pl_option_list {
	unsigned int nr;
	uint64_t values[PL_OPTION_LIST_MAX];
};

struct pl_option {
	const char *name; /* NULL ends the table */
	enum pl_option_kind kind;
	size_t offset; /* where the value goes in the command's argument struct */
	const char *arg;
	const char *help;
	double min, max; /* of numbers; max 0 means no limit */
};

struct pl_command {
	const char *name;
	const char *summary; /* one line, for the list of commands */
	const char *args;    /* such as "[options] FILE" */
	const char *detail;
	const char *exits; /* exit status, one line each */
	const struct pl_option *options;
	unsigned int min_args, max_args;
	int (*run)(const struct pl_command *self, int argc, char **argv);
	/* Commands of its own, ended by NULL, named "COMMAND SUB"; instead of options, or beside them:
	 * then a first word that names none is an argument. */
	const struct pl_command *const *subs;
};

#define PL_EXIT_USAGE 2

/*
 * Fills the struct at args. Returns the index of the first argument that is no option; -1 when
 * the command is over and *status is its exit status (--help, or a mistake, which was named).
 */
int pl_option_parse(const struct pl_command *cmd, int argc, char **argv, void *args, int *status);

void pl_option_help(const struct pl_command *cmd);

#endif
