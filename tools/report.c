/* SPDX-License-Identifier: MIT */
/* Facts in sections, each told once and shown as aligned text or as JSON. */
#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_WIDTH 16
#define VALUE_WIDTH 512

int pl_report_init(struct pl_report *r)
{
	memset(r, 0, sizeof(*r));
	r->root = json_object_new_object();
	r->text = open_memstream(&r->buf, &r->len);
	if (!r->root || !r->text) {
		pl_report_fini(r);
		return -ENOMEM;
	}
	r->section = r->root;
	r->width = LABEL_WIDTH;
	return 0;
}

void pl_report_fini(struct pl_report *r)
{
	if (r->text)
		fclose(r->text);
	free(r->buf);
	json_object_put(r->root);
	memset(r, 0, sizeof(*r));
}

static void heading(struct pl_report *r, const char *title)
{
	r->width = LABEL_WIDTH;
	if (title)
		fprintf(r->text, "%s%s\n", ftell(r->text) > 0 ? "\n" : "", title);
}

void pl_report_section(struct pl_report *r, const char *key, const char *title)
{
	r->section = json_object_new_object();
	json_object_object_add(r->root, key, r->section);
	heading(r, title);
}

void pl_report_item(struct pl_report *r, const char *key, const char *title)
{
	struct json_object *list;

	if (!json_object_object_get_ex(r->root, key, &list)) {
		list = json_object_new_array();
		json_object_object_add(r->root, key, list);
	}
	r->section = json_object_new_object();
	json_object_array_add(list, r->section);
	heading(r, title);
}

void pl_report_width(struct pl_report *r, size_t longest)
{
	if ((int)longest >= r->width)
		r->width = (int)longest + 1;
}

void pl_report_text(struct pl_report *r, const char *key, const char *label, const char *fmt, ...)
{
	char value[VALUE_WIDTH];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	json_object_object_add(r->section, key, json_object_new_string(value));
	if (label)
		fprintf(r->text, "  %-*s %s\n", r->width - 1, label, value);
}

__attribute__((format(printf, 3, 0))) static void line(struct pl_report *r, const char *label,
						       const char *fmt, va_list ap)
{
	fprintf(r->text, "  %-*s ", r->width - 1, label);
	vfprintf(r->text, fmt, ap);
	fputc('\n', r->text);
}

void pl_report_value(struct pl_report *r, const char *key, struct json_object *value,
		     const char *label, const char *fmt, ...)
{
	va_list ap;

	json_object_object_add(r->section, key, value);
	va_start(ap, fmt);
	if (label)
		line(r, label, fmt, ap);
	va_end(ap);
}

void pl_report_label(struct pl_report *r, const char *label, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line(r, label, fmt, ap);
	va_end(ap);
}

void pl_report_note(struct pl_report *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line(r, "", fmt, ap);
	va_end(ap);
}

void pl_report_print_text(struct pl_report *r, FILE *out)
{
	fflush(r->text);
	fputs(r->buf, out);
}

void pl_report_print_json(struct pl_report *r, FILE *out)
{
	pl_jsonout_print(r->root, out);
}
