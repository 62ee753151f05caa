/* SPDX-License-Identifier: MIT */
/* JSON as every command prints it. The keys are listed in peerlane-json(5). */
#include "jsonout.h"

#include <math.h>
#include <peerlane/peerlane.h>
#include <string.h>

#define FIGURES 6

/* Digits after the point that leave FIGURES significant ones. */
static int decimals(double value)
{
	int places = value != 0 ? FIGURES - 1 - (int)floor(log10(fabs(value))) : 0;

	return places < 0 ? 0 : places > 30 ? 30 : places;
}

struct json_object *pl_jsonout_number(double value)
{
	char text[400];
	char *end;

	if (!isfinite(value))
		return NULL;
	/* Rounds large values, too, which have no digits after the point to leave out. */
	snprintf(text, sizeof(text), "%.*e", FIGURES - 1, value);
	value = strtod(text, NULL);
	snprintf(text, sizeof(text), "%.*f", decimals(value), value);
	if (strchr(text, '.')) {
		end = text + strlen(text);
		while (end[-1] == '0')
			*--end = '\0';
		if (end[-1] == '.')
			end[-1] = '\0';
	}
	return json_object_new_double_s(value, text);
}

void pl_jsonout_add_number(struct json_object *o, const char *key, double value)
{
	json_object_object_add(o, key, pl_jsonout_number(value));
}

void pl_jsonout_add_count(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

void pl_jsonout_add_text(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

void pl_jsonout_add_flag(struct json_object *o, const char *key, bool value)
{
	json_object_object_add(o, key, json_object_new_boolean(value));
}

void pl_jsonout_add_paths(struct json_object *o, const uint64_t *bytes)
{
	struct json_object *paths = json_object_new_object();

	for (int i = 0; i < PEERLANE_PATH_NR; i++)
		pl_jsonout_add_count(paths, peerlane_path_name((enum peerlane_path)i), bytes[i]);
	json_object_object_add(o, "path_bytes", paths);
}

static void print(struct json_object *o, FILE *out, int style)
{
	style |= JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE;
	fprintf(out, "%s\n", json_object_to_json_string_ext(o, style));
}

void pl_jsonout_print(struct json_object *o, FILE *out)
{
	print(o, out, JSON_C_TO_STRING_PRETTY);
}

void pl_jsonout_print_line(struct json_object *o, FILE *out)
{
	print(o, out, 0);
}
