/* SPDX-License-Identifier: MIT */
/* Options of a sub-command: one table serves parsing, --help and completion. */
#include "option.h"

#include "human.h"
#include "message.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 40
#define HELP_COLUMN 28
#define HELP_WIDTH 80

static bool has_arg(const struct pl_option *o)
{
	return o->kind != PL_OPTION_FLAG && o->kind != PL_OPTION_UNFLAG;
}

/* A bound, as the user would write it. */
static struct pl_human bound(const struct pl_option *o, double value)
{
	struct pl_human h;

	if (o->kind == PL_OPTION_SIZE || o->kind == PL_OPTION_SIZES)
		return pl_human_short((uint64_t)value);
	snprintf(h.text, sizeof(h.text), "%.15g", value);
	return h;
}

static int check_range(const struct pl_option *o, const char *text, double value)
{
	if (value >= o->min && (o->max <= 0 || value <= o->max))
		return 0;
	if (o->max > 0)
		pl_message_error("--%s: '%s' is not between %s and %s", o->name, text,
				 bound(o, o->min).text, bound(o, o->max).text);
	else
		pl_message_error("--%s: '%s' is less than %s", o->name, text,
				 bound(o, o->min).text);
	return -ERANGE;
}

static int parse_size(const struct pl_option *o, const char *text, uint64_t *out)
{
	int err = pl_human_parse(text, out);

	if (err == -ERANGE)
		pl_message_error("--%s: '%s' is too large", o->name, text);
	else if (err)
		pl_message_error("--%s: '%s' is not a size (write 4096, 4K, 1.5G, 2MiB or 10MB)",
				 o->name, text);
	return err ? err : check_range(o, text, (double)*out);
}

static int parse_count(const struct pl_option *o, const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end) {
		pl_message_error("--%s: '%s' is not a number", o->name, text);
		return -EINVAL;
	}
	if (o->max <= 0 && (errno || *out > UINT32_MAX)) {
		pl_message_error("--%s: '%s' is too large", o->name, text);
		return -ERANGE;
	}
	return check_range(o, text, errno ? (double)UINT64_MAX : (double)*out);
}

static int parse_decimal(const struct pl_option *o, const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	if (*text < '0' || *text > '9' || *end) {
		pl_message_error("--%s: '%s' is not a number", o->name, text);
		return -EINVAL;
	}
	return check_range(o, text, *out);
}

static int parse_choice(const struct pl_option *o, const char *text, const char **out)
{
	size_t len = strlen(text);

	for (const char *word = o->arg; word; word = strchr(word, '|')) {
		word += *word == '|';
		if (len && strcspn(word, "|") == len && !strncmp(word, text, len)) {
			*out = text;
			return 0;
		}
	}
	pl_message_error("--%s: '%s' is not one of %s", o->name, text, o->arg);
	return -EINVAL;
}

static int parse_list(const struct pl_option *o, const char *text, struct pl_option_list *out)
{
	struct pl_option_list list = { 0 };
	char item[32];
	int err = 0;

	for (;; text++) {
		size_t len = strcspn(text, ",");

		if (list.nr == PL_OPTION_LIST_MAX) {
			pl_message_error("--%s: more than %d values", o->name, PL_OPTION_LIST_MAX);
			return -E2BIG;
		}
		snprintf(item, sizeof(item), "%.*s", (int)(len < 31 ? len : 31), text);
		if (o->kind == PL_OPTION_SIZES)
			err = parse_size(o, item, &list.values[list.nr++]);
		else
			err = parse_count(o, item, &list.values[list.nr++]);
		text += len;
		if (err || !*text)
			break;
	}
	if (!err)
		*out = list;
	return err;
}

static int store(const struct pl_option *o, const char *text, void *where)
{
	uint64_t number;
	int err;

	switch (o->kind) {
	case PL_OPTION_FLAG:
	case PL_OPTION_UNFLAG:
		*(bool *)where = o->kind == PL_OPTION_FLAG;
		return 0;
	case PL_OPTION_TEXT:
		*(const char **)where = text;
		return 0;
	case PL_OPTION_CHOICE:
		return parse_choice(o, text, where);
	case PL_OPTION_SIZE:
		return parse_size(o, text, where);
	case PL_OPTION_DECIMAL:
		return parse_decimal(o, text, where);
	case PL_OPTION_COUNT:
		err = parse_count(o, text, &number);
		if (!err)
			*(unsigned int *)where = (unsigned int)number;
		return err;
	case PL_OPTION_COUNTS:
	case PL_OPTION_SIZES:
		return parse_list(o, text, where);
	}
	return -EINVAL;
}

static int usage(const struct pl_command *cmd)
{
	fprintf(stderr, "usage: peerlane %s %s\nTry 'peerlane %s --help'.\n", cmd->name, cmd->args,
		cmd->name);
	return PL_EXIT_USAGE;
}

static int check_nr_args(const struct pl_command *cmd, int argc, char **argv)
{
	unsigned int nr = (unsigned int)(argc - optind);

	if (nr < cmd->min_args)
		pl_message_error("%s", nr ? "an argument is missing" : "arguments are missing");
	else if (nr > cmd->max_args)
		pl_message_error("unexpected argument '%s'", argv[optind + (int)cmd->max_args]);
	else
		return 0;
	return -EINVAL;
}

/* Do several options begin like this one? */
static bool is_ambiguous(const struct option *longs, const char *word)
{
	size_t len = strcspn(word, "=");
	int nr = 0;

	for (; len > 2 && longs->name; longs++)
		nr += !strncmp(longs->name, word + 2, len - 2);
	return nr > 1;
}

int pl_option_parse(const struct pl_command *cmd, int argc, char **argv, void *args, int *status)
{
	struct option longs[OPTIONS_MAX + 2] = { { "help", no_argument, NULL, 'h' } };
	const struct pl_option *o = cmd->options;
	int c, index;

	for (int i = 0; i < OPTIONS_MAX && o[i].name; i++) {
		longs[i + 1].name = o[i].name;
		longs[i + 1].has_arg = has_arg(&o[i]) ? required_argument : no_argument;
		/* Of options that are alike in all this getopt would take the first. */
		longs[i + 1].val = 256 + i;
	}
	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, ":h", longs, &index)) != -1) {
		if (c == 'h') {
			pl_option_help(cmd);
			*status = 0;
			return -1;
		}
		if (c == ':' || c == '?') {
			pl_message_error(c == ':' ? "option '%s' needs an argument"
					 : is_ambiguous(longs, argv[optind - 1])
						 ? "option '%s' is ambiguous: write more of it"
						 : "unknown option '%s'",
					 argv[optind - 1]);
			*status = usage(cmd);
			return -1;
		}
		o = &cmd->options[index - 1];
		if (store(o, optarg, (char *)args + o->offset)) {
			*status = PL_EXIT_USAGE;
			return -1;
		}
	}
	if (check_nr_args(cmd, argc, argv)) {
		*status = usage(cmd);
		return -1;
	}
	return optind;
}

/* Text broken into lines of HELP_WIDTH, each but the first after indent spaces. */
static void wrap(const char *text, int indent)
{
	int column = indent;

	while (*text) {
		int len = (int)strcspn(text, " \n");

		if (column > indent && column + len > HELP_WIDTH) {
			printf("\n%*s", indent, "");
			column = indent;
		}
		printf("%.*s", len, text);
		column += len;
		text += len;
		if (*text == '\n') {
			printf("\n%*s", indent, "");
			column = indent;
			text++;
		} else if (*text) {
			text++;
			if (*text && column + 1 + (int)strcspn(text, " \n") <= HELP_WIDTH) {
				putchar(' ');
				column++;
			} else if (*text) {
				printf("\n%*s", indent, "");
				column = indent;
			}
		}
	}
	putchar('\n');
}

static void help_option(const char *name, const char *arg, const char *help)
{
	int len = printf("  --%s%s%s", name, arg ? " " : "", arg ? arg : "");

	if (len >= HELP_COLUMN)
		printf("\n%*s", HELP_COLUMN, "");
	else
		printf("%*s", HELP_COLUMN - len, "");
	wrap(help, HELP_COLUMN);
}

static void help_subs(const struct pl_command *cmd)
{
	puts("\nCommands:");
	for (const struct pl_command *const *sub = cmd->subs; *sub; sub++)
		printf("  %-10s%s\n", strrchr((*sub)->name, ' ') + 1, (*sub)->summary);
	printf("\n'peerlane help %s COMMAND' prints more.\n", cmd->name);
}

void pl_option_help(const struct pl_command *cmd)
{
	printf("usage: peerlane %s %s\n\n", cmd->name, cmd->args);
	wrap(cmd->detail, 0);
	if (cmd->subs)
		help_subs(cmd);
	if (!cmd->run)
		return;
	puts("\nOptions:");
	for (const struct pl_option *o = cmd->options; o->name; o++)
		help_option(o->name, o->arg, o->help);
	help_option("help", NULL, "Print this text.");
	printf("\nExit status:\n  ");
	wrap(cmd->exits, 2);
}
