/* SPDX-License-Identifier: MIT */
/* Facts in sections, each told once and shown as aligned text or as JSON. */
#ifndef PL_REPORT_H
#define PL_REPORT_H

#include "jsonout.h"

struct pl_report {
	struct json_object *root;
	struct json_object *section; /* owned by root */
	FILE *text;
	int width; /* of the labels of this section */
	char *buf;
	size_t len;
};

/* Returns 0 or -ENOMEM. */
int pl_report_init(struct pl_report *r);
void pl_report_fini(struct pl_report *r);

/* What follows belongs to this section: an object of the JSON, a heading of the text. */
void pl_report_section(struct pl_report *r, const char *key, const char *title);
/* The same, but one of a list of such objects. */
void pl_report_item(struct pl_report *r, const char *key, const char *title);
/* The labels of this section are up to this long. */
void pl_report_width(struct pl_report *r, size_t longest);

/* A fact that reads the same for people and programs. */
void pl_report_text(struct pl_report *r, const char *key, const char *label, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A fact with its own JSON value, which the report takes; label NULL keeps it out of the text. */
void pl_report_value(struct pl_report *r, const char *key, struct json_object *value,
		     const char *label, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* A line of text only: with a label of its own, or under the last one. */
void pl_report_label(struct pl_report *r, const char *label, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void pl_report_note(struct pl_report *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void pl_report_print_text(struct pl_report *r, FILE *out);
void pl_report_print_json(struct pl_report *r, FILE *out);

#endif
