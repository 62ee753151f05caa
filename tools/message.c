/* SPDX-License-Identifier: MIT */
/* What the tool says on standard error. */
#include "message.h"

#include "progress.h"

#include <stdarg.h>
#include <stdio.h>

static const char *name;

void pl_message_name(const char *command)
{
	name = command;
}

__attribute__((format(printf, 2, 0))) static void say(const char *kind, const char *fmt, va_list ap)
{
	pl_progress_clear();
	fflush(stdout);
	fprintf(stderr, "peerlane%s%s: %s", name ? " " : "", name ? name : "", kind);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

void pl_message_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
}

void pl_message_warning(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("warning: ", fmt, ap);
	va_end(ap);
}
