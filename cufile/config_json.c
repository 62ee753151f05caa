// SPDX-License-Identifier: MIT
/* cufile.json: JSON with comments. What is not understood is named and passed over. */
#include "config.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

/* Keys of the other library that have no meaning here; a star is any one name. */
static const char *const silent_keys[] = {
	"properties.io_priority",
	"properties.gds_rdma_write_support",
	"properties.rdma_dev_addr_list",
	"properties.rdma_load_balancing_policy",
	"properties.rdma_dynamic_routing",
	"properties.rdma_dynamic_routing_order",
	"properties.rdma_peer_type",
	"properties.rdma_peer_affinity_policy",
	"properties.rdma_transport_type",
	"properties.rdma_topN_ranks",
	"properties.rdma_dc_key",
	"properties.rdma_access_mask",
	"fs.generic.posix_unaligned_writes",
	"fs.*.posix_gds_min_kb",
	"fs.*.rdma_dev_addr_list",
	"fs.*.mount_table",
	"fs.*.rdma_write_support",
	"fs.*.gds_write_support",
	"fs.*.gds_async_support",
	"fs.*.use_pci_p2pdma",
	"block.*.use_pci_p2pdma",
	"denylist.drivers",
	"denylist.devices",
	"denylist.mounts",
	"denylist.filesystems",
	"blacklist.drivers",
	"blacklist.devices",
	"blacklist.mounts",
	"blacklist.filesystems",
	"miscellaneous.enable_static_routing",
	"miscellaneous.static_routing_filepath",
	"sparse.min_p2pdma_threshold_kb",
	"sparse.p2p_compat_enable",
};

static bool matches(const char *pattern, const char *key)
{
	while (*pattern) {
		if (*pattern == '*') {
			key += strcspn(key, ".");
			pattern++;
		} else if (*pattern++ != *key++) {
			return false;
		}
	}
	return !*key;
}

static bool is_silent(const char *key)
{
	for (size_t i = 0; i < sizeof(silent_keys) / sizeof(silent_keys[0]); i++)
		if (matches(silent_keys[i], key))
			return true;
	return false;
}

/* Whether @o can be a value of this kind; then it is in @v. */
static bool convert(enum pl_cf_id id, struct json_object *o, struct pl_cf_value *v)
{
	enum json_type type = json_object_get_type(o);
	const char *text;
	int64_t n;

	switch (pl_cf_settings[id].kind) {
	case PL_CF_TEXT:
		text = json_object_get_string(o);
		return type == json_type_string &&
		       snprintf(v->text, sizeof(v->text), "%s", text) < (int)sizeof(v->text) &&
		       (id != PL_CF_LOG_LEVEL || pl_cf_level_of(text) != PL_CF_NR_LEVELS);
	case PL_CF_SWITCH:
		n = json_object_get_int64(o);
		v->number = type == json_type_boolean ? json_object_get_boolean(o) : n == 1;
		return type == json_type_boolean || (type == json_type_int && (n == 0 || n == 1));
	default:
		n = json_object_get_int64(o);
		v->number = n < 0 ? UINT64_MAX : json_object_get_uint64(o);
		return type == json_type_int && n >= (id == PL_CF_LOG_MAX_MB ? -1 : 0) &&
		       pl_cf_config_fits(id, v->number);
	}
}

static void take(struct pl_cf_config *c, enum pl_cf_id id, const char *key, struct json_object *o)
{
	struct pl_cf_value v = { .source = PL_CF_FILE };

	if (convert(id, o, &v))
		c->values[id] = v;
	else
		pl_cf_config_warn(c, "%s: \"%.60s\" cannot be %.60s and is ignored", c->file,
				  json_object_to_json_string(o), key);
}

/* One of the two arrays of a pool. */
static bool take_array(struct json_object *o, uint64_t *out, unsigned int *nr)
{
	size_t len = json_object_is_type(o, json_type_array) ? json_object_array_length(o) : 0;

	if (!len || len > PL_CF_MAX_SLABS)
		return false;
	for (size_t i = 0; i < len; i++) {
		struct json_object *one = json_object_array_get_idx(o, i);

		if (!json_object_is_type(one, json_type_int) || json_object_get_int64(one) <= 0)
			return false;
		out[i] = (uint64_t)json_object_get_int64(one);
	}
	*nr = (unsigned int)len;
	return true;
}

/* Both arrays must be there and of one length. */
static void take_slabs(struct pl_cf_config *c, struct json_object *in, const char *kb_key,
		       const char *count_key, struct pl_cf_slabs *out)
{
	struct pl_cf_slabs s = { .source = PL_CF_FILE };
	struct json_object *kb = NULL, *count = NULL;
	unsigned int nr;

	json_object_object_get_ex(in, kb_key, &kb);
	json_object_object_get_ex(in, count_key, &count);
	if (!kb && !count)
		return;
	if (take_array(kb, s.kb, &s.nr) && take_array(count, s.count, &nr) && nr == s.nr)
		*out = s;
	else
		pl_cf_config_warn(c, "%s: %s and %s do not go together and are ignored", c->file,
				  kb_key, count_key);
}

static bool is_pool(const char *key)
{
	return !strncmp(key, "properties.posix_pool_slab_", 27) ||
	       !strncmp(key, "properties.gpu_bounce_buffer_slab_config", 40);
}

static void leaf(struct pl_cf_config *c, const char *key, struct json_object *o)
{
	if (is_pool(key))
		return;
	for (int i = 0; i < PL_CF_NR; i++) {
		const struct pl_cf_setting *s = &pl_cf_settings[i];

		if (s->key && (!strcmp(s->key, key) || (s->alias && !strcmp(s->alias, key)))) {
			take(c, (enum pl_cf_id)i, key, o);
			return;
		}
	}
	if (!is_silent(key))
		pl_cf_config_warn(c, "%s: unknown key \"%.100s\"", c->file, key);
}

static void walk(struct pl_cf_config *c, struct json_object *o, const char *prefix)
{
	char key[256];
	int n;

	json_object_object_foreach(o, name, value)
	{
		n = snprintf(key, sizeof(key), "%s%s%s", prefix, *prefix ? "." : "", name);
		if (n < 0 || n >= (int)sizeof(key))
			pl_cf_config_warn(c, "%s: a key is too long", c->file);
		else if (json_object_is_type(value, json_type_object))
			walk(c, value, key);
		else
			leaf(c, key, value);
	}
}

void pl_cf_json_read(struct pl_cf_config *c, const char *text, size_t bytes)
{
	struct json_tokener *tok = json_tokener_new();
	struct json_object *root, *properties, *bounce;

	if (!tok)
		return;
	root = json_tokener_parse_ex(tok, text, (int)bytes);
	/* A number at the end of the text is only over when the text is. */
	if (json_tokener_get_error(tok) == json_tokener_continue)
		root = json_tokener_parse_ex(tok, "", 1);
	if (json_tokener_get_error(tok) != json_tokener_success) {
		pl_cf_config_warn(c, "%s: not JSON, at byte %zu: %s", c->file,
				  json_tokener_get_parse_end(tok),
				  json_tokener_error_desc(json_tokener_get_error(tok)));
	} else if (!json_object_is_type(root, json_type_object)) {
		pl_cf_config_warn(c, "%s: not an object", c->file);
	} else {
		walk(c, root, "");
		if (json_object_object_get_ex(root, "properties", &properties) &&
		    json_object_is_type(properties, json_type_object)) {
			take_slabs(c, properties, "posix_pool_slab_size_kb",
				   "posix_pool_slab_count", &c->posix);
			if (json_object_object_get_ex(properties, "gpu_bounce_buffer_slab_config",
						      &bounce) &&
			    json_object_is_type(bounce, json_type_object))
				take_slabs(c, bounce, "slab_size_kb", "slab_count", &c->bounce);
		}
	}
	json_object_put(root);
	json_tokener_free(tok);
}
