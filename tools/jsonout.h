/* SPDX-License-Identifier: MIT */
/* JSON as every command prints it. The keys are listed in peerlane-json(5). */
#ifndef PL_JSONOUT_H
#define PL_JSONOUT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A measured value: six significant figures, no exponent; null if it is not finite. */
struct json_object *pl_jsonout_number(double value);

/* Add a member to an object. */
void pl_jsonout_add_number(struct json_object *o, const char *key, double value);
void pl_jsonout_add_count(struct json_object *o, const char *key, uint64_t value);
void pl_jsonout_add_text(struct json_object *o, const char *key, const char *value);
void pl_jsonout_add_flag(struct json_object *o, const char *key, bool value);
/* "path_bytes": bytes by path, PEERLANE_PATH_NR of them. */
void pl_jsonout_add_paths(struct json_object *o, const uint64_t *bytes);

/* The one spacing: a member a line; or all on one line, for output that goes on. */
void pl_jsonout_print(struct json_object *o, FILE *out);
void pl_jsonout_print_line(struct json_object *o, FILE *out);

#endif
