/* SPDX-License-Identifier: MIT */
/* peerlane check --cufile: the effective configuration of libcufile.so.0, read as it reads it. */
#include "cufile.h"

#include "../cufile/config.h"

#include <inttypes.h>
#include <string.h>

/* The name of a setting: its key, or the variable of one that has none. */
static const char *name_of(enum pl_cf_id id)
{
	return pl_cf_settings[id].key ? pl_cf_settings[id].key : pl_cf_settings[id].env;
}

static struct json_object *value_of(const struct pl_cf_config *c, enum pl_cf_id id, char *text,
				    size_t bytes)
{
	const struct pl_cf_value *v = &c->values[id];

	switch (pl_cf_settings[id].kind) {
	case PL_CF_TEXT:
		snprintf(text, bytes, "%s", v->text[0] ? v->text : "(none)");
		return json_object_new_string(v->text);
	case PL_CF_SWITCH:
		snprintf(text, bytes, "%s", v->number ? "true" : "false");
		return json_object_new_boolean(v->number != 0);
	default:
		if (v->number == UINT64_MAX)
			snprintf(text, bytes, "-1");
		else
			snprintf(text, bytes, "%" PRIu64, v->number);
		return v->number == UINT64_MAX ? json_object_new_int(-1)
					       : json_object_new_int64((int64_t)v->number);
	}
}

static void report_setting(struct pl_report *r, const struct pl_cf_config *c, enum pl_cf_id id,
			   struct json_object *list)
{
	struct json_object *o = json_object_new_object();
	const char *origin = pl_cf_config_origin(c, id);
	char text[300];

	json_object_object_add(o, "key", json_object_new_string(name_of(id)));
	json_object_object_add(o, "value", value_of(c, id, text, sizeof(text)));
	json_object_object_add(o, "from", json_object_new_string(origin));
	json_object_object_add(o, "use", json_object_new_string(pl_cf_settings[id].use));
	json_object_array_add(list, o);
	pl_report_label(r, name_of(id), "%s, from %s: %s", text,
			strcmp(origin, "built in") ? origin : "the preset", pl_cf_settings[id].use);
}

static void report_slabs(struct pl_report *r, const char *key, const struct pl_cf_slabs *s,
			 const char *file)
{
	char text[512] = "";

	for (unsigned int i = 0; i < s->nr; i++) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof(text) - len, "%s%" PRIu64 " x %" PRIu64 " KiB",
			 i ? ", " : "", s->count[i], s->kb[i]);
	}
	pl_report_text(r, key, key, "%s, from %s: reported only, the engine has its own pool", text,
		       s->source == PL_CF_FILE ? file : "the preset");
}

static void report_warnings(struct pl_report *r, const struct pl_cf_config *c)
{
	struct json_object *list = json_object_new_array();

	for (unsigned int i = 0; i < c->nr_warnings && i < PL_CF_MAX_WARNINGS; i++) {
		json_object_array_add(list, json_object_new_string(c->warnings[i]));
		pl_report_label(r, "warning", "%s", c->warnings[i]);
	}
	pl_report_value(r, "warnings", list, NULL, " ");
}

void pl_cufile_report(struct pl_report *r)
{
	struct json_object *list = json_object_new_array();
	static struct pl_cf_config c;

	pl_cf_config_load(&c);
	pl_report_section(r, "cufile", "libcufile.so.0");
	for (int i = 0; i < PL_CF_NR; i++)
		pl_report_width(r, strlen(name_of((enum pl_cf_id)i)));
	pl_report_text(r, "file_name", "file", "%s", c.file[0] ? c.file : "none");
	report_warnings(r, &c);
	for (int i = 0; i < PL_CF_NR; i++)
		report_setting(r, &c, (enum pl_cf_id)i, list);
	pl_report_value(r, "settings", list, NULL, " ");
	report_slabs(r, "posix_pool_slab", &c.posix, c.file);
	report_slabs(r, "gpu_bounce_buffer_slab", &c.bounce, c.file);
}
