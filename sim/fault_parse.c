// SPDX-License-Identifier: MIT
/* Parses lines of fault scripts. */
#include "fault_parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name {
	const char *name;
	int value;
};

static const struct name actions[] = {
	{ "drop", PL_SN_DROP },	      { "hold", PL_SN_HOLD },
	{ "delay", PL_SN_DELAY },     { "reorder", PL_SN_REORDER },
	{ "status", PL_SN_STATUS },   { "stuck-ready", PL_SN_STUCK_READY },
	{ "fatal", PL_SN_FATAL },     { "remove", PL_SN_REMOVE },
	{ "corrupt", PL_SN_CORRUPT }, { "duplicate", PL_SN_DUPLICATE },
	{ "torn", PL_SN_TORN },	      { NULL, 0 },
};

static const struct name moments[] = {
	{ "command", PL_SN_ON_COMMAND },
	{ "enable", PL_SN_ON_ENABLE },
	{ "disable", PL_SN_ON_DISABLE },
	{ "shutdown", PL_SN_ON_SHUTDOWN },
	{ NULL, 0 },
};

static const struct name fields[] = {
	{ "cid", PL_SN_FIELD_CID },
	{ "sqid", PL_SN_FIELD_SQID },
	{ "sqhd", PL_SN_FIELD_SQHD },
	{ "phase", PL_SN_FIELD_PHASE },
	{ "status", PL_SN_FIELD_STATUS },
	{ "result", PL_SN_FIELD_RESULT },
	{ NULL, 0 },
};

static const struct name admin_opcodes[] = {
	{ "delete-sq", PL_NVME_ADMIN_DELETE_SQ },
	{ "create-sq", PL_NVME_ADMIN_CREATE_SQ },
	{ "get-log", PL_NVME_ADMIN_GET_LOG_PAGE },
	{ "delete-cq", PL_NVME_ADMIN_DELETE_CQ },
	{ "create-cq", PL_NVME_ADMIN_CREATE_CQ },
	{ "identify", PL_NVME_ADMIN_IDENTIFY },
	{ "abort", PL_NVME_ADMIN_ABORT },
	{ "set-features", PL_NVME_ADMIN_SET_FEATURES },
	{ "get-features", PL_NVME_ADMIN_GET_FEATURES },
	{ "async-event", PL_NVME_ADMIN_ASYNC_EVENT },
	{ "dbbuf", PL_NVME_ADMIN_DBBUF },
	{ NULL, 0 },
};

static const struct name io_opcodes[] = {
	{ "flush", PL_NVME_FLUSH },
	{ "write", PL_NVME_WRITE },
	{ "read", PL_NVME_READ },
	{ "compare", PL_NVME_COMPARE },
	{ "write-zeroes", PL_NVME_WRITE_ZEROES },
	{ "dsm", PL_NVME_DSM },
	{ NULL, 0 },
};

static int find(const struct name *names, const char *word)
{
	for (; names->name; names++)
		if (!strcmp(names->name, word))
			return names->value;
	return -1;
}

static bool number(const char *text, uint64_t most, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return !errno && !*end && *out <= most;
}

static bool set_opcode(struct pl_sn_rule *rule, const char *value)
{
	uint64_t n;

	rule->opcode = find(io_opcodes, value);
	if (rule->opcode >= 0) {
		rule->kind = PL_SN_IO;
		return true;
	}
	rule->opcode = find(admin_opcodes, value);
	if (rule->opcode >= 0) {
		rule->kind = PL_SN_ADMIN;
		return true;
	}
	if (!number(value, 0xff, &n))
		return false;
	rule->opcode = (int)n;
	return true;
}

static bool set_queue(struct pl_sn_rule *rule, const char *value)
{
	uint64_t n;

	if (!strcmp(value, "admin")) {
		rule->kind = PL_SN_ADMIN;
	} else if (!strcmp(value, "io")) {
		rule->kind = PL_SN_IO;
	} else {
		if (!number(value, 0xffff, &n))
			return false;
		rule->queue = (int)n;
	}
	return true;
}

static bool set_on(struct pl_sn_rule *rule, const char *value)
{
	int on = find(moments, value);

	rule->on = (enum pl_sn_moment)on;
	return on >= 0;
}

static bool set_field(struct pl_sn_rule *rule, const char *value)
{
	int field = find(fields, value);

	rule->field = (enum pl_sn_field)field;
	if (field == PL_SN_FIELD_PHASE)
		rule->value = PL_NVME_CQE_PHASE;
	return field >= 0;
}

/* Keys whose value is a number. */
static uint64_t *number_of(struct pl_sn_rule *rule, const char *key)
{
	if (!strcmp(key, "nth"))
		return &rule->nth;
	if (!strcmp(key, "every"))
		return &rule->every;
	if (!strcmp(key, "count"))
		return &rule->count;
	if (!strcmp(key, "steps"))
		return &rule->steps;
	if (!strcmp(key, "window"))
		return &rule->window;
	if (!strcmp(key, "blocks"))
		return &rule->blocks;
	if (!strcmp(key, "value"))
		return &rule->value;
	if (!strcmp(key, "lba")) {
		rule->has_lba = true;
		return &rule->lba;
	}
	return NULL;
}

/* 1 done, 0 a wrong value, -1 no such key */
static int set_key(struct pl_sn_rule *rule, const char *key, const char *value)
{
	uint64_t *to = number_of(rule, key), n = 0;

	if (to)
		return number(value, UINT64_MAX, to);
	if (!strcmp(key, "opcode"))
		return set_opcode(rule, value);
	if (!strcmp(key, "queue"))
		return set_queue(rule, value);
	if (!strcmp(key, "on"))
		return set_on(rule, value);
	if (!strcmp(key, "field"))
		return set_field(rule, value);
	if (!strcmp(key, "nsid")) {
		if (!number(value, UINT32_MAX, &n))
			return 0;
		rule->nsid = (uint32_t)n;
		return 1;
	}
	if (!strcmp(key, "code")) {
		if (!number(value, 0x7ff, &n))
			return 0;
		rule->code = (uint32_t)n;
		return 1;
	}
	if (!strcmp(key, "dnr") || !strcmp(key, "more")) {
		if (!number(value, 1, &n))
			return 0;
		*(*key == 'd' ? &rule->dnr : &rule->more) = n;
		return 1;
	}
	return -1;
}

static bool fits(const struct pl_sn_rule *rule)
{
	switch (rule->action) {
	case PL_SN_STUCK_READY:
		return rule->on == PL_SN_ON_ENABLE || rule->on == PL_SN_ON_DISABLE;
	case PL_SN_DELAY:
		return rule->on == PL_SN_ON_COMMAND || rule->on == PL_SN_ON_ENABLE;
	case PL_SN_FATAL:
	case PL_SN_REMOVE:
		return true;
	default:
		return rule->on == PL_SN_ON_COMMAND;
	}
}

int pl_sn_fault_parse(char *line, struct pl_sn_rule *rule, char *why, size_t why_bytes)
{
	char *save, *word, *comment = strchr(line, '#');
	int action, rc;

	if (comment)
		*comment = '\0';
	word = strtok_r(line, " \t\r", &save);
	if (!word)
		return 0;
	action = find(actions, word);
	if (action < 0) {
		snprintf(why, why_bytes, "no fault \"%s\"", word);
		return -EINVAL;
	}
	*rule = (struct pl_sn_rule){
		.action = (enum pl_sn_action)action,
		.on = action == PL_SN_STUCK_READY ? PL_SN_ON_ENABLE : PL_SN_ON_COMMAND,
		.opcode = -1,
		.queue = -1,
		.steps = 1000,
		.window = 2,
		.code = PL_NVME_SC_INTERNAL,
		.value = 0x5a5a,
	};
	while ((word = strtok_r(NULL, " \t\r", &save))) {
		char *value = strchr(word, '=');

		if (!value) {
			snprintf(why, why_bytes, "\"%s\" is not key=value", word);
			return -EINVAL;
		}
		*value++ = '\0';
		rc = set_key(rule, word, value);
		if (rc <= 0) {
			snprintf(why, why_bytes, "%s \"%s\"", rc ? "no key" : "wrong value of",
				 word);
			return -EINVAL;
		}
	}
	if (!fits(rule)) {
		snprintf(why, why_bytes, "%s cannot happen then", actions[action].name);
		return -EINVAL;
	}
	if (rule->action == PL_SN_REORDER && (rule->window < 2 || rule->window > 4096)) {
		snprintf(why, why_bytes, "wrong value of \"window\"");
		return -EINVAL;
	}
	return 1;
}
