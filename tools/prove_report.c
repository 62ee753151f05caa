/* SPDX-License-Identifier: MIT */
/* The report of prove: one line a check, on the screen and in the file as it comes. */
#include "prove.h"

#include "error.h"
#include "message.h"
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = { "PASS", "FAIL", "NOTE" };

int pl_prove_report_open(struct pl_prove_report *r, const char *path, bool json)
{
	int err = pl_prove_scrub_init(&r->scrub);

	r->path = path;
	r->quiet = json;
	r->root = json_object_new_object();
	r->checks = json_object_new_array();
	r->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (r->fd < 0) {
		err = -errno;
		pl_message_error("%s: %s", path,
				 err == -EEXIST ? "exists already; name another with --report"
						: pl_error_open(path, -err));
	} else if (err || !r->root || !r->checks) {
		pl_message_error("out of memory");
		err = err ? err : -ENOMEM;
	}
	return err;
}

void pl_prove_report_close(struct pl_prove_report *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	json_object_put(r->root);
	json_object_put(r->checks);
	pl_prove_scrub_fini(&r->scrub);
}

/* On the disk before the next check begins: a machine that stops leaves a report all the same. */
static void put(struct pl_prove_report *r, const char *text)
{
	size_t bytes = strlen(text);
	ssize_t n;

	pl_progress_clear();
	if (!r->quiet) {
		fputs(text, stdout);
		fflush(stdout);
	}
	while (bytes && r->fd >= 0) {
		n = write(r->fd, text, bytes);
		if (n <= 0) {
			pl_message_error("%s: %s", r->path, strerror(n ? errno : ENOSPC));
			break;
		}
		text += n;
		bytes -= (size_t)n;
	}
	if (r->fd >= 0)
		fdatasync(r->fd);
}

/* What may be told of a text: one line, scrubbed. The caller frees it. */
__attribute__((format(printf, 2, 0))) static char *format(const struct pl_prove_report *r,
							  const char *fmt, va_list ap)
{
	char *text = NULL, *clean;

	if (vasprintf(&text, fmt, ap) < 0)
		return NULL;
	clean = pl_prove_scrub_text(&r->scrub, text);
	free(text);
	return clean;
}

void pl_prove_report_text(struct pl_prove_report *r, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = format(r, fmt, ap);
	va_end(ap);
	if (text) {
		put(r, text);
		put(r, "\n");
	}
	free(text);
}

static void add_json(struct pl_prove_report *r, enum pl_prove_result result, const char *name,
		     const char *fix, const char *text)
{
	struct json_object *o = json_object_new_object();

	pl_jsonout_add_text(o, "name", name);
	pl_jsonout_add_text(o, "result", words[result]);
	pl_jsonout_add_text(o, "text", text);
	pl_jsonout_add_text(o, "fix", fix ? fix : "");
	r->lines = json_object_new_array();
	json_object_object_add(o, "lines", r->lines);
	json_object_array_add(r->checks, o);
}

void pl_prove_report_line(struct pl_prove_report *r, enum pl_prove_result result, const char *name,
			  const char *fix, const char *fmt, ...)
{
	char *text, *line = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = format(r, fmt, ap);
	va_end(ap);
	r->counts[result]++;
	fix = fix && *fix ? fix : NULL;
	if (!text || asprintf(&line, "%s %s: %s%s%s\n", words[result], name, text,
			      fix ? "; fix: " : "", fix ? fix : "") < 0)
		line = NULL;
	if (line) {
		put(r, line);
		add_json(r, result, name, fix, text);
	} else {
		pl_message_error("out of memory");
	}
	free(line);
	free(text);
}

void pl_prove_report_quote(struct pl_prove_report *r, const char *text)
{
	char *clean = pl_prove_scrub_text(&r->scrub, text);

	pl_prove_report_text(r, "     | %s", text);
	if (clean && r->lines)
		json_object_array_add(r->lines, json_object_new_string(clean));
	free(clean);
}
